"""A request body over the limit is refused, by its declared length at once and by its real one while it arrives."""

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from middleware.replies import send_refusal


class BodyLimitMiddleware:
    """*max_bytes* bounds what a client can make us hold. The answer is 413 ``payload_too_large``."""

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
        # Without "connection: close": the server would cut a client that still sends, before it could read the reason.
        await send_refusal(send, 413, "payload_too_large", self._text())

    def _text(self) -> str:
        return f"The request body is larger than {self._max_bytes} bytes"
