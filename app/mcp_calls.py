"""The share of calls under way that each MCP request takes, at every face and in both eras (FACE-37, FACE-38)."""

from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import Any

from app.json_body import declared_bytes, given_again, read_short
from app.mcp_refusals import too_many
from app.mcp_sessions import in_session
from wicketgate.access.identity import Identity
from wicketgate.access.shares import ShareRefused, Shares
from wicketgate.faces.mcp.changes import COUNTED
from wicketgate.faces.mcp.message import request_in

AsgiMessage = MutableMapping[str, Any]
AsgiScope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]
App = Callable[[AsgiScope, Receive, Send], Awaitable[None]]

_SHORT_BYTES = 64 * 1024


class CountedCalls:
    """ASGI: each POST takes a place before its body is read, and is refused if there is none.

    A GET, on which a client listens, takes none, and a stream of ``subscriptions/listen`` gives its own back when it
    begins. What brings calls to their end is never refused: in a session, the short answers to questions of the gate
    and notifications, such as a cancellation.
    """

    def __init__(self, app: App, shares: Shares) -> None:
        self._app = app
        self._shares = shares

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        identity: Identity = scope["state"]["identity"]
        try:
            lease = await self._shares.take(identity.actor)
        except ShareRefused as refused:
            body = await _short_body(scope, receive) if in_session(scope) else None
            if body is None or request_in(body)[0]:
                await too_many("calls under way", refused.scope)(scope, receive, send)
            else:
                await self._app(scope, given_again(body, receive), send)
            return
        stop_counting = partial(self._shares.give_back, lease)
        scope[COUNTED] = stop_counting
        try:
            await self._app(scope, receive, send)
        finally:
            stop_counting()


async def _short_body(scope: AsgiScope, receive: Receive) -> bytes | None:
    """Returns the body if its declared length is short; None otherwise, or if the client has left."""
    declared = declared_bytes(scope)
    return None if declared is None or declared > _SHORT_BYTES else await read_short(receive, _SHORT_BYTES)
