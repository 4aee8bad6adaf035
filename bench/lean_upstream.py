"""An MCP server over stdio that costs a tenth of one of the official SDK, so that a gateway in front of it can be kept
busy with the rest of the machine. Speaks the handshake era; its one tool is that of ``bench.execute_upstream``.
"""

import sys
from typing import Any

import msgspec

from bench.execute_upstream import SCHEMA, TOOL, text_of

_TOOLS = [{"name": TOOL, "description": "Fill a page with text.", "inputSchema": SCHEMA}]
_UNKNOWN = {"code": -32601, "message": "Method not found"}


def answer(message: dict[str, Any]) -> dict[str, Any] | None:
    """The reply to *message*; None to a notification."""
    if "id" not in message:
        return None
    reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
    match message.get("method"):
        case "initialize":
            server = {"name": "filler", "version": "1"}
            version = message["params"]["protocolVersion"]
            return {
                **reply,
                "result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server},
            }
        case "ping":
            return {**reply, "result": {}}
        case "tools/list":
            return {**reply, "result": {"tools": _TOOLS}}
        case "tools/call":
            text = text_of(**message["params"]["arguments"])
            return {**reply, "result": {"content": [{"type": "text", "text": text}], "isError": False}}
    return {**reply, "error": _UNKNOWN}


def main() -> None:
    decode, encode = msgspec.json.Decoder(dict[str, Any]).decode, msgspec.json.Encoder().encode
    for line in sys.stdin.buffer:
        if (reply := answer(decode(line))) is not None:
            sys.stdout.buffer.write(encode(reply) + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
