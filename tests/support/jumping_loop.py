"""An event loop whose clock jumps to the next timer as soon as nothing else is to be done.

run_jumping(main())     # hours of timers in milliseconds; for code without sockets, processes and threads
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

time_passes = asyncio.sleep
"""In this loop it takes no time."""


class _JumpingSelector(selectors.DefaultSelector):
    """Waits for no timer: it moves *now* on by as long as it was to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise AssertionError("nothing is left to wait for")
            self.now += timeout
        return ready


class _JumpingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def run_jumping(main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=_JumpingLoop) as runner:
        return runner.run(main)
