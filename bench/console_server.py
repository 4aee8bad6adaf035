"""A server of so many tools over stdio, for ``bench.console``: ``python console_server.py TOOLS NUMBER``."""

import json
import sys
from typing import Any

VERBS = ("get", "list", "add", "drop", "merge", "tag", "find", "print", "send", "void")


def tools(count: int, number: int) -> list[dict[str, Any]]:
    nouns = [f"{chr(97 + at // 26)}{chr(97 + at % 26)}thing" for at in range(-(-count // len(VERBS)))]
    names = [f"{verb}_{noun}" for noun in nouns for verb in VERBS][:count]
    schema = {"type": "object", "properties": {"id": {"type": "string", "description": "Of what is meant."}}}
    return [
        {"name": name, "description": f"{name.replace('_', ' ').title()} of area {number}.", "inputSchema": schema}
        for name in names
    ]


def main() -> None:
    listed = tools(int(sys.argv[1]), int(sys.argv[2]))
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        answer: dict[str, Any] = {"error": {"code": -32601, "message": "no such method"}}
        if message["method"] == "initialize":
            info = {"capabilities": {"tools": {}}, "serverInfo": {"name": "area", "version": "1"}}
            answer = {"result": {"protocolVersion": "2025-11-25", **info}}
        elif message["method"] == "tools/list":
            answer = {"result": {"tools": listed}}
        elif message["method"] == "tools/call":
            answer = {"result": {"content": [{"type": "text", "text": "done"}]}}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
