"""One address of a model provider: what every dialect does alike (DESIGN §2 "model", §3 "Libraries on the hot paths").

One POST, no retry. The caller's credentials never leave; what the server says about a failure goes to the log only,
bounded and without the key.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import time
from typing import Any

import httpx
import msgspec

from wicketgate.errors import ConfigError, EngineError, ProviderError, ProviderSilent, ProviderUnavailable
from wicketgate.log_text import HEADER, Redactor, is_correlation_id
from wicketgate.models.events import Finish, ModelEvent
from wicketgate.models.failures import FailureKind, classify, failure
from wicketgate.models.retry_after import retry_after_s
from wicketgate.models.turn_reading import TurnReading
from wicketgate.net import Body, NeverSent, Outgoing, Target, body_of, make_http_client

_CONNECT_S = 5.0
_AFTER_FINISH_S = 5.0
"""How long the usage and the end may take once the model has finished: some servers leave the stream open."""
_IDLE_S = 15.0
"""How long a connection is kept for the next turn; providers keep theirs for longer."""
_LAST_BYTES_S = 0.5
"""How long to wait for the end of the body after the last event, for the sake of the connection."""
_MAX_ERROR_BYTES = 64 * 1024
_MAX_LOG_CHARS = 1000

_BROKEN = (httpx.RequestError, TimeoutError)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """*first_event_s* runs from the request to the first event of the answer. *idle_s* is the longest silence after it,
    where any byte counts, so that a server's keep-alives do; *stall_s* the longest time without an event, where they do
    not."""

    first_event_s: float
    idle_s: float
    stall_s: float = 300.0


@dataclass(frozen=True, slots=True)
class ModelAddress:
    """Where a model is, and how it is reached. *base_url* is the root below which its paths stand."""

    base_url: str
    api_key: str | None
    timeouts: Timeouts
    outgoing: Outgoing = field(default_factory=Outgoing)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A status other than 200, with the beginning of its body and the provider's word on when to come again."""

    status: int
    body: bytes
    retry_after_s: float | None

    @property
    def kind(self) -> FailureKind:
        return classify(self.body, self.status)

    def error(self) -> EngineError:
        words = self.body.decode(errors="replace")
        return failure(self.kind, f"the provider answered {self.status}: {words}", self.retry_after_s)

    def names(self, field: str) -> bool:
        """Whether it is the request's *field* that was refused."""
        return self.status in (400, 422) and field.encode() in self.body and self.kind == "failed"


class ModelEndpoint:
    """The URL below the address's, with *headers*. The address's key is kept out of every error."""

    def __init__(self, address: ModelAddress, url: str, headers: Mapping[str, str]) -> None:
        self._timeouts = address.timeouts
        self._redact = Redactor([address.api_key] if address.api_key else [])
        head = {"Accept": "text/event-stream", "Content-Type": "application/json", **headers}
        try:
            self._target = Target("POST", url, head)
        except NeverSent:
            raise ConfigError(
                "model.base_url must be an http or https URL, such as https://api.openai.com/v1"
            ) from None
        self._transport = make_http_client(address.outgoing, idle_s=_IDLE_S).transport

    async def aclose(self) -> None:
        """Close the connections. Streams that are open break off."""
        await self._transport.aclose()

    def first_event_by(self) -> float:
        """The deadline of a request that begins now, in the loop's time."""
        return asyncio.get_running_loop().time() + self._timeouts.first_event_s

    async def open(self, body: Mapping[str, Any], correlation_id: str, deadline: float) -> httpx.Response | Refusal:
        """The response, with nothing of its body read. Raises ProviderError."""
        content = _encoded(body)
        try:
            async with asyncio.timeout_at(deadline) as waiting:
                traced = {HEADER: correlation_id} if is_correlation_id(correlation_id) else None
                response = await self._transport.send(self._target, content, traced, connect_s=_CONNECT_S)
                if response.status_code == 200:
                    return response
                return await _read_refusal(response)
        except httpx.DecodingError as error:
            raise ProviderError(f"the provider's answer cannot be read: {error}") from None
        except _BROKEN as error:
            if waiting.expired():
                raise ProviderSilent("no answer from the provider in time") from None
            raise ProviderUnavailable(f"no answer from the provider: {type(error).__name__}: {error}") from None

    async def read(
        self, response: httpx.Response, turn: TurnReading, first_event_by: float
    ) -> AsyncGenerator[Sequence[ModelEvent], None]:
        """What *turn* makes of the response, up to its Finish. Raises what *turn* says, or ProviderError."""
        now = asyncio.get_running_loop().time
        idle_s, stall_s = self._timeouts.idle_s, self._timeouts.stall_s
        heard, stall_by = 0, first_event_by
        read_by = first_event_by
        body = body_of(response)
        read, watch = body.read, body.watch
        try:
            while not turn.ended:
                watch(read_by)
                try:
                    data = await read()
                except _BROKEN as error:
                    _check_loss(error, turn)
                    data = b""
                events = turn.feed(data) if data else turn.close()
                if events:
                    yield events
                if turn.failure is not None:
                    raise turn.failure
                if turn.heard:
                    came = now()
                    if turn.heard != heard:
                        heard, stall_by = turn.heard, came + stall_s
                    read_by = came + (min(idle_s, _AFTER_FINISH_S) if turn.answered else idle_s)
                    if stall_by < read_by:
                        read_by = stall_by
            await _let_the_body_end(body)
        except EngineError as error:
            self.for_the_log(error)
            raise error from None
        finally:
            await response.aclose()

    def for_the_log(self, error: EngineError) -> None:
        """Keep secrets out of *error*, and bound its text."""
        error.args = (self._redact(str(error)[:_MAX_ERROR_BYTES])[:_MAX_LOG_CHARS],)


async def _read_refusal(response: httpx.Response) -> Refusal:
    body = bytearray()
    try:
        # The status has said the most of it: a body that breaks off changes nothing.
        with suppress(*_BROKEN):
            read = body_of(response).read
            while len(body) < _MAX_ERROR_BYTES and (data := await read()):
                body += data
    finally:
        await response.aclose()
    beginning = bytes(body[:_MAX_ERROR_BYTES])
    return Refusal(response.status_code, beginning, retry_after_s(response.headers, beginning, time()))


def _check_loss(error: Exception, turn: TurnReading) -> None:
    """The connection was lost, or given up: nothing is wrong if the model had finished."""
    if turn.answered:
        return
    expired = isinstance(error, httpx.ReadTimeout)
    if not turn.heard:
        if expired:
            raise ProviderSilent("the provider sent no event in time") from None
        raise ProviderUnavailable(f"the provider was lost before the first event: {type(error).__name__}: {error}")
    what = "silence" if expired else f"{type(error).__name__}: {error}"
    raise ProviderError(f"the provider was lost in the stream: {what}") from None


async def _let_the_body_end(body: Body) -> None:
    """A body read to its end leaves a connection that the next turn can use."""
    with suppress(*_BROKEN):
        async with asyncio.timeout(_LAST_BYTES_S):
            await body.read()


def _encoded(body: Mapping[str, Any]) -> bytes:
    try:
        return _encoder.encode(body)
    except (TypeError, ValueError, RecursionError) as error:
        raise ProviderError(f"the messages cannot be written as JSON: {type(error).__name__}") from None


def _plain(value: object) -> object:
    """Mappings and sequences that are not dict, list or tuple, for the encoder."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    raise TypeError(f"not JSON: {type(value).__name__}")


_encoder = msgspec.json.Encoder(enc_hook=_plain)


def checked_key(api_key: str) -> str:
    """*api_key*, which can stand in a header. Raises ConfigError."""
    if not (api_key.isascii() and api_key.isprintable()):
        raise ConfigError("model.api_key holds a character that cannot stand in a header, perhaps a line end")
    return api_key


def ended_by_filter() -> list[ModelEvent]:
    """What a refusal by a content filter, before anything was said, comes to (Azure)."""
    return [Finish("content_filter", None)]
