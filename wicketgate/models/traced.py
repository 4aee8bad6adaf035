"""Spans around the calls of one model (OPS-540)."""

from collections.abc import Sequence
from dataclasses import replace

from wicketgate.models.provider import Finish, ModelEvent, ModelRequest, Provider, Stream
from wicketgate.tracing import TRACEPARENT, Attributes, OpenSpan, begin, error_of


class TracedProvider:
    """A Provider that records each call of *provider*: attempts of a fallback are spans of their own.

    *system* is the ``gen_ai.provider.name``, *model* the name that it is asked by.
    """

    def __init__(self, provider: Provider, system: str, model: str) -> None:
        self._provider = provider
        self._name = f"chat {model}"
        self._attributes: Attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": system,
            "gen_ai.request.model": model,
        }

    async def aclose(self) -> None:
        await self._provider.aclose()

    def stream(self, request: ModelRequest) -> Stream[Sequence[ModelEvent]]:
        span = begin(self._name, "CLIENT", self._attributes, {TRACEPARENT: request.traceparent})
        if span is None:
            return self._provider.stream(request)
        return _Watched(self._provider.stream(replace(request, traceparent=span.traceparent)), span)


class _Watched:
    """Ends *span* when *stream* ends, fails or is closed."""

    def __init__(self, stream: Stream[Sequence[ModelEvent]], span: OpenSpan) -> None:
        self._stream = stream
        self._span: OpenSpan | None = span

    def __aiter__(self) -> "_Watched":
        return self

    async def __anext__(self) -> Sequence[ModelEvent]:
        try:
            events = await self._stream.__anext__()
        except BaseException as failure:
            self._end("" if isinstance(failure, StopAsyncIteration) else error_of(failure))
            raise
        if events and isinstance(last := events[-1], Finish) and self._span is not None:
            self._span.note(_noted(last))
        return events

    async def aclose(self) -> None:
        self._end()
        await self._stream.aclose()

    def _end(self, error: str = "") -> None:
        span, self._span = self._span, None
        if span is not None:
            span.end(error)


def _noted(finish: Finish) -> Attributes:
    noted: dict[str, str | int | list[str]] = {"gen_ai.response.finish_reasons": [finish.reason]}
    if (usage := finish.usage) is not None:
        noted["gen_ai.usage.input_tokens"] = usage.prompt_tokens
        noted["gen_ai.usage.output_tokens"] = usage.completion_tokens
        noted["gen_ai.usage.cache_read.input_tokens"] = usage.cached_tokens
    return noted
