"""Ends a process that does not end by itself after a stop (OPS-336)."""

import asyncio
import logging
import os
import threading
import time

log = logging.getLogger("wicketgate")

_WRITE_S = 0.5
_MOST_TOLD = 20


def end_at_last(loop: asyncio.AbstractEventLoop, within_s: float) -> None:
    """Give the process *within_s* to end. Then its tasks and threads that are left are logged, and it exits with code
    1. The first of several calls whose time is over does it."""
    threading.Thread(target=_end, args=(loop, within_s), name="last resort", daemon=True).start()


def _end(loop: asyncio.AbstractEventLoop, within_s: float) -> None:
    time.sleep(within_s)
    left = [*_threads(), *_tasks(loop)]
    log.error(
        "the process did not end within %g s of its stop, and is ended now; remaining: %s", within_s, "; ".join(left)
    )
    time.sleep(_WRITE_S)  # the log is written by a thread of its own
    os._exit(1)


def _threads() -> list[str]:
    own = (threading.current_thread(), threading.main_thread())
    return [f"thread {each.name}" for each in threading.enumerate() if not each.daemon and each not in own]


def _tasks(loop: asyncio.AbstractEventLoop) -> list[str]:
    try:
        tasks = [] if loop.is_closed() else [*asyncio.all_tasks(loop)]
    except RuntimeError:
        return ["tasks that change while they are counted"]
    told = []
    for task in tasks[:_MOST_TOLD]:
        frames = task.get_stack(limit=1)
        where = f" in {frames[-1].f_code.co_qualname} line {frames[-1].f_lineno}" if frames else ""
        told.append(f"task {task.get_name()}{where}")
    return told + ([f"{len(tasks) - _MOST_TOLD} more tasks"] if len(tasks) > _MOST_TOLD else [])
