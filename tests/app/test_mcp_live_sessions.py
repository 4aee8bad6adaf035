"""Processes that share sessions: who has one, who is told, and what ends it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import count
from typing import Any

import pytest

from app.mcp_live_session import LiveSession, SessionsFull
from app.mcp_live_sessions import LiveSessions
from tests.storage.mcp_session_store_contract import CLIENT
from tests.support.requirement import requirement
from tests.support.service import BOUND_S
from wicketgate.access.identity import Identity
from wicketgate.faces.mcp.kept_sessions import IDLE_S, KeptSession, SessionChange, SessionsAway
from wicketgate.peers import Alone, NotReached, Payload
from wicketgate.storage.fail_modes import USUAL, FailModes
from wicketgate.storage.memory_mcp_sessions import MemoryMcpSessionStore

ANN, BOB = Identity("ann", key_id="k1"), Identity("bob", key_id="k3")
ANN_NEXT = Identity("ann", key_id="k2")


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Linked(Alone):
    """Peers in one process."""

    def __init__(self, all: dict[str, "Linked"]) -> None:
        super().__init__()
        self._all = all
        all[self.own_id] = self

    async def ask(self, peer: str, operation: str, payload: Payload, timeout_s: float = 1.0) -> Payload:
        if peer not in self._all:
            raise NotReached(gone=True)
        return await self._all[peer].of(operation, payload)


class Part:
    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.followed: list[tuple[KeptSession, bool]] = []
        self.ended = False

    async def take(self, body: bytes, identity: Identity) -> bool:
        if body != b"mine":
            return False
        self.taken.append(body)
        return True

    async def take_up(self, session: KeptSession, identity: Identity, *, listens: bool) -> None:
        self.followed.append((session, listens))

    def end(self) -> None:
        self.ended = True


class AwayStore(MemoryMcpSessionStore):
    """It is away while *away*."""

    away = False

    def __getattribute__(self, name: str) -> Any:
        if name in ("open", "join", "renew", "change", "members", "leave", "end", "reserve") and self.away:
            return gone
        return super().__getattribute__(name)


async def gone(*args: object) -> None:
    raise SessionsAway


class Group:
    """Members of one service."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.store = AwayStore(self.clock)
        self.peers: dict[str, Linked] = {}
        self.fail = FailModes()
        self._ids = count(1)

    def member(self, *, most: int = 100, per_actor: int | None = None) -> LiveSessions:
        peers = Linked(self.peers)
        new_id = lambda: f"s{next(self._ids)}"  # noqa: E731
        return LiveSessions("gateway", self.store, peers, self.fail, self.clock, new_id, most=most, per_actor=per_actor)


async def opened(member: LiveSessions, identity: Identity = ANN) -> LiveSession:
    async with member.opening(identity) as opening:
        live = await opening.begin(KeptSession(identity.actor, identity.key_id, "2025-06-18", CLIENT))
    live.part = Part()
    return live


async def found(member: LiveSessions, live: LiveSession, identity: Identity = ANN) -> LiveSession:
    there = await member.find(live.id, identity)
    assert there is not None
    there.part = there.part or Part()
    return there


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.fixture
async def two(group: Group) -> AsyncIterator[tuple[LiveSessions, LiveSessions]]:
    one, other = group.member(), group.member()
    async with AsyncExitStack() as stack:
        for member in (one, other):
            await stack.enter_async_context(member.running())
        yield one, other


Two = tuple[LiveSessions, LiveSessions]


@requirement("FACE-115", "FACE-3")
async def test_a_session_is_found_at_every_process_by_its_actor_alone(two: Two) -> None:
    one, other = two
    live = await opened(one)
    assert (await found(one, live)) is live
    there = await found(other, live)
    assert (there.id, there.kept) == (live.id, live.kept)
    assert await found(other, live) is there
    for member in two:
        assert await member.find(live.id, BOB) is None
        assert await member.find("s99", ANN) is None
    assert (one.by_actor(), other.by_actor()) == ({"ann": 1}, {"ann": 1})


@requirement("FACE-118")
async def test_a_message_goes_to_the_process_that_it_belongs_to(two: Two, group: Group) -> None:
    live = await opened(two[0])
    there = await found(two[1], live)
    assert await two[1].pass_on(there, b"mine")
    assert isinstance(live.part, Part) and live.part.taken == [b"mine"]
    assert not await two[1].pass_on(there, b"another's")


@requirement("FACE-126")
async def test_an_answer_for_a_process_that_counts_as_ended_is_refused_and_not_lost(two: Two, group: Group) -> None:
    live = await opened(two[0])
    there = await found(two[1], live)
    # It may stand still, and its call may go on.
    own_id = next(iter(group.peers))
    stands = group.peers.pop(own_id)
    with pytest.raises(SessionsAway):
        await two[1].pass_on(there, b"mine")
    group.peers[own_id] = stands
    assert await two[1].pass_on(there, b"mine")


@requirement("FACE-116")
async def test_an_end_is_the_end_everywhere(two: Two) -> None:
    live = await opened(two[0])
    there = await found(two[1], live)
    await two[1].end(there)
    assert isinstance(live.part, Part) and live.part.ended
    assert isinstance(there.part, Part) and there.part.ended
    for member in two:
        assert await member.find(live.id, ANN) is None
        assert not member.by_actor()


@requirement("FACE-116")
async def test_a_process_that_missed_the_end_hears_of_it_later(two: Two, group: Group) -> None:
    live = await opened(two[0])
    await group.store.end(live.name, two[0]._holder("ann"))
    assert await two[0].find(live.id, ANN) is live
    await two[0].renew()
    assert await two[0].find(live.id, ANN) is None


@requirement("FACE-120")
async def test_what_the_client_sets_is_in_force_everywhere(two: Two) -> None:
    live = await opened(two[0])
    there = await found(two[1], live)
    with two[0].used(live, ANN, listens=True):
        await two[1].change(there, SessionChange(follow="x:1"))
        await two[1].change(there, SessionChange(log_level="error"))
        assert isinstance(live.part, Part)
        assert [listens for _, listens in live.part.followed] == [True, True]
        assert live.part.followed[-1][0] == live.kept == there.kept
        await two[1].change(there, SessionChange(log_level="error"))
        assert len(live.part.followed) == 2
    assert (set(live.kept.uris), live.kept.log_level) == ({"x:1"}, "error")


@requirement("FACE-117")
async def test_a_session_that_is_used_or_listened_to_anywhere_does_not_lapse(two: Two, group: Group) -> None:
    live = await opened(two[0])
    there = await found(two[1], live)
    with two[1].used(there, ANN, listens=True):
        for _ in range(4):
            group.clock.now += IDLE_S / 2
            await two[0].renew()
            await two[1].renew()
        # It was not used here, so it has left.
        assert (two[0].by_actor(), two[1].by_actor()) == ({}, {"ann": 1})
        await found(two[0], live)
    for _ in range(3):
        group.clock.now += IDLE_S / 2
        await two[0].renew()
        await two[1].renew()
    for member in two:
        assert await member.find(live.id, ANN) is None


@requirement("FACE-117")
async def test_sessions_that_the_store_has_lost_come_back(two: Two, group: Group) -> None:
    live = await opened(two[0])
    group.store = two[0]._store = two[1]._store = AwayStore(group.clock)
    assert await two[1].find(live.id, ANN) is None
    await two[0].renew()
    assert await two[1].find(live.id, ANN) is not None


@requirement("FACE-119")
async def test_while_the_store_is_away_nothing_is_taken_for_unknown(two: Two, group: Group) -> None:
    live = await opened(two[0])
    there = await found(two[1], live)
    group.store.away = True
    assert await two[0].find(live.id, ANN) is live
    for doing in (two[1].find("s99", ANN), two[0].end(live), two[1].pass_on(there, b"mine"), opened(two[0])):
        with pytest.raises(SessionsAway):
            await doing
    with pytest.raises(SessionsAway):
        await two[0].change(live, SessionChange(log_level="error"))
    await two[0].renew()
    assert await two[0].refresh(live) == live.kept
    group.store.away = False
    assert (await found(two[1], live)).kept == live.kept
    assert two[0].by_actor() == {"ann": 1}


@requirement("FACE-122")
async def test_a_process_that_may_go_on_alone_opens_and_serves_its_own(group: Group) -> None:
    group.fail = FailModes({**USUAL, "sessions": "open"})
    one, other = group.member(), group.member()
    group.store.away = True
    first, second = await opened(one), await opened(one)
    await one.change(first, SessionChange(log_level="error"))
    await one.end(second)
    assert await one.find(first.id, ANN) is first
    with pytest.raises(SessionsAway):
        await other.find(first.id, ANN)
    assert group.fail.degraded(away=False) == {"sessions": "open"}
    group.store.away = False
    assert await one.renew()
    assert (await found(other, first)).kept.log_level == "error"
    assert group.fail.degraded(away=False) == {}


@requirement("FACE-42")
async def test_a_session_ends_with_the_key_that_used_it_last_anywhere(two: Two) -> None:
    live = await opened(two[0])
    there = await found(two[1], live)
    with two[1].used(there, ANN_NEXT):
        pass
    async with asyncio.timeout(BOUND_S):
        while live.last_key != "k2":
            await asyncio.sleep(0)
    # The first key was used here last, but another one since, elsewhere.
    assert two[0].end_of("k1") == 0
    assert await found(two[0], live, ANN_NEXT) is live
    assert [member.end_of("k2") for member in two] == [1, 1]
    await settled(*two)
    for member in two:
        assert await member.find(live.id, ANN) is None


@requirement("FACE-42")
async def test_its_calls_are_answered_before_a_session_ends_with_its_key(two: Two) -> None:
    live = await opened(two[0])
    with two[0].used(live, ANN):
        assert two[0].end_of("k1") == 1
        assert (await found(two[0], live)).part is live.part
    assert isinstance(live.part, Part)
    assert live.part.ended
    await settled(two[0])
    assert await two[1].find(live.id, ANN) is None


async def settled(*members: LiveSessions) -> None:
    async with asyncio.timeout(BOUND_S):
        while any(member._tasks for member in members):
            await asyncio.sleep(0)


@requirement("FACE-39", "FACE-121")
async def test_a_session_that_gives_way_ends_unless_another_process_has_it(group: Group) -> None:
    one, other = group.member(most=2), group.member()
    first, second = await opened(one), await opened(one)
    await found(other, first)
    third = await opened(one, BOB)
    assert await other.find(first.id, ANN) is not None, "the longest idle one only left"
    assert {live.id for live in one._live} == {second.id, third.id}
    lonely = await opened(other)
    assert await one.find(lonely.id, ANN) is not None, "an idle one of the same actor makes room"
    assert set(one.by_actor()) == {"ann", "bob"}


@requirement("FACE-121")
async def test_a_session_of_elsewhere_takes_a_place_of_its_actor(group: Group) -> None:
    one, other = group.member(most=1), group.member(most=1)
    here, there = await opened(one), await opened(other)
    with one.used(here, ANN), pytest.raises(SessionsFull):
        await one.find(there.id, ANN)
    assert await one.find(there.id, ANN) is not None
    assert await other.find(there.id, ANN) is there
    assert await other.find(here.id, ANN) is not None, "what left one is still there"


async def refused(member: LiveSessions, identity: Identity = ANN) -> str:
    with pytest.raises(SessionsFull) as full:
        await opened(member, identity)
    return full.value.scope


@requirement("ACCESS-102")
async def test_the_limit_of_an_actor_holds_over_all_processes(group: Group) -> None:
    one, other = group.member(per_actor=2), group.member(per_actor=2)
    first, second = await opened(one), await opened(other)
    for member in (one, other):
        await found(member, first)
        await found(member, second)
        assert await refused(member) == "actor"
        assert member.limit.refused["actor"] == 1
        await opened(member, BOB)
        assert await refused(member) == "actor"
    await other.end(first)
    third = await opened(one)
    assert await refused(other) == "actor"
    # A process that dies leaves its sessions to the others, and what lapses is free.
    assert await found(other, third)
    group.clock.now += IDLE_S
    await other.renew()
    await opened(other)


@requirement("ACCESS-102")
async def test_a_request_that_opened_no_session_has_no_place_left(group: Group) -> None:
    one, other = group.member(per_actor=1), group.member(per_actor=1)
    async with one.opening(ANN):
        assert await refused(other) == "actor"
    await settled(one, other)
    live = await opened(other)
    await settled(one, other)
    assert await refused(one) == "actor"
    await other.give_way(live)
    await opened(one)


@requirement("ACCESS-103")
async def test_nobody_gives_way_to_an_actor_that_has_its_sessions_elsewhere(group: Group) -> None:
    one, other = group.member(most=2, per_actor=2), group.member(per_actor=2)
    idle = [await opened(one), await opened(one)]
    for _ in range(2):
        await opened(other, BOB)
    for _ in range(3):
        assert await refused(one, BOB) == "actor"
    assert {live.id for live in one._live} == {live.id for live in idle}


@requirement("ACCESS-104")
async def test_what_an_actor_leaves_in_the_store_is_bounded_without_a_limit_too(group: Group) -> None:
    members = [group.member(most=2) for _ in range(6)]
    opened_now = 0
    for member in members:
        for _ in range(2):
            try:
                await opened(member)
            except SessionsFull as full:
                assert full.scope == "actor"
            else:
                opened_now += 1
    assert opened_now == 8
    await opened(members[-1], BOB)


@requirement("ACCESS-105")
async def test_alone_each_process_counts_its_own_which_count_for_all_when_the_store_is_back(group: Group) -> None:
    group.fail = FailModes({**USUAL, "sessions": "open"})
    one, other = group.member(per_actor=1), group.member(per_actor=1)
    group.store.away = True
    await opened(one)
    assert await refused(one) == "actor"
    second = await opened(other)
    group.store.away = False
    await one.renew()
    await other.renew()
    await other.end(second)
    assert await refused(other) == "actor"
