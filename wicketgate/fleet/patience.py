"""The deadline of a call that waits for people, whose time does not count (UP-104), and for a server that shows that it
works (UP-133, UP-134)."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from wicketgate.ports import Caller, PassingCaller

ASKED_S = 600.0
"""A person has so long for one call, all of its questions together; from then on its time counts again."""


class PatientDeadline:
    """A deadline of *timeout_s* that stands still while a person is asked, and is put off by progress. Enter it around
    the call, which it cancels when it has passed; leaving it raises TimeoutError then. Call ``over`` before.

    However often it is put off, the call ends *longest_s* after its beginning, if that is longer than *timeout_s*; the
    time in which a person is asked left out.

    A timer of its own and not ``asyncio.timeout``, which takes three times as long to enter and leave.
    """

    def __init__(self, timeout_s: float, longest_s: float) -> None:
        self._timeout_s = timeout_s
        self._longest_s = max(longest_s, timeout_s)
        self._asked_s = 0.0
        self._is_task = False
        self._left_s = 0.0
        self._asking = 0
        self._began = 0.0
        self._for_people_s = ASKED_S
        self._over = False
        self._words: str | None = None
        self.expired = False

    def __enter__(self) -> Self:
        self._loop = loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None
        self._task, self._cancelling = task, task.cancelling()
        self._start = loop.time()
        self._timer: asyncio.Handle | None = None
        self._set(self._start + self._timeout_s)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # Someone else may have cancelled the task too.
        if self.expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    @property
    def words(self) -> str:
        """The time in which there was no answer, for a person."""
        return self._words or f"{self._timeout_s:g} s"

    def end(self) -> None:
        """The call is to end now."""
        self.over()
        if not self.expired:
            self._set(self._loop.time())

    def over(self) -> None:
        """The call has ended, or is to end now."""
        self._over = True

    def alive(self) -> None:
        """Its server has shown that it works: the call has its whole time again (UP-133)."""
        self._allow(self._timeout_s)

    def becomes_task(self) -> bool:
        """The call may take its longest time (UP-114). True if that is news."""
        if self._is_task or self._over or self.expired or self._longest_s <= self._timeout_s:
            return False
        self._is_task = True
        self._allow(self._longest_s)
        return True

    def _allow(self, more_s: float) -> None:
        """The call may take *more_s* from now, as far as the longest time goes. Takes nothing away."""
        at = self._began if self._asking else self._loop.time()
        rest_s = self._longest_s - (at - self._start - self._asked_s)
        ends_at = at + min(more_s, rest_s) + (self._for_people_s if self._asking else 0.0)
        if ends_at <= self._ends_at:
            return
        self._left_s = min(more_s, rest_s)
        self._words = f"{self._longest_s:g} s" if rest_s <= more_s else f"{self._timeout_s:g} s of its last progress"
        self._move(ends_at)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """The deadline stands still within the block. Blocks of several questions may overlap."""
        self._asking += 1
        if self._asking == 1:
            self._began = self._loop.time()
            self._left_s = self._ends_at - self._began
            self._move(self._ends_at + self._for_people_s)
        try:
            yield
        finally:
            self._asking -= 1
            if not self._asking:
                spent_s = min(self._loop.time() - self._began, self._for_people_s)
                self._for_people_s -= spent_s
                self._asked_s += spent_s
                self._move(self._began + spent_s + self._left_s)

    def _move(self, ends_at: float) -> None:
        if not self._over and not self.expired:
            self._set(ends_at)

    def _set(self, ends_at: float) -> None:
        self._ends_at = ends_at
        if self._timer is not None:
            self._timer.cancel()
        if ends_at <= self._loop.time():
            self._timer = self._loop.call_soon(self._expire)
        else:
            self._timer = self._loop.call_at(ends_at, self._expire)

    def _expire(self) -> None:
        self.expired = True
        self._timer = None
        self._task.cancel()


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
