"""``POST /engine/chat``: the first door (S3).

Whatever can be 400, 401 or 503 is decided before the response starts; from then on the stream itself tells, and its
last event is one ``done`` or one ``error``.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import cast

import anyio
from fastapi import APIRouter, Request, Response
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.types import Message, Receive, Scope, Send

from app.auth.identity import Identity
from app.engine.contract import ChatRequest, InvalidRequest, parse_chat_request
from app.engine.events import encode
from app.engine.limits import Interruption, StreamLimit
from app.engine.loop import Engine
from app.gateway.ports import CallContext
from app.gateway.sessions import session_key
from app.wire.correlation import HEADER, correlation_id
from routers.refusals import refuse

_UNAVAILABLE = ("engine_unavailable", "Agent Loop is not accepting requests")
_CUT_AFTER_S = 1.0
"""Given to an interrupted stream to send its last event."""


def engine_router(
    engine: Engine, limit: StreamLimit, *, ready: Callable[[], bool], heartbeat_s: float, drain_s: float
) -> APIRouter:
    """*heartbeat_s*: a comment line keeps idle connections open. *drain_s*: how long streams outlive a stop signal."""
    router = APIRouter()

    @router.post("/engine/chat")
    async def chat(request: Request) -> Response:
        identity: Identity | None = request.scope["state"].get("identity")
        if identity is None:
            # Only if the application is mounted without its middleware: no bypass path, ever.
            return refuse(401, "unauthorized", "No credentials provided")
        try:
            chat_request = parse_chat_request(await request.body())
            _same_id(request, chat_request)
        except InvalidRequest as error:
            return refuse(400, "invalid_request", str(error))
        if not ready() or not limit.enter():
            return refuse(503, *_UNAVAILABLE, headers={"Retry-After": "1"})
        correlation_id.set(chat_request.metadata.correlation_id)
        request.scope["state"]["correlation_id"] = chat_request.metadata.correlation_id
        return _ChatStream(engine, chat_request, identity, limit, heartbeat_s, drain_s)

    return router


class _ChatStream(EventSourceResponse):
    """The response; it holds a place in *limit* until it is over, however that comes about."""

    def __init__(
        self,
        engine: Engine,
        request: ChatRequest,
        identity: Identity,
        limit: StreamLimit,
        heartbeat_s: float,
        drain_s: float,
    ) -> None:
        self._limit = limit
        interruption = Interruption()
        super().__init__(
            _frames(engine, request, identity, interruption),
            sep="\n",
            ping=heartbeat_s,
            ping_message_factory=_heartbeat,
            # Cancelling the response's task is not enough: while the model sends without a pause, the task never waits.
            client_close_handler_callable=_ask(interruption),
            shutdown_event=cast(anyio.Event, _Shutdown(interruption, drain_s)),
            shutdown_grace_period=drain_s + _CUT_AFTER_S,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._limit.leave()


class _Shutdown:
    """What the response sets when the server is told to stop: the stream may go on for a while, then ends properly."""

    def __init__(self, interruption: Interruption, drain_s: float) -> None:
        self._interruption = interruption
        self._drain_s = drain_s

    def set(self) -> None:
        asyncio.get_running_loop().call_later(self._drain_s, self._interruption.request)


def _ask(interruption: Interruption) -> Callable[[Message], Awaitable[None]]:
    async def client_has_left(message: Message) -> None:
        interruption.request()

    return client_has_left


async def _frames(
    engine: Engine, request: ChatRequest, identity: Identity, interruption: Interruption
) -> AsyncGenerator[bytes, None]:
    """Encoded bytes, one piece for all that became known at once: one send for one read of the model's stream."""
    metadata = request.metadata
    # The conversation, or else this run alone.
    named = metadata.conversation_id is not None
    session = session_key(
        "conversation" if named else "run", identity.actor, metadata.conversation_id or metadata.correlation_id
    )
    context = CallContext(identity, metadata.correlation_id, session)
    async with aclosing(engine.batches(request, context, interruption)) as batches:
        async for batch in batches:
            yield b"".join(map(encode, batch))


def _same_id(request: Request, chat_request: ChatRequest) -> None:
    header = request.headers.get(HEADER)
    if header is not None and header.strip() != chat_request.metadata.correlation_id:
        raise InvalidRequest(f"{HEADER} and metadata.correlation_id differ")


def _heartbeat() -> ServerSentEvent:
    return ServerSentEvent(comment="keepalive", sep="\n")
