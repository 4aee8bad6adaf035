"""One address of a model provider: what every dialect does alike (DESIGN §2 "model", §3 "Libraries on the hot paths").

One POST, no retry. The caller's credentials never leave; what the server says about a failure goes to the log only,
bounded and without the key.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from time import time
from typing import Any

import httpx
import msgspec

from wicketgate.errors import ConfigError, EngineError, ProviderError, ProviderSilent, ProviderUnavailable
from wicketgate.models.events import Finish, ModelEvent
from wicketgate.models.failures import FailureKind, classify, failure
from wicketgate.models.http_transport import Body, LeanTransport, origin_of, request_head
from wicketgate.models.read_watch import ReadWatch
from wicketgate.models.retry_after import retry_after_s
from wicketgate.models.turn_reading import TurnReading
from wicketgate.text.correlation import HEADER, is_correlation_id
from wicketgate.text.redaction import Redactor

_CONNECT_S = 5.0
_AFTER_FINISH_S = 5.0
"""How long the usage and the end may take once the model has finished: some servers leave the stream open."""
_LAST_BYTES_S = 0.5
"""How long to wait for the end of the body after the last event, for the sake of the connection."""
_MAX_ERROR_BYTES = 64 * 1024
_MAX_LOG_CHARS = 1000

_BROKEN = (httpx.TransportError, OSError)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """*first_event_s* runs from the request to the first event of the answer. *idle_s* is the longest silence after it,
    where any byte counts, so that a server's keep-alives do; *stall_s* the longest time without an event, where they do
    not."""

    first_event_s: float
    idle_s: float
    stall_s: float = 300.0


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
    """*secrets* are kept out of every error."""

    def __init__(self, url: str, headers: Mapping[str, str], secrets: Sequence[str], timeouts: Timeouts) -> None:
        self._url = _checked_url(url)
        self._timeouts = timeouts
        self._redact = Redactor(secrets)
        self._origin = origin_of(self._url)
        head = {
            "Host": self._url.netloc.decode("ascii"),
            "Accept": "text/event-stream",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
            "User-Agent": "wicketgate",
            **headers,
        }
        fields = [(name.encode(), value.encode()) for name, value in head.items()]
        self._head_start = request_head("POST", self._url, fields).removesuffix(b"\r\n")
        # Without httpx's client: cookies, redirects and credentials found elsewhere are what it adds.
        self._transport = LeanTransport()

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
                head = self._head(correlation_id, len(content))
                response = await self._transport.send(self._origin, head, content, _CONNECT_S)
                if response.status_code == 200:
                    return response
                return await _read_refusal(response)
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
        watch = ReadWatch(response)
        try:
            if (encoding := response.headers.get("content-encoding", "identity")) != "identity":
                raise ProviderError(f"the provider used the encoding {encoding}, which was not asked for")
            assert isinstance(response.stream, Body)
            body = response.stream
            read = body.read
            while not turn.ended:
                watch.begin(read_by)
                try:
                    data = await read()
                except _BROKEN as error:
                    _check_loss(error, turn, expired=watch.expired)
                    data = b""
                watch.read_by = inf
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
            await watch.aclose()

    def _head(self, correlation_id: str, content_bytes: int) -> bytes:
        traced = f"{HEADER}: {correlation_id}\r\n" if is_correlation_id(correlation_id) else ""
        return b"%b%bContent-Length: %d\r\n\r\n" % (self._head_start, traced.encode(), content_bytes)

    def for_the_log(self, error: EngineError) -> None:
        """Keep secrets out of *error*, and bound its text."""
        error.args = (self._redact(str(error)[:_MAX_ERROR_BYTES])[:_MAX_LOG_CHARS],)


async def _read_refusal(response: httpx.Response) -> Refusal:
    body = bytearray()
    try:
        # The status has said the most of it: a body that breaks off changes nothing.
        with suppress(*_BROKEN):
            async for data in response.aiter_raw():
                body += data
                if len(body) >= _MAX_ERROR_BYTES:
                    break
    finally:
        await response.aclose()
    beginning = bytes(body[:_MAX_ERROR_BYTES])
    return Refusal(response.status_code, beginning, retry_after_s(response.headers, beginning, time()))


def _check_loss(error: Exception, turn: TurnReading, *, expired: bool) -> None:
    """The connection was lost, or given up: nothing is wrong if the model had finished."""
    if turn.answered:
        return
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


def _checked_url(text: str) -> httpx.URL:
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        url = httpx.URL()
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigError("model.base_url must be an http or https URL, such as https://api.openai.com/v1")
    return url


def checked_key(api_key: str) -> str:
    """*api_key*, which can stand in a header. Raises ConfigError."""
    if not (api_key.isascii() and api_key.isprintable()):
        raise ConfigError("model.api_key holds a character that cannot stand in a header, perhaps a line end")
    return api_key


def ended_by_filter() -> list[ModelEvent]:
    """What a refusal by a content filter, before anything was said, comes to (Azure)."""
    return [Finish("content_filter", None)]
