"""Rows of programs: sealed, of one actor, written by one process."""

from dataclasses import replace
from time import time

import pytest

from tests.support.requirement import requirement
from wicketgate.access.seal import Seal
from wicketgate.gateway.programs import KeptProgram
from wicketgate.random_ids import random_id
from wicketgate.storage.memory import MemoryStore
from wicketgate.storage.process import Process
from wicketgate.storage.programs import StoredPrograms
from wicketgate.storage.store import Kind, Put


def programs(store: MemoryStore, ring: str = "k" * 40) -> StoredPrograms:
    return StoredPrograms(store, Process(store), Seal([ring], b"o" * 32, time, random_id))


def waiting() -> KeptProgram:
    caller = {"identity": ["ann", ["*"], "key"]}
    return KeptProgram("one", "tool('a:b')", caller, time(), state="c3RhdGU=", need={"kind": "approval"})


@pytest.mark.parametrize("change", ["a bit", "another program", "another ring"])
@requirement("EXEC-146")
async def test_a_state_that_was_changed_or_moved_or_is_sealed_by_another_is_refused(change: str) -> None:
    store = MemoryStore()
    kept = programs(store)
    assert await kept.write(waiting(), 60.0)
    kind = Kind("program", listed=True)
    (row,) = await store.of_owner(kind, None)
    assert b"tool" not in row.data
    data, key = row.data, row.key
    if change == "a bit":
        data = bytes([*data[:99], data[99] ^ 1, *data[100:]])
    elif change == "another program":
        other = replace(waiting(), id="two")
        assert await kept.write(other, 60.0)
        key = next(each.key for each in await store.of_owner(kind, None) if each.key != key)
    await store.step([Put(kind, key, data)])
    reader = programs(store, "x" * 40 if change == "another ring" else "k" * 40)
    assert await reader.get("ann", "two" if change == "another program" else "one") is None


@requirement("EXEC-146")
async def test_of_two_processes_that_go_on_with_a_program_one_can() -> None:
    store = MemoryStore()
    first, second = programs(store), programs(store)
    assert await first.write(waiting(), 60.0)
    found = [await each.get("ann", "one") for each in (first, second)]
    wrote = []
    for each, program in zip((first, second), found, strict=True):
        assert program is not None
        program.need = None
        wrote.append(await each.write(program, 60.0))
    assert wrote == [True, False]
    assert await first.get("bob", "one") is None
