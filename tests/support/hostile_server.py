"""An MCP server over stdio that tries what it should not be able to do. No import of any package: it is quick to start.

Each tool returns what came of it as text.
"""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path


def read(path: str) -> str:
    return Path(path).read_text()


def write(path: str, megabytes: int = 0) -> str:
    with Path(path).open("wb") as file:
        for _ in range(megabytes or 1):
            file.write(b"x" * (2**20 if megabytes else 1))
    return "written"


def connect(port: int) -> str:
    socket.create_connection(("127.0.0.1", port), timeout=2).close()
    return "connected"


def fork(times: int) -> str:
    children = []
    try:
        for _ in range(times):
            children.append(subprocess.Popen(["/bin/sleep", "60"]))
    except OSError as error:
        return f"{len(children)} children, then {type(error).__name__}"
    return f"{len(children)} children"


def allocate(megabytes: int) -> str:
    held = [bytearray(2**20) for _ in range(megabytes)]
    return f"{len(held)} MiB"


def processes() -> str:
    return " ".join(each.name for each in Path("/proc").iterdir() if each.name.isdigit())


def kill(process: int) -> str:
    os.kill(process, 9)
    return "killed"


TOOLS = {each.__name__: each for each in (read, write, connect, fork, allocate, processes, kill)}


def answer(message: dict) -> dict | None:  # type: ignore[type-arg]
    params = message.get("params") or {}
    match message.get("method"):
        case "initialize":
            info = {"name": "hostile", "version": "1"}
            return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]}
        case "tools/call":
            try:
                text, failed = TOOLS[params["name"]](**params.get("arguments", {})), False
            except (OSError, MemoryError) as error:
                text, failed = type(error).__name__, True
            return {"content": [{"type": "text", "text": text}], "isError": failed}
        case "ping":
            return {}
    return None


for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        result = answer(asked)
        body = {"result": result} if result is not None else {"error": {"code": -32601, "message": "no such method"}}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **body}) + "\n")
        sys.stdout.flush()
