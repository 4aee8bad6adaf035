from collections.abc import AsyncGenerator

import pytest

from wicketgate.errors import ProviderError
from wicketgate.models.provider import LateStream, Stream, empty_stream, first_of


class Numbers:
    def __init__(self) -> None:
        self.closed = False

    async def stream(self) -> AsyncGenerator[int, None]:
        try:
            for number in range(3):
                yield number
        finally:
            self.closed = True


async def test_a_late_stream_gives_all_items_and_closes_the_stream_behind_it() -> None:
    numbers = Numbers()

    async def find() -> tuple[int, Stream[int]]:
        return await first_of(numbers.stream())

    assert [item async for item in LateStream(find)] == [0, 1, 2]
    late = LateStream(find)
    assert await late.__anext__() == 0
    numbers.closed = False
    await late.aclose()
    assert numbers.closed


async def test_a_late_stream_closed_before_its_first_read_opens_nothing() -> None:
    async def find() -> tuple[int, Stream[int]]:
        raise AssertionError("asked for")

    late = LateStream(find)
    await late.aclose()
    assert [item async for item in late] == []


async def test_a_stream_without_a_first_item_is_a_failure() -> None:
    with pytest.raises(ProviderError):
        await first_of(empty_stream())
