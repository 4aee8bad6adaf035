"""The end of background tasks, and of blocks, which comes even if a library has swallowed their cancellation."""

import asyncio
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")

_AGAIN_S = 0.5

AGAIN_S = 5.0
"""A block that has caught a cancellation by mistake is cancelled once more. Cleaning up takes no longer, and must not
be broken off."""


async def end_tasks(*tasks: "asyncio.Task[Any] | None") -> None:
    """Cancel *tasks* and wait until they have ended, whatever with. One that is None was never begun.

    They are cancelled again while they go on: on Python 3.11 a cancellation that comes while a client connects or sends
    may get lost (``asyncio.wait_for``). So this is for tasks that have nothing to finish.
    """
    begun = [task for task in tasks if task is not None]
    pending = {task for task in begun if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=_AGAIN_S)
    await asyncio.gather(*begun, return_exceptions=True)


async def cancel_all(tasks: "Iterable[asyncio.Task[Any]]") -> None:
    """Cancels each of *tasks* once, and waits until all have ended: they may have something to finish."""
    cancelled = list(tasks)
    for task in cancelled:
        task.cancel()
    await asyncio.gather(*cancelled, return_exceptions=True)


def hold(task: "asyncio.Task[T]", tasks: "set[asyncio.Task[Any]]") -> "asyncio.Task[T]":
    """Keeps *task* among *tasks* until it ends: the event loop itself keeps no task from being collected."""
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task


class EndableBlock:
    """A block of a task that ``end`` cancels: at a tenth of the cost of a cancel scope, which each request would pay.

    Leaving it swallows that cancellation, and no other; *ended* is true then. To be entered once.
    """

    __slots__ = ("_before", "_cancels", "_next", "_task", "ended")

    def __init__(self) -> None:
        self.ended = False
        self._cancels = 0
        self._next: asyncio.Handle | None = None
        self._task: asyncio.Task[Any] | None = None

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._before = task.cancelling()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        task, self._task = self._task, None
        if self._next is None or task is None:
            return False
        self._next.cancel()
        cancelling = task.cancelling()
        for _ in range(self._cancels):
            cancelling = task.uncancel()
        # Someone else may have cancelled the task too, and that is not ours to end.
        self.ended = bool(self._cancels) and kind is asyncio.CancelledError and cancelling <= self._before
        return self.ended

    def end(self) -> None:
        """Cancel what runs in the block; does nothing before and after it, and when called again."""
        # Not at once: a task that is cancelled by itself would be interrupted where it waits next, maybe after the
        # block.
        if self._task is not None and self._next is None:
            self._next = asyncio.get_running_loop().call_soon(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._cancels += 1
            self._task.cancel()
            self._next = asyncio.get_running_loop().call_later(AGAIN_S, self._cancel)
