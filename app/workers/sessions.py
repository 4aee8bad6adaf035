"""Sessions of the handshake era at ``/mcp``, which live in one worker and are served by all (OPS-186).

The id of a session ends with the number of its worker, as its client sees it. A request that comes to another worker is
forwarded to that one.
"""

import re

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.mcp_sessions import SESSION_ID
from app.workers.forwarding import Forwarding, NotReached

_PLACED = re.compile(rb"(.+)-w([0-9]{1,3})")


class PlacedSessions:
    """Stands before an *endpoint* of worker *number*."""

    def __init__(self, endpoint: ASGIApp, number: int, forwarding: Forwarding) -> None:
        self._endpoint = endpoint
        self._number = number
        self._forwarding = forwarding

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers, number = _own_id(scope["headers"])
        own = {**scope, "headers": headers}
        if number is None or number == self._number:
            return await self._endpoint(own, receive, _placing(send, self._number))
        try:
            await self._forwarding.forward(number, own, receive, _placing(send, number))
        except NotReached:
            # The session has gone with its worker; by its whole id nobody knows it.
            await self._endpoint(scope, receive, send)


def _own_id(headers: list[tuple[bytes, bytes]]) -> tuple[list[tuple[bytes, bytes]], int | None]:
    """Returns the headers with the id as its worker knows it, and the number of that worker."""
    number = None
    own = list[tuple[bytes, bytes]]()
    for key, value in headers:
        if key.lower() == SESSION_ID and (placed := _PLACED.fullmatch(value.strip())):
            value, number = placed[1], int(placed[2])
        own.append((key, value))
    return own, number


def _placing(send: Send, number: int) -> Send:
    """Returns *send* with the number of the worker in the ids of sessions."""

    async def placing(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {
                **message,
                "headers": [
                    (key, value + b"-w%d" % number if bytes(key).lower() == SESSION_ID else value)
                    for key, value in message.get("headers", ())
                ],
            }
        await send(message)

    return placing
