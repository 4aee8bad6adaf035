"""``POST /engine/chat``: the first door (S3).

Whatever can be 400, 401 or 503 is decided before the response starts; from then on the stream itself tells, and its
last event is one ``done`` or one ``error``.
"""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import partial

from fastapi import APIRouter, Request, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from routers.event_stream import EventStream
from routers.refusals import refuse
from routers.resumption import resumption
from wicketgate.access.identity import Identity
from wicketgate.engine.contract import ChatRequest, InvalidRequest, call_context, parse_chat_request
from wicketgate.engine.events import Done, ErrorEvent, Event, encode
from wicketgate.engine.keyed_runs import KeyedRuns, TooManyStreams
from wicketgate.engine.limits import Place, StreamLimit
from wicketgate.engine.loop import Engine
from wicketgate.errors import ProviderError
from wicketgate.text.correlation import HEADER, correlation_id

log = logging.getLogger("wicketgate.engine")


def engine_router(
    engine: Engine, streams: StreamLimit, keyed: KeyedRuns, *, ready: Callable[[], bool], heartbeat_s: float
) -> APIRouter:
    """*heartbeat_s*: a comment line keeps idle connections open."""
    router = APIRouter()

    async def chat(request: Request) -> Response:
        identity: Identity | None = request.scope["state"].get("identity")
        if identity is None:
            # Only if the application is mounted without its middleware: no bypass path, ever.
            return refuse(401, "unauthorized", "No credentials provided")
        try:
            chat_request = parse_chat_request(await request.body())
            _same_id(request, chat_request)
            resumed = resumption(request.headers)
            if not ready():
                return _unavailable()
            correlation_id.set(chat_request.metadata.correlation_id)
            request.scope["state"]["correlation_id"] = chat_request.metadata.correlation_id
            if resumed is not None:
                reader = await keyed.open(chat_request, identity, resumed)
                return EventStream(reader.pieces(), heartbeat_s=heartbeat_s, left=reader.disconnect, over=reader.aclose)
        except InvalidRequest as error:
            return refuse(400, "invalid_request", str(error))
        except TooManyStreams:
            return _unavailable()
        place = streams.enter()
        if place is None:
            return _unavailable()
        return EventStream(
            _pieces(engine, chat_request, identity, place),
            heartbeat_s=heartbeat_s,
            left=partial(place.interruption.request, "disconnected"),
            over=partial(_leave, place),
        )

    router.routes.append(Route("/engine/chat", endpoint=_Endpoint(chat), methods=["POST"]))
    return router


class _Endpoint:
    """The route as an ASGI object. A function would be wrapped once more, and each delta would pass the wrapper; the
    framework's own kind of route would take a tenth of the request to find out that nothing is injected."""

    def __init__(self, answer: Callable[[Request], Awaitable[Response]]) -> None:
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._answer(Request(scope, receive))
        await response(scope, receive, send)


async def _pieces(
    engine: Engine, request: ChatRequest, identity: Identity, place: Place
) -> AsyncGenerator[bytes, None]:
    """Encoded bytes, one piece for all that became known at once: one send for one read of the model's stream."""
    context = call_context(request, identity)
    last: Event | None = None
    try:
        async with aclosing(engine.batches(request, context, place.interruption)) as batches:
            async for batch in batches:
                yield encode(batch[0]) if len(batch) == 1 else b"".join(map(encode, batch))
                last = batch[-1]
    except Exception:
        # The engine ends its own faults properly; this is for what cannot be encoded, and for faults behind the end.
        log.exception("stream failed: %s", ProviderError.code)
        if not isinstance(last, Done | ErrorEvent):
            yield encode(ErrorEvent(ProviderError.code, ProviderError.safe_message))


async def _leave(place: Place) -> None:
    place.leave()


def _unavailable() -> Response:
    message = "Agent Loop is not accepting requests"
    return refuse(503, "engine_unavailable", message, headers={"Retry-After": "1"})


def _same_id(request: Request, chat_request: ChatRequest) -> None:
    header = request.headers.get(HEADER)
    if header is not None and header.strip() != chat_request.metadata.correlation_id:
        raise InvalidRequest(f"{HEADER} and metadata.correlation_id differ")
