"""The deadline of a call that waits for people, whose time does not count (UP-104), and for a server that shows that it
works (UP-133, UP-134)."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from wicketgate.ports import Caller, PassingCaller

ASKED_S = 600.0
"""A person has so long for one call, all of its questions together; from then on its time counts again."""


class PatientDeadline:
    """A deadline that stands still while a person is asked, and is put off by progress. Enter *timeout*, of
    *timeout_s*, before; call ``over`` when it is left.

    However often it is put off, the call ends *longest_s* after its beginning, if that is longer than *timeout_s*; the
    time in which a person is asked left out.
    """

    def __init__(self, timeout: asyncio.Timeout, timeout_s: float, longest_s: float) -> None:
        self._timeout = timeout
        self._timeout_s = timeout_s
        self._longest_s = max(longest_s, timeout_s)
        self._start = (timeout.when() or 0.0) - timeout_s
        self._asked_s = 0.0
        self._is_task = False
        self._left_s = 0.0
        self._asking = 0
        self._began = 0.0
        self._for_people_s = ASKED_S
        self._over = False
        self.words = f"{timeout_s:g} s"
        """The time in which there was no answer, for a person."""

    def over(self) -> None:
        """The call has ended, or is to end now."""
        self._over = True

    def alive(self) -> None:
        """Its server has shown that it works: the call has its whole time again (UP-133)."""
        self._allow(self._timeout_s)

    def becomes_task(self) -> bool:
        """The call may take its longest time (UP-114). True if that is news."""
        if self._is_task or self._over or self._timeout.expired() or self._longest_s <= self._timeout_s:
            return False
        self._is_task = True
        self._allow(self._longest_s)
        return True

    def _allow(self, more_s: float) -> None:
        """The call may take *more_s* from now, as far as the longest time goes. Takes nothing away."""
        at = self._began if self._asking else asyncio.get_running_loop().time()
        rest_s = self._longest_s - (at - self._start - self._asked_s)
        ends_at = at + min(more_s, rest_s) + (self._for_people_s if self._asking else 0.0)
        if (before := self._timeout.when()) is None or ends_at <= before:
            return
        self._left_s = min(more_s, rest_s)
        self.words = f"{self._longest_s:g} s" if rest_s <= more_s else f"{self._timeout_s:g} s of its last progress"
        self._move(ends_at)

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
                self._asked_s += spent_s
                self._move(self._began + spent_s + self._left_s)

    def _move(self, ends_at: float) -> None:
        if not self._over and not self._timeout.expired():
            self._timeout.reschedule(ends_at)


class PatientCaller(PassingCaller):
    """*caller*, who is asked while *deadline* stands still, and whose progress puts it off."""

    def __init__(self, caller: Caller, deadline: PatientDeadline) -> None:
        super().__init__(caller)
        self._deadline = deadline

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        self._deadline.alive()
        await self._caller.progress(progress, total, message)

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        with self._deadline.asking():
            return await self._caller.ask(method, params)

    @contextmanager
    def pending(self) -> Iterator[None]:
        with self._deadline.asking(), self._caller.pending():
            yield
