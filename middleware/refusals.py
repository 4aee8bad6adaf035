"""Answers in front of the routes: their shape, and bodies over the limit.

Every refusal here has the shape ``{code, message}`` (CHAT-2 to CHAT-24).
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Generator, Sequence
from typing import Any, NamedTuple

from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope, Send

from app.json_body import declared_bytes

Headers = Sequence[tuple[bytes, bytes]]

GRACE_S = 10.0
LEAST_BYTES_PER_S = 1_024


async def send_refusal(send: Send, status: int, code: str, message: str, headers: Headers = ()) -> None:
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


def closing_headers(scope: Scope) -> tuple[tuple[bytes, bytes], ...]:
    """Headers of a refusal after which the connection is not wanted. Later versions of HTTP know none."""
    return ((b"connection", b"close"),) if scope.get("http_version", "1.1").startswith("1.") else ()


class Refusal(NamedTuple):
    """The answer to a request that goes no further."""

    status: int
    code: str
    message: str
    headers: Headers = ()

    def send(self, send: Send) -> Awaitable[None]:
        return send_refusal(send, *self)


_BODY_S = 60.0
"""Longest wait for one body: 10 MiB arrive in that time at 1.4 Mbit/s."""


class BodyLimit:
    """Refuses a body over *max_bytes* with 413: by its declared length at once, by its real one while it arrives.

    A body that takes longer than *timeout_s*, or after ten seconds comes more slowly than 1 KiB a second, is refused
    with 408 (OPS-29). Only the time counts in which the application waits for it: a client whose body is not read yet
    cannot send it.
    """

    def __init__(self, max_bytes: int, timeout_s: float = _BODY_S) -> None:
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s

    def refusal(self, scope: Scope) -> Refusal | None:
        """Judges the declared length."""
        declared = declared_bytes(scope)
        if declared is None or declared <= self._max_bytes:
            return None
        # The port closes the connection in order; another server might cut a client that still sends.
        return Refusal(413, "payload_too_large", self._text())

    def counted(self, receive: Receive) -> Receive:
        """Returns the *receive* of a request that raises HTTPException beyond a bound."""
        seen = 0
        waited_s = 0.0
        whole = False

        async def counted() -> Message:
            nonlocal seen, waited_s, whole
            if whole:
                return await receive()
            steps = receive().__await__()
            try:
                waits_for = next(steps)
            except StopIteration as there:
                message: Message = there.value
            else:
                # Only what has not come yet is worth a deadline.
                started = time.monotonic()
                try:
                    async with asyncio.timeout(self._longest_wait_s(seen) - waited_s):
                        message = await _Begun(steps, waits_for)
                except TimeoutError:
                    raise HTTPException(408, "The request body did not arrive in time") from None
                waited_s += time.monotonic() - started
            whole = not message.get("more_body", False)
            if message["type"] == "http.request":
                seen += len(message.get("body", b""))
                if seen > self._max_bytes:
                    raise HTTPException(413, self._text())
            return message

        return counted

    def _longest_wait_s(self, seen: int) -> float:
        return min(self._timeout_s, max(GRACE_S, seen / LEAST_BYTES_PER_S))

    def _text(self) -> str:
        return f"The request body is larger than {self._max_bytes} bytes"


class _Begun(Awaitable[Message]):
    """The rest of an awaitable whose first step has been made: *waits_for* is what it waits for."""

    def __init__(self, steps: Generator[Any, Any, Message], waits_for: Any) -> None:
        self._steps = steps
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, Message]:
        waits_for = self._waits_for
        while True:
            try:
                try:
                    yield waits_for
                except BaseException as thrown:
                    waits_for = self._steps.throw(thrown)
                else:
                    waits_for = next(self._steps)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
