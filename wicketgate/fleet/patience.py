"""The time of a call in which a person is asked: it does not count towards the call's deadline (UP-104)."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from wicketgate.ports import AnswerTime, Caller

ASKED_S = 600.0
"""A person has so long for one call, all of its questions together; from then on its time counts again."""


class PatientDeadline:
    """A deadline that stands still while a person is asked. Enter *timeout* before; call ``over`` when it is left."""

    def __init__(self, timeout: asyncio.Timeout) -> None:
        self._timeout = timeout
        self._left_s = 0.0
        self._asking = 0
        self._began = 0.0
        self._for_people_s = ASKED_S
        self._over = False

    def over(self) -> None:
        """The call has ended, or is to end now."""
        self._over = True

    def prolong(self, more_s: float) -> None:
        """The call may take *more_s* more."""
        if (ends_at := self._timeout.when()) is not None:
            self._left_s += more_s
            self._move(ends_at + more_s)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """The deadline stands still within the block. Blocks of several questions may overlap."""
        loop = asyncio.get_running_loop()
        self._asking += 1
        if self._asking == 1 and (ends_at := self._timeout.when()) is not None:
            self._began = loop.time()
            self._left_s = ends_at - self._began
            self._move(ends_at + self._for_people_s)
        try:
            yield
        finally:
            self._asking -= 1
            if not self._asking:
                spent_s = min(loop.time() - self._began, self._for_people_s)
                self._for_people_s -= spent_s
                self._move(self._began + spent_s + self._left_s)

    def _move(self, ends_at: float) -> None:
        if not self._over and not self._timeout.expired():
            self._timeout.reschedule(ends_at)


class PatientCaller:
    """Implements Caller: *caller*, who is asked while *deadline* stands still."""

    def __init__(self, caller: Caller, deadline: PatientDeadline) -> None:
        self._caller = caller
        self._deadline = deadline

    @property
    def answers(self) -> AnswerTime:
        return self._caller.answers

    @property
    def capabilities(self) -> Mapping[str, Any]:
        return self._caller.capabilities

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        await self._caller.progress(progress, total, message)

    async def log(self, level: str, data: object, logger: str | None) -> None:
        await self._caller.log(level, data, logger)

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        with self._deadline.asking():
            return await self._caller.ask(method, params)
