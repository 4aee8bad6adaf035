"""The MCP doors: each face over HTTP at its own path, kept running together and notified of changes.

Both protocol eras share one URL. Here a request goes to the one that it belongs to, and ends with its client and key.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup
from starlette.responses import Response

from app.json_body import declared_bytes, given_again, read_short
from app.mcp.answer import HttpAnswer, Request
from app.mcp.faults import message_of, read_body
from app.mcp.handshake import HandshakeEndpoint
from app.mcp.live_sessions import LiveSessions
from app.mcp.requests import AsgiScope, Receive, Send, in_session, of_handshake_era, too_many, unavailable
from wicketgate.access.authenticator import NO_LONGER_VALID, KeyUse
from wicketgate.access.identity import Identity
from wicketgate.access.seal import Seal
from wicketgate.access.shares import ShareCounts, ShareRefused, Shares
from wicketgate.errors import ConfigError
from wicketgate.faces.assembly import Face
from wicketgate.faces.mcp.direct import DirectDoor
from wicketgate.faces.mcp.direct_requests import head_of, taken
from wicketgate.faces.mcp.message import request_in
from wicketgate.faces.mcp.request import BODY_BYTES, COUNTED, EXCHANGE, SMALL_BYTES, Exchange
from wicketgate.faces.mcp.sdk import imported
from wicketgate.faces.mcp.server import McpDoor, calling
from wicketgate.fleet.member import loop_time
from wicketgate.gateway.options import HeapKeeper
from wicketgate.storage.mcp_sessions import StoredMcpSessions

if TYPE_CHECKING:
    from app.mcp.sdk import SdkSide

log = logging.getLogger("wicketgate.service")

SDK_PART = f"{__package__}.sdk"
GATES = "gates/"
"""The beginning of the names of the faces of virtual gates."""
WAITS_S = 30.0
_NOT_YET = "The service cannot answer this request yet, or is stopping; nothing was run. Try again"
_NEVER = "The service cannot answer this request until its operator has installed it again; nothing was run"


@dataclass(frozen=True, slots=True)
class DoorLimits:
    """*max_streams_per_actor* bounds the streams on which an actor's clients listen at a face."""

    max_bytes: int
    max_streams_per_actor: int | None
    direct: bool = True
    """Frequent requests are answered past the SDK's server."""


class NoSdk(Exception):
    """The SDK's server cannot serve. *refusal* is the answer to the request."""

    def __init__(self, message: str, *, later: bool) -> None:
        super().__init__(message)
        self.refusal = unavailable(message, later=later)


class SdkPart:
    """The SDK's side of *doors* (by the name of the face), made for the first request that needs it.

    The SDK is imported in a thread; a request waits for WAITS_S at most. *heap* keeps the garbage collector away from
    the imported objects. A *failed* import is not tried again. Raises ConfigError if the SDK is not installed."""

    def __init__(self, doors: Mapping[str, McpDoor], max_bytes: int, heap: HeapKeeper | None) -> None:
        missing = [name for name in ("mcp", "mcp_types") if find_spec(name) is None]
        if missing:
            reason = f"no module named {missing[0]!r}"
            raise ConfigError(f"The MCP doors cannot be opened ({reason}). Install the program again")
        self._doors = doors
        self._max_bytes = max_bytes
        self._heap = heap
        self._tasks: TaskGroup | None = None
        self._settled = asyncio.Event()
        self._sides: Mapping[str, SdkSide] = {}
        self.failed = False
        self._begun = False

    async def side(self, face: str) -> "SdkSide":
        """Returns the side of *face* once it serves. Raises NoSdk."""
        if not self._sides:
            if self._tasks is not None and not self._begun:
                self._begun = True
                self._tasks.start_soon(self._run, name="the SDK's part of the MCP doors")
            with suppress(TimeoutError):
                async with asyncio.timeout(WAITS_S):
                    await self._settled.wait()
            if not self._sides:
                raise NoSdk(_NEVER if self.failed else _NOT_YET, later=not self.failed)
        return self._sides[face]

    def stop(self) -> None:
        """Refuses the requests that wait for the import, because the service stops. A later request, such as the answer
        to a question that the drain waits for, may still begin the import or wait for it."""
        if not self._settled.is_set():
            self._settled.set()
            self._settled = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as self._tasks:
            yield
            self._begun = True
            self._settled.set()
            self._tasks.cancel_scope.cancel()

    async def _run(self) -> None:
        try:
            with nullcontext() if self._heap is None else self._heap.refreshing():
                part = await imported(SDK_PART)
            if self._heap is not None:
                self._heap.settle()
            async with part.sdk_serving(self._doors, self._max_bytes) as self._sides:
                self._settled.set()
                await anyio.sleep_forever()
        except Exception:
            log.exception("the SDK's part of the MCP doors cannot be opened")
            self.failed = True
            self._settled.set()


class McpDoors:
    """*endpoints* by the face's name. They serve inside ``running``. *calls* bounds the requests under way at all.
    Raises ConfigError if the SDK is not installed."""

    def __init__(
        self,
        faces: Mapping[str, Face],
        *,
        version: str,
        seal: Seal,
        limits: DoorLimits,
        calls: Shares,
        stored: StoredMcpSessions,
        heap: HeapKeeper | None = None,
    ) -> None:
        streams = limits.max_streams_per_actor
        self._doors = {
            name: McpDoor(face, name=name, version=version, seal=seal, max_streams_per_actor=streams)
            for name, face in faces.items()
        }
        self.sdk = SdkPart(self._doors, limits.max_bytes, heap)
        self.endpoints = {
            name: McpEndpoint(name, door, LiveSessions(name, seal, stored, loop_time), limits, calls, self.sdk)
            for name, door in self._doors.items()
        }

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self.sdk.running():
            yield

    def end_listening(self) -> None:
        """End the streams on which clients get notifications: in the newer era with a last frame, in the handshake era
        with the end of the stream."""
        self.sdk.stop()
        for door in self._doors.values():
            if door.has_sdk:
                door.sdk.announcer.close()
        for endpoint in self.endpoints.values():
            endpoint.end_listening()

    def ask_no_more(self) -> None:
        """Nobody can come back any more: the port is closed."""
        for door in self._doors.values():
            door.ask_no_more()

    async def answered(self) -> None:
        """Return when no held call waits for its client, nor a client of any process for one."""
        for door in self._doors.values():
            await door.answered()

    def stream_counts(self) -> list[ShareCounts]:
        """The counts of streams on which clients listen, by face."""
        return [door.streams for door in self._doors.values()]

    def catalog_changed(self) -> None:
        """Notify the clients of each face whose list of tools differs."""
        for door in self._doors.values():
            door.list_changed()

    def access_changed(self) -> None:
        """Notify the clients of each face that their lists of the same catalog may differ."""
        for door in self._doors.values():
            door.access_changed()


class McpEndpoint:
    """The ASGI endpoint of a face.

    Streams and calls under way are shared among actors, so that one client which opens them without end cannot shut
    out the others (FACE-37 to FACE-39).
    """

    def __init__(
        self, name: str, door: McpDoor, sessions: LiveSessions, limits: DoorLimits, calls: Shares, sdk: SdkPart
    ) -> None:
        self._gate = name.removeprefix(GATES) if name.startswith(GATES) else ""
        self._prepare = door.prepare
        self._sessions = sessions
        self._calls = calls
        self._sdk_side = partial(sdk.side, door.name)
        self._handshake = HandshakeEndpoint(sessions, self._sdk_side, door.streams)
        self._direct = DirectDoor(door) if limits.direct else None
        self.end_listening = self._handshake.end_listening

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """A POST takes a place among the calls under way before its body is read, and is refused if there is none.

        A GET, on which a client listens, takes none, and a stream of ``subscriptions/listen`` gives its own back when
        it begins. What brings calls to their end is never refused: in a session, the short answers to questions of the
        gate and notifications, such as a cancellation.
        """
        state = scope["state"]
        if self._gate:
            state["identity"] = replace(state["identity"], gate=self._gate)
        if scope["method"] != "POST":
            return await self._serve_other(scope, receive, send)
        try:
            lease = await self._calls.take(state["identity"].actor)
        except ShareRefused as full:
            body = await _short_body(scope, receive) if in_session(scope) else None
            if body is None or request_in(body)[0]:
                return await too_many("calls under way", full.scope)(scope, receive, send)
            return await self._serve_posted(scope, given_again(body, receive), send)
        scope[COUNTED] = stop_counting = partial(self._calls.give_back, lease)
        try:
            await self._serve_posted(scope, receive, send)
        finally:
            stop_counting()

    async def _serve_other(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        handshake = of_handshake_era(scope)
        if scope["method"] not in (("GET", "DELETE") if handshake else ()):
            allowed = {"Allow": "GET, POST, DELETE" if handshake else "POST"}
            return await Response(None, 405, allowed)(scope, receive, send)
        serve = self._handshake.get if scope["method"] == "GET" else self._handshake.delete
        try:
            await serve(scope, receive, send)
        except NoSdk as error:
            await error.refusal(scope, receive, send)

    async def _serve_posted(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        # A client that leaves ends its call: no answer is kept that it could fetch later (CHAT-72).
        exchange = scope[EXCHANGE] = Exchange()
        use: KeyUse = scope["state"]["key_use"]
        use.end = partial(_revoke, exchange, use, use.end)
        identity: Identity = scope["state"]["identity"]
        await self._prepare(identity)
        body = await read_body(scope, receive, send)
        if body is None:
            return None
        # Requests that are known whole are answered here.
        head = head_of(scope["headers"]) if self._direct is not None else None
        if self._direct is not None and head is not None:
            live = None if head.session is None else await self._sessions.find(head.session, identity)
            asked = None
            if live is not None or head.session is None:
                asked = taken(head, body, None if live is None else live.session, _Http(head.more, scope))
            if asked is not None and self._direct.takes(asked):
                use.answering = use.answering or live is not None  # if the key ends, the answer says so (FACE-40)
                answer = HttpAnswer(send, live)
                request = Request(answer, exchange)
                with request.under_way(asked.id, self._sessions, live, receive):
                    outcome = await self._direct.answer(asked, answer)
                if asked.method == "initialize" and not outcome.refused:
                    answer.names(self._sessions.open(identity, asked.protocol_version, asked.params))
                return await answer.end(request.answer_of(asked.id, outcome))
        # Everything else is the SDK's.
        calling.set(identity)
        try:
            message = await message_of(body, scope, receive, send)
            if message is None:
                return None
            if of_handshake_era(scope):
                return await self._handshake.post(message, body, scope, receive, send)
            scope[BODY_BYTES] = len(body)
            # httptools leaves trailing blanks on header values, and the SDK compares some of them to the body.
            headers = [(key, value.strip()) for key, value in scope["headers"]]
            side = await self._sdk_side()
            await side.modern({**scope, "headers": headers}, given_again(body, receive), send)
        except NoSdk as error:
            await error.refusal(scope, receive, send)
        finally:
            exchange.end()


class _Http:
    """Implements HttpRequest."""

    def __init__(self, headers: Mapping[str, str], scope: AsgiScope) -> None:
        self.headers = headers
        self.scope = scope


async def _short_body(scope: AsgiScope, receive: Receive) -> bytes | None:
    """Returns the body if its declared length is short; None otherwise, or if the client has left."""
    declared = declared_bytes(scope)
    return None if declared is None or declared > SMALL_BYTES else await read_short(receive, SMALL_BYTES)


def _revoke(exchange: Exchange, use: KeyUse, refuse: Callable[[], None]) -> None:
    """Ends a POST whose key is not good any more: with a JSON-RPC error in an answer that has begun, otherwise with
    *refuse* (FACE-40)."""
    if use.answering:
        exchange.end(NO_LONGER_VALID)
    else:
        refuse()
