"""A server written by hand that lists bad definitions between good ones, and twins.

``python -m tests.support.odd_server``. Every call is answered with some 20 MB on one line.
"""

import json
import sys
from typing import Any

LARGE_TEXT = "é and\n" * 3_000_000

UNWIELDY = "".join(f"Q{i}z_x" for i in range(25))[:128]
"""A name that no card can hold beside a long namespace."""

TOOLS: list[Any] = [
    {"name": "first", "description": "A good tool.", "inputSchema": {"type": "object"}},
    {"description": "no name", "inputSchema": {"type": "object"}},
    {"name": "no_schema", "description": "no schema at all"},
    {"name": "schema_true", "inputSchema": True},
    {"name": "odd_properties", "inputSchema": {"type": "object", "properties": ["a"]}},
    {"name": "odd_annotations", "inputSchema": {"type": "object"}, "annotations": "x"},
    "not even an object",
    {"name": "last", "inputSchema": {"type": "object"}, "_meta": {"version": "2.1.0"}},
    {"name": "watch", "inputSchema": {"type": "object"}, "_meta": {"wicketgate/operation": "subscription"}},
    {"name": "first", "description": "A twin.", "inputSchema": {"type": "object"}},
    {"name": UNWIELDY, "description": "long " * 2_400, "inputSchema": {"type": "object"}},
]


def answer(method: str) -> dict[str, Any]:
    if method == "initialize":
        info = {"name": "odd", "version": "0"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    return {"tools": TOOLS}


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        if message["method"] == "tools/call":
            reply["result"] = {"content": [{"type": "text", "text": LARGE_TEXT}]}
        elif message["method"] in ("initialize", "tools/list"):
            reply["result"] = answer(message["method"])
        else:
            reply["error"] = {"code": -32601, "message": "no such method"}
        print(json.dumps(reply, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
