"""``POST /engine/chat`` (CHAT-1).

An answer of 400, 401, 429 or 503 is decided before the response starts. Later failures are events: the last one of
every stream is ``done`` or ``error``.

Headers by which a client may come back to a run (CHAT-73 to CHAT-78):

- ``Idempotency-Key``: one run for one key; spelled like a correlation id.
- ``Last-Event-ID``: the last event of it that the client has seen.
- ``X-On-Disconnect``: ``cancel`` or ``continue``, the fate of a run that has lost its reader.
"""

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from typing import cast

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.json_body import TooManyValues, read_counted
from routers.event_stream import EventStream, LastPiece, PiecesAtOnce
from routers.refusals import refuse
from wicketgate.access.authenticator import KeyUse
from wicketgate.access.identity import Identity
from wicketgate.access.shares import RETRY_AFTER_S, ShareRefused
from wicketgate.engine.contract import ChatRequest, InvalidRequest, OnDisconnect, call_context, parse_chat_request
from wicketgate.engine.events import Done, ErrorEvent, Event, encode, encode_text
from wicketgate.engine.journal import JournalAway
from wicketgate.engine.keyed_runs import KeyedRuns, Resumption
from wicketgate.engine.limits import Place, StreamLimit
from wicketgate.engine.loop import Engine
from wicketgate.errors import NotAdmitted, ProviderError, RateLimited
from wicketgate.log_text import CORRELATION_ID, HEADER, correlation_id
from wicketgate.ports import CallContext, source_of
from wicketgate.travelling_meta import travelling

log = logging.getLogger("wicketgate.engine")

KEY = "Idempotency-Key"
LAST_EVENT_ID = "Last-Event-ID"
ON_DISCONNECT = "X-On-Disconnect"
BUDGET = "Wicketgate-Budget"
"""Warns of a budget of which 80 % is spent (OPS-554)."""

CHOICES = ("cancel", "continue")

_LATER = {"Retry-After": str(RETRY_AFTER_S)}


PATH = "/engine/chat"


def chat_endpoint(
    engine: Engine,
    streams: StreamLimit,
    keyed: KeyedRuns,
    *,
    ready: Callable[[], bool],
    heartbeat_s: float,
) -> ASGIApp:
    """A comment line every *heartbeat_s* keeps idle connections open."""

    async def chat(request: Request) -> Response:
        identity: Identity | None = request.scope["state"].get("identity")
        if identity is None:
            # Reached only if the application is mounted without its middleware.
            return refuse(401, "unauthorized", "No credentials provided")
        # Read the request; refuse what can be refused.
        try:
            chat_request = parse_chat_request(await read_counted(request.receive))
            _same_id(request, chat_request)
            resumed = _resumption(request.headers)
            if not ready():
                return _unavailable()
            correlation_id.set(chat_request.metadata.correlation_id)
            request.scope["state"]["correlation_id"] = chat_request.metadata.correlation_id
            warning = await engine.admit(
                identity, None if resumed is None else partial(keyed.begins, identity, resumed)
            )
            # A run that its client can resume.
            if resumed is not None:
                source, meta = source_of(request.scope), travelling(None, request.headers)
                reader = await keyed.open(chat_request, identity, resumed, source, meta)
                ends_itself = reader.ends_with_run and identity.expires_at is None
                _hand_over(request, None if ends_itself else reader.revoke)
                return _warning(
                    EventStream(
                        reader.pieces(), heartbeat_s=heartbeat_s, on_leave=reader.disconnect, on_end=reader.aclose
                    ),
                    warning,
                )
            # A run of this connection alone.
            place = await streams.enter(identity)
        except InvalidRequest as error:
            return refuse(400, "invalid_request", str(error))
        except TooManyValues as error:
            return refuse(413, "payload_too_large", str(error))
        except ShareRefused as refused:
            return _full(refused)
        except RateLimited as error:
            headers = {"Retry-After": str(error.details["retry_after_s"])} if error.details else {}
            return refuse(429, "rate_limited", str(error), headers=headers)
        except NotAdmitted as error:
            return _unavailable(str(error))
        except JournalAway:
            # Its store has said so, once and with the reason.
            return _unavailable("The store of this service is unavailable, which a chat with an Idempotency-Key needs")
        revoke = None if identity.expires_at is None else partial(place.interruption.request, "revoked")
        _hand_over(request, revoke)
        meta = travelling(None, request.headers)
        context = call_context(chat_request, identity, source_of(request.scope), meta)
        at_once = PiecesAtOnce(request.scope)
        return _warning(
            EventStream(
                _pieces(engine, chat_request, context, place, at_once),
                heartbeat_s=heartbeat_s,
                on_leave=partial(place.interruption.request, "disconnected"),
                on_end=partial(_leave, place),
                at_once=at_once,
            ),
            warning,
        )

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            raise HTTPException(405, headers={"Allow": "POST"})
        response = await chat(Request(scope, receive))
        await response(scope, receive, send)

    return serve


async def _pieces(
    engine: Engine, request: ChatRequest, context: CallContext, place: Place, at_once: PiecesAtOnce
) -> AsyncGenerator[bytes, None]:
    """Yields encoded events. Those that came in one read of the model's stream are one piece, and so one send. A text
    that comes alone while the next piece is waited for goes out by *at_once* if it can."""
    last: Event | None = None
    send = at_once.send

    def take_text(text: str) -> bool:
        return send(encode_text(text))

    try:
        async with aclosing(engine.batches(request, context, place.interruption, take_text=take_text)) as batches:
            async for batch in batches:
                piece = encode(batch[0]) if len(batch) == 1 else b"".join(map(encode, batch))
                last = batch[-1]
                yield LastPiece(piece) if isinstance(last, Done | ErrorEvent) else piece
    except Exception:
        # The engine turns its own failures into events. Here are those of encoding, and those after the last event.
        log.exception("stream failed: %s", ProviderError.code)
        if not isinstance(last, Done | ErrorEvent):
            yield encode(ErrorEvent(ProviderError.code, ProviderError.safe_message))


def _hand_over(request: Request, revoke: Callable[[], None] | None) -> None:
    """From now on the stream ends properly when its key does: by its place, or by *revoke* for a reader of a run that
    another key has started (CHAT-92), and where the stream came with a token, which has an end of its own
    (ACCESS-122)."""
    use: KeyUse | None = request.scope["state"].get("key_use")
    if use is None:
        return
    if revoke is None:
        use.finish()
    else:
        use.kind, use.end = "streams", revoke


def _warning(response: EventStream, warning: str) -> EventStream:
    if warning:
        response.headers[BUDGET] = warning
    return response


async def _leave(place: Place) -> None:
    place.leave()


def _unavailable(message: str = "Agent Loop is not accepting requests") -> Response:
    return refuse(503, "engine_unavailable", message, headers=_LATER)


def _full(refused: ShareRefused) -> Response:
    if refused.scope != "actor":
        return _unavailable()
    message = "This actor has as many streams open as it may have now"
    return refuse(429, "rate_limited", message, headers=_LATER)


def _same_id(request: Request, chat_request: ChatRequest) -> None:
    header = request.headers.get(HEADER)
    if header is not None and header.strip() != chat_request.metadata.correlation_id:
        raise InvalidRequest(f"{HEADER} and metadata.correlation_id differ")


def _resumption(headers: Headers) -> Resumption | None:
    """Returns None for a request without a key. Raises InvalidRequest."""
    key = _only(headers, KEY)
    # An event source that has seen no event sends an empty one.
    last_event_id = _only(headers, LAST_EVENT_ID) or None
    on_disconnect = _only(headers, ON_DISCONNECT)
    if key is None:
        if last_event_id is not None or on_disconnect is not None:
            # A new run might repeat the effects of the first.
            raise InvalidRequest(f"{LAST_EVENT_ID} and {ON_DISCONNECT} need the {KEY} of the run")
        return None
    if CORRELATION_ID.fullmatch(key) is None:
        raise InvalidRequest(f"{KEY} must match {CORRELATION_ID.pattern}")
    if on_disconnect not in (None, *CHOICES):
        raise InvalidRequest(f"{ON_DISCONNECT} must be cancel or continue")
    return Resumption(key, last_event_id, cast(OnDisconnect | None, on_disconnect))


def _only(headers: Headers, name: str) -> str | None:
    values = headers.getlist(name)
    if len(values) > 1:
        raise InvalidRequest(f"{name} was sent more than once")
    return values[0].strip() if values else None
