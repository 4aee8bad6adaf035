"""Requests of the era with a handshake that the direct way does not answer, and its sessions (FACE-115 to FACE-120).

A session is a sealed token (``live_sessions``). The streams on which clients listen for notifications are counted and
ended here. What a request must be like to be taken at all is what the SDK asks for.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
from msgspec import UNSET
from starlette.responses import Response

from app.mcp.answer import HttpAnswer, Request, until_left
from app.mcp.live_sessions import LiveSession, LiveSessions, SessionListener
from app.mcp.requests import (
    SESSION_ID,
    AsgiScope,
    Receive,
    Send,
    addressed,
    header_of,
    refused,
    session_of,
    too_many,
    unavailable,
)
from wicketgate.access.authenticator import KeyUse
from wicketgate.access.identity import Identity
from wicketgate.access.shares import ShareRefused, Shares
from wicketgate.faces.mcp.direct_requests import UNNAMED, accepted_types, is_json
from wicketgate.faces.mcp.message import Fault, heading_of, reply_in
from wicketgate.faces.mcp.request import EXCHANGE
from wicketgate.faces.mcp.session_tokens import McpSession
from wicketgate.mcp_names import INTERNAL_ERROR, INVALID_REQUEST, LATEST_HANDSHAKE_VERSION, PARSE_ERROR
from wicketgate.storage.store import StoreUnavailable

if TYPE_CHECKING:
    from app.mcp.sdk import SdkSide

_STATELESS = ("tools/list", "tools/call", "ping")
"""The methods that are served without a session (FACE-200)."""
_UNKNOWN = Fault(INVALID_REQUEST, "Session not found")
_NO_ID = Fault(INVALID_REQUEST, "Bad Request: Missing session ID")
_INITIALIZED = Fault(INVALID_REQUEST, "This session is already initialized. Omit Mcp-Session-Id to open another one")
_NOT_KEPT = Fault(INTERNAL_ERROR, "The store is unavailable at the moment. Send the request again")
_UNREADABLE = Fault(PARSE_ERROR, "The message is not valid JSON.")
_NO_REPLY = Fault(INVALID_REQUEST, "A response needs the id of its request, and either a result or an error.")
_ONE_STREAM = Fault(INVALID_REQUEST, "Conflict: Only one SSE stream is allowed per session")
_NO_JSON = Fault(INVALID_REQUEST, "Unsupported Media Type: Content-Type must be application/json")
_TAKES_NO_ANSWER = Fault(
    INVALID_REQUEST, "Not Acceptable: Client must accept both application/json and text/event-stream"
)
_TAKES_NO_STREAM = Fault(INVALID_REQUEST, "Not Acceptable: Client must accept text/event-stream")


@dataclass(eq=False, repr=False)
class HandshakeEndpoint:
    """*need_sdk* returns the SDK's side of the door when it can serve. *streams* are shared among actors."""

    _sessions: LiveSessions
    _need_sdk: Callable[[], "Awaitable[SdkSide]"]
    _streams: Shares

    def __post_init__(self) -> None:
        self._open: set[anyio.CancelScope] = set()
        self._ended = False

    def end_listening(self) -> None:
        """Ends the streams on which clients listen, and opens no more."""
        self._ended = True
        for stream in self._open:
            stream.cancel()

    async def post(
        self, message: Mapping[str, Any], body: bytes, scope: AsgiScope, receive: Receive, send: Send
    ) -> None:
        """Answers *message*; *body* is the same as bytes."""
        identity: Identity = scope["state"]["identity"]
        token, method, begins = session_of(scope), message.get("method"), "method" in message and "id" in message
        opens = begins and method == "initialize"
        live = None
        if token is not None and (live := await self._sessions.find(token, identity)) is None:
            return await refused(_UNKNOWN, 404)(scope, receive, send)
        if accepted_types(header_of(scope, b"accept").encode()) != (True, True):
            return await refused(_TAKES_NO_ANSWER, 406)(scope, receive, send)
        if not is_json(header_of(scope, b"content-type").encode()):
            return await refused(_NO_JSON, 415)(scope, receive, send)
        if live is None and not (begins and (opens or method in _STATELESS)):
            return await refused(_NO_ID)(scope, receive, send)
        if live is not None and opens:
            return await refused(_INITIALIZED)(scope, receive, send)
        if live is not None and not begins:
            return await self._take(live, body, scope, receive, send)
        await self._answer(message, live, opens, scope, receive, send)

    async def _take(self, live: LiveSession, body: bytes, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Accepts a message that needs no answer: handles it here, or stores it for another process."""
        heading = heading_of(body)
        if heading is None:
            return await refused(_UNREADABLE)(scope, receive, send)
        if heading.method is UNSET and reply_in(body) is None:
            return await refused(_NO_REPLY)(scope, receive, send)
        message = addressed(body)
        if message is not None and not live.takes(message, body):
            try:
                await self._sessions.post(live, message, body)
            except StoreUnavailable:
                return await refused(_NOT_KEPT, 503, later=True)(scope, receive, send)
        await Response(None, 202, {SESSION_ID.decode(): live.token})(scope, receive, send)

    async def _answer(
        self,
        message: Mapping[str, Any],
        live: LiveSession | None,
        opens: bool,
        scope: AsgiScope,
        receive: Receive,
        send: Send,
    ) -> None:
        side = await self._need_sdk()
        answer = HttpAnswer(send, live)
        changes = None
        if live is not None:
            session, changes = live.session, partial(self._sessions.change, live)
            scope["state"]["key_use"].answering = True  # if the key ends, the answer says so (FACE-40)
        else:
            version = header_of(scope, b"mcp-protocol-version") or UNNAMED
            session = McpSession("", LATEST_HANDSHAKE_VERSION if opens else version, {})
        request = Request(answer, scope[EXCHANGE])
        with request.under_way(message["id"], self._sessions, live, receive):
            outcome, agreed = await side.answer(message, scope, session, answer, changes)
        if agreed is not None:
            answer.names(self._sessions.open(scope["state"]["identity"], agreed.version, agreed.client))
        await answer.end(request.answer_of(message["id"], outcome))

    async def get(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answers with a stream without end, on which the client listens. No call runs on it, so a stop need not wait
        for it."""
        identity: Identity = scope["state"]["identity"]
        try:
            lease = await self._streams.take(identity.actor)
        except ShareRefused as full:
            return await too_many("open streams", full.scope)(scope, receive, send)
        try:
            live = await self._session(scope, receive, send)
            if live is None:
                return None
            if not accepted_types(header_of(scope, b"accept").encode())[1]:
                return await refused(_TAKES_NO_STREAM, 406)(scope, receive, send)
            await self._listen(live, scope, receive, send)
        finally:
            self._streams.give_back(lease)

    async def delete(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        live = await self._session(scope, receive, send)
        if live is None:
            return None
        try:
            await self._sessions.end(live)
        except StoreUnavailable:
            return await refused(_NOT_KEPT, 503, later=True)(scope, receive, send)
        headers = {"content-type": "application/json", SESSION_ID.decode(): live.token}
        await Response(None, 200, headers)(scope, receive, send)

    async def _session(self, scope: AsgiScope, receive: Receive, send: Send) -> LiveSession | None:
        """The session that a request names; None if it was refused."""
        token = session_of(scope)
        live = None if token is None else await self._sessions.find(token, scope["state"]["identity"])
        if live is None:
            await (refused(_NO_ID) if token is None else refused(_UNKNOWN, 404))(scope, receive, send)
        return live

    async def _listen(self, live: LiveSession, scope: AsgiScope, receive: Receive, send: Send) -> None:
        answer = HttpAnswer(send, live)
        with anyio.CancelScope() as stream:
            if self._ended:
                stream.cancel()
            self._open.add(stream)
            use: KeyUse = scope["state"]["key_use"]
            use.kind, use.end = "streams", partial(_end_listening, stream, use, use.end)
            try:
                side = await self._need_sdk()
                if live.listener is not None:
                    return await refused(_ONE_STREAM, 409)(scope, receive, send)
                async with (
                    side.listening(live.token, live.session, answer) as take_up,
                    self._sessions.listening(live, SessionListener(take_up, stream.cancel)),
                ):
                    await answer.open_stream()
                    await until_left(receive, answer)
            finally:
                self._open.discard(stream)
        if stream.cancelled_caught and not answer.streams:
            await unavailable("The service is stopping")(scope, receive, send)
        elif stream.cancelled_caught:
            await answer.end_stream()


def _end_listening(stream: anyio.CancelScope, use: KeyUse, refuse: Callable[[], None]) -> None:
    if use.answering:
        stream.cancel()
    else:
        refuse()
