"""The turns of each model, counted (OPS-532), traced (OPS-540) and priced (OPS-550): every attempt by itself, for all
providers alike."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from wicketgate.errors import ContextOverflow, EngineError, ProviderSilent, ProviderUnavailable
from wicketgate.measures import LONG_BOUNDS_S, CallCounts, Durations
from wicketgate.models.provider import (
    Finish,
    Message,
    ModelEvent,
    ModelRequest,
    Provider,
    Stream,
    TextDelta,
    ToolCall,
    Usage,
)
from wicketgate.tracing import MOST_CONTENT_CHARS, TRACEPARENT, Attributes, OpenSpan, begin, content_is_on, error_of

_OUTCOMES = ("ok", "overflow", "silent", "unavailable", "failed", "cancelled", "fault")


@dataclass(frozen=True, slots=True)
class ModelPrices:
    """The prices of a token in 10^-12 of their currency. *input* is of one that came from no cache and went into none,
    *output* of one of a completion."""

    input: int
    output: int
    cached_input: int
    cache_write: int

    def cost(self, usage: Usage) -> int:
        fresh = max(0, usage.prompt_tokens - usage.cached_tokens - usage.cache_write_tokens)
        cached = usage.cached_tokens * self.cached_input + usage.cache_write_tokens * self.cache_write
        return fresh * self.input + cached + usage.completion_tokens * self.output


class ModelCounts:
    """Counts the turns of one model. *first_token* covers only turns that begin with text, because a tool call arrives
    complete."""

    def __init__(self) -> None:
        self.turns = CallCounts(_OUTCOMES)
        self.first_token = Durations(LONG_BOUNDS_S)
        self.usage = Usage()


class WatchedModels:
    """Counts turns by the configured names of models. *now* is in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.counts: dict[str, ModelCounts] = {}
        self._now = now

    def watched(
        self, model: str, provider: Provider, system: str = "wicketgate", prices: ModelPrices | None = None
    ) -> Provider:
        """Returns *provider* with its turns counted, traced and priced as those of *model*. *system* is its
        ``gen_ai.provider.name``."""
        counts = self.counts.setdefault(model, ModelCounts())
        return _WatchedProvider(provider, model, system, counts, self._now, prices)


class _WatchedProvider:
    def __init__(
        self,
        provider: Provider,
        model: str,
        system: str,
        counts: ModelCounts,
        now: Callable[[], float],
        prices: ModelPrices | None,
    ) -> None:
        self._provider = provider
        self._counts = counts
        self._now = now
        self._model = model
        self._prices = prices
        self._attributes: Attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": system,
            "gen_ai.request.model": model,
        }

    async def aclose(self) -> None:
        await self._provider.aclose()

    def stream(self, request: ModelRequest) -> Stream[Sequence[ModelEvent]]:
        span = begin(f"chat {self._model}", "CLIENT", self._attributes, {TRACEPARENT: request.traceparent})
        if span is not None:
            request = replace(request, traceparent=span.traceparent)
            if content_is_on():
                span.note_content("gen_ai.input.messages", _latest(request.messages))
        return _WatchedTurn(self._provider.stream(request), self._counts, self._now, span, self._finished)

    def _finished(self, finish: Finish) -> Finish:
        """Returns *finish* with the name of the model and the cost."""
        usage = finish.usage
        if usage is not None:
            self._counts.usage += (
                usage := usage if self._prices is None else replace(usage, cost=self._prices.cost(usage))
            )
        return replace(finish, usage=usage, model=self._model)


class _WatchedTurn:
    """One turn. It is counted once, from the first read until its end; its span ends with it."""

    __slots__ = ("_began", "_counts", "_finished", "_now", "_open", "_said", "_span", "_stream", "_waits")

    def __init__(
        self,
        stream: Stream[Sequence[ModelEvent]],
        counts: ModelCounts,
        now: Callable[[], float],
        span: OpenSpan | None,
        finished: Callable[[Finish], Finish],
    ) -> None:
        self._finished = finished
        self._stream = stream
        self._counts = counts
        self._now = now
        self._span = span
        self._began = 0.0
        self._open = False
        self._waits = True
        self._said: list[Mapping[str, Any]] | None = [] if span is not None and content_is_on() else None

    def __aiter__(self) -> "_WatchedTurn":
        return self

    async def __anext__(self) -> Sequence[ModelEvent]:
        if self._waits and not self._open:
            self._began, self._open = self._now(), True
        try:
            batch = await self._stream.__anext__()
        except BaseException as error:
            self._end(_outcome_of(error), "" if isinstance(error, StopAsyncIteration) else error_of(error))
            raise
        if batch:
            if self._said is not None:
                self._said += map(_part, batch[:-1] if type(batch[-1]) is Finish else batch)
            if self._waits:
                self._waits = False
                if type(batch[0]) is TextDelta:
                    self._counts.first_token.observe(self._now() - self._began)
            if type(last := batch[-1]) is Finish:
                if self._span is not None:
                    self._span.note(_noted(last))
                    if self._said is not None:
                        self._span.note_content("gen_ai.output.messages", [{"role": "assistant", "parts": self._said}])
                self._end("ok")
                batch = [*batch[:-1], self._finished(last)]
        return batch

    async def aclose(self) -> None:
        self._end("cancelled")
        await self._stream.aclose()

    def _end(self, outcome: str, error: str = "") -> None:
        if self._open:
            self._open = False
            self._counts.turns.ended(outcome, self._now() - self._began)
        span, self._span = self._span, None
        if span is not None:
            span.end(error)


def _latest(messages: Sequence[Message]) -> list[Mapping[str, Any]]:
    """Returns the last of *messages*, as much of them as a span takes, in the shape of the conventions."""
    left, latest = MOST_CONTENT_CHARS, list[Mapping[str, Any]]()
    for message in reversed(messages):
        text = str(message.get("content") or "")
        left -= len(text)
        if left < 0:
            break
        latest.insert(0, {"role": message["role"], "parts": [{"type": "text", "content": text}]})
    return latest


def _part(event: ModelEvent) -> Mapping[str, Any]:
    if isinstance(event, ToolCall):
        return {"type": "tool_call", "id": event.id, "name": event.name, "arguments": event.arguments}
    return {"type": "text", "content": event.content if isinstance(event, TextDelta) else ""}


def _noted(finish: Finish) -> Attributes:
    noted: dict[str, str | int | list[str]] = {"gen_ai.response.finish_reasons": [finish.reason]}
    if (usage := finish.usage) is not None:
        noted["gen_ai.usage.input_tokens"] = usage.prompt_tokens
        noted["gen_ai.usage.output_tokens"] = usage.completion_tokens
        noted["gen_ai.usage.cache_read.input_tokens"] = usage.cached_tokens
    return noted


def _outcome_of(error: BaseException) -> str:
    match error:
        case ContextOverflow():
            return "overflow"
        case ProviderSilent():
            return "silent"
        case ProviderUnavailable():
            return "unavailable"
        case EngineError() | StopAsyncIteration():
            return "failed"
    return "fault" if isinstance(error, Exception) else "cancelled"
