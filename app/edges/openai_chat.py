"""The model behind a chat-completions endpoint, over HTTP (DESIGN §2 "model", §3 "Libraries on the hot paths").

One POST a turn. The caller's credentials never leave; what the server says about a failure goes to the log only,
bounded and without the key.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import aiohttp
import httpx
import msgspec
from httpx_aiohttp import AiohttpTransport

from app.edges.read_watch import ReadWatch
from app.engine.model import Finish, ModelEvent, ModelRequest, TextDelta, ToolCall, Usage
from app.errors import ConfigError, ContextOverflow, EngineError, ProviderError
from app.wire.correlation import HEADER
from app.wire.openai_chat import ChatEvent, ChatStream, TurnEnd
from app.wire.provider_failure import classify
from app.wire.redaction import Redactor
from app.wire.tool_calls import AssembledCall

_CONNECT_S = 5.0
_AFTER_FINISH_S = 5.0
"""How long the usage and the end may take once the model has finished: some servers leave the stream open."""
_LAST_BYTES_S = 0.5
"""How long to wait for the end of the body after the last event, for the sake of the connection."""
_MAX_ERROR_BYTES = 64 * 1024
_MAX_LOG_CHARS = 1000

# The transport maps most of aiohttp's errors to those of httpx, and lets the rest through; OSError has TimeoutError.
_BROKEN = (httpx.HTTPError, aiohttp.ClientError, OSError)


class OpenAIChatProvider:
    """A Provider. *base_url* is the root that ``/chat/completions`` stands under; *context_tokens* the model's window.

    *first_event_timeout_s* runs from the request to the first event of the answer; *idle_timeout_s* is the longest
    silence after it, where any byte counts, so that a server's keep-alive comments do.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        api_key: str | None,
        *,
        context_tokens: int,
        first_event_timeout_s: float,
        idle_timeout_s: float,
    ) -> None:
        self._url = _checked_url(base_url)
        self._model = model
        self._context_tokens = context_tokens
        self._first_event_timeout_s = first_event_timeout_s
        self._idle_timeout_s = idle_timeout_s
        self._redact = Redactor([api_key] if api_key else ())
        self._takes_stream_options = True
        self._client = httpx.AsyncClient(
            # aiohttp reads 0 as no limit; the engine bounds its streams itself.
            transport=AiohttpTransport(trust_env=False, limits=httpx.Limits(max_connections=0)),
            headers={"Accept": "text/event-stream", "Accept-Encoding": "identity"}
            | ({"Authorization": f"Bearer {_checked_key(api_key)}"} if api_key else {}),
            timeout=httpx.Timeout(_CONNECT_S, read=None, write=None),
            follow_redirects=False,
            trust_env=False,
        )

    async def aclose(self) -> None:
        """Close the connections. Streams that are open break off."""
        await self._client.aclose()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[ModelEvent], None]:
        """One attempt, no retry. Raises ProviderError or ContextOverflow, see Provider."""
        loop = asyncio.get_running_loop()
        first_event_by = loop.time() + self._first_event_timeout_s
        try:
            opened = await self._open(request, first_event_by)
            if isinstance(opened, _Refusal):
                yield [opened.finish()]
                return
            watch = ReadWatch(opened)
            try:
                if (encoding := opened.headers.get("content-encoding", "identity")) != "identity":
                    raise ProviderError(f"the provider used the encoding {encoding}, which was not asked for")
                turn = ChatStream(self._context_tokens)
                chunks = opened.aiter_raw()
                while not turn.ended:
                    if turn.answered:
                        read_by = loop.time() + min(self._idle_timeout_s, _AFTER_FINISH_S)
                    elif turn.started:
                        read_by = loop.time() + self._idle_timeout_s
                    else:
                        read_by = first_event_by
                    watch.begin(read_by)
                    data = await _read(chunks, watch, turn)
                    watch.end()
                    if events := _model_events(turn.feed(data) if data else turn.close()):
                        yield events
                    if turn.failure is not None:
                        raise turn.failure
                await _let_the_body_end(chunks)
            finally:
                await watch.aclose()
        except EngineError as error:
            detail = self._redact(str(error)[:_MAX_ERROR_BYTES])[:_MAX_LOG_CHARS]
            raise type(error)(detail) from None

    async def _open(self, request: ModelRequest, deadline: float) -> "httpx.Response | _Refusal":
        """The response, with nothing of its body read. A retry before the first delta would stand around this."""
        asked_for_usage = self._takes_stream_options
        opened = await self._post(request, deadline, with_usage=asked_for_usage)
        if isinstance(opened, _Refusal) and asked_for_usage and opened.is_about_stream_options():
            opened = await self._post(request, deadline, with_usage=False)
            if not isinstance(opened, _Refusal):
                self._takes_stream_options = False
        return opened

    async def _post(self, request: ModelRequest, deadline: float, *, with_usage: bool) -> "httpx.Response | _Refusal":
        headers = {"Content-Type": "application/json", HEADER: request.correlation_id}
        body = _request_body(self._model, request, with_usage=with_usage)
        try:
            async with asyncio.timeout_at(deadline):
                post = self._client.build_request("POST", self._url, content=body, headers=headers)
                response = await self._client.send(post, stream=True)
                if response.status_code == 200:
                    return response
                return await _read_refusal(response)
        except _BROKEN as error:
            raise ProviderError(f"no answer from the provider: {type(error).__name__}: {error}") from None


@dataclass(frozen=True, slots=True)
class _Refusal:
    """A status other than 200, with the beginning of its body."""

    status: int
    body: bytes

    def is_about_stream_options(self) -> bool:
        about_it = self.status in (400, 422) and b"stream_options" in self.body
        return about_it and classify(self.body, self.status) == "failed"

    def finish(self) -> Finish:
        """A filter's refusal ends the turn (Azure); every other is raised."""
        kind = classify(self.body, self.status)
        if kind == "filtered":
            return Finish("content_filter", None)
        raised = ContextOverflow if kind == "overflow" else ProviderError
        raise raised(f"the provider answered {self.status}: {self.body.decode(errors='replace')}")


async def _read_refusal(response: httpx.Response) -> _Refusal:
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
    return _Refusal(response.status_code, bytes(body[:_MAX_ERROR_BYTES]))


async def _read(chunks: AsyncIterator[bytes], watch: ReadWatch, turn: ChatStream) -> bytes:
    """What the next read brings; nothing at the end of the answer."""
    try:
        return await anext(chunks, b"")
    except _BROKEN as error:
        if turn.answered:
            return b""
        phase = "in the stream" if turn.started else "before the first event"
        what = "silence" if watch.expired else f"{type(error).__name__}: {error}"
        raise ProviderError(f"the provider was lost {phase}: {what}") from None


async def _let_the_body_end(chunks: AsyncIterator[bytes]) -> None:
    """A body read to its end leaves a connection that the next turn can use."""
    with suppress(*_BROKEN):
        async with asyncio.timeout(_LAST_BYTES_S):
            await anext(chunks, b"")


def _model_events(said: Sequence[ChatEvent]) -> list[ModelEvent]:
    events: list[ModelEvent] = []
    for event in said:
        if isinstance(event, str):
            events.append(TextDelta(event))
        elif isinstance(event, AssembledCall):
            events.append(ToolCall(event.id, event.name, event.arguments, event.raw))
        elif isinstance(event, TurnEnd):
            events.append(Finish(event.reason, Usage(*event.usage) if event.usage else None))
        # Reasoning has no place among the contract's events.
    return events


def _request_body(model: str, request: ModelRequest, *, with_usage: bool) -> bytes:
    body: dict[str, Any] = {"model": model, "messages": request.messages, "stream": True}
    if with_usage:
        body["stream_options"] = {"include_usage": True}
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
            }
            for tool in request.tools
        ]
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


def _checked_url(base_url: str) -> httpx.URL:
    try:
        url = httpx.URL(base_url.rstrip("/") + "/chat/completions")
    except httpx.InvalidURL:
        url = httpx.URL()
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigError("model.base_url must be an http or https URL, such as https://api.openai.com/v1")
    return url


def _checked_key(api_key: str) -> str:
    if not (api_key.isascii() and api_key.isprintable()):
        raise ConfigError("model.api_key holds a character that cannot stand in a header, perhaps a line end")
    return api_key
