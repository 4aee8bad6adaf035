"""The store in a file: shared transactions, bounded waits, damage, and signals of other processes."""

import asyncio
import logging
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.artifacts import artifact, handle
from tests.support.locked_file import locked
from tests.support.requirement import requirement
from tests.support.rows import row_of
from wicketgate.access.identity import Identity
from wicketgate.errors import ViewFailed
from wicketgate.gateway.options import RuntimeOptions
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.ports import CallContext
from wicketgate.storage import sqlite_writer
from wicketgate.storage.artifacts import StoredArtifacts
from wicketgate.storage.core import PIECE_BYTES
from wicketgate.storage.measures import StorageMeasures
from wicketgate.storage.sqlite import SqliteStore
from wicketgate.storage.sqlite_writer import SQLiteWriter, Unavailable
from wicketgate.storage.store import Append, Conflict, Full, Kind, Put, StoreUnavailable, Window
from wicketgate.upstreams.embedded import StubUpstream

BOUND_S = 30.0
CONTEXT = CallContext(Identity("ann", ("*",)), "req_1", "s")
THING = Kind("thing", listed=True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def measures() -> StorageMeasures:
    return StorageMeasures()


@pytest.fixture
async def store(path: Path, measures: StorageMeasures) -> AsyncIterator[SqliteStore]:
    made = SqliteStore(path, measures=measures)
    yield made
    await made.aclose()


@pytest.fixture
def writer(store: SqliteStore) -> SQLiteWriter:
    return store._writer


@pytest.fixture
def kept(store: SqliteStore) -> StoredArtifacts:
    return StoredArtifacts(store)


def change(path: Path, *statements: str) -> list[tuple[Any, ...]]:
    """Runs *statements* as another program does. Returns what the last one finds."""
    with closing(sqlite3.connect(path, isolation_level=None)) as disk:
        return [disk.execute(statement).fetchall() for statement in statements][-1]


class Plug:
    """A write that keeps the thread busy within the block, so that others wait together and share its transaction."""

    def __init__(self, writer: SQLiteWriter) -> None:
        self._go_on, self._begun = threading.Event(), asyncio.Event()
        self._writing = asyncio.create_task(writer.run(self._wait))
        self._loop = asyncio.get_running_loop()

    async def __aenter__(self) -> asyncio.Task[None]:
        await self._begun.wait()
        return self._writing

    async def __aexit__(self, *exception: object) -> None:
        self._go_on.set()

    def _wait(self, disk: sqlite3.Connection) -> None:
        self._loop.call_soon_threadsafe(self._begun.set)
        self._go_on.wait(BOUND_S)


def transactions(store: SqliteStore) -> list[str]:
    """Notes what the thread of *store* begins and how it ends from now on."""
    noted: list[str] = []
    assert store._writer._disk is not None

    def note(statement: str) -> None:
        if statement.startswith(("BEGIN", "COMMIT", "ROLLBACK", "PRAGMA synchronous")):
            noted.append(statement)

    store._writer._disk.set_trace_callback(note)
    return noted


@requirement("EXEC-117")
async def test_steps_that_wait_together_share_a_transaction_and_fail_alone(store: SqliteStore) -> None:
    full = Kind("full", owner_rows=1)
    await store.step([Put(full, "a", b"")])
    noted = transactions(store)

    async def fail() -> None:
        def work(disk: sqlite3.Connection) -> None:
            disk.execute("DELETE FROM row")
            raise ZeroDivisionError

        await store._writer.run(work)

    async with asyncio.timeout(BOUND_S):
        async with Plug(store._writer) as plug:
            waiting = [
                *(asyncio.create_task(store.step([Put(THING, f"key{number}", b"")])) for number in range(20)),
                asyncio.create_task(store.step([Put(THING, "key0", b"", expect=0)])),
                asyncio.create_task(store.step([Put(full, "b", b"")])),
                asyncio.create_task(fail()),
                asyncio.create_task(store.step([Put(THING, "last", b"")])),
            ]
            await asyncio.sleep(0)
        done = await asyncio.gather(*waiting, return_exceptions=True)
        await plug
    assert done[:20] == 20 * [[1]]
    assert [type(each) for each in done[20:]] == [Conflict, Full, ZeroDivisionError, list]
    assert len(await store.of_owner(THING, None)) == 21
    assert [each for each in noted if not each.startswith("PRAGMA")].count("COMMIT") == 1


@requirement("EXEC-117")
async def test_a_transaction_with_a_durable_step_waits_for_the_disk(store: SqliteStore) -> None:
    await store.step([Put(THING, "a", b"")])
    noted = transactions(store)
    await store.step([Put(THING, "b", b"")], durable=True)
    await store.step([Put(THING, "c", b"")])
    assert noted == [
        *("PRAGMA synchronous = FULL", "BEGIN IMMEDIATE", "COMMIT"),
        *("PRAGMA synchronous = NORMAL", "BEGIN IMMEDIATE", "COMMIT"),
    ]


@requirement("EXEC-117")
async def test_an_error_of_the_disk_is_the_answer_to_all_that_share_a_transaction(
    store: SqliteStore, measures: StorageMeasures, caplog: pytest.LogCaptureFixture
) -> None:
    await store.step([Put(THING, "a", b"")])

    def fill(disk: sqlite3.Connection) -> None:
        disk.rollback()  # as SQLite does by itself when the disk is full
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode, error.sqlite_errorname = sqlite3.SQLITE_FULL, "SQLITE_FULL"
        raise error

    async with asyncio.timeout(BOUND_S):
        async with Plug(store._writer) as plug:
            before = asyncio.create_task(store.step([Put(THING, "b", b"")]))
            filling = asyncio.create_task(store._writer.run(fill))
            await asyncio.sleep(0)
        errors = await asyncio.gather(before, filling, plug, return_exceptions=True)
    assert [type(each) for each in errors] == [StoreUnavailable, *(2 * [sqlite3.OperationalError])]
    assert (measures.errors["full"], caplog.text.count("has no room")) == (3, 1)
    assert await store.step([Put(THING, "c", b"")]) == [1]
    assert [row.key for row in await store.of_owner(THING, None)] == ["a", "c"]


@requirement("EXEC-41", "EXEC-121")
async def test_a_locked_file_refuses_steps_and_can_be_read(
    path: Path, store: SqliteStore, measures: StorageMeasures
) -> None:
    await store.step([Put(THING, "a", b"1")])
    with locked(path):
        async with asyncio.timeout(BOUND_S):
            with pytest.raises(StoreUnavailable, match="locked by another process"):
                await store.step([Put(THING, "a", b"2")])
            with pytest.raises(StoreUnavailable):
                await store.beat("p1")
            row = await row_of(store, THING, "a")
    assert (row.data, measures.errors, measures.refused) == (b"1", {"busy": 1}, 1)


@requirement("EXEC-122")
async def test_a_read_that_takes_too_long_is_given_up_and_then_reads_are_refused_for_a_while(
    store: SqliteStore, measures: StorageMeasures, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_writer, "WAIT_S", 0.05)
    await store.step([Put(THING, "a", b"")])
    go_on = threading.Event()
    with pytest.raises(Unavailable):
        await store._reader.run(lambda disk: go_on.wait(BOUND_S))
    with pytest.raises(StoreUnavailable):
        await store.get(THING, "a")
    assert (measures.errors, measures.refused) == ({"busy": 1}, 1)
    go_on.set()
    monkeypatch.setattr(sqlite_writer, "WAIT_S", BOUND_S)
    store._reader._gate._refused_until = 0.0  # the pause is over
    assert await store.get(THING, "a")
    assert await asyncio.gather(*(store.get(THING, key) for key in "bc")) == [None, None]


@requirement("EXEC-122")
async def test_a_damaged_file_is_unavailable_logged_once_and_counted(
    path: Path, measures: StorageMeasures, caplog: pytest.LogCaptureFixture
) -> None:
    first = SqliteStore(path)
    await first.step([Put(THING, f"key{number}", b"x" * 2_000) for number in range(100)])
    await first.aclose()
    whole = path.read_bytes()
    pages = len(whole) // 8_192
    store = SqliteStore(path, measures=measures)
    with path.open("r+b") as file:
        file.seek(2 * 8_192)
        file.write(b"\xff" * 8_192 * (pages - 2))
    with caplog.at_level(logging.ERROR):
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="is damaged"):
                await store.of_owner(THING, None)
    assert caplog.text.count("is damaged; move it away") == 1
    assert measures.errors == {"damaged": 2}
    with pytest.raises(StoreUnavailable, match="is damaged"):
        await store.step([Put(THING, "key1", b"")])
    await store.aclose()


_DAMAGE = [
    "UPDATE row SET data = 'text' WHERE key = 'bad'",
    "UPDATE row SET version = 'many' WHERE key = 'bad'",
    "UPDATE row SET term = 1.5 WHERE key = 'bad'",
    "UPDATE row SET expires = 'soon' WHERE key = 'bad'",
    "UPDATE row SET holder = x'00' WHERE key = 'bad'",
    "UPDATE row SET owner = x'616e6e' WHERE key = 'bad'",
    "DELETE FROM row_piece WHERE place > 0",
    "UPDATE row_piece SET data = 'text' WHERE place > 0",
]


@requirement("EXEC-119")
@pytest.mark.parametrize("damage", _DAMAGE)
async def test_a_damaged_row_is_refused_and_logged_with_its_kind_and_key(
    path: Path, store: SqliteStore, measures: StorageMeasures, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    large = b"x" * (2 * PIECE_BYTES + 5)
    await store.step([Put(THING, "bad", large, "ann", life_s=60), Put(THING, "good", b"1", "ann")])
    (before,) = change(path, damage, "SELECT * FROM row WHERE key = 'bad'")
    with caplog.at_level(logging.ERROR):
        with pytest.raises(StoreUnavailable, match="damaged row"):
            await store.get(THING, "bad")
        assert [row.key for row in await store.of_owner(THING, None)] == ["good"]
    assert "the store has a damaged row (thing 'bad'); it is not used" in caplog.text
    assert measures.errors["damaged"] == 1
    assert await store.get(THING, "good")
    assert await store.step([Put(THING, "good", b"2", expect=1)]) == [2]
    assert change(path, "SELECT * FROM row WHERE key = 'bad'") == [before], "it is not repaired"


@requirement("EXEC-119")
async def test_a_step_on_a_damaged_row_changes_nothing(path: Path, store: SqliteStore) -> None:
    await store.step([Put(THING, "bad", b"1"), Put(THING, "good", b"1")])
    change(path, "UPDATE row SET version = 'many' WHERE key = 'bad'")
    with pytest.raises(StoreUnavailable, match="thing 'bad'"):
        await store.step([Put(THING, "good", b"2"), Put(THING, "bad", b"2")])
    row = await row_of(store, THING, "good")
    assert row.version == 1


@requirement("EXEC-119")
@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM log WHERE position = 2",
        "UPDATE log SET data = 'text' WHERE position = 2",
        "UPDATE log SET position = 'text' WHERE position = 2",
    ],
)
async def test_a_log_with_a_missing_or_wrong_entry_is_refused(path: Path, store: SqliteStore, damage: str) -> None:
    await store.step([Put(THING, "bad", b""), Append(THING, "bad", 0, 0, [b"1", b"2", b"3"])])
    change(path, damage)
    with pytest.raises(StoreUnavailable, match="thing 'bad'"):
        await store.read_log(THING, "bad", 0, 0)


@requirement("EXEC-119")
async def test_damaged_ends_of_logs_sums_and_counts_are_refused_and_logged(
    path: Path, store: SqliteStore, caplog: pytest.LogCaptureFixture
) -> None:
    bounded, window = Kind("thing", most_rows=2), Window("quota.ann", 5, 60.0)
    await store.step([Put(THING, "bad", b""), Append(THING, "bad", 0, 0, [b"1", b"2"])])
    await store.count([window])
    change(path, "UPDATE row SET end0 = 1", "UPDATE held SET rows = 'text'", "UPDATE count_bucket SET now = 'text'")
    with pytest.raises(StoreUnavailable, match="thing 'bad'"):
        await store.step([Append(THING, "bad", 0, 1, [b"2", b"3"]), Put(THING, "bad", b"1")])
    with pytest.raises(StoreUnavailable, match="held 'thing'"):
        await store.step([Put(bounded, "new", b"")])
    with pytest.raises(StoreUnavailable, match="count_bucket"):
        await store.count([window])
    assert (await row_of(store, THING, "bad")).version == 1
    assert caplog.text.count("it is not used") == 3


@requirement("EXEC-119")
async def test_a_process_with_a_damaged_mark_counts_as_ended_until_it_renews_it(
    path: Path, store: SqliteStore, caplog: pytest.LogCaptureFixture
) -> None:
    await store.beat("here")
    change(path, "UPDATE process_mark SET until = 'text'")
    assert not await store.alive("here")
    assert "process_mark 'here'" in caplog.text
    assert (await store.beat("here")).lost
    assert await store.alive("here")
    assert not (await store.beat("here")).lost


async def test_a_process_that_only_listens_does_not_read_the_file_again_and_again(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = 0
    run: Callable[..., Any] = store._reader.run

    async def count(work: Callable[[sqlite3.Connection], object]) -> object:
        nonlocal reads
        reads += 1
        return await run(work)

    async with store.listen("t") as changed:
        await changed.wait(0.3)
        monkeypatch.setattr(store._reader, "run", count)
        await changed.wait(0.5)
    assert reads == 0, "the version of the file has not changed"
    assert store._polling is not None
    await asyncio.wait([store._polling], timeout=BOUND_S)
    assert store._polling.done(), "nobody listens any more"


@requirement("EXEC-41")
async def test_calls_do_not_wait_for_a_locked_file_one_after_the_other(
    path: Path, kept: StoredArtifacts, measures: StorageMeasures
) -> None:
    tools = [{"name": "echo", "inputSchema": {"type": "object"}}]

    async def tiny(*call: object) -> dict[str, object]:
        return {"content": [{"type": "text", "text": "fifteen letters" * 400}]}

    runtime = ProxyRuntime(StubUpstream(tools, tiny, name="raw"), RuntimeOptions(artifacts=kept))
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
    assert measures.errors == {"busy": 6}
    assert measures.refused == 1  # after one that waited in vain, none waits for a while


@requirement("EXEC-41")
async def test_one_write_tries_after_the_pause_and_then_all_go_on(
    path: Path, kept: StoredArtifacts, measures: StorageMeasures, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_writer, "PAUSE_S", 0.0)
    with locked(path):
        async with asyncio.timeout(BOUND_S):
            assert await kept.put("ann", artifact("one")) == "failed"
            trying = asyncio.create_task(kept.put("ann", artifact("one")))
            await asyncio.sleep(0)
            assert await kept.put("ann", artifact("two")) == "failed"
            assert measures.refused == 1
            assert not trying.done()
            assert await trying == "failed"
    assert await kept.put("ann", artifact("one")) == "kept"
    assert await asyncio.gather(*(kept.put("ann", artifact(name)) for name in "abc")) == 3 * ["kept"]


@requirement("EXEC-42", "OPS-333")
async def test_a_write_that_has_begun_may_take_its_time_and_refuses_nobody_afterwards(
    kept: StoredArtifacts, writer: SQLiteWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_writer, "WAIT_S", 0.05)
    begun, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slow(disk: sqlite3.Connection) -> str:
        loop.call_soon_threadsafe(begun.set)
        go_on.wait(BOUND_S)
        return "written"

    async with asyncio.timeout(BOUND_S):
        writing = asyncio.create_task(writer.run(slow))
        await begun.wait()
        # Those that wait behind it give up, and are not written later.
        leaving = asyncio.create_task(writer.run(lambda disk: pytest.fail("its caller has left")))
        await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(Unavailable):
            await writer.run(lambda disk: pytest.fail("its caller was refused"))
        go_on.set()
        assert await writing == "written"
        assert await kept.put("ann", artifact("one")) == "kept"


@requirement("OPS-333")
async def test_a_write_that_was_refused_while_its_turn_waited_for_the_lock_is_not_done_later(
    path: Path, writer: SQLiteWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_writer, "WAIT_S", 0.05)
    monkeypatch.setattr(sqlite_writer, "PAUSE_S", 0.0)
    done: list[str] = []
    async with asyncio.timeout(BOUND_S):
        with locked(path), pytest.raises(Unavailable):
            await writer.run(lambda disk: done.append("refused"))
        monkeypatch.setattr(sqlite_writer, "WAIT_S", BOUND_S)
        await writer.run(lambda disk: done.append("next"))
    assert done == ["next"]


@requirement("EXEC-43")
@pytest.mark.parametrize("replaced", [False, True])
async def test_a_file_that_was_removed_or_replaced_is_not_used_until_it_is_put_back(
    path: Path, kept: StoredArtifacts, measures: StorageMeasures, caplog: pytest.LogCaptureFixture, replaced: bool
) -> None:
    await kept.put("ann", artifact("one"))
    moved = path.rename(path.with_suffix(".moved"))
    if replaced:
        path.write_bytes(b"")
    with caplog.at_level(logging.ERROR, "wicketgate.storage"):
        for _ in range(2):
            assert await kept.put("ann", artifact("two")) == "failed"
            with pytest.raises(ViewFailed):
                await kept.get("ann", handle("one"))
    said = [each.getMessage() for each in caplog.records if each.name == "wicketgate.storage"]
    assert ["restart with an empty one" in line for line in said] == [True, True], "once for reads and once for writes"
    assert measures.errors == {"gone": 4}
    moved.rename(path)
    assert await kept.put("ann", artifact("two")) == "kept"
    assert await kept.get("ann", handle("one"))
