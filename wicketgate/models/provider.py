"""The interface between the loop and a model: a request, the events of one turn, and the stream that carries them.

Messages travel in the chat-completions shape, the prevailing one (CHAT-2 to CHAT-17); a provider of another shape
translates at its edge. Events are the same whatever bytes they were read from (CHAT-32, CHAT-49).
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import add, attrgetter
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

from wicketgate.errors import ProviderError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

FinishReason = Literal["stop", "length", "content_filter", "tool_calls"]

_MOST_TOKENS = 10**12
_NOTHING: tuple[Any, ...] = ()

Message = Mapping[str, Any]
"""``{role, content, tool_calls?, tool_call_id?, kept?}``; ``tool_calls[].function.arguments`` is a JSON string.

``kept`` (a Kept) is never part of a request from outside; a provider takes it out before it sends the message.
"""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one or several model calls, as the provider counted them.

    *prompt_tokens* is all that was read, from a cache or not; *cached_tokens* is the part that came from the provider's
    prompt cache, *cache_write_tokens* the part that was put there; *reasoning_tokens* is part of the completion. *cost*
    is in 10^-12 of the currency of the prices, 0 without them.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(*map(add, _counts(self), _counts(other)))

    def maximum(self, other: "Usage") -> "Usage":
        """The larger of each count: servers that report along the way count upwards, and some send zeros at the end."""
        return Usage(*map(max, _counts(self), _counts(other)))


# Not ``astuple``, which copies each number and takes ten times as long: this is a part of every turn.
_counts: Callable[[Usage], tuple[int, ...]] = attrgetter(*(field.name for field in fields(Usage)))


def token_count(reported: int | float | None) -> int:
    """*reported*, if it can be a count of tokens; otherwise 0. Servers have sent -1 and NaN."""
    return int(reported) if reported is not None and 0 <= reported <= _MOST_TOKENS else 0


@dataclass(slots=True)
class TextDelta:
    """A piece of text. It goes out as it comes in, so it is an event of the stream too (``engine/events.py``)."""

    # Not frozen: there is one for every token, and freezing triples what it costs to make one.
    name: ClassVar = "text-delta"
    content: str

    def data(self) -> dict[str, Any]:
        return {"content": self.content}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A complete call. *arguments* is None if the model's JSON was not an object; *raw* is its text."""

    id: str
    name: str
    arguments: dict[str, Any] | None
    raw: str


@dataclass(frozen=True, slots=True)
class Kept:
    """Output beside text and calls that the model must be given again, unchanged, while its tools run: thinking with
    its signatures. *origin* names provider and model; it is not sent to any other. *text* is the part that takes room
    in the window."""

    origin: str
    data: Mapping[str, Any]
    text: str


@dataclass(frozen=True, slots=True)
class Finish:
    """The end of the model's turn. *usage* is None if the provider never reported it; *most_tokens* is the bound of the
    answer that was asked for, if ``length`` is the reason and there was one. *model* is the configured name."""

    reason: FinishReason
    usage: Usage | None
    kept: Kept | None = None
    most_tokens: int | None = None
    model: str = ""


ModelEvent = TextDelta | ToolCall | Finish


@dataclass(frozen=True, slots=True)
class ModelTool:
    name: str
    description: str
    parameters: Mapping[str, Any]


TakeText = Callable[[str], bool]
"""Takes a text in the place of the reader, at once, and returns whether it did."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """*take_text* is a shorter way for text: while the reader waits for an item that is not the first, a provider may
    offer it what would be the next item, if that is a TextDelta and nothing else. If it returns False the item goes to
    the reader. *traceparent* goes to the server of the model, unless it is empty."""

    messages: Sequence[Message]
    tools: Sequence[ModelTool]
    correlation_id: str
    take_text: TakeText | None = field(default=None, compare=False, repr=False)
    traceparent: str = ""


class Stream(Protocol[T_co]):
    """The part of an asynchronous generator that readers use. Closing it ends the work behind it."""

    def __aiter__(self) -> AsyncIterator[T_co]: ...

    def __anext__(self) -> Awaitable[T_co]: ...

    def aclose(self) -> Awaitable[None]: ...


class Provider(Protocol):
    async def aclose(self) -> None:
        """Release what is held between turns: connections, most of all."""
        ...

    def stream(self, request: ModelRequest) -> Stream[Sequence[ModelEvent]]:
        """Stream one model turn. Each item holds the events of one read from the wire, in order.

        Ends with exactly one Finish, last, or raises ProviderError or ContextOverflow: a stream that breaks off
        or is empty is never a quiet end. Closing the stream aborts the request.
        """
        ...


class LateStream(Generic[T]):
    """A stream that *find* opens at the first read.

    *find* returns the first item and the stream of the rest, or raises; it closes every stream that it does not return.
    A generator around another would cost on every item, which is every token of a model; this class passes through.
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
    """The first item, and the stream of the rest. Closes the stream and raises ProviderError if there is none."""
    try:
        return await stream.__anext__(), stream
    except StopAsyncIteration:
        raise ProviderError("the model ended its turn without any output") from None
    except BaseException:
        await stream.aclose()
        raise


async def empty_stream() -> AsyncGenerator[Any, None]:
    for nothing in _NOTHING:
        yield nothing
