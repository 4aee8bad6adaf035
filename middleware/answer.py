"""The answer to one request on its way out: the headers that every answer has, and what is noted of it."""

import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from starlette.types import Message, Scope, Send

from middleware.correlation import id_header
from middleware.refusals import Headers
from wicketgate.access.authenticator import KeyUse
from wicketgate.engine.limits import Drain

_CLOSE = (b"connection", b"close")


class WholeAnswer(Protocol):
    """A ``send`` that also takes an answer as a whole. One that a middleware has wrapped does not."""

    def respond(self, status: int, headers: Headers, body: bytes) -> None: ...


class Answer:
    """ASGI ``send`` of a request. *status* is 0 until the answer began, at the time *began*. It has headers *shown*.

    While the service stops, every answer closes its connection, so that clients and proxies go elsewhere with the next
    request.
    """

    __slots__ = ("_drain", "_scope", "_send", "began", "key_use", "shown", "status")

    def __init__(self, send: Send, scope: Scope, drain: Drain) -> None:
        self._send = send
        self._scope = scope
        self._drain = drain
        self.status = 0
        self.began = 0.0
        self.shown: Headers = ()
        self.key_use: KeyUse | None = None

    # Returns the awaitable and awaits nothing itself: one frame less for each delta of a stream.
    def __call__(self, message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            message["headers"] = self._begin(message["status"], message.get("headers", ()))
        return self._send(message)

    # Not kept: a method that its own object holds is a cycle, which each request would leave to the garbage collector.
    @property
    def respond(self) -> Callable[[int, Headers, bytes], None] | None:
        """Gives the whole answer at once; None if the server's own ``send`` cannot."""
        return self._respond if hasattr(self._send, "respond") else None

    def _respond(self, status: int, headers: Headers, body: bytes) -> None:
        whole: WholeAnswer = self._send  # type: ignore[assignment]
        whole.respond(status, self._begin(status, headers), body)

    def _begin(self, status: int, headers: Headers) -> list[tuple[bytes, bytes]]:
        self.status, self.began = status, time.monotonic()
        if self.key_use is not None:
            self.key_use.answering = True
        if self._drain.phase != "serving":
            headers = [*((name, value) for name, value in headers if name.lower() != b"connection"), _CLOSE]
        return [*headers, *self.shown, id_header(self._scope)]
