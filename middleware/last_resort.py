"""Whatever escapes the application becomes one plain 500; the cause goes to the log only (S3)."""

import logging
from collections.abc import Awaitable

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from middleware.replies import send_refusal

log = logging.getLogger("wicketgate.http")


class LastResortMiddleware:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        started = False

        # Returns what is to be awaited, and awaits nothing itself: a frame less for each delta of a stream.
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
