"""The sessions of the handshake era, each with the key that used it last: it ends with that key (FACE-42).

A session holds no authority: each of its requests is authenticated by itself. A client that changes from one key of
its actor to the next keeps its session.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from wicketgate.access.identity import Identity

log = logging.getLogger("wicketgate.mcp")

SESSION_ID = b"mcp-session-id"

Handle = Callable[[Any, Any, Any], Awaitable[None]]


class _Session:
    """*calls*: requests under way, without *streams*, on which its client listens. *used_at*: when the last of them
    ended, in seconds."""

    def __init__(self, identity: Identity, now: float) -> None:
        self.identity = identity
        self.calls = 0
        self.streams = 0
        self.ended = False
        self.used_at = now


class KeyedSessions:
    """*alive* gives the ids of the sessions that exist. *end* ends one for the identity that used it last; it must not
    wait. *now* is a clock in seconds."""

    def __init__(
        self, alive: Callable[[], Container[str]], end: Callable[[str, Identity], None], now: Callable[[], float]
    ) -> None:
        self._alive = alive
        self._now = now
        self._end = end
        self._sessions: dict[str, _Session] = {}
        self._opening: Counter[str] = Counter()

    @contextmanager
    def opening(self, identity: Identity) -> Iterator[Callable[[str], None]]:
        """A request that opens a session, which takes a place before its body has come. Gives a function to be called
        with the session's id when it begins."""
        self._opening[identity.actor] += 1
        begun = False

        def begin(session_id: str) -> None:
            nonlocal begun
            end()
            begun = True
            self._sessions[session_id] = _Session(identity, self._now())

        def end() -> None:
            if not begun:
                self._opening -= Counter((identity.actor,))

        try:
            yield begin
        finally:
            end()

    @contextmanager
    def used(self, session_id: str, identity: Identity, *, listens: bool) -> Iterator[None]:
        """A request in a session. *listens*: it is a stream without end, which is no call."""
        session = self._sessions.get(session_id)
        if session is None or session.identity.actor != identity.actor:
            yield
            return
        session.identity, session.ended = identity, False
        session.calls += not listens
        session.streams += listens
        try:
            yield
        finally:
            session.calls -= not listens
            session.streams -= listens
            session.used_at = self._now()
            self._end_if_quiet(session_id, session)

    def end_of(self, key_id: str) -> int:
        """Ends the sessions that this key used last, as soon as their calls have been answered. Returns how many."""
        self._forget_dead()
        ended = [each for each in self._sessions.items() if each[1].identity.key_id == key_id]
        for session_id, session in ended:
            session.ended = True
            self._end_if_quiet(session_id, session)
        return len(ended)

    def by_actor(self) -> Counter[str]:
        """The number of sessions of each actor, those included that are being opened."""
        self._forget_dead()
        return self._opening + Counter(session.identity.actor for session in self._sessions.values())

    def longest_idle(self, actor: str) -> tuple[str, Identity] | None:
        """Returns the session of *actor* in which nothing runs and nobody listens, and has for longest; None if there
        is none."""
        idle = [
            (session.used_at, session_id)
            for session_id, session in self._sessions.items()
            if session.identity.actor == actor and not session.calls and not session.streams
        ]
        if not idle:
            return None
        session_id = min(idle)[1]
        return session_id, self._sessions[session_id].identity

    def _end_if_quiet(self, session_id: str, session: _Session) -> None:
        if session.ended and not session.calls:
            self._sessions.pop(session_id, None)
            self._end(session_id, session.identity)

    def _forget_dead(self) -> None:
        alive = self._alive()
        self._sessions = {session_id: each for session_id, each in self._sessions.items() if session_id in alive}


def user_of(identity: Identity) -> AuthenticatedUser:
    """The SDK ties a session to exactly this type of user. With any other, a leaked session id would serve anyone."""
    actor = identity.actor
    return AuthenticatedUser(
        AccessToken(token=actor, client_id=actor, subject=actor, scopes=list(identity.permissions))
    )


def opens_session(scope: MutableMapping[str, Any]) -> bool:
    """True for a request that opens a session of the handshake era."""
    return scope["method"] == "POST" and session_of(scope) is None and _of_handshake_era(scope)


def in_session(scope: MutableMapping[str, Any]) -> bool:
    """True for a request in a session of the handshake era."""
    return session_of(scope) is not None and _of_handshake_era(scope)


def session_of(scope: MutableMapping[str, Any]) -> str | None:
    """The id of the session that a request names; None if it names none."""
    return _header(scope, SESSION_ID)


def _of_handshake_era(scope: MutableMapping[str, Any]) -> bool:
    version = _header(scope, b"mcp-protocol-version")
    return not version or version in HANDSHAKE_PROTOCOL_VERSIONS


def _header(scope: MutableMapping[str, Any], name: bytes) -> str | None:
    """The value without blanks around it. Of a header that comes twice the first counts, as in the SDK."""
    return next((value.strip().decode("latin-1") for key, value in scope["headers"] if key == name), None)


_NOTHING = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"none"}}'


async def end_session(handle: Handle, session_id: str, identity: Identity) -> None:
    """Ends a session as its own client would, which is the only public way. *handle* is the SDK's ASGI application."""
    await _as_client(handle, "DELETE", b"", session_id, identity)


async def forget_last(handle: Handle, session_id: str, identity: Identity) -> None:
    """Lets a session go on to a message that means nothing: the SDK keeps the last one until the next (FACE-46)."""
    await _as_client(handle, "POST", _NOTHING, session_id, identity)


async def _as_client(handle: Handle, method: str, body: bytes, session_id: str, identity: Identity) -> None:
    headers = [(b"host", b"localhost"), (SESSION_ID, session_id.encode("latin-1"))]
    if body:
        headers += [(b"content-type", b"application/json"), (b"accept", b"application/json, text/event-stream")]
    scope: MutableMapping[str, Any] = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": "/mcp",
        "root_path": "",
        "query_string": b"",
        "headers": headers,
        "user": user_of(identity),
    }

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start" and message["status"] not in (200, 202, 404):
            log.error("a session could not be ended or cleared: status %d", message["status"])

    try:
        await handle(scope, receive, send)
    except Exception:
        # The last boundary of this task: the door has to go on. The session ends when it has been idle for long.
        log.exception("a session could not be ended or cleared")
