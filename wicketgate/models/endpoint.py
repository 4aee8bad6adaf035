"""One address of a model provider: HTTP for every dialect (CHAT-61).

One POST, no retry. The caller's credentials never leave; the server's words on a failure go to the log only, bounded
and without the key.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import time
from typing import Any

import httpx
import msgspec

from wicketgate.errors import ConfigError, EngineError, ProviderError, ProviderSilent, ProviderUnavailable
from wicketgate.log_text import HEADER, Redactor, is_correlation_id
from wicketgate.models.failures import FailureKind, classify, failure, retry_after_s
from wicketgate.models.provider import ModelEvent, ModelRequest, TakeText
from wicketgate.models.turn_reading import TurnReading
from wicketgate.net import HttpClient, NeverSent, NoAnswer, Outgoing, Target, body_of
from wicketgate.net.outgoing import SPEAKS_TLS, NotHttp, trouble_of, wants_tls
from wicketgate.tracing import TRACEPARENT

_CONNECT_S = 5.0
_AFTER_FINISH_S = 5.0
"""Time for the usage and the end once the model has finished: some servers leave the stream open."""
_IDLE_S = 15.0
"""Time that a connection is kept for the next turn; providers keep theirs for longer."""
_SLICE_BYTES = 32_768
_LAST_BYTES_S = 0.5
"""Time for the end of the body after the last event."""
_MAX_ERROR_BYTES = 64 * 1024
_MAX_LOG_CHARS = 1000

_BROKEN = (httpx.RequestError, TimeoutError)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """*first_event_s* runs from the request to the first event of the answer. After it, *idle_s* is the longest time
    without any byte, and *stall_s* the longest without an event: keep-alives are bytes, but no events."""

    first_event_s: float
    idle_s: float
    stall_s: float = 300.0


@dataclass(frozen=True, slots=True)
class ModelAddress:
    """The address of a model, and the way to it. *base_url* is the root of its paths."""

    base_url: str
    api_key: str | None
    timeouts: Timeouts
    outgoing: Outgoing = field(default_factory=Outgoing)


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """A status other than 200, with the beginning of its body and the wait that the provider asks for."""

    status: int
    body: bytes
    retry_after_s: float | None

    @property
    def kind(self) -> FailureKind:
        return classify(self.body, self.status)

    def refuses(self, field: str) -> bool:
        """True if the server refused the request's *field*."""
        return self.status in (400, 422) and field.encode() in self.body and self.kind == "failed"


class ModelEndpoint:
    """POSTs to *url* with *headers*. Keeps the address's key out of every error."""

    def __init__(self, address: ModelAddress, url: str, headers: Mapping[str, str]) -> None:
        self._timeouts = address.timeouts
        self._base_url = address.base_url
        self._redact = Redactor([address.api_key] if address.api_key else [])
        head = {"Accept": "text/event-stream", "Content-Type": "application/json", **headers}
        try:
            self._target = Target("POST", url, head)
        except NeverSent:
            raise ConfigError(
                "model.base_url must be an http or https URL, such as https://api.openai.com/v1"
            ) from None
        self._transport = HttpClient(address.outgoing, idle_s=_IDLE_S).transport

    async def aclose(self) -> None:
        """Close the connections. Open streams break off."""
        await self._transport.aclose()

    def first_event_by(self) -> float:
        """The deadline for the first event of a request that begins now, in the loop's time."""
        return asyncio.get_running_loop().time() + self._timeouts.first_event_s

    async def open(
        self, body: Mapping[str, Any], request: ModelRequest, deadline: float
    ) -> httpx.Response | ErrorResponse:
        """The response, with nothing of its body read. Raises ProviderError."""
        content = _encoded(body)
        try:
            async with asyncio.timeout_at(deadline) as waiting:
                traced = {HEADER: request.correlation_id} if is_correlation_id(request.correlation_id) else {}
                if request.traceparent:
                    traced[TRACEPARENT] = request.traceparent
                response = await self._transport.send(self._target, content, traced, connect_s=_CONNECT_S)
                if response.status_code == 200:
                    return response
                return await _read_error(response)
        except httpx.DecodingError as error:
            raise self._redacted(ProviderError(f"the provider's answer cannot be read: {error}")) from None
        except _BROKEN as error:
            if waiting.expired():
                raise ProviderSilent("no answer from the provider in time") from None
            lost = ProviderUnavailable(f"no answer from the provider: {self._told(error)}")
            if isinstance(error, NeverSent | NoAnswer | NotHttp):
                trouble = trouble_of(error)
                lost.unreached, lost.mend = trouble.why, trouble.mend
            raise self._redacted(lost) from None

    def failure(self, response: ErrorResponse) -> EngineError:
        """The exception to raise for *response*."""
        words = response.body.decode(errors="replace")
        mend = _mend_of(response)
        detail = f"the provider answered {response.status}{f' ({mend})' if mend else ''}: {words}"
        refused = failure(response.kind, detail, response.retry_after_s)
        if isinstance(refused, ProviderError):
            refused.status = response.status
            if wants_tls(response.status, response.body):
                refused.unreached, refused.mend = SPEAKS_TLS.why, SPEAKS_TLS.mend
        return self._redacted(refused)

    async def read(
        self,
        response: httpx.Response,
        turn: TurnReading,
        first_event_by: float,
        take_text: TakeText | None = None,
    ) -> AsyncGenerator[Sequence[ModelEvent], None]:
        """The events that *turn* reads from the response, up to its Finish. Raises the failure of *turn*, or
        ProviderError. Texts after the first events are offered to *take_text* (see ModelRequest)."""
        body = body_of(response)
        read, watch = body.read, body.watch
        deadline = _Deadline(self._timeouts, turn, first_event_by)
        passed_on = None if take_text is None else _passing(turn, take_text, deadline, watch)
        try:
            while not turn.ended:
                watch(deadline.read_by)
                # A lost connection is the end of the body if the model had finished.
                try:
                    data = await read()
                except _BROKEN as error:
                    _check_loss(error, turn)
                    data = b""
                # Events first: output before a failure counts.
                for events in _read_in_slices(turn, data):
                    if events:
                        yield events
                        if passed_on is not None:
                            body.pass_on(passed_on)
                            passed_on = None
                if turn.failure is not None:
                    raise turn.failure
                deadline.came()
            body.pass_on(None)
            # Read the rest of the body, for a connection that the next turn can use.
            watch(deadline.last_bytes_by())
            with suppress(*_BROKEN):
                await read()
        except EngineError as error:
            raise self._redacted(error) from None
        finally:
            await response.aclose()

    def _told(self, error: Exception) -> str:
        """The trouble for the operator, who reads it in the log."""
        if isinstance(error, NeverSent | NoAnswer | NotHttp):
            return trouble_of(error).told(self._base_url, "model.base_url")
        return f"{type(error).__name__}: {error}"

    def _redacted(self, error: EngineError) -> EngineError:
        """*error* without the key, and with its text bounded."""
        error.args = (self._redact(str(error)[:_MAX_ERROR_BYTES])[:_MAX_LOG_CHARS],)
        return error


class _Deadline:
    """The time at which a read is late: bytes extend the silence, events the stall."""

    __slots__ = ("_events_seen", "_now", "_pause_s", "_stall_by", "_timeouts", "_turn", "read_by")

    def __init__(self, timeouts: Timeouts, turn: TurnReading, first_event_by: float) -> None:
        self._timeouts = timeouts
        self._turn = turn
        self._now = asyncio.get_running_loop().time
        self._pause_s = min(timeouts.idle_s, timeouts.stall_s)
        self._events_seen, self._stall_by = 0, first_event_by
        self.read_by = first_event_by

    def came(self) -> None:
        """Count from now, after bytes that *turn* has read."""
        turn = self._turn
        if not turn.events_seen:
            return
        came = self._now()
        if turn.events_seen != self._events_seen:
            self._events_seen, self._stall_by = turn.events_seen, came + self._timeouts.stall_s
        idle_s = self._timeouts.idle_s
        self.read_by = min(came + (min(idle_s, _AFTER_FINISH_S) if turn.answered else idle_s), self._stall_by)

    def last_bytes_by(self) -> float:
        """The deadline for the end of the body, from now."""
        return self._now() + _LAST_BYTES_S

    def event_came(self) -> float:
        """The same for one event that is not the end, where every token passes; returns ``read_by``."""
        came = self._now()
        self._events_seen, self._stall_by = self._turn.events_seen, came + self._timeouts.stall_s
        self.read_by = read_by = came + self._pause_s
        return read_by


def _passing(
    turn: TurnReading, take_text: TakeText, deadline: _Deadline, watch: Callable[[float], None]
) -> Callable[[bytes], bool]:
    """Takes bytes that came while a read waits, if they are one text and *take_text* takes that. This way, with what is
    behind it, is that of nearly all tokens."""
    only_text, passed, event_came = turn.only_text, turn.passed, deadline.event_came

    def take(data: bytes) -> bool:
        text = only_text(data)
        if text is None or not take_text(text):
            return False
        passed()
        watch(event_came())
        return True

    return take


def _mend_of(response: ErrorResponse) -> str:
    """Names the setting that may mend it, by the status and the kind of the answer."""
    if wants_tls(response.status, response.body):
        return f"{SPEAKS_TLS.why}: {SPEAKS_TLS.mend_for('model.base_url')}"
    if response.kind != "failed":
        return ""
    match response.status:
        case 401 | 403:
            return "correct model.api_key; has it expired, or too few rights?"
        case 404 | 405:
            return "correct model.base_url, which often ends in /v1, or the name in model.model"
        case 301 | 302 | 303 | 307 | 308:
            return "it redirects to another place; write that address into model.base_url"
    return ""


async def _read_error(response: httpx.Response) -> ErrorResponse:
    body = bytearray()
    try:
        # The status says the most: a body that breaks off changes nothing.
        with suppress(*_BROKEN):
            read = body_of(response).read
            while len(body) < _MAX_ERROR_BYTES and (data := await read()):
                body += data
    finally:
        await response.aclose()
    beginning = bytes(body[:_MAX_ERROR_BYTES])
    return ErrorResponse(response.status_code, beginning, retry_after_s(response.headers, beginning, time()))


def _check_loss(error: Exception, turn: TurnReading) -> None:
    """Raise for a connection that was lost or timed out, unless the model had finished."""
    if turn.answered:
        return
    expired = isinstance(error, httpx.ReadTimeout)
    if not turn.events_seen:
        if expired:
            raise ProviderSilent("the provider sent no event in time") from None
        raise ProviderUnavailable(f"the provider was lost before the first event: {type(error).__name__}: {error}")
    cause = "silence" if expired else f"{type(error).__name__}: {error}"
    raise ProviderError(f"the connection to the provider was lost: {cause}") from None


def _encoded(body: Mapping[str, Any]) -> bytes:
    try:
        return _encoder.encode(body)
    except (TypeError, ValueError, RecursionError) as error:
        raise ProviderError(f"the messages cannot be written as JSON: {type(error).__name__}") from None


def _plain(value: object) -> object:
    """*value* as a dict or list, for the encoder, if it is another mapping or sequence."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    raise TypeError(f"not JSON: {type(value).__name__}")


def _read_in_slices(turn: TurnReading, data: bytes) -> Iterator[Sequence[ModelEvent]]:
    """The events of *data*, or those at the end of the body if there is none, slice by slice (CHAT-95): a fast model
    fills one read with thousands, and each batch of events is one piece of work for the loop."""
    if not data:
        yield turn.close()
    for at in range(0, len(data), _SLICE_BYTES):
        yield turn.feed(data[at : at + _SLICE_BYTES])
        if turn.ended or turn.failure is not None:
            return


_encoder = msgspec.json.Encoder(enc_hook=_plain)


def checked_key(api_key: str) -> str:
    """*api_key*, fit for a header. Raises ConfigError."""
    if not (api_key.isascii() and api_key.isprintable()):
        raise ConfigError("model.api_key holds a character that a header cannot have, perhaps a line end")
    return api_key
