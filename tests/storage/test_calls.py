"""Rows of long calls, and what is said to them, over every store."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support.requirement import requirement
from tests.support.until import until
from wicketgate.access.seal import Seal
from wicketgate.gateway.kept_calls import MOST_BYTES, CallUnreadable
from wicketgate.storage.calls import StoredCalls
from wicketgate.storage.core import DamagedRow
from wicketgate.storage.memory import MemoryStore
from wicketgate.storage.process import Process
from wicketgate.storage.store import Kind, Op, Put, Store, Take

Stores = tuple[str, Callable[[], Store]]

BOUND_S = 30.0
MARK_S = 0.5
ANN = "ann"


def seal(key: str = "k" * 40) -> Seal:
    return Seal([key], b"own" * 12, lambda: 0.0, lambda: "uid")


def opened(store: Store, name: str = "p1", most_bytes: int = MOST_BYTES) -> StoredCalls:
    return StoredCalls(store, Process(store, name, mark_s=MARK_S, beat_s=0.05), seal(), most_bytes)


def state(calls: StoredCalls, size: int = 0, **more: Any) -> dict[str, Any]:
    fixed: dict[str, Any] = {
        "process": calls.process,
        "label": "a:tool",
        "door": "view",
        "questions": {},
        "outcome": None,
    }
    return {**fixed, "pad": "x" * size, **more}


@asynccontextmanager
async def living(calls: StoredCalls) -> AsyncIterator[None]:
    async with calls._mark.running():
        yield


async def write(calls: StoredCalls, id: str, row: Mapping[str, Any], *, owner: str = ANN, begun: bool = False) -> str:
    return await calls.write(owner, id, row, 60, begun=begun, ended=row["outcome"] is not None)


async def read(calls: StoredCalls, id: str, owner: str = ANN) -> Any:
    return await calls.get(calls.key(owner, id))


@requirement("FACE-109")
async def test_a_row_is_its_owners_and_the_last_state_counts_in_every_process(stores: Stores) -> None:
    here, there = opened(stores[1]()), opened(stores[1](), "p2")
    ended = state(here, outcome={"value": "é \ud800"})
    assert await write(here, "1", state(here)) == "kept"
    assert await read(there, "1") == state(here)
    assert await write(here, "1", ended, begun=True) == "kept"
    assert await read(there, "1") == ended
    assert await read(there, "1", "bob") is None
    assert await there.drop(there.key(ANN, "1"))
    assert not await here.drop(here.key(ANN, "1")), "of two that take it away, one does"


@requirement("FACE-109")
async def test_any_string_is_an_owner_and_an_id_of_its_own(stores: Stores) -> None:
    calls = opened(stores[1]())
    odd = ["", "a", "A", "a ", "a\nb", "é", "e\u0301", "😀", "\ud800", "x" * 9_999, "{a}", "a:b"]
    names = [(owner, id) for owner in odd for id in odd]
    for at, (owner, id) in enumerate(names):
        await write(calls, id, state(calls, at=at), owner=owner)
    assert [(await read(calls, id, owner))["at"] for owner, id in names] == list(range(len(names)))


@requirement("FACE-109")
async def test_a_result_of_many_megabytes_is_whole_and_one_of_more_is_not_kept(stores: Stores) -> None:
    calls = opened(stores[1]())
    large = state(calls, 7 * 1024 * 1024, outcome={})
    assert await write(calls, "1", large) == "kept"
    assert await read(calls, "1") == large
    assert await write(calls, "2", state(calls, 9 * 1024 * 1024, outcome={})) == "full"


@requirement("OPS-350", "OPS-351", "OPS-352")
async def test_the_actor_who_holds_most_loses_its_oldest_result_and_calls_that_run_none(stores: Stores) -> None:
    calls = opened(stores[1](), most_bytes=10_000)

    async def put(name: str, size: int, *, ended: bool = True) -> str:
        row = state(calls, size - 100, **({"outcome": {}} if ended else {}))
        return await write(calls, name, row, owner=name[:3])

    async def kept(*names: str) -> list[str]:
        return [name for name in names if await read(calls, name, name[:3]) is not None]

    for name in ("ann1", "ann2", "bob1"):
        await put(name, 2_000, ended=name != "ann1")
    assert await put("ann3", 2_000) == "kept"
    assert await kept("ann1", "ann2", "ann3", "bob1") == ["ann1", "ann3", "bob1"], "half is one actor's"
    assert await put("cid1", 3_500) == "kept"
    assert await put("bob2", 1_500) == "kept"
    assert await kept("ann1", "ann3", "bob1", "bob2", "cid1") == ["ann1", "bob1", "bob2", "cid1"]
    assert await put("ann4", 4_000) == "full"


@requirement("FACE-110")
async def test_a_call_is_lost_once_for_all_when_the_mark_of_its_process_has_lapsed(stores: Stores) -> None:
    stopped, there = opened(stores[1]()), opened(stores[1](), "p2")
    async with there._listening(f"call.{there.key(ANN, '1')}") as changed, living(there):
        await stopped._store.beat("p1", mark_s=MARK_S)
        await write(stopped, "1", state(stopped, questions={"q": {}}))
        assert (await read(there, "1"))["outcome"] is None

        async def lost() -> Any:
            await changed.wait()
            return (await read(there, "1")).get("outcome")

        outcome = await until(lost)
        assert "Whether it took effect is not known" in outcome["error"]["message"]
        assert (await read(there, "1"))["questions"] == {}
        await stopped._store.beat("p1", mark_s=MARK_S)
        assert await write(stopped, "1", state(stopped, outcome={"value": 1}), begun=True) == "lost"
        assert (await read(stopped, "1"))["outcome"] == outcome


@requirement("FACE-110")
async def test_a_damaged_row_keeps_no_other_call_from_being_lost() -> None:
    class Damaged(MemoryStore):
        async def step(self, ops: Sequence[Op], **more: Any) -> Sequence[int]:
            if isinstance(ops[0], Take) and ops[0].key == "damaged":
                raise DamagedRow("call", "damaged")
            return await super().step(ops, **more)

    stopped = opened(store := Damaged())
    await write(stopped, "1", state(stopped))
    await opened(store, "p2")._lose(["damaged", stopped.key(ANN, "1")])
    assert (await read(stopped, "1"))["outcome"] is not None


@requirement("FACE-110", "EXEC-110")
async def test_a_process_that_lives_or_that_cannot_be_judged_loses_no_call(stores: Stores) -> None:
    here, there = opened(stores[1]()), opened(stores[1](), "p2")
    async with living(here), living(there):
        await write(here, "1", state(here))
        await asyncio.sleep(1.5 * MARK_S)  # longer than a mark without a beat lasts
        assert (await read(there, "1"))["outcome"] is None
        # All marks at once, as after an outage: each process is given the time to renew its own.
        for process in ("p1", "p2"):
            await here._store.beat(process, mark_s=0)
        await asyncio.sleep(1.5 * MARK_S)  # longer than a mark without a beat lasts
        assert await write(here, "1", state(here, outcome={}), begun=True) == "kept"


@requirement("FACE-202")
async def test_a_row_that_the_store_has_lost_is_written_again(stores: Stores) -> None:
    calls = opened(stores[1]())
    await write(calls, "1", state(calls))
    await calls.drop(calls.key(ANN, "1"))
    assert await write(calls, "1", state(calls, at=2), begun=True) == "kept"
    assert await write(calls, "1", state(calls, at=3), begun=False) == "kept", "it was written, but not acknowledged"
    assert (await read(calls, "1"))["at"] == 3


@requirement("FACE-203")
async def test_what_is_said_is_heard_once_by_the_process_of_the_call_and_lies_sealed(stores: Stores) -> None:
    store = stores[1]()
    here, there = opened(store), opened(stores[1](), "p2")
    key = here.key(ANN, "1")
    async with here.listening() as changed:
        assert await there.say(key, "p1", "question-1", {"content": "secret"})
        assert not await there.say(key, "p1", "question-1", {"content": "again"}), "an answer given twice counts once"
        await there.say(key, "p1", "cancel", True)
        await changed.wait()
    heard = await here.heard()
    assert sorted((said.key, said.name, said.value) for said in heard if said.name == "question-1") == [
        (key, "question-1", {"content": "secret"})
    ]
    assert {said.name for said in heard} == {"question-1", "cancel"}
    assert await there.heard() == []
    rows = await store.of_owner(Kind("call_said", listed=True), None)
    assert len(rows) == 2
    assert not any(b"secret" in row.data for row in rows)
    await there.say(key, "p1", "cancel", "changed", expect=1)
    await here.unsay(heard)
    assert [said.value for said in await here.heard()] == ["changed"], "what was written since then is heard"


@requirement("FACE-203")
async def test_damaged_rows_are_refused_and_logged(stores: Stores, caplog: pytest.LogCaptureFixture) -> None:
    store = stores[1]()
    calls = opened(store)
    key = calls.key(ANN, "1")
    for data in (b"\xff", b"[]", b"{", b'{"process": 1, "label": ""}'):
        await store.step([Put(Kind("call", most_bytes=MOST_BYTES, gives="row"), key, data)])
        with pytest.raises(CallUnreadable):
            await calls.get(key)
    await calls.say(key, "p1", "question-1", True)
    (moved,) = await store.of_owner(Kind("call_said", listed=True), None)
    foreign = StoredCalls(store, Process(store, "p2"), seal("another" * 9))
    await foreign.say(key, "p1", "cancel", True)
    await store.step([Put(Kind("call_said", listed=True), f"{key}.{'0' * 32}", moved.data, owner=moved.owner)])
    assert [said.name for said in await calls.heard()] == ["question-1"]
    logged = [record.message for record in caplog.records if record.levelno == logging.ERROR]
    assert len(logged) == 6
    assert all(key in message for message in logged)
