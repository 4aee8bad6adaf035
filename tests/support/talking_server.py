"""A real MCP server over HTTP that talks while a call runs. ``python -m tests.support.talking_server [--sse]``

It prints its address. ``tell`` sends progress and log messages, ``ask`` asks the person behind the call, ``hang`` never
answers, ``left`` says how often that was cancelled, ``headers`` shows the headers of its request, ``big`` fills a page.
"""

import contextlib
import json
import socket
import sys
from collections.abc import AsyncIterator
from typing import Any

import anyio
import uvicorn
from mcp import types as t
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.sse import SseServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

REGION = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
SCHEMAS: dict[str, dict[str, Any]] = {
    name: {"type": "object"} for name in ("tell", "ask", "hang", "left", "headers", "big")
}
SCHEMAS["headers"] = REGION
FORM = {"type": "object", "properties": {"name": {"type": "string"}}}

left: list[int] = []

Ctx = ServerRequestContext[Any, Any]


async def list_tools(ctx: Ctx, params: object) -> t.ListToolsResult:
    wrong = {"type": "object", "properties": {"a": {"type": "number", "x-mcp-header": "A"}}}
    tools = [t.Tool(name=name, description="d", input_schema=schema) for name, schema in SCHEMAS.items()]
    return t.ListToolsResult(tools=[*tools, t.Tool(name="wrong", description="d", input_schema=wrong)])


async def call_tool(ctx: Ctx, params: t.CallToolRequestParams) -> t.CallToolResult | t.InputRequiredResult:
    shown: Any = None
    match params.name:
        case "tell":
            for number in (1, 2, 3):
                await ctx.session.report_progress(number, 3, f"step {number}")
                message = t.LoggingMessageNotificationParams(level="info", data=number, logger="talk")
                news = t.LoggingMessageNotification(params=message)
                await ctx.session.send_notification(news, related_request_id=ctx.request_id)
        case "ask":
            form = t.ElicitRequestFormParams(message="Who?", requested_schema=FORM)
            if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
                if not params.input_responses:
                    return t.InputRequiredResult(
                        input_requests={"who": t.ElicitRequest(params=form)}, request_state="somewhere"
                    )
                answer = params.input_responses["who"]
            else:
                answer = await ctx.session.elicit_form("Who?", FORM, ctx.request_id)
            shown = answer.model_dump(by_alias=True, exclude_none=True)
        case "hang":
            try:
                await ctx.session.report_progress(0)
                await anyio.sleep_forever()
            finally:
                left.append(1)
        case "left":
            shown = len(left)
        case "headers":
            shown = dict(ctx.request.headers) if ctx.request is not None else {}
        case "big":
            shown = "z" * (params.arguments or {})["bytes"]
    text = t.TextContent(type="text", text=json.dumps(shown)[:100])
    return t.CallToolResult(content=[text], structured_content={"value": shown})


def main(*options: str) -> None:
    server: Server[Any] = Server(
        "talking", on_list_tools=list_tools, on_call_tool=call_tool, get_tool_input_schema=SCHEMAS.get
    )
    app = _over_sse(server) if "--sse" in options else _over_http(server)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        path = "sse" if "--sse" in options else "mcp"
        print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}/{path}", flush=True)
        config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1)
        uvicorn.Server(config).run(sockets=[listener])


def _over_http(server: "Server[Any]") -> Starlette:
    manager = StreamableHTTPSessionManager(server)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    return Starlette(routes=[Route("/mcp", endpoint=StreamableHTTPASGIApp(manager))], lifespan=lifespan)


def _over_sse(server: "Server[Any]") -> Starlette:
    transport = SseServerTransport("/messages/")

    async def listen(request: Request) -> Response:
        async with transport.connect_sse(request.scope, request.receive, request._send) as (read, write):
            await server.run(read, write, server.create_initialization_options())
        return Response()

    return Starlette(routes=[Route("/sse", endpoint=listen), Mount("/messages/", app=transport.handle_post_message)])


if __name__ == "__main__":
    main(*sys.argv[1:])
