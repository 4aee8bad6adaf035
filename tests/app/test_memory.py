"""Memory is given back after a start (OPS-378) and a peak (OPS-43), and what is remembered is bounded (OPS-44)."""

import asyncio
import gc

import pytest

from app.memory import WORTH_BYTES, Trimming, give_back, malloc_trim, resident_bytes
from tests.support.memory import held_blocks
from tests.support.requirement import requirement
from wicketgate.catalog.words import terms
from wicketgate.context.build import CountedTexts

MB = 1 << 20
BOUND_S = 30.0
NEW_TEXTS = 50_000
"""More than twice what is remembered."""


@requirement("OPS-43")
def test_it_is_time_after_a_peak_and_at_rest() -> None:
    trimming = Trimming(150 * MB)
    assert not trimming.due(160 * MB, 0.0)  # not worth it
    assert not trimming.due(500 * MB, 0.9)  # busy
    assert trimming.due(440 * MB, 0.01)
    trimming.trimmed(300 * MB)  # the rest is in use
    assert not trimming.due(310 * MB, 0.0)
    assert not trimming.due(160 * MB, 0.0)  # freed since
    assert trimming.due(160 * MB + WORTH_BYTES, 0.0)


@requirement("OPS-43")
async def test_each_peak_is_given_back() -> None:
    size = 150 * MB
    looks: asyncio.Queue[int] = asyncio.Queue()

    def resident() -> int:
        looks.put_nowait(size)
        return size

    def trim() -> None:
        nonlocal size
        size = 160 * MB

    async def started() -> None:
        pass

    giving = asyncio.create_task(give_back(trim, started, resident=resident, every_s=0.05))
    async with asyncio.timeout(BOUND_S):
        for _ in range(2):
            await looks.get()
            size = 400 * MB
            # One look is just after the trim, and one a period later.
            for _ in range(2):
                while await looks.get() != 160 * MB:
                    pass
    assert not giving.done()
    giving.cancel()


@requirement("OPS-378")
async def test_what_a_start_has_freed_is_given_back_once_when_it_is_over() -> None:
    order: list[str] = []
    ready, looked = asyncio.Event(), asyncio.Event()

    async def started() -> None:
        order.append("starting")
        await ready.wait()

    def resident() -> int:
        order.append("look")
        if order.count("look") > 2:
            looked.set()
        return 130 * MB

    giving = asyncio.create_task(give_back(lambda: order.append("trim"), started, resident=resident, every_s=0.01))
    async with asyncio.timeout(BOUND_S):
        while not order:
            await asyncio.sleep(0)
        assert order == ["starting"]
        ready.set()
        await looked.wait()
    assert order[:2] == ["starting", "trim"]
    assert order.count("trim") == 1
    giving.cancel()


@requirement("OPS-43")
@pytest.mark.skipif(malloc_trim() is None or not resident_bytes(), reason="needs glibc and /proc")
def test_what_was_freed_goes_back_to_the_system() -> None:
    trim = malloc_trim()
    assert trim is not None
    # Blocks of malloc's own size, with a few left in use, so that free() alone returns nothing.
    blocks = [bytes(2_000) for _ in range(60_000)]
    kept = blocks[::200]
    kept.append(bytes(2_000))
    blocks.clear()
    gc.collect()
    before = resident_bytes()
    trim()
    assert before - resident_bytes() > 50 * MB
    assert len(kept) == 301


@requirement("OPS-44")
def test_what_is_remembered_is_bounded() -> None:
    class OneToken:
        def count(self, text: str) -> int:
            return 1

    def count_new_texts(kind: str) -> None:
        for number in range(NEW_TEXTS):
            counted.count(f"a {kind} text {number}")
            terms(f"{kind}{number}x{number}y")

    counted = CountedTexts(OneToken())
    count_new_texts("first")  # fills what is remembered
    before = held_blocks()
    count_new_texts("second")
    # One that is kept for good takes a block at least.
    assert held_blocks() - before < NEW_TEXTS // 5
