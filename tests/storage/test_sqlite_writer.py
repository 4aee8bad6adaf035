"""A locked, slow or missing storage file holds no call up (EXEC-41 to EXEC-43)."""

import asyncio
import logging
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.storage.artifact_store_contract import artifact, handle
from tests.support.requirement import requirement
from wicketgate.access.identity import Identity
from wicketgate.gateway.options import RuntimeOptions
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.ports import CallContext
from wicketgate.storage import sqlite_writer
from wicketgate.storage.measures import StorageMeasures
from wicketgate.storage.sqlite_store import SQLiteArtifactStore
from wicketgate.storage.sqlite_writer import Unavailable
from wicketgate.upstreams.embedded import StubUpstream

BOUND_S = 30.0
CONTEXT = CallContext(Identity("ann", ("*",)), "req_1", "s")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.execute("ROLLBACK")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SQLiteArtifactStore]:
    made = SQLiteArtifactStore(path, measures=StorageMeasures())
    yield made
    await made.aclose()


@requirement("EXEC-41")
async def test_calls_do_not_wait_for_a_locked_file_one_after_the_other(path: Path, store: SQLiteArtifactStore) -> None:
    tools = [{"name": "echo", "inputSchema": {"type": "object"}}]

    async def tiny(*call: object) -> dict[str, object]:
        return {"content": [{"type": "text", "text": "fifteen letters" * 400}]}

    runtime = ProxyRuntime(StubUpstream(tools, tiny, name="raw"), RuntimeOptions(artifacts=store))
    await runtime.refresh_catalog()
    (tool_id,) = runtime.catalog().items
    with locked(path):
        async with asyncio.timeout(BOUND_S):
            made = await asyncio.gather(*(runtime.execute(tool_id, {}, CONTEXT) for _ in range(6)))
            late = await runtime.execute(tool_id, {}, CONTEXT)
    for execution in [*made, late]:
        envelope = execution.envelope
        assert (envelope.status, list(envelope.artifacts)) == ("partial", [])
        assert envelope.summary.startswith("fifteen letters")
    measures = store.measures
    assert measures.errors == {"busy": 6}
    assert measures.refused == 1  # after one that waited in vain, none waits for a while


@requirement("EXEC-41")
async def test_one_write_tries_after_the_pause_and_then_all_go_on(
    path: Path, store: SQLiteArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_writer, "PAUSE_S", 0.0)
    with locked(path):
        async with asyncio.timeout(BOUND_S):
            assert await store.put("ann", artifact("one")) == "failed"
            trying = asyncio.create_task(store.put("ann", artifact("one")))
            await asyncio.sleep(0)
            assert await store.put("ann", artifact("two")) == "failed"
            assert store.measures.refused == 1
            assert not trying.done()
            assert await trying == "failed"
    assert await store.put("ann", artifact("one")) == "kept"
    assert await asyncio.gather(*(store.put("ann", artifact(name)) for name in "abc")) == 3 * ["kept"]


@requirement("EXEC-42")
async def test_a_write_that_has_begun_may_take_its_time_and_refuses_nobody_afterwards(
    store: SQLiteArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_writer, "WAIT_S", 0.05)
    begun, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slow(disk: sqlite3.Connection) -> str:
        loop.call_soon_threadsafe(begun.set)
        go_on.wait(BOUND_S)
        return "written"

    async with asyncio.timeout(BOUND_S):
        writing = asyncio.create_task(store._writer.run(slow))
        await begun.wait()
        # One that waits behind it gives up, and is not written later.
        with pytest.raises(Unavailable):
            await store._writer.run(lambda disk: pytest.fail("its caller has left"))
        go_on.set()
        assert await writing == "written"
        assert await store.put("ann", artifact("one")) == "kept"


@requirement("OPS-333")
async def test_a_write_that_was_refused_while_its_turn_waited_for_the_lock_is_not_done_later(
    path: Path, store: SQLiteArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_writer, "WAIT_S", 0.05)
    monkeypatch.setattr(sqlite_writer, "PAUSE_S", 0.0)
    done: list[str] = []
    async with asyncio.timeout(BOUND_S):
        with locked(path), pytest.raises(Unavailable):
            await store._writer.run(lambda disk: done.append("refused"))
        monkeypatch.setattr(sqlite_writer, "WAIT_S", BOUND_S)
        await store._writer.run(lambda disk: done.append("next"))
    assert done == ["next"]


@requirement("OPS-333")
@pytest.mark.parametrize("how", ["late", "cancelled"])
async def test_what_a_caller_has_given_up_is_not_committed(
    store: SQLiteArtifactStore, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(sqlite_writer, "WRITE_S", 0.05 if how == "late" else BOUND_S)
    begun, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slow(disk: sqlite3.Connection) -> None:
        disk.execute("CREATE TABLE given_up (x)")
        loop.call_soon_threadsafe(begun.set)
        go_on.wait(BOUND_S)

    def tables(disk: sqlite3.Connection) -> list[tuple[str]]:
        return disk.execute("SELECT name FROM sqlite_master WHERE name = 'given_up'").fetchall()

    async with asyncio.timeout(BOUND_S):
        writing = asyncio.create_task(store._writer.run(slow))
        await begun.wait()
        if how == "cancelled":
            writing.cancel()
        with pytest.raises(asyncio.CancelledError if how == "cancelled" else Unavailable):
            await writing
        go_on.set()
        monkeypatch.setattr(sqlite_writer, "PAUSE_S", 0.0)
        assert await store._writer.run(tables) == []


@requirement("EXEC-43")
async def test_a_file_that_was_removed_is_noticed_and_begun_anew(
    path: Path, store: SQLiteArtifactStore, caplog: pytest.LogCaptureFixture
) -> None:
    await store.put("ann", artifact("one"))
    assert await store.get("ann", handle("one"))
    for each in path.parent.iterdir():
        each.unlink()
    with caplog.at_level(logging.ERROR):
        for name in ("two", "three"):
            assert await store.put("ann", artifact(name)) == "kept"
    assert caplog.text.count("is gone with all that was in it") == 1
    assert await store.get("ann", handle("one")) is None
    assert await store.get("ann", handle("two")) == artifact("two")
    other = SQLiteArtifactStore(path)
    assert await other.get("ann", handle("three")) == artifact("three")
    await other.aclose()
    assert store.measures.errors == {"gone": 1}


@requirement("EXEC-43")
async def test_while_a_file_cannot_be_begun_anew_nothing_is_kept(path: Path, store: SQLiteArtifactStore) -> None:
    for each in path.parent.iterdir():
        each.unlink()
    path.parent.rmdir()
    assert await store.put("ann", artifact("one")) == "failed"
    path.parent.mkdir()
    assert await store.put("ann", artifact("one")) == "kept"
