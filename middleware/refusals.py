"""Answers in front of the routes: bodies over the limit, and exceptions that escape the application (EXEC-13).

Every refusal here has the shape ``{code, message}`` (CHAT-2 to CHAT-24).
"""

import json
import logging
from collections.abc import Awaitable, Iterable

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger("wicketgate.http")


async def send_refusal(
    send: Send, status: int, code: str, message: str, headers: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    body = json.dumps({"code": code, "message": message}).encode()
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [
                (b"content-type", b"application/json"),
                (b"content-length", str(len(body)).encode()),
                *headers,
            ],
        }
    )
    await send({"type": "http.response.body", "body": body})


class BodyLimitMiddleware:
    """Refuses a body over *max_bytes* with 413: by its declared length at once, by its real one while it arrives."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        declared = next((value for key, value in scope["headers"] if key == b"content-length"), b"0")
        if declared.isdigit() and int(declared) > self._max_bytes:
            return await self._refuse(send)
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            if message["type"] == "http.request":
                seen += len(message.get("body", b""))
                if seen > self._max_bytes:
                    raise HTTPException(413, self._text())
            return message

        await self._app(scope, counted, send)

    async def _refuse(self, send: Send) -> None:
        # Without "connection: close", which would cut a client that still sends before it could read the answer.
        await send_refusal(send, 413, "payload_too_large", self._text())

    def _text(self) -> str:
        return f"The request body is larger than {self._max_bytes} bytes"


class LastResortMiddleware:
    """Turns an exception that escapes the application into a plain 500. The cause goes to the log only."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        started = False

        # Returns the awaitable and awaits nothing itself: one frame less for each delta of a stream.
        def watched(message: Message) -> Awaitable[None]:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            return send(message)

        try:
            await self._app(scope, receive, watched)
        except ClientDisconnect:
            log.info("the client left before its request was whole")
        except Exception:
            log.exception("unhandled failure")
            if not started:
                await send_refusal(send, 500, "internal_error", "Internal error")
            # A response that has begun cannot become an error; the server closes it short, which clients notice.
