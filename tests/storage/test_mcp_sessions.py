"""The shared state of a handshake session: its settings, its end, and messages for calls of other processes."""

import asyncio
from collections.abc import Callable

import pytest

from tests.support.requirement import requirement
from wicketgate.storage.mcp_sessions import MESSAGE_S, SessionState, StoredMcpSessions
from wicketgate.storage.memory import MemoryStore
from wicketgate.storage.store import Kind, Put, Store

Stores = tuple[str, Callable[[], Store]]
URI = "file:///\udcffä"


@requirement("FACE-116", "FACE-120")
async def test_what_one_process_sets_and_ends_is_seen_by_another(stores: Stores) -> None:
    _, make = stores
    one, other = StoredMcpSessions(make(), 60), StoredMcpSessions(make(), 60)
    assert await one.look("s") == SessionState()
    assert await one.change("s", "ann", "error", "", "") == await other.look("s")
    assert await other.change("s", "ann", "", URI, "") == SessionState(2, False, "error", frozenset({URI}))
    assert (await one.change("s", "ann", "", URI, "")).version == 2, "nothing has changed"
    assert (await one.change("s", "ann", "", "", URI)).uris == frozenset()
    await other.end("s", "ann")
    assert (await one.look("s")).ended
    assert (await one.change("s", "ann", "debug", "", "")).ended


@requirement("FACE-120")
async def test_no_change_of_two_processes_is_lost(stores: Stores) -> None:
    _, make = stores
    processes = [StoredMcpSessions(make(), 60), StoredMcpSessions(make(), 60)]
    await asyncio.gather(*(each.change("s", "ann", "", f"u{i}", "") for i, each in enumerate(processes * 4)))
    assert len((await processes[0].look("s")).uris) == 8


@requirement("FACE-118")
async def test_a_message_wakes_the_process_that_waits_and_is_taken_once(stores: Stores) -> None:
    _, make = stores
    one, other = StoredMcpSessions(make(), 60), StoredMcpSessions(make(), 60)
    async with one.listen("s") as changed:
        assert await one.message("s", ("answer", 7)) is None
        await other.post("s", "ann", ("answer", 7), b"sealed")
        async with asyncio.timeout(1.5):
            await changed.wait()
    message = await one.message("s", ("answer", 7))
    assert message is not None
    assert (message.text, message.age_s < MESSAGE_S / 10) == (b"sealed", True)
    assert await one.message("s", ("answer", "7")) is await one.message("other", ("answer", 7)) is None
    await one.drop("s", ("answer", 7))
    assert await other.message("s", ("answer", 7)) is None


@requirement("FACE-213")
@pytest.mark.parametrize("data", [b"rubbish", b"[]", b'[false,"error",[1]]', b'["no","error",[]]', b"[false,1,[]]"])
async def test_a_session_with_a_damaged_row_has_ended(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    await store.step([Put(Kind("mcp_session", owner_rows=10_000, gives="row"), "s", data)])
    assert (await StoredMcpSessions(store, 60).look("s")).ended
    assert "damaged row (mcp_session 's')" in caplog.text
