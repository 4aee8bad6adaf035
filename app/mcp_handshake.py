"""The endpoint of the era with a handshake: requests that open a session, belong to one, or end one.

It is found wherever it was opened (``mcp_live_sessions``); the SDK's part of it is made here when it is needed.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup
from pydantic import ValidationError
from starlette.responses import Response

from app.json_body import given_again
from app.mcp_calls import AsgiMessage, AsgiScope, Receive, Send
from app.mcp_live_session import LiveSession
from app.mcp_live_sessions import LiveSessions, Opening
from app.mcp_refusals import refused
from app.mcp_session_messages import addressed
from app.mcp_session_part import SessionPart
from app.mcp_sessions import SESSION_ID, session_of
from wicketgate.access.identity import Identity
from wicketgate.faces.mcp.kept_sessions import KeptSession, SessionChange, SessionsAway
from wicketgate.faces.mcp.message import Fault
from wicketgate.faces.mcp.opening import BODY_BYTES, SMALL_BYTES
from wicketgate.faces.mcp.server import McpDoor
from wicketgate.mcp_names import INTERNAL_ERROR, INVALID_REQUEST

# The place of a session that is being opened stands under this key of the ASGI scope.
OPENING = "wicketgate.opening"

_UNKNOWN = Fault(INVALID_REQUEST, "Session not found")
_NO_ID = Fault(INVALID_REQUEST, "Bad Request: Missing session ID")
_UNSURE = Fault(INTERNAL_ERROR, "It is not known whether this message has arrived where it belongs. Send it again")


class HandshakeEndpoint:
    """ASGI. *sessions* are those of the face behind *door*. It serves inside ``running``."""

    def __init__(self, door: McpDoor, sessions: LiveSessions) -> None:
        self._door = door
        self._sessions = sessions
        self._tasks: TaskGroup | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self._sessions.running(), anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                yield
            finally:
                self._tasks = None
                tasks.cancel_scope.cancel()

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Raises SessionsFull, and SessionsAway before anything is answered."""
        identity: Identity = scope["state"]["identity"]
        session_id = session_of(scope)
        if session_id is None:
            if scope["method"] == "POST":
                await self._open(scope[OPENING], identity, scope, receive, send)
            else:
                await refused(_NO_ID)(scope, receive, send)
            return
        live = await self._sessions.find(session_id, identity)
        part = None if live is None else await self._part_of(live, identity)
        if live is None or part is None:
            await refused(_UNKNOWN, 404)(scope, receive, send)
        elif scope["method"] == "DELETE":
            await self._sessions.end(live)
            headers = {"content-type": "application/json", SESSION_ID.decode(): live.id}
            await Response(None, 200, headers)(scope, receive, send)
        else:
            await self._serve(live, part, identity, scope, receive, send)

    async def _serve(
        self, live: LiveSession, part: SessionPart, identity: Identity, scope: AsgiScope, receive: Receive, send: Send
    ) -> None:
        """A request in a session. Raises SessionsAway before anything is answered."""
        with self._sessions.used(live, identity, listens=scope["method"] == "GET"):
            if scope["method"] == "GET":
                # What is announced reaches the client on this stream, whoever was asked to announce it.
                await part.take_up(await self._sessions.refresh(live), identity, listens=True)
            elif scope["method"] == "POST":
                body = (await receive()).get("body", b"")
                message = addressed(body)
                if message is not None and not part.takes(message):
                    try:
                        passed_on = live.cancel(message) or await self._sessions.pass_on(live, body)
                    except SessionsAway:
                        return await refused(_UNSURE, 503, later=True)(scope, receive, send)
                    if passed_on:
                        return await Response(None, 202, {SESSION_ID.decode(): live.id})(scope, receive, send)
                receive = given_again(body, receive)
            await part.handle(scope, receive, send)
            if kept := part.handshake(identity):
                await self._sessions.reopen(live, kept)
        if scope.get(BODY_BYTES, 0) > SMALL_BYTES and self._tasks is not None:
            self._tasks.start_soon(part.forget_last, identity)

    async def _open(self, opening: Opening, identity: Identity, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Raises SessionsAway before anything is answered."""
        changes = _Changes(self._sessions)
        part = SessionPart(self._door, opening.id)
        answer = _OpeningAnswer(opening, part, identity, changes, send)
        await self._start(part, None, identity, changes)
        try:
            await part.handle(scope, receive, answer)
        finally:
            if changes.live is None:
                part.end()
        if answer.away:
            raise SessionsAway

    async def _part_of(self, live: LiveSession, identity: Identity) -> SessionPart | None:
        """Returns None if what is kept of the session cannot be read."""
        if (part := _working(live)) is not None:
            return part
        async with live.part_made:
            if (part := _working(live)) is not None:
                return part
            changes = _Changes(self._sessions)
            changes.live = live
            part = SessionPart(self._door, live.id)
            try:
                await self._start(part, live.kept, identity, changes)
            except ValidationError:
                return None
            live.part = part
            return part

    async def _start(
        self, part: SessionPart, session: KeptSession | None, identity: Identity, changes: "_Changes"
    ) -> None:
        if self._tasks is None:
            raise RuntimeError("the endpoint is not running")
        await self._tasks.start(part.run, session, identity, changes)


def _working(live: LiveSession) -> SessionPart | None:
    return live.part if isinstance(live.part, SessionPart) and not live.part.ended else None


class _Changes:
    """Implements SessionChanges for a session that is *live* by and by."""

    def __init__(self, sessions: LiveSessions) -> None:
        self._sessions = sessions
        self.live: LiveSession | None = None

    async def changed(self, change: SessionChange) -> None:
        if self.live is not None:
            await self._sessions.change(self.live, change)


class _OpeningAnswer:
    """ASGI ``send`` of a request that opens a session: holds the answer back until the session is kept.

    *away*: it could not be kept, and nothing was answered.
    """

    def __init__(self, opening: Opening, part: SessionPart, identity: Identity, changes: _Changes, send: Send) -> None:
        self._opening = opening
        self._part = part
        self._identity = identity
        self._changes = changes
        self._send = send
        self._start: AsgiMessage | None = None
        self._passing = False
        self.away = False

    async def __call__(self, message: AsgiMessage) -> None:
        if self.away:
            return
        if self._passing:
            await self._send(message)
        elif message["type"] == "http.response.start":
            self._start = message
        elif self._start is not None and not _is_ping(message):
            await self._begin(self._start)
            if not self.away:
                self._passing = True
                await self._send(self._start)
                await self._send(message)

    async def _begin(self, start: AsgiMessage) -> None:
        kept = self._part.handshake(self._identity) if start["status"] < 400 else None
        if kept is None:
            # There is no session: its id would be a false promise.
            start["headers"] = [each for each in start["headers"] if each[0].lower() != SESSION_ID]
            return
        try:
            live = await self._opening.begin(kept)
        except SessionsAway:
            self.away = True
            return
        live.part, self._changes.live = self._part, live


def _is_ping(message: AsgiMessage) -> bool:
    return bool(message.get("body", b"").startswith(b":"))
