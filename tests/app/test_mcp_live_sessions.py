"""Processes that serve the same sessions: what each knows of them, and how often it looks."""

import asyncio
from itertools import count
from typing import Any

import pytest

from app.mcp import live_sessions
from app.mcp.live_sessions import LOOK_AGAIN_S, LiveSession, LiveSessions, SessionListener
from app.mcp.requests import Addressed
from tests.support.clock import Clock
from tests.support.failing_store import FailingStore
from tests.support.requirement import requirement
from tests.support.service import BOUND_S
from tests.support.until import until
from wicketgate.access.identity import Identity
from wicketgate.access.seal import Seal
from wicketgate.faces.mcp.session_tokens import LIFE_S, McpSession, SessionChange
from wicketgate.storage.mcp_sessions import _SESSIONS, StoredMcpSessions
from wicketgate.storage.store import Drop, StoreUnavailable

ANN, BOB = Identity("ann", key_id="k1"), Identity("bob", key_id="k3")
CLIENT = {"protocolVersion": "2025-06-18", "clientInfo": {"name": "t", "version": "1"}, "capabilities": {}}


class Watched(FailingStore):
    """Counts looks."""

    looks = 0

    async def get(self, *args: Any, **more: Any) -> Any:
        self.looks += 1
        return await super().get(*args, **more)


class Group:
    """Processes of one service."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.store = Watched()
        ids = count(1)
        self._seal = Seal(["k" * 40], b"own", self.clock, lambda: f"s{next(ids)}")

    def member(self) -> LiveSessions:
        return LiveSessions("gateway", self._seal, StoredMcpSessions(self.store, LIFE_S), self.clock)


async def found(member: LiveSessions, token: str) -> LiveSession:
    live = await member.find(token, ANN)
    assert live is not None
    return live


class Runs:
    def __init__(self) -> None:
        self.told = asyncio.Queue[str]()

    def cancel(self) -> None:
        self.told.put_nowait("cancel")

    def end(self) -> None:
        self.told.put_nowait("end")


@requirement("FACE-116", "FACE-211")
async def test_a_process_looks_once_a_minute_and_never_for_a_session_that_it_has_opened() -> None:
    group = Group()
    one, other = group.member(), group.member()
    token = one.open(ANN, "2025-06-18", CLIENT)
    for _ in range(3):
        await found(one, token)
    assert group.store.looks == 0
    for _ in range(3):
        await found(other, token)
    assert group.store.looks == 1
    assert await other.find(token, BOB) is None
    await one.end(await found(one, token))
    assert await one.find(token, ANN) is None
    assert await other.find(token, ANN) is not None, "it has not looked"
    group.clock.now += LOOK_AGAIN_S
    assert await other.find(token, ANN) is None
    looks = group.store.looks
    assert await other.find(token, ANN) is None
    assert group.store.looks == looks


@requirement("FACE-117")
async def test_a_session_lasts_a_day_however_it_is_used() -> None:
    group = Group()
    member = group.member()
    token = member.open(ANN, "2025-06-18", CLIENT)
    group.clock.now += LIFE_S - 1
    await found(member, token)
    group.clock.now += 1
    assert await member.find(token, ANN) is await group.member().find(token, ANN) is None


@requirement("FACE-211")
async def test_without_the_store_sessions_are_served_and_nothing_is_said_to_be_kept() -> None:
    group = Group()
    one, other = group.member(), group.member()
    group.store.unavailable = True
    live = await found(other, one.open(ANN, "2025-06-18", CLIENT))
    assert not await other.change(live, SessionChange(log_level="error"))
    assert live.session.log_level == ""
    with pytest.raises(StoreUnavailable):
        await other.end(live)
    assert not live.ended
    with pytest.raises(StoreUnavailable):
        await other.post(live, Addressed("answer", 7), b"{}")


@requirement("FACE-120")
async def test_what_a_client_sets_reaches_another_process_where_it_listens() -> None:
    group = Group()
    one, other = group.member(), group.member()
    token = one.open(ANN, "2025-06-18", CLIENT)
    here, there = await found(one, token), await found(other, token)
    followed: list[McpSession] = []
    ended = asyncio.Event()

    async def take_up(session: McpSession, identity: Identity) -> None:
        followed.append(session)

    async with other.listening(there, SessionListener(take_up, ended.set)), asyncio.timeout(BOUND_S):
        assert await one.change(here, SessionChange(log_level="error", follow="u:1"))
        await until(lambda: len(followed) == 2)
        assert [(each.log_level, each.uris) for each in followed] == [("", frozenset()), ("error", frozenset({"u:1"}))]
        assert await other.change(there, SessionChange(follow="u:2"))
        assert followed[-1].uris == frozenset({"u:1", "u:2"})
        await one.end(here)
        await ended.wait()
    late = await found(group.member(), one.open(ANN, "2025-06-18", CLIENT))
    assert late.session.log_level == ""


@requirement("FACE-120")
async def test_a_store_that_has_lost_its_rows_takes_nothing_back_and_new_changes_count() -> None:
    group = Group()
    one, other = group.member(), group.member()
    token = one.open(ANN, "2025-06-18", CLIENT)
    here = await found(one, token)
    for level in ("error", "debug"):
        assert await one.change(here, SessionChange(log_level=level))
    there = await found(other, token)
    await group.store.step([Drop(_SESSIONS, here.id)])
    group.clock.now += LOOK_AGAIN_S
    assert (await found(other, token)).session.log_level == "debug"
    assert await one.change(here, SessionChange(log_level="info"))
    group.clock.now += LOOK_AGAIN_S
    assert here.session.log_level == (await found(other, token)).session.log_level == there.session.log_level == "info"


@requirement("FACE-120")
async def test_an_end_counts_also_in_a_store_that_has_lost_the_row_before() -> None:
    group = Group()
    one, other = group.member(), group.member()
    token = one.open(ANN, "2025-06-18", CLIENT)
    here = await found(one, token)
    assert await one.change(here, SessionChange(log_level="error"))
    await found(other, token)
    await group.store.step([Drop(_SESSIONS, here.id)])
    await one.end(here)
    group.clock.now += LOOK_AGAIN_S
    assert await other.find(token, ANN) is None


@requirement("FACE-118")
async def test_a_message_reaches_the_process_where_its_call_runs() -> None:
    group = Group()
    one, other = group.member(), group.member()
    token = one.open(ANN, "2025-06-18", CLIENT)
    here, there = await found(one, token), await found(other, token)
    call = Runs()
    # Of an earlier request with the same id.
    await other.post(there, Addressed("cancel", 1), cancel(1))
    await asyncio.sleep(0.05)  # until all have read it
    group.clock.now += 0.01
    here.begin("1", call)
    with here.asks() as (id, reply), one.calling(here):
        await other.post(there, Addressed("answer", id), b'{"jsonrpc":"2.0","id":%d,"result":{"a":1}}' % id)
        async with asyncio.timeout(BOUND_S):
            assert (await reply).result == {"a": 1}
        assert call.told.empty()
        group.clock.now += 10
        await other.post(there, Addressed("cancel", 1), cancel(1))
        async with asyncio.timeout(BOUND_S):
            assert await call.told.get() == "cancel"
        await other.end(there)
        async with asyncio.timeout(BOUND_S):
            assert await call.told.get() == "end"


def cancel(id: int) -> bytes:
    return b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}' % id


@requirement("FACE-118")
async def test_a_damaged_message_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    group = Group()
    member = group.member()
    live = await found(member, member.open(ANN, "2025-06-18", CLIENT))
    with live.asks() as (id, reply), member.calling(live):
        await StoredMcpSessions(group.store, LIFE_S).post(live.id, "ann", ("answer", id), b"\xff rubbish")
        await until(lambda: "is damaged" in caplog.text)
    assert not reply.done()


@requirement("FACE-211")
async def test_a_session_that_a_process_has_forgotten_is_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_sessions, "_KNOWN", 2)
    member = Group().member()
    made = [member.open(ANN, "2025-06-18", CLIENT) for _ in range(3)]
    first = await found(member, made[0])
    assert (await found(member, made[0])) is first
