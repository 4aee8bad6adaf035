"""A slow tool, and how many of its calls run, for clients that cancel."""

import asyncio

_running = 0


async def rest() -> str:
    """Rests for a minute."""
    global _running
    _running += 1
    try:
        await asyncio.sleep(60)
    finally:
        _running -= 1
    return "rested"


def count_running() -> int:
    """Counts the calls of rest that run."""
    return _running


TOOLS = [rest, count_running]
