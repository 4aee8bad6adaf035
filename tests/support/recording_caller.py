"""A caller that keeps what it is told and asked, in order."""

import asyncio
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from wicketgate.ports import AnswerTime, CannotAsk


class RecordingCaller:
    """Implements Caller. A question is answered with *answer*; without one it waits for ever, or cannot be asked."""

    def __init__(self, answers: AnswerTime = "never", answer: Mapping[str, Any] | None = None) -> None:
        self.answers: AnswerTime = answers
        self.capabilities: Mapping[str, Any] = {} if answers == "never" else {"elicitation": {"form": {}, "url": {}}}
        self.told: list[tuple[Any, ...]] = []
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.asking = asyncio.Event()
        self.given_up = asyncio.Event()
        self._answer = answer

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        await asyncio.sleep(0)
        self.told.append(("progress", progress, total, message))

    async def log(self, level: str, data: object, logger: str | None) -> None:
        await asyncio.sleep(0)
        self.told.append(("log", level, data, logger))

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.append((method, params))
        self.asking.set()
        if self.answers == "never":
            raise CannotAsk(method)
        if self._answer is None:
            try:
                await asyncio.Event().wait()
            finally:
                self.given_up.set()
        assert self._answer is not None
        return self._answer

    def pending(self) -> AbstractContextManager[None]:
        return nullcontext()

    async def page_done(self, elicitation_id: str) -> None:
        self.told.append(("page_done", elicitation_id))
