"""Calls of a process as others see them, while processes end, stand still and lose their store."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest

from tests.gateway.test_running_calls import held
from tests.support.failing_store import FailingStore
from tests.support.requirement import requirement
from tests.support.until import until
from wicketgate.access.seal import Seal
from wicketgate.errors import ConnectRequired, GatewayError, InputRequired, UpstreamLost, UpstreamRefused
from wicketgate.gateway import kept_calls
from wicketgate.gateway.kept_calls import CANCEL, CallUnreadable, FollowedCall, KeptCalls, call_id, plain, raised
from wicketgate.gateway.running_calls import RunningCall, RunningCalls, RunningLimits
from wicketgate.storage.calls import StoredCalls
from wicketgate.storage.memory import MemoryStore
from wicketgate.storage.process import Process
from wicketgate.storage.signals import Waiter

BOUND_S = 30.0
MARK_S = 0.3


class Door:
    def __init__(self, call: RunningCall[str]) -> None:
        self.call = call
        self.heard: list[tuple[str, Any]] = []

    def row(self) -> Mapping[str, Any]:
        row: dict[str, Any] = {"label": "a:tool", "door": "view", "questions": {}, "outcome": None}
        if not self.call.ended:
            return row
        try:
            return {**row, "outcome": {"value": self.call.outcome()}}
        except GatewayError as error:
            return {**row, "outcome": {"error": plain(error)}}

    def said(self, name: str, value: Any) -> None:
        self.heard.append((name, value))


class OneProcess:
    """A process over *store*, whose calls end when *end* is set."""

    def __init__(self, store: MemoryStore, name: str) -> None:
        self.mark = Process(store, name, mark_s=MARK_S, beat_s=0.05)
        self.end = asyncio.Event()
        numbers = count(1)
        self.running = RunningCalls(
            RunningLimits(), now=lambda: 0.0, new_id=lambda: call_id(str(next(numbers)), self.mark.id)
        )
        seal = Seal(["k" * 40], b"", lambda: 0.0, lambda: "uid")
        self.kept = KeptCalls(self.running, StoredCalls(store, self.mark, seal), 60)

    async def hold(self) -> tuple[RunningCall[str], Door]:
        async def work() -> str:
            await self.end.wait()
            return "done"

        call = await held(self.running, "ann", "a:tool", work())
        door = Door(call)
        await self.kept.keep(call, lambda: door)
        return call, door


@pytest.fixture
def store() -> FailingStore:
    return FailingStore(refused=["step"])


@pytest.fixture
async def here(store: FailingStore) -> AsyncIterator[OneProcess]:
    async with process(store, "p1") as made:
        yield made


@pytest.fixture
async def there(store: FailingStore) -> AsyncIterator[OneProcess]:
    async with process(store, "p2") as made:
        yield made


@asynccontextmanager
async def process(store: FailingStore, name: str) -> AsyncIterator[OneProcess]:
    made = OneProcess(store, name)
    async with made.mark.running():
        yield made
        await made.running.aclose()
        await made.kept.aclose()


async def ends(followed: FollowedCall) -> Any:
    async with asyncio.timeout(BOUND_S):
        while not followed.ended:
            await followed.next()
    assert followed.row is not None
    return followed.row["outcome"]


@requirement("FACE-106", "FACE-203")
async def test_what_is_said_elsewhere_reaches_the_call_and_its_end_comes_back(
    here: OneProcess, there: OneProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_calls, "_COMES_S", 0.2)  # nothing waits for a row that could not be written
    call, door = await here.hold()
    async with there.kept.following("ann", call.id) as followed:
        await followed.say("question-1", {"answer": 1})
        await followed.say(CANCEL)
        await until(lambda: len(door.heard) == 2)
        assert dict(door.heard) == {"question-1": {"answer": 1}, CANCEL: True}
        here.end.set()
        assert await ends(followed) == {"value": "done"}
    async with there.kept.following("bob", call.id) as followed:
        assert followed.row is None
    here.running.drop(call)
    async with there.kept.following("ann", call.id) as followed:
        await until(lambda: not here.kept._tasks)
        await followed.read()
        assert followed.row is None


@requirement("FACE-124")
async def test_an_attempt_that_its_process_has_lost_ends_no_call(here: OneProcess, there: OneProcess) -> None:
    call, door = await here.hold()
    async with there.kept.following("ann", call.id) as lost, there.kept.following("ann", call.id) as later:
        await lost.attend()
        await until(lambda: door.heard == [("attempt", True)])
        await later.attend()
        await lost.leave(hung_up=True)
        await lost.say(CANCEL)
        await until(lambda: (CANCEL, True) in door.heard)
        assert "left" not in dict(door.heard), "another waits"
        await later.leave(hung_up=True)
        await until(lambda: "left" in dict(door.heard))
        names = [name for name, _ in door.heard]
        assert names.index("left") > names.index("attempt", 1), "it is attended no longer when it hears that"


@requirement("FACE-124", "FACE-110")
async def test_a_call_without_a_row_may_be_lost_if_its_process_has_ended(
    there: OneProcess, store: FailingStore
) -> None:
    async with process(store, "p1") as here:
        call, _ = await here.hold()
        with pytest.raises(CallUnreadable):
            await there.kept.check_missing(call.id)

    async def is_lost() -> bool:
        try:
            await there.kept.check_missing(call.id)
        except CallUnreadable:  # it is not known yet that the process has ended
            return False
        except UpstreamLost:
            return True
        raise AssertionError

    await until(is_lost)
    for own in ("1.p2", "1"):
        await there.kept.check_missing(own)


@requirement("FACE-110")
async def test_a_call_that_was_reported_as_lost_has_no_other_end(
    here: OneProcess, there: OneProcess, store: FailingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, _ = await here.hold()

    async def still(*args: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(here.mark, "_beat", still)  # its process stands still
    async with there.kept.following("ann", call.id) as followed:
        outcome = await ends(followed)
        assert "Whether it took effect is not known" in outcome["error"]["message"]
        here.end.set()
        await until(lambda: not here.kept.is_here("ann", call.id))
        await followed.read()
        assert followed.row is not None and followed.row["outcome"] == outcome


@requirement("FACE-202")
async def test_what_the_store_does_not_take_is_written_later(
    here: OneProcess, there: OneProcess, store: FailingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Waiter.wait, "__defaults__", (0.2,))  # between two looks
    store.unavailable = True
    call, _ = await here.hold()
    assert here.running.is_held(call)
    with pytest.raises(CallUnreadable):
        await here.kept._store.say("k", "p", "n", 1)
    asyncio.get_running_loop().call_later(0.1, setattr, store, "unavailable", False)
    async with there.kept.following("ann", call.id) as followed:
        assert followed.row is not None, "a reader waits for it"
        store.unavailable = True
        here.end.set()
        await until(lambda: call.ended)
        store.unavailable = False
        assert await ends(followed) == {"value": "done"}


def test_errors_are_the_same_for_a_client_of_another_process() -> None:
    required = ConnectRequired("Connect.", upstream="a", url="https://a.example", expires_at=3.0, flow="f")
    refused = UpstreamRefused("No.", code=-7, refusal="no", data={"a": 1}, status=500)
    for error in (required, refused, CallUnreadable()):
        again = raised(plain(error))
        assert isinstance(again, GatewayError)
        assert again.as_dict() == error.as_dict()
    question = raised(plain(InputRequired({"q": {"method": "m"}}, None, "d", "apr")))
    assert isinstance(question, InputRequired)
    assert (question.requests, question.request_state, question.definition, question.approval) == (
        {"q": {"method": "m"}},
        None,
        "d",
        "apr",
    )
    assert raised(plain(RuntimeError("secret"))).args == ("The call failed inside the gateway.",)
