"""Sessions of the handshake era at ``/mcp``, which live in one process and are served by all (OPS-186).

The id of a session ends with that of its process, as its client sees it. A request that comes to another one is
forwarded to that one.
"""

import re

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.mcp_sessions import SESSION_ID
from wicketgate.peers import NotReached, Peers

_PLACED = re.compile(rb"(.+)\.([0-9a-f-]{1,40})")


class PlacedSessions:
    """Stands before an *endpoint* of this process."""

    def __init__(self, endpoint: ASGIApp, peers: Peers) -> None:
        self._endpoint = endpoint
        self._peers = peers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers, peer = _own_id(scope["headers"])
        own = {**scope, "headers": headers}
        if peer is None or peer == self._peers.own_id:
            return await self._endpoint(own, receive, _placing(send, self._peers.own_id))
        try:
            await self._peers.forward(peer, own, receive, _placing(send, peer))
        except NotReached as error:
            if not error.gone:
                await send({"type": "http.response.start", "status": 503, "headers": [(b"retry-after", b"1")]})
                return await send({"type": "http.response.body", "body": b""})
            # The session has gone with its process; by its whole id nobody knows it.
            await self._endpoint(scope, receive, send)


def _own_id(headers: list[tuple[bytes, bytes]]) -> tuple[list[tuple[bytes, bytes]], str | None]:
    """Returns the headers with the id as its process knows it, and the id of that process."""
    peer = None
    own = list[tuple[bytes, bytes]]()
    for key, value in headers:
        if key.lower() == SESSION_ID and (placed := _PLACED.fullmatch(value.strip())):
            value, peer = placed[1], placed[2].decode()
        own.append((key, value))
    return own, peer


def _placing(send: Send, peer: str) -> Send:
    """Returns *send* with the id of the process in the ids of sessions."""

    async def placing(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {
                **message,
                "headers": [
                    (key, value + b"." + peer.encode() if bytes(key).lower() == SESSION_ID else value)
                    for key, value in message.get("headers", ())
                ],
            }
        await send(message)

    return placing
