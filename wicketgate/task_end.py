"""The end of background tasks, which comes even if a library has swallowed their cancellation."""

import asyncio
from typing import Any

_AGAIN_S = 0.5


async def end_tasks(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel *tasks* and wait until they have ended, whatever with.

    They are cancelled again while they go on: on Python 3.11 a cancellation that comes while a client connects or sends
    may get lost (``asyncio.wait_for``). So this is for tasks that have nothing to finish.
    """
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=_AGAIN_S)
    await asyncio.gather(*tasks, return_exceptions=True)
