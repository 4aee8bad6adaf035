"""A stream that has to be found first: from its first item on, nothing stands between it and who reads it."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, Generic, Protocol, TypeVar

from wicketgate.errors import ProviderError

_NOTHING: tuple[Any, ...] = ()

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Stream(Protocol[T_co]):
    """What is read of an asynchronous generator. Closing ends what stands behind it."""

    def __aiter__(self) -> AsyncIterator[T_co]: ...

    def __anext__(self) -> Awaitable[T_co]: ...

    def aclose(self) -> Awaitable[None]: ...


class LateStream(Generic[T]):
    """*find* gives the first item and the stream of the others, or raises; it closes what it did not give.

    An ordinary generator around another costs on every item, which is every token of a model.
    """

    def __init__(self, find: Callable[[], Awaitable[tuple[T, Stream[T]]]]) -> None:
        self._find: Callable[[], Awaitable[tuple[T, Stream[T]]]] | None = find
        self._rest: Stream[T] | None = None

    def __aiter__(self) -> "LateStream[T]":
        return self

    def __anext__(self) -> Awaitable[T]:
        return self._first() if self._rest is None else self._rest.__anext__()

    async def aclose(self) -> None:
        self._find = None
        if self._rest is not None:
            await self._rest.aclose()

    async def _first(self) -> T:
        find, self._find = self._find, None
        if find is None:
            raise StopAsyncIteration
        item, self._rest = await find()
        return item


async def first_of(stream: Stream[T]) -> tuple[T, Stream[T]]:
    """Its first item, with the stream of the others. It is closed if there is none."""
    try:
        return await stream.__anext__(), stream
    except StopAsyncIteration:
        raise ProviderError("the model ended its turn without a word") from None
    except BaseException:
        await stream.aclose()
        raise


async def nothing_more() -> AsyncGenerator[Any, None]:
    """A stream that is at its end."""
    for nothing in _NOTHING:
        yield nothing
