"""The command line of the inspector: each command is a process of its own, as in a shell."""

import asyncio
import json
import os
from typing import Any

from common import ERA, HEADERS, URL, serve

_NODE, _PROGRAM = os.environ["MCP_NODE"], os.environ["MCP_PROGRAM"]
_HOME = os.environ["MCP_HOME"]
_ERAS = {"2025": "legacy", "2026": "modern"}


async def run(method: str, *options: str) -> Any:
    """The result of one request. Raises RuntimeError with what the program wrote to stderr."""
    header = f"Authorization: {HEADERS['Authorization']}"
    line = ["--cli", "--server-url", URL, "--transport", "http", "--header", header, "--protocol-era", _ERAS[ERA]]
    process = await asyncio.create_subprocess_exec(
        *(_NODE, _PROGRAM, *line, "--method", method, *options, "--format", "json", "--quiet"),
        env={**os.environ, "HOME": _HOME},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await process.communicate()
    try:
        said = json.loads(out)
        return said.get("result", said)
    except ValueError:
        raise RuntimeError(f"exit {process.returncode}: {out.decode()[-500:]} {errors.decode()[-1500:]}") from None


async def do(order: dict[str, Any]) -> Any:
    match order["do"]:
        case "connect":
            return ERA
        case "list":
            return await run("tools/list")
        case "call":
            arguments = json.dumps(order["arguments"])
            said = await run("tools/call", "--tool-name", order["name"], "--tool-args-json", arguments)
            return {"result": said, "progress": 0, "asked": []}
        case "resources":
            return await run("resources/list")
        case "templates":
            return await run("resources/templates/list")
        case "read":
            return await run("resources/read", "--uri", order["uri"])
        case "prompts":
            return await run("prompts/list")
        case "prompt":
            pairs = [f"{name}={value}" for name, value in order["arguments"].items()]
            return await run("prompts/get", "--prompt-name", order["name"], "--prompt-args", *pairs)
        case unknown:
            raise NotImplementedError(unknown)


asyncio.run(serve(do))
