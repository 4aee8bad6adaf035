"""A tool server of the soak. Its one tool answers with a mark that only this very call can have as its answer.

``python -m bench.soak_server NAME`` speaks stdio by hand, as small servers do, and the handshake era only; ``--sdk``
uses the official SDK (both eras), ``--http PORT`` serves that over streamable HTTP on the loopback, and ``--rest PORT``
is no MCP server at all, but the HTTP service of ``openapi_document``.
"""

import argparse
import asyncio
import hashlib
import json
import sys
from typing import Any

LARGE = 8_000


def tool_name(server: str) -> str:
    return f"mark_{server}"


def mark(server: str, caller: str, number: int) -> str:
    digest = hashlib.sha256(f"{server}/{caller}/{number}".encode()).hexdigest()[:16]
    return f"{server}/{caller}/{number}/{digest}"


def answer(server: str, caller: str, number: int, chars: int) -> str:
    """The mark first, then as much of a text as is asked for."""
    return mark(server, caller, number) + "\n" + "a line that nobody needs to read\n" * (chars // 33)


def definition(server: str) -> dict[str, Any]:
    whole = {"type": "integer", "minimum": 0}
    properties = {"caller": {"type": "string"}, "number": whole, "pause_ms": whole, "chars": whole}
    return {
        "name": tool_name(server),
        "description": f"Give back the mark of {server} for a caller and a number, after a pause.",
        "inputSchema": {"type": "object", "properties": properties, "required": ["caller", "number"]},
        "annotations": {"readOnlyHint": True},
    }


async def call(server: str, caller: str, number: int, pause_ms: int = 0, chars: int = 0) -> str:
    await asyncio.sleep(pause_ms / 1_000)
    return answer(server, caller, number, chars)


class ByHand:
    """JSON-RPC on lines: what is asked at once is answered at once, in any order."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._running: dict[Any, asyncio.Task[None]] = {}

    async def serve(self) -> None:
        reader = asyncio.StreamReader(limit=2**20)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            message = json.loads(line)
            match message.get("method"):
                case "tools/call":
                    number = message["id"]
                    self._running[number] = asyncio.create_task(self._call(number, message["params"]["arguments"]))
                case "notifications/cancelled":
                    if task := self._running.pop(message["params"]["requestId"], None):
                        task.cancel()
                case method if "id" in message:
                    _write(self._answer(message["id"], method, message.get("params") or {}))

    def _answer(self, number: Any, method: str, params: dict[str, Any]) -> dict[str, Any]:
        match method:
            case "initialize":
                result: dict[str, Any] = {
                    "protocolVersion": params["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": self._server, "version": "1"},
                }
            case "tools/list":
                result = {"tools": [definition(self._server)]}
            case "ping":
                result = {}
            case _:
                return {"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "Method not found"}}
        return {"jsonrpc": "2.0", "id": number, "result": result}

    async def _call(self, number: Any, arguments: dict[str, Any]) -> None:
        text = await call(self._server, **arguments)
        self._running.pop(number, None)
        _write({"jsonrpc": "2.0", "id": number, "result": {"content": [{"type": "text", "text": text}]}})


def _write(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def with_sdk(server: str, port: int | None) -> None:
    """Imported only here: what the SDK brings takes most of a second to start."""
    import anyio
    from mcp import types as t
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server

    async def list_tools(ctx: "ServerRequestContext[Any]", params: object) -> t.ListToolsResult:
        return t.ListToolsResult(tools=[t.Tool.model_validate(definition(server), by_name=False)])

    async def call_tool(ctx: "ServerRequestContext[Any]", params: t.CallToolRequestParams) -> t.CallToolResult:
        text = await call(server, **(params.arguments or {}))
        return t.CallToolResult(content=[t.TextContent(type="text", text=text)])

    made: Server[Any] = Server(
        server,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        get_tool_input_schema=lambda name: definition(server)["inputSchema"],
    )
    if port is not None:
        _over_http(made, port)
        return

    async def over_stdio() -> None:
        async with stdio_server() as (read, write):
            await made.run(read, write, made.create_initialization_options())

    anyio.run(over_stdio)


def _over_http(made: Any, port: int) -> None:
    import socket
    from collections.abc import AsyncIterator
    from contextlib import asynccontextmanager

    import uvicorn
    from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
    from starlette.applications import Starlette
    from starlette.routing import Route

    manager = StreamableHTTPSessionManager(made)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    app = Starlette(routes=[Route("/mcp", endpoint=StreamableHTTPASGIApp(manager))], lifespan=lifespan)
    with socket.create_server(("127.0.0.1", port)) as listener:
        uvicorn.Server(uvicorn.Config(app, log_level="critical", access_log=False)).run(sockets=[listener])


def openapi_document(server: str) -> dict[str, Any]:
    schema = definition(server)["inputSchema"]
    parameters = [
        {"name": name, "in": "query", "required": name in schema["required"], "schema": kind}
        for name, kind in schema["properties"].items()
    ]
    answers = {"200": {"description": "The mark.", "content": {"text/plain": {"schema": {"type": "string"}}}}}
    get = {
        "operationId": tool_name(server),
        "summary": definition(server)["description"],
        "parameters": parameters,
        "responses": answers,
    }
    return {"openapi": "3.1.0", "info": {"title": server, "version": "1"}, "paths": {"/mark": {"get": get}}}


def as_http_service(server: str, port: int) -> None:
    import socket
    from urllib.parse import parse_qsl

    import uvicorn

    async def app(scope: Any, receive: Any, send: Any) -> None:
        query = dict(parse_qsl(scope["query_string"].decode()))
        text = await call(server, query.pop("caller"), **{name: int(value) for name, value in query.items()})
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": text.encode()})

    with socket.create_server(("127.0.0.1", port)) as listener:
        uvicorn.Server(uvicorn.Config(app, lifespan="off", log_level="critical")).run(sockets=[listener])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--sdk", action="store_true")
    parser.add_argument("--http", type=int, metavar="PORT")
    parser.add_argument("--rest", type=int, metavar="PORT")
    given = parser.parse_args()
    if given.rest is not None:
        as_http_service(given.name, given.rest)
    elif given.sdk or given.http is not None:
        with_sdk(given.name, given.http)
    else:
        asyncio.run(ByHand(given.name).serve())
