"""A package's own tools, as somebody outside would write them (``python: tests.support.python_tools:registry``)."""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Annotated, Any

from pydantic import BaseModel, Field

from wicketgate.tools import Media, ToolContext, ToolFailed, ToolRegistry

registry = ToolRegistry()
not_a_registry = object()

release = threading.Event()
"""Lets ``hold`` go on."""
entered = threading.Event()
cancelled = asyncio.Event()


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


@dataclass
class Line:
    article: str
    pieces: int = 1


class Order(BaseModel):
    customer: str
    lines: list[Line]


@registry.tool(read_only=True)
def due(
    start: date,
    days: Annotated[int, Field(ge=0, description="How many days later")] = 14,
    size: Size = Size.SMALL,
    note: str | None = None,
) -> dict[str, Any]:
    """The day when a bill is due.

    Weekends count.

    Args:
        start: The day of the bill,
            as it is printed.
        size (Size): Of the parcel.
    """
    assert isinstance(start, date)
    return {"due": date.fromordinal(start.toordinal() + days), "size": size, "note": note}


@registry.tool(version="2", destructive=True)
async def place(order: Order, context: ToolContext) -> Order:
    """Place an order.

    :param order: What is ordered, and by whom.
    """
    for done, line in enumerate(order.lines):
        context.progress(done + 1, len(order.lines), line.article)
    context.log("warn", {"by": context.actor, "when": date(2026, 1, 2)})
    return order


@registry.tool
def count(text: str) -> int:
    return len(text)


@registry.tool
def share(total: float) -> float:
    return total / 0


@registry.tool
def refuse(copy: str, model_config: int = 0) -> str:
    raise ToolFailed(f"There is no {copy}.")


@registry.tool
async def leave(hard: bool = False) -> str:
    if hard:
        raise asyncio.CancelledError
    sys.exit(4)


@registry.tool
def leave_the_thread() -> str:
    sys.exit(4)


@registry.tool
def picture() -> list[str | Media]:
    return ["A dot.", Media(b"\x89PNG", "image/png"), Media(b"\0\1", "application/zip", "all.zip")]


@registry.tool
def raw() -> Any:
    return {"content": [{"type": "text", "text": "as it is"}], "isError": True}


def _round() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


def _deep() -> list[Any]:
    found: list[Any] = []
    for _ in range(100_000):
        found = [found]
    return found


UNSPEAKABLE: dict[str, dict[str, Any]] = {
    "nan": {"structuredContent": {"x": float("nan")}},
    "infinity": {"_meta": {"a": [float("inf")]}},
    "set": {"structuredContent": {"x": {1, 2}}},
    "object": {"structuredContent": {"x": object()}},
    "bytes": {"structuredContent": {"x": b"a"}},
    "key": {"structuredContent": {"x": {1: "a"}}},
    "number": {"structuredContent": {"x": 10**5000}},
    "round": {"structuredContent": {"x": _round()}},
    "deep": {"structuredContent": {"x": _deep()}},
    "block": {"content": [{"type": "text", "text": "a", "_meta": {"a": {1}}}]},
    "block alone": {"type": "text", "text": "a", "annotations": {"priority": float("nan")}},
}
"""Results, and one block of content, that JSON cannot hold."""


@registry.tool
def unspeakable(kind: str) -> Any:
    given = UNSPEAKABLE[kind]
    return given if "type" in given else {"content": [{"type": "text", "text": "secret"}], **given}


@registry.tool
async def unspeakable_on_the_loop(kind: str) -> Any:
    return unspeakable(kind)


@registry.tool
def hold(context: ToolContext) -> str:
    entered.set()
    release.wait(20)
    return f"cancelled: {context.cancelled}"


@registry.tool
async def hang() -> None:
    try:
        await asyncio.Event().wait()
    finally:
        cancelled.set()


@registry.tool
async def ticks(pause_s: float = 1.0) -> AsyncIterator[int]:
    yield 1
