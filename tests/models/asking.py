"""One turn of a model over HTTP: what a provider is asked, and what comes of it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio
import pytest

from wicketgate.errors import EngineError
from wicketgate.models.provider import Message, ModelEvent, ModelRequest, ModelTool, Provider

KEY = "key-0123456789abcdef"
HI: Message = {"role": "user", "content": "hi"}
TOOL = ModelTool("tool_browse", "Browse.", {"type": "object", "properties": {"path": {"type": "string"}}})

P = TypeVar("P", bound=Provider)


@asynccontextmanager
async def closing(provider: P) -> AsyncIterator[P]:
    """*provider*, closed at the end; the block is bounded in time."""
    try:
        with anyio.fail_after(10):
            yield provider
    finally:
        await provider.aclose()


def ask(*messages: Message, tools: Sequence[ModelTool] = ()) -> ModelRequest:
    return ModelRequest(messages or (HI,), tools, "req_1")


async def answer(provider: Provider, request: ModelRequest | None = None) -> list[ModelEvent]:
    return [event async for batch in provider.stream(request or ask()) for event in batch]


async def failure(provider: Provider) -> tuple[list[ModelEvent], EngineError]:
    """The events before the error that ended the turn, and the error."""
    events: list[ModelEvent] = []
    with pytest.raises(EngineError) as raised:
        async for batch in provider.stream(ask()):
            events += batch
    return events, raised.value
