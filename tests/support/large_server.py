"""A server over stdio of the handshake era whose tool gives a large text: ``python -m tests.support.large_server``.

It answers one request after the other, and keeps no answer in memory.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

LARGE_BYTES = 15_000_000
TOOL = {"name": "large", "description": "Read much.", "inputSchema": {}, "annotations": {"readOnlyHint": True}}
TOOL["inputSchema"] = {"type": "object", "properties": {"bytes": {"type": "integer"}}}
_PIECE = b"word and " * 10_000


def answer(asked: dict[str, Any]) -> Iterator[bytes]:
    """The answer in pieces."""
    result: dict[str, Any] = {}
    match asked["method"]:
        case "initialize":
            info = {"name": "large", "version": "1"}
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            result = {"tools": [TOOL]}
        case "tools/call":
            result = {"content": [{"type": "text", "text": "@"}]}
    before, _, after = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}).encode().partition(b"@")
    yield before
    if after:
        yield from [_PIECE] * (asked["params"]["arguments"].get("bytes", LARGE_BYTES) // len(_PIECE))
        yield after


def main() -> None:
    for line in sys.stdin.buffer:
        asked = json.loads(line)
        if "id" in asked:
            pieces = [*answer(asked), b"\n"]
            if asked.get("params", {}).get("arguments", {}).get("unfinished"):
                pieces = pieces[:-2]
            sys.stdout.buffer.writelines(pieces)
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
