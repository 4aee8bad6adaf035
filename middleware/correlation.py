"""Gives every request its correlation id and one log line with the client's address (OPS-14,
ACCESS-31).

The id is that of ``X-Correlation-ID`` if it is well formed, otherwise a new one. The engine's route replaces it with
``metadata.correlation_id`` after reading the body; the response header and the log line show the replaced one.
"""

import logging
import time
from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from wicketgate.log_text import HEADER, correlation_id, is_correlation_id

log = logging.getLogger("wicketgate.http")

_PATH_CHARS = 256
_HEADER = HEADER.lower().encode()


class CorrelationMiddleware:
    """``scope["state"]["correlation_id"]`` holds the current id. *measure* gets path, status (0 for no answer) and the
    seconds until the answer began."""

    def __init__(
        self, app: ASGIApp, new_id: Callable[[], str], measure: Callable[[str, int, float], None] = lambda *_: None
    ) -> None:
        self._app = app
        self._new_id = new_id
        self._measure = measure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        state = scope.setdefault("state", {})
        state["correlation_id"] = _sent(scope) or self._new_id()
        token = correlation_id.set(state["correlation_id"])
        status, began_s = 0, 0.0
        started = time.monotonic()

        # Returns the awaitable and awaits nothing itself: one frame less for each delta of a stream.
        def send_with_id(message: Message) -> Awaitable[None]:
            nonlocal status, began_s
            if message["type"] == "http.response.start":
                status, began_s = message["status"], time.monotonic() - started
                message["headers"] = [*message["headers"], (_HEADER, state["correlation_id"].encode())]
            return send(message)

        try:
            await self._app(scope, receive, send_with_id)
        finally:
            correlation_id.set(state["correlation_id"])
            client = scope.get("client")
            took_s = time.monotonic() - started
            took_ms = round(took_s * 1000, 1)
            self._measure(scope["path"], status, began_s if status else took_s)
            log.info(
                "%s %s %s",
                scope["method"],
                scope["path"][:_PATH_CHARS],
                status or "no response",
                extra={"fields": {"status": status, "duration_ms": took_ms, "client": client[0] if client else ""}},
            )
            correlation_id.reset(token)


def _sent(scope: Scope) -> str:
    """The id that came with the request; empty if there is none, or the first is not well formed."""
    for key, value in scope["headers"]:
        if key == _HEADER:
            sent: str = value.strip().decode("latin-1")
            return sent if is_correlation_id(sent) else ""
    return ""
