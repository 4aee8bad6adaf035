"""A server over stdio of either era that notes what it is asked: ``python -m tests.support.bare_server OPTIONS``.

OPTIONS is JSON: ``instructions``, ``capabilities``, ``prompts``, ``resources``, ``templates``, ``tools`` and ``log``, a
file that gets the method of every request, one a line. The file ``options`` in ``log``'s place, with ``.json`` behind
it, may replace the options between two requests.
"""

import json
import sys
from pathlib import Path
from typing import Any

LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "templates",
}
_KEYS = {"templates": "resourceTemplates"}


def main() -> None:
    log = Path(sys.argv[1])
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked:
            continue
        options: dict[str, Any] = json.loads(log.with_suffix(".json").read_text())
        method = asked["method"]
        with log.open("a") as file:
            file.write(f"{method}\n")
        answer: dict[str, Any] = {"error": {"code": -32601, "message": "Method not found"}}
        if method == "initialize":
            answer = {
                "result": {
                    "protocolVersion": "2025-11-25",
                    "capabilities": options.get("capabilities", {"tools": {}}),
                    "serverInfo": {"name": "bare", "version": "1"},
                    "instructions": options.get("instructions", ""),
                }
            }
        elif method == "ping":
            answer = {"result": {}}
        elif method == "prompts/get":
            answer = {"result": {"messages": []}}
        elif method == "resources/read":
            uri = asked["params"]["uri"]
            answer = {"result": {"contents": [{"uri": uri, "text": "t"}]}}
        elif method in LISTS:
            key = LISTS[method]
            answer = {"result": {_KEYS.get(key, key): options.get(key, [])}}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)


if __name__ == "__main__":
    main()
