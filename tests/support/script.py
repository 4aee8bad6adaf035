"""A model that plays a script: what it says in each turn is given, what it was asked is kept."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from wicketgate.models.provider import Finish, ModelEvent, ModelRequest, TextDelta, ToolCall, Usage

Step = Sequence[ModelEvent] | asyncio.Event | Exception
Turn = Sequence[Step]
"""Batches to say, events to wait for, an exception to raise."""


def says(*texts: str, reason: str = "stop", usage: Usage | None = None) -> Turn:
    """A turn of text, a batch a piece, and its end."""
    return [*([TextDelta(text)] for text in texts), [Finish(reason, usage)]]  # type: ignore[arg-type]


def calls(*tool_calls: ToolCall, text: str = "", usage: Usage | None = None) -> Turn:
    """A turn that asks for tools."""
    said: list[ModelEvent] = [TextDelta(text)] if text else []
    return [[*said, *tool_calls, Finish("tool_calls", usage)]]


class ScriptModel:
    """Implements Provider. A turn beyond the script is a failure of the test, told as such."""

    def __init__(self, *turns: Turn) -> None:
        self._turns = list(turns)
        self.requests: list[ModelRequest] = []
        self.aborted = asyncio.Event()

    async def aclose(self) -> None:
        """It holds nothing."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[ModelEvent], None]:
        self.requests.append(request)
        if len(self.requests) > len(self._turns):
            raise AssertionError("the model was called more often than its script has turns")
        try:
            for step in self._turns[len(self.requests) - 1]:
                if isinstance(step, asyncio.Event):
                    await step.wait()
                elif isinstance(step, Exception):
                    raise step
                else:
                    yield step
        except (asyncio.CancelledError, GeneratorExit):
            self.aborted.set()
            raise
