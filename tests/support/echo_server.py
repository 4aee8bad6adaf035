"""An MCP server over stdio whose tools show what reached them. ``python -m tests.support.echo_server [NAME]``

It answers as ``sdk_echo_server`` does, in both eras, and starts in a fiftieth of the time: the SDK takes a second.
"""

import json
import os
import sys
from typing import Any

TOOLS: list[dict[str, Any]] = [
    {
        "name": "echo",
        "description": "Give back the text, and the _meta that came with the call.",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    },
    {"name": "environment", "description": "Names of the environment variables.", "inputSchema": {"type": "object"}},
    {"name": "die", "description": "End this process at once.", "inputSchema": {"type": "object"}},
    {"name": "pid", "description": "The process id.", "inputSchema": {"type": "object"}},
    {"name": "sleep", "description": "Never answers.", "inputSchema": {"type": "object"}},
    {"name": "refuse", "description": "Answers with a protocol error.", "inputSchema": {"type": "object"}},
]
NAME = sys.argv[1] if sys.argv[1:] else "echo"
CAPABILITIES = {"tools": {"listChanged": False}}
KEPT = {"cacheScope": "private", "ttlMs": 0}
REFUSAL = (-32011, "not today\n" + "x" * 1000)


def shown(params: dict[str, Any]) -> dict[str, Any]:
    """The answer of a tool that answers."""
    match params["name"]:
        case "echo":
            return {"text": (params.get("arguments") or {}).get("text"), "meta": params.get("_meta", {})}
        case "environment":
            return {"names": sorted(os.environ)}
        case "pid":
            return {"pid": os.getpid()}
        case _:
            sys.stderr.write("giving up\n")
            sys.stderr.flush()
            os._exit(3)


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """The result or the error of one request; None for none at all."""
    modern = "io.modelcontextprotocol/protocolVersion" in params.get("_meta", {})
    of_the_server = {"resultType": "complete", "_meta": {"io.modelcontextprotocol/serverInfo": identity()}}
    always = of_the_server if modern else {}
    kept = KEPT if modern else {}
    match method:
        case "server/discover" if modern:
            return {"result": {"capabilities": CAPABILITIES, "supportedVersions": ["2026-07-28"], **KEPT, **always}}
        case "initialize":
            version = {"protocolVersion": "2025-11-25"}
            return {"result": {**version, "capabilities": CAPABILITIES, "serverInfo": identity()}}
        case "ping" if not modern:
            return {"result": {}}
        case "tools/list":
            return {"result": {"tools": TOOLS, **kept, **always}}
        case "tools/call" if params["name"] == "sleep":
            return None
        case "tools/call" if params["name"] == "refuse":
            return {"error": {"code": REFUSAL[0], "message": REFUSAL[1]}}
        case "tools/call":
            value = shown(params)
            content = [{"type": "text", "text": json.dumps(value)}]
            return {"result": {"content": content, "isError": False, "structuredContent": value, **always}}
        case _:
            return {"error": {"code": -32601, "message": "Method not found", "data": method}}


def identity() -> dict[str, str]:
    return {"name": NAME, "version": ""}


def main() -> None:
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" in message and (given := answer(message["method"], message.get("params") or {})) is not None:
            sys.stdout.buffer.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **given}).encode() + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
