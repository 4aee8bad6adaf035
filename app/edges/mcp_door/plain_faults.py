"""Refusals of malformed messages over HTTP, in place of the SDK's own answers (gatekit G13 to G16, G38 to G43)."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.responses import JSONResponse

from app.edges.mcp_door.envelope import fault_of

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_SUSPECT = (202, 400)
"""The answers that the SDK gives to a message that it does not understand."""


class PlainFaults:
    """ASGI: an answer of *app* that may be to a malformed message is held back until the message was looked at."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        body: list[bytes] = []
        held: list[Message] = []
        passing = False

        async def keeping() -> Message:
            message = await receive()
            if message["type"] == "http.request":
                body.append(message.get("body", b""))
            return message

        async def holding(message: Message) -> None:
            nonlocal passing
            if passing:
                await send(message)
                return
            if message["type"] == "http.response.start" and message["status"] not in _SUSPECT:
                passing = True
                body.clear()
                await send(message)
                return
            held.append(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                passing = True
                fault = fault_of(b"".join(body)) if body else None
                if fault is not None:
                    await JSONResponse(fault.as_json(), 400)(scope, receive, send)
                    return
                for one in held:
                    await send(one)

        await self._app(scope, keeping, holding)
