from collections.abc import AsyncGenerator

import pytest

from wicketgate.errors import ProviderError
from wicketgate.models.late_stream import LateStream, Stream, first_of, nothing_more


class Numbers:
    def __init__(self) -> None:
        self.closed = False

    async def stream(self) -> AsyncGenerator[int, None]:
        try:
            for number in range(3):
                yield number
        finally:
            self.closed = True


async def test_a_stream_that_is_found_late_gives_all_its_items_and_is_closed_with_it() -> None:
    numbers = Numbers()

    async def find() -> tuple[int, Stream[int]]:
        return await first_of(numbers.stream())

    assert [item async for item in LateStream(find)] == [0, 1, 2]
    late = LateStream(find)
    assert await late.__anext__() == 0
    numbers.closed = False
    await late.aclose()
    assert numbers.closed


async def test_closed_before_it_began_it_finds_nothing() -> None:
    async def find() -> tuple[int, Stream[int]]:
        raise AssertionError("asked for")

    late = LateStream(find)
    await late.aclose()
    assert [item async for item in late] == []


async def test_a_stream_without_a_first_item_is_a_failure() -> None:
    with pytest.raises(ProviderError):
        await first_of(nothing_more())
