"""A stream ends with exactly one ``done`` or ``error``, whatever fails at whatever point (CHAT-28, CHAT-58, CHAT-78).

A run of two turns with two tools is played again and again; each time one fault strikes at the next of its await
points, until it has been through all of them.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import pytest

from tests.support.requirement import requirement
from tests.support.service import BOUND_S, chat_body, frames
from wicketgate.access.identity import Identity
from wicketgate.access.shares import CountedShares
from wicketgate.context.build import CountedTexts
from wicketgate.engine.contract import ChatRequest, call_context
from wicketgate.engine.events import Done, ErrorEvent, Event
from wicketgate.engine.keyed_runs import KeyedRuns, ResumeLimits, Resumption
from wicketgate.engine.limits import DetachedRuns, Interruption, StreamLimit
from wicketgate.engine.loop import Engine
from wicketgate.engine.turn import ModelWindow
from wicketgate.errors import ContextOverflow, ProviderError, UpstreamLost
from wicketgate.faces.surface import SurfaceResult, SurfaceTool
from wicketgate.gateway.options import NoMeter
from wicketgate.models.provider import Finish, ModelEvent, ModelRequest, TextDelta, ToolCall, Usage
from wicketgate.ports import CallContext
from wicketgate.storage.journal import StoredJournal
from wicketgate.storage.memory import MemoryStore
from wicketgate.storage.memory_runs import MemoryRuns
from wicketgate.storage.process import Process
from wicketgate.storage.runs import JournalBounds
from wicketgate.tokens import shipped_token_counter

ALICE = Identity("alice", ("tools:*",))
REQUEST = ChatRequest.model_validate(chat_body())

TEXTS = CountedTexts(shipped_token_counter())

Fault = Callable[[], object]


class Striker:
    """Calls *fault* at the await point of that number; *passed* counts them."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.passed = 0
        self.fault: Fault = lambda: None

    async def point(self) -> None:
        await asyncio.sleep(0)
        self.passed += 1
        if self.passed == self.at:
            self.fault()
            await asyncio.sleep(0)  # where a cancellation lands


class Model:
    def __init__(self, striker: Striker) -> None:
        self._striker = striker
        self.open = 0
        self._turns = 0

    async def aclose(self) -> None:
        """It holds nothing."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[ModelEvent], None]:
        self._turns += 1
        asks = [ToolCall("c1", "look", {}, "{}"), ToolCall("c2", "look", {}, "{}")] if self._turns == 1 else []
        self.open += 1
        try:
            await self._striker.point()
            yield [TextDelta("so")]
            await self._striker.point()
            yield [TextDelta(" far"), *asks]
            await self._striker.point()
            yield [Finish("tool_calls" if asks else "stop", Usage(1, 1))]
            await self._striker.point()
        finally:
            self.open -= 1


class Surface:
    def __init__(self, striker: Striker) -> None:
        self._striker = striker
        self.running = 0

    async def prepare(self, context: CallContext) -> None:
        pass

    def tools(self, context: CallContext) -> Sequence[SurfaceTool]:
        return [SurfaceTool("look", "Look.", {"type": "object"})]

    def may_write(self, name: str, arguments: Mapping[str, Any], context: CallContext) -> bool:
        return True

    def shown_again(self, name: str, text: str) -> str:
        return text

    async def call(self, name: str, arguments: object, context: CallContext) -> SurfaceResult:
        self.running += 1
        try:
            await self._striker.point()
            structured: Mapping[str, Any] = {"seen": True}
            return SurfaceResult([], structured, json.dumps(structured), False)
        finally:
            self.running -= 1


class Counting(NoMeter):
    def __init__(self) -> None:
        self.outcomes: list[str] = []

    def stream_ended(self, outcome: str) -> None:
        self.outcomes.append(outcome)


class House:
    """An engine with everything around it that can be struck."""

    def __init__(self, at: int) -> None:
        self.striker = Striker(at)
        self.model = Model(self.striker)
        self.surface = Surface(self.striker)
        self.meter = Counting()
        window = ModelWindow(10_000, 1_000, TEXTS)
        self.engine = Engine(self.model, self.surface, window, meter=self.meter)

    def assert_nothing_is_left(self) -> None:
        assert (self.model.open, self.surface.running) == (0, 0)
        assert len(self.meter.outcomes) == 1


def raising(error: BaseException) -> Fault:
    def strike() -> None:
        raise error

    return strike


def assert_one_end(events: Sequence[str]) -> None:
    assert [event in ("done", "error") for event in events] == [False] * (len(events) - 1) + [True], events


FAULTS: dict[str, BaseException] = {
    "the model's failure": ProviderError("no answer"),
    "too long": ContextOverflow("too long"),
    "a tool server lost": UpstreamLost("lost"),
    "a connection lost": ConnectionResetError(),
    "a deadline": TimeoutError(),
    "a bug": RuntimeError("sk-123456 at /srv/app.py"),
}


@requirement("CHAT-28", "CHAT-51", "CHAT-56", "CHAT-58")
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_anywhere_ends_the_stream_once(fault: str) -> None:
    at, ends = 1, set()
    while True:
        house = House(at)
        house.striker.fault = raising(FAULTS[fault])
        events: list[Event] = []
        async with asyncio.timeout(BOUND_S):
            async for batch in house.engine.batches(REQUEST, call_context(REQUEST, ALICE)):
                events += batch
        if house.striker.passed < at:
            break
        assert_one_end([event.name for event in events])
        ends.add(events[-1].code if isinstance(events[-1], ErrorEvent) else "done")
        house.assert_nothing_is_left()
        at += 1
    assert at > 8
    assert ends <= {"provider_error", "tool_error", "context_overflow"}
    assert len(ends) >= 1


@requirement("CHAT-28", "CHAT-78")
async def test_a_stop_anywhere_ends_the_stream_with_done() -> None:
    at = 1
    while True:
        house, interruption = House(at), Interruption()
        house.striker.fault = interruption.request
        events: list[Event] = []
        async with asyncio.timeout(BOUND_S):
            async for batch in house.engine.batches(REQUEST, call_context(REQUEST, ALICE), interruption):
                events += batch
                await house.striker.point()  # the reader's own place
        if house.striker.passed < at:
            break
        assert_one_end([event.name for event in events])
        assert isinstance(events[-1], Done)
        house.assert_nothing_is_left()
        at += 1
    assert at > 12


@requirement("CHAT-72")
async def test_a_reader_gone_anywhere_leaves_nothing_running() -> None:
    at = 1
    while True:
        house = House(at)

        async def read(house: House = house) -> None:
            async with aclosing(house.engine.batches(REQUEST, call_context(REQUEST, ALICE))) as batches:
                async for _ in batches:
                    await house.striker.point()

        reading = asyncio.create_task(read())
        house.striker.fault = reading.cancel
        async with asyncio.timeout(BOUND_S):
            await asyncio.wait([reading])
        house.assert_nothing_is_left()
        if house.striker.passed < at:
            break
        assert reading.cancelled()
        at += 1
    assert at > 12


class BrokenJournal(StoredJournal):
    """Strikes where events are kept, too."""

    striker = Striker(0)

    async def append(
        self, name: str, events: Sequence[bytes], completed: Sequence[str] = (), part: bytes = b""
    ) -> None:
        await self.striker.point()
        await super().append(name, events, completed)


@requirement("CHAT-28", "CHAT-73")
@pytest.mark.parametrize("kind", ["fault", "stop", "shutdown"])
async def test_a_keyed_stream_ends_once_too_and_gives_its_place_back(kind: str) -> None:
    at = 1
    while True:
        house = House(at)
        store = MemoryStore()
        journal = BrokenJournal(MemoryRuns(store, "here", JournalBounds()), Process(store))
        journal.striker = house.striker
        streams = StreamLimit(CountedShares("chat", 1))
        detached = DetachedRuns(CountedShares("detached", 1))
        keyed = KeyedRuns(house.engine, journal, streams, detached, ResumeLimits(), lambda: "r1")
        closing: list[asyncio.Task[None]] = []

        def strike(
            keyed: KeyedRuns = keyed, streams: StreamLimit = streams, closing: list[asyncio.Task[None]] = closing
        ) -> None:
            if kind == "fault":
                raise RuntimeError("a bug")
            if kind == "stop":
                streams.end_all()
            else:
                closing.append(asyncio.create_task(keyed.aclose()))

        house.striker.fault = strike
        async with asyncio.timeout(BOUND_S):
            reader = await keyed.open(REQUEST, ALICE, Resumption("k"))
            text = b"".join([piece async for piece in reader.pieces()]).decode()
            await reader.aclose()
            await asyncio.gather(*closing)
            await streams.wait_empty()
        await keyed.aclose()
        if house.striker.passed < at:
            break
        assert_one_end([event for event, _ in frames(text)])
        house.assert_nothing_is_left()
        at += 1
    assert at > 12
