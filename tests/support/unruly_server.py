"""A server written by hand that misbehaves as it is told. ``python -m tests.support.unruly_server [--modern] [...]``

Its tools, besides what their names say: ``say`` writes the given ``lines`` as they are (Latin-1, ``{id}`` becomes the
JSON id of the call), ``seen`` answers with all messages that came so far. ``--modern`` speaks 2026-07-28, and the tool
``wants`` then asks for input until it has it. ``--strict`` ends when the first message is not ``initialize``,
``--banner`` writes a greeting first, ``--tools N`` lists so many more, ``--endless`` never stops paging.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

NAMES = ["echo", "say", "seen", "hang", "crash", "answer_and_crash", "stop_reading", "stderr", "ask", "tell", "large"]
NAMES += ["child", "wants", "pid"]
VERSION = "2025-06-18"

seen: list[dict[str, Any]] = []


def tool(name: str) -> dict[str, Any]:
    return {"name": name, "description": "d", "inputSchema": {"type": "object"}}


def write(message: dict[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    sys.stdout.buffer.flush()


def text(value: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": json.dumps(value)}], "structuredContent": {"value": value}}


def messages() -> Iterator[dict[str, Any]]:
    for line in sys.stdin:
        message = json.loads(line)
        seen.append(message)
        yield message


def main() -> None:
    options = sys.argv[1:]
    if "--banner" in options:
        print("Server starting v1.0", flush=True)
    incoming = messages()
    for message in incoming:
        if "--strict" in options and len(seen) == 1 and message["method"] != "initialize":
            sys.exit(1)
        if "id" in message and "method" in message:
            answer(message, options, incoming)


def answer(message: dict[str, Any], options: list[str], incoming: Iterator[dict[str, Any]]) -> None:
    match message["method"]:
        case "server/discover" if "--modern" in options:
            versions = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "ttlMs": 0}
            write({"id": message["id"], "result": {**versions, "resultType": "complete", "cacheScope": "private"}})
        case "initialize":
            info = {
                "protocolVersion": VERSION,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "u", "version": "0"},
            }
            write({"id": message["id"], "result": info})
        case "tools/list":
            write({"id": message["id"], "result": listing(message.get("params", {}), options)})
        case "tools/call":
            call(message["id"], message["params"], incoming)
        case _:
            write({"id": message["id"], "error": {"code": -32601, "message": "no such method"}})


def listing(params: dict[str, Any], options: list[str]) -> dict[str, Any]:
    if "--endless" in options:
        page = int(params.get("cursor", 0))
        return {"tools": [tool(f"tool_{page}")], "nextCursor": str(page + 1)}
    more = int(options[options.index("--tools") + 1]) if "--tools" in options else 0
    return {"tools": [tool(name) for name in NAMES] + [tool(f"tool_{number}") for number in range(more)]}


def call(request_id: Any, params: dict[str, Any], incoming: Iterator[dict[str, Any]]) -> None:
    arguments = params.get("arguments") or {}
    result: Any = text(arguments)
    match params["name"]:
        case "hang":
            return
        case "crash":
            os._exit(3)
        case "answer_and_crash":
            write({"id": request_id, "result": result})
            os._exit(3)
        case "stop_reading":
            signal.pause()
        case "say":
            for line in arguments["lines"]:
                sys.stdout.buffer.write(line.replace("{id}", json.dumps(request_id)).encode("latin-1") + b"\n")
            sys.stdout.buffer.flush()
            return
        case "seen":
            result = text(seen)
        case "stderr":
            sys.stderr.write("x" * arguments["bytes"] + "\n")
            sys.stderr.flush()
        case "large":
            result = {"content": [{"type": "text", "text": "y" * arguments["bytes"]}]}
        case "pid":
            result = text(os.getpid())
        case "child":
            waiting = [sys.executable, "-c", "import signal; signal.pause()"]
            child = subprocess.Popen(waiting, stdin=subprocess.DEVNULL)
            result = text(child.pid)
        case "tell":
            token = params.get("_meta", {}).get("progressToken")
            for number in range(1, arguments["times"] + 1):
                if token is not None:
                    progress = {"progressToken": token, "progress": number, "total": arguments["times"]}
                    write({"method": "notifications/progress", "params": progress})
                write({"method": "notifications/message", "params": {"level": "info", "data": number, "logger": "u"}})
        case "ask":
            question = {"id": arguments.get("id", 77), "method": arguments["method"]}
            write({**question, "params": {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}})
            if arguments.get("withdraw"):
                write({"method": "notifications/cancelled", "params": {"requestId": question["id"]}})
            else:
                while (reply := next(incoming)).get("id") != question["id"] or "method" in reply:
                    pass
                result = text({key: reply[key] for key in ("result", "error") if key in reply})
        case "wants":
            given = params.get("inputResponses", {})
            if len(given) < len(arguments["keys"]) or arguments.get("more"):
                ask = {"message": "Who?", "mode": "form", "requestedSchema": {"type": "object", "properties": {}}}
                asks = {key: {"method": arguments["method"], "params": ask} for key in arguments["keys"]}
                result = {"resultType": "input_required", "inputRequests": asks, "requestState": "state é"}
            else:
                result = text({"given": given, "state": params.get("requestState")})
    write({"id": request_id, "result": result})


if __name__ == "__main__":
    main()
