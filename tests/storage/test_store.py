"""Every back end keeps the contract of ``Store``, and does what ``MemoryStore`` does, operation by operation."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.storage.redis_time import RedisTime, scripts_with_a_clock
from tests.support.properties import examples
from tests.support.redis import RedisServer
from tests.support.requirement import requirement
from tests.support.rows import row_of
from wicketgate.storage.memory import MemoryStore
from wicketgate.storage.redis import store as redis_store
from wicketgate.storage.redis.client import RedisLink
from wicketgate.storage.redis.store import RedisStore
from wicketgate.storage.redis.url import read_url
from wicketgate.storage.sqlite import SqliteStore
from wicketgate.storage.store import (
    NO_HOLDER,
    STRIPPED_BYTES,
    Append,
    Beat,
    Conflict,
    Drop,
    Fence,
    Full,
    Grant,
    Kind,
    Op,
    Put,
    Refused,
    Row,
    Signal,
    Store,
    Take,
    Window,
    Wish,
)

BOUND_S = 30.0
THING = Kind("thing")
FAIR = Kind("fair", most_bytes=1_000, gives="row", listed=True)
START_S = 1_800_000_000.0


class TimedHost:
    """A back end whose clock the test moves: Redis at *server*, a file at *path*, or memory."""

    def __init__(self, path: Path | None = None, server: RedisServer | None = None) -> None:
        self._now = START_S
        self._path = path
        self._place = None if server is None else read_url(server.url)
        self._time = None if server is None else RedisTime(server, self.now)
        self._made: list[Store | RedisLink] = []

    def now(self) -> float:
        return self._now

    def open(self) -> Store:
        if self._place is not None:
            link = RedisLink(self._place)
            self._made += [link, store := RedisStore(link)]
            return store
        if self._path is not None:
            self._made.append(SqliteStore(self._path, self.now))
        elif not self._made:
            self._made.append(MemoryStore(self.now))
        (*_, made) = self._made
        assert not isinstance(made, RedisLink)
        return made

    async def pass_s(self, seconds: float) -> None:
        self._now += seconds
        if self._time is not None:
            self._time.passed(seconds)

    async def aclose(self) -> None:
        for made in reversed(self._made):
            await made.aclose()
        if self._time is not None:
            self._time.close()


@pytest.fixture
def with_a_clock() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch, scripts_with_a_clock():
        patch.setattr(redis_store, "LARGE_BYTES", 200)
        yield


async def conflict(step: Awaitable[object]) -> int:
    with pytest.raises(Conflict) as refused:
        await step
    return refused.value.at


async def full(step: Awaitable[object]) -> str:
    with pytest.raises(Full) as refused:
        await step
    return refused.value.scope


async def kept(store: Store, kind: Kind, *keys: str) -> list[str]:
    return [key for key in keys if await store.get(kind, key)]


@pytest.mark.usefixtures("with_a_clock")
class TestContract:
    """The contract of ``Store``, for each back end."""

    @pytest.fixture(params=["memory", "sqlite", "redis"])
    async def host(self, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[TimedHost]:
        path = tmp_path / "store.db" if request.param == "sqlite" else None
        host = TimedHost(path, request.getfixturevalue("redis") if request.param == "redis" else None)
        yield host
        await host.aclose()

    @pytest.fixture
    def store(self, host: TimedHost) -> Store:
        return host.open()

    @requirement("EXEC-111")
    async def test_a_row_is_written_under_the_version_that_its_writer_has_read(self, store: Store) -> None:
        assert await store.step([Put(THING, "a", b"1", "ann", expect=0)]) == [1]
        assert await conflict(store.step([Put(THING, "a", b"2", expect=0)])) == 0
        assert await store.step([Put(THING, "a", b"2", "bob", expect=1)]) == [2]
        row = await row_of(store, THING, "a")
        assert (row.data, row.version, row.owner, row.life_s, row.holder) == (b"2", 2, "ann", None, None)
        assert await conflict(store.step([Drop(THING, "a", expect=1)])) == 0
        assert await store.step([Drop(THING, "a", expect=2)]) == [1]
        assert await store.get(THING, "a") is None
        assert await store.step([Drop(THING, "a")]) == [0]

    @requirement("EXEC-111")
    async def test_a_step_is_done_completely_or_not_at_all(self, store: Store) -> None:
        await store.step([Put(THING, "b", b"")])
        ops: list[Op] = [Put(THING, "c", b"1"), Append(THING, "c", 0, 0, [b"e"]), Put(THING, "b", b"2", expect=7)]
        assert await conflict(store.step(ops)) == 2
        assert await store.get(THING, "c") is None
        assert list(await store.read_log(THING, "c", 0, 0)) == []
        assert list(await store.step([*ops[:2], Signal("t"), Drop(THING, "b")])) == [1, 1, 1, 1]
        assert await kept(store, THING, "b", "c") == ["c"]

    @requirement("EXEC-112")
    async def test_a_row_expires_with_its_logs_and_frees_its_key(self, host: TimedHost, store: Store) -> None:
        await store.step([Put(THING, "a", b"1", life_s=0.2), Append(THING, "a", 0, 0, [b"e"])])
        row = await row_of(store, THING, "a")
        assert row.life_s is not None
        assert 0 < row.life_s <= 0.201
        await host.pass_s(0.3)
        assert await store.get(THING, "a") is None
        assert list(await store.read_log(THING, "a", 0, 0)) == []
        assert await conflict(store.step([Append(THING, "a", 0, 1, [b"f"])])) == 0
        assert await store.step([Put(THING, "a", b"2", expect=0)]) == [1]
        assert list(await store.read_log(THING, "a", 0, 0)) == []

    @requirement("EXEC-112")
    async def test_a_row_keeps_its_life_and_its_data_unless_a_write_names_new_ones(
        self, host: TimedHost, store: Store
    ) -> None:
        await store.step([Put(THING, "a", b"1", life_s=0.2), Append(THING, "a", 0, 0, [b"e"])])
        await store.step([Put(THING, "a", None, life_s=60)])
        await store.step([Put(THING, "a", None)])
        await host.pass_s(0.3)
        row = await row_of(store, THING, "a")
        assert (row.data, row.version, row.ends) == (b"1", 3, (1, 0))
        assert row.life_s is not None
        assert 50 < row.life_s < 60
        assert list(await store.read_log(THING, "a", 0, 0)) == [(1, b"e")]

    @requirement("EXEC-113")
    async def test_a_log_grows_at_its_end_only_and_a_repeated_append_adds_nothing(self, store: Store) -> None:
        assert await conflict(store.step([Append(THING, "a", 0, 0, [b"no row"])])) == 0
        await store.step([Put(THING, "a", b"")])
        for _ in range(2):
            assert await store.step([Append(THING, "a", 0, 0, [b"1", b"2"])]) == [2]
        assert await conflict(store.step([Append(THING, "a", 0, 1, [b"z", b"z"])])) == 0
        await store.step([Append(THING, "a", 0, 2, [b"3"], cut=1)])
        assert list(await store.read_log(THING, "a", 0, 0)) == [(2, b"2"), (3, b"3")]
        assert list(await store.read_log(THING, "a", 0, 2)) == [(3, b"3")]
        assert list(await store.read_log(THING, "a", 0, 0, most=1)) == [(2, b"2")]
        assert list(await store.read_log(THING, "a", 1, 0)) == []
        row = await row_of(store, THING, "a")
        assert (row.ends, row.version) == ((3, 0), 1)

    @requirement("EXEC-113")
    async def test_processes_that_append_anywhere_lose_no_entry(self, host: TimedHost) -> None:
        one, other = host.open(), host.open()
        await one.step([Put(THING, "news", b"")])
        steps = [each.step([Append(THING, "news", 0, -1, [b"x"])]) for each in (one, other) for _ in range(10)]
        assert sorted(end for (end,) in await asyncio.gather(*steps)) == list(range(1, 21))
        assert len(await one.read_log(THING, "news", 0, 0)) == 20

    async def test_bytes_of_every_length_survive(self, store: Store) -> None:
        for length in (0, 1, 102_400, 300_000, 1_000_000, 5):
            data = bytes(range(256)) * (length // 256) + b"\x00" * (length % 256)
            await store.step([Put(THING, "a", data)])
            await store.step([Put(THING, "a", None)])
            row = await row_of(store, THING, "a")
            assert row.data == data
        data = bytes(range(256)) * 400
        await store.step([Append(THING, "a", 1, 0, [data, b""])])
        assert list(await store.read_log(THING, "a", 1, 0)) == [(1, data), (2, b"")]

    @requirement("EXEC-114")
    async def test_only_the_holder_writes_behind_its_fence(self, store: Store) -> None:
        await store.beat("p1")
        await store.beat("p2")
        await store.step([Put(THING, "a", b"", holder="p1")])
        fence = Fence(THING, "a", "p1", 1)
        assert await store.step([Append(THING, "a", 0, 0, [b"1"])], fence=fence) == [1]
        assert await conflict(store.step([Signal("t")], fence=Fence(THING, "a", "p2", 1))) == -1
        assert await conflict(store.step([Signal("t")], fence=Fence(THING, "none", "p1", 1))) == -1
        assert await conflict(store.step([Take(THING, "a", "p2")])) == 0, "p1 lives"
        assert (await store.beat("p2")).lapsed == {}
        await store.beat("p1", mark_s=0)
        assert (await store.beat("p2")).lapsed == {"thing": ["a"]}
        assert await store.step([Take(THING, "a", "p2")]) == [2]
        assert await conflict(store.step([Append(THING, "a", 0, 1, [b"2"])], fence=fence)) == -1
        assert (await store.beat("p1")).lapsed == {}
        row = await row_of(store, THING, "a")
        assert (row.holder, row.term, row.version, row.ends) == ("p2", 2, 2, (1, 0))

    @requirement("EXEC-114")
    async def test_a_row_whose_holder_stands_still_may_be_taken_once_its_mark_has_lapsed(
        self, host: TimedHost, store: Store
    ) -> None:
        await store.beat("p1", mark_s=0.3)
        await store.step([Put(THING, "a", b"", holder="p1")])
        await store.beat("p2")
        assert await conflict(store.step([Take(THING, "a", "p2")])) == 0
        await host.pass_s(0.4)
        assert (await store.beat("p2")).lapsed == {"thing": ["a"]}
        assert await store.step([Take(THING, "a", "p2")]) == [2]
        assert (await store.beat("p1", mark_s=0.3)).lost
        assert not (await store.beat("p1")).lost

    @requirement("EXEC-114")
    async def test_a_released_row_may_be_taken_immediately(self, store: Store) -> None:
        await store.beat("p1")
        await store.step([Put(THING, "a", b"", holder="p1")])
        await store.step([Put(THING, "a", None, holder="")], fence=Fence(THING, "a", "p1", 1))
        row = await row_of(store, THING, "a")
        assert (row.holder, row.term) == ("", 2)
        assert (await store.beat("p2")).lapsed == {"thing": ["a"]}
        assert await store.step([Take(THING, "a", "p2")]) == [3]
        await store.step([Put(THING, "a", None, holder=NO_HOLDER)])
        assert await conflict(store.step([Take(THING, "a", "p1")])) == 0, "a row without a holder is not up for taking"
        assert (await store.beat("p1")).lapsed == {}

    @requirement("EXEC-115")
    async def test_the_owner_who_holds_most_loses_the_least_recently_written_row(
        self, host: TimedHost, store: Store
    ) -> None:
        for number in range(8):
            await store.step([Put(FAIR, f"big{number}", b"x" * 100, "big", life_s=60)])
            await host.pass_s(0.002)
        await store.step([Put(FAIR, "big0", None)])
        await host.pass_s(0.002)
        for number in range(3):
            await store.step([Put(FAIR, f"small{number}", b"x" * 100, "small", life_s=60)])
        rows = [*(f"big{number}" for number in range(8)), "small0", "small1", "small2"]
        assert await kept(store, FAIR, *rows) == [key for key in rows if key != "big1"]
        # An owner with as much as the largest pays for a new row itself; a replaced row counts once.
        await store.step([Put(FAIR, "big8", b"x" * 150, "big", life_s=60)])
        assert await kept(store, FAIR, *rows, "big8") == ["big0", *rows[4:], "big8"]
        await store.step([Put(FAIR, "small0", b"x" * 100, "small", life_s=60)])
        assert sorted(row.key for row in await store.of_owner(FAIR, "small")) == ["small0", "small1", "small2"]

    @requirement("EXEC-115")
    async def test_an_owner_has_bounds_of_its_own(self, store: Store) -> None:
        kind = Kind("part", most_bytes=1_000, owner_bytes=500, owner_rows=3)
        await store.step([Put(kind, "1", b"x" * 400, "a", life_s=60)])
        assert await full(store.step([Put(kind, "2", b"x" * 101, "a", life_s=60)])) == "owner"
        await store.step([Put(kind, "3", b"x" * 500, "b", life_s=60)])
        assert await full(store.step([Put(kind, "4", b"x" * 101, "c", life_s=60)])) == "all"
        await store.step([Put(kind, "5", b"", "a", life_s=60)])
        await store.step([Put(kind, "6", b"", "a", life_s=60)])
        assert await full(store.step([Put(kind, "7", b"", "a", life_s=60)])) == "owner"
        assert await full(store.step([Put(kind, "5", b"x" * 101, life_s=60)])) == "owner", "a row keeps its owner"
        await store.step([Drop(kind, "1")])
        await store.step([Put(kind, "7", b"x" * 100, "a", life_s=60)])
        assert await kept(store, kind, *"1234567") == ["3", "5", "6", "7"]

    @requirement("EXEC-115")
    async def test_expired_rows_free_their_room_and_held_rows_are_never_evicted(
        self, host: TimedHost, store: Store
    ) -> None:
        kind = Kind("life", most_bytes=300, gives="row")
        await store.beat("p1")
        await store.step([Put(kind, "held", b"x" * 200, "a", life_s=60, holder="p1")])
        await store.step([Put(kind, "soon", b"x" * 100, "a", life_s=0.15)])
        await host.pass_s(0.2)
        await store.step([Put(kind, "new", b"x" * 100, "b", life_s=60)])
        await host.pass_s(0.002)
        await store.step([Put(kind, "newer", b"x" * 100, "b", life_s=60)])
        assert await kept(store, kind, "held", "new", "newer") == ["held", "newer"]
        assert await full(store.step([Put(kind, "large", b"x" * 101, "b", life_s=60)])) == "all"
        await store.step([Put(kind, "held", None, holder=NO_HOLDER)])
        await store.step([Put(kind, "large", b"x" * 101, "b", life_s=60)])

    @requirement("EXEC-115")
    async def test_a_row_that_gives_its_logs_keeps_its_key_and_data(self, host: TimedHost, store: Store) -> None:
        kind = Kind("logs", most_bytes=3 * STRIPPED_BYTES, gives="logs")
        ends = [Append(kind, key, 0, 0, [b"x" * 500]) for key in "ab"]
        await store.step([Put(kind, "a", b"key", "ann", size=500, life_s=60), ends[0]])
        await host.pass_s(0.002)
        await store.step([Put(kind, "b", b"key", "ann", size=500, life_s=60), ends[1]])
        row = await row_of(store, kind, "a")
        assert (row.data, row.ends) == (b"key", (-1, -1))
        assert list(await store.read_log(kind, "a", 0, 0)) == []
        assert len(await store.read_log(kind, "b", 0, 0)) == 1
        for at in (0, -1):
            assert await conflict(store.step([Append(kind, "a", 0, at, [b"more"])])) == 0
        assert await conflict(store.step([Put(kind, "a", b"again", expect=0)])) == 0
        assert await full(store.step([Put(kind, "c", b"", "ann", size=500, life_s=60)])) == "all"

    @requirement("EXEC-115")
    async def test_a_step_evicts_no_row_that_it_writes_to(self, host: TimedHost, store: Store) -> None:
        for key in ("a", "b"):
            await store.step([Put(FAIR, key, b"x" * 400, "ann", life_s=60)])
            await host.pass_s(0.002)
        await store.step([Append(FAIR, "a", 0, 0, [b"1"]), Put(FAIR, "c", b"x" * 400, "ann", life_s=60)])
        assert await kept(store, FAIR, *"abc") == ["a", "c"]
        assert list(await store.read_log(FAIR, "a", 0, 0)) == [(1, b"1")]

    async def test_rows_of_an_owner_and_of_all_are_listed_least_recently_written_first(
        self, host: TimedHost, store: Store
    ) -> None:
        kind = Kind("list", listed=True)
        for key, owner in (("c", "ann"), ("b", "bob"), ("a", "ann")):
            await store.step([Put(kind, key, key.encode(), owner, life_s=60)])
            await host.pass_s(0.002)
        assert [row.key for row in await store.of_owner(kind, "ann")] == ["c", "a"]
        assert [row.data for row in await store.of_owner(kind, None)] == [b"c", b"b", b"a"]
        assert [row.key for row in await store.of_owner(kind, None, most=2)] == ["c", "b"]
        assert await store.of_owner(kind, "eve") == []

    @requirement("EXEC-116")
    async def test_a_full_window_refuses_until_its_events_have_faded(self, host: TimedHost, store: Store) -> None:
        windows = [Window("hour", 5, 3_600.0), Window("tenth", 3, 0.4)]
        counted = 0
        for _ in range(3):
            counted += await store.count(windows) is None
        refused = await store.count(windows)
        # A store with a clock of its own may have entered the next tenth in between.
        if counted == 3 and refused is not None:
            assert refused.index == 1
            assert 0 < refused.retry_after_s <= 0.8
        assert await store.count([Window("other", 1, 0.4)], peek=True) is None
        assert await store.count([Window("other", 1, 0.4)]) is None
        await host.pass_s(1.0)
        assert await store.count(windows) is None
        assert await store.count(windows) is None
        long = await store.count(windows)
        assert isinstance(long, Refused)
        assert long.index == 0
        assert await store.count([Window("none", 0, 60.0)]) is not None

    @requirement("EXEC-116")
    async def test_places_are_counted_over_processes_and_lapse_with_a_mark(self, host: TimedHost, store: Store) -> None:
        await store.beat("p1")
        await store.beat("p2", mark_s=0.3)
        assert await store.places("calls", "p1", 3, [Wish("ann", 0, 2), Wish("bob", 0, 1)]) == [
            Grant(2, 0),
            Grant(1, 0),
        ]
        assert await store.places("calls", "p2", 3, [Wish("ann", 0, 2)]) == [Grant(1, 2)]
        assert await store.places("calls", "p1", 3, [Wish("ann", 2, 1)]) == [Grant(0, 1)]
        assert await store.places("other", "p1", 3, [Wish("ann", 0, 5)]) == [Grant(3, 0)]
        await host.pass_s(0.4)
        assert await store.places("calls", "p1", 3, [Wish("ann", 2, 1)]) == [Grant(1, 0)]
        assert (await store.beat("p2")).lost, "so that it sets its places again"
        assert await store.places("calls", "p2", 3, [Wish("ann", 1, 0)]) == [Grant(0, 3)]
        await store.beat("p1", mark_s=0)
        assert await store.places("calls", "p2", 3, [Wish("ann", 0, 3)]) == [Grant(3, 0)]

    @requirement("EXEC-121")
    async def test_a_signal_wakes_its_listeners_in_every_process(self, host: TimedHost) -> None:
        one, other = host.open(), host.open()
        async with asyncio.timeout(BOUND_S), one.listen("t") as here, other.listen("t") as there:
            for sender in (one, other):
                waits = [asyncio.create_task(each.wait(BOUND_S)) for each in (here, there)]
                await asyncio.sleep(0)
                await sender.step([Signal("elsewhere"), Signal("t")])
                began = asyncio.get_running_loop().time()
                await asyncio.gather(*waits)
                assert asyncio.get_running_loop().time() - began < BOUND_S / 2
            await here.wait(0.15)  # a new subscription may wake once more
            began = asyncio.get_running_loop().time()
            await here.wait(0.15)
            assert asyncio.get_running_loop().time() - began >= 0.14, "a signal wakes once"

    async def test_a_refused_step_raises_no_signal(self, store: Store) -> None:
        async with store.listen("t") as changed:
            await changed.wait(0.1)  # a new subscription may wake
            assert await conflict(store.step([Signal("t"), Drop(THING, "none", expect=1)])) == 1
            began = asyncio.get_running_loop().time()
            await changed.wait(0.1)
            assert asyncio.get_running_loop().time() - began >= 0.09


KINDS = (
    Kind("free"),
    Kind("listed", listed=True),
    Kind("rows", most_bytes=900, most_rows=4, owner_bytes=600, gives="row"),
    Kind("logs", most_bytes=1_200, owner_rows=4, gives="logs"),
    Kind("strict", most_bytes=500, owner_bytes=300, owner_rows=2),
)
KEYS = ("k1", "k2", "k3", "k4")
OWNERS = ("ann", "bob", "")
PROCESSES = ("p1", "p2", "p3")
keys, owners, processes = (st.sampled_from(each) for each in (KEYS, OWNERS, PROCESSES))
expected = st.none() | st.integers(0, 3)
sizes = st.none() | st.sampled_from((0, 10, 100, 250, 400, 700))


@dataclass(frozen=True)
class Get:
    kind: Kind
    key: str


@dataclass(frozen=True)
class Later:
    seconds: float


@dataclass(frozen=True)
class Listing:
    kind: Kind
    owner: str | None
    most: int


@dataclass(frozen=True)
class Log:
    kind: Kind
    key: str
    log: int
    after: int
    most: int


@dataclass(frozen=True)
class Mark:
    process: str
    mark_s: float


@dataclass(frozen=True)
class Count:
    windows: tuple[Window, ...]
    peek: bool


@dataclass(frozen=True)
class Places:
    process: str
    limit: int
    wishes: tuple[Wish, ...]


@dataclass(frozen=True)
class Step:
    """*fenced*: the operation whose row the fence names, if there is one; the fence is stale if *stale*."""

    ops: tuple[Op, ...]
    fenced: int | None
    stale: bool


Act = Get | Later | Listing | Log | Mark | Count | Places | Step


def is_allowed(ops: Sequence[Op]) -> bool:
    """At most one Put, Take or Drop for a row, one Put of a bounded kind, and one Append for a log."""
    rows = [(op.kind, op.key) for op in ops if isinstance(op, Put | Take | Drop)]
    logs = [(op.kind, op.key, op.log) for op in ops if isinstance(op, Append)]
    bounded = [op for op in ops if isinstance(op, Put) and op.kind.bounded]
    return len(rows) == len(set(rows)) and len(logs) == len(set(logs)) and len(bounded) < 2


# A window has one length, so that its buckets have one meaning.
window_lists = st.lists(st.sampled_from(("w1", "w2", "w3")), min_size=1, max_size=3, unique=True).flatmap(
    lambda names: st.tuples(
        *(st.builds(Window, st.just(name), st.integers(0, 4), st.just(10.0 * int(name[1]))) for name in names)
    )
)
wishes = st.builds(Wish, st.sampled_from(("ann", "bob")), st.integers(0, 3), st.integers(0, 3))


def acts(of: Sequence[Kind]) -> st.SearchStrategy[Act]:
    """Strategy of acts on rows of these kinds."""
    kinds, indexed = st.sampled_from(of), st.sampled_from([kind for kind in KINDS if kind.bounded or kind.listed])
    data = st.none() | st.sampled_from((b"", b"x", b"y" * 100, b"z" * 300))
    life_s, holder = st.none() | st.sampled_from((30.0, 90.0)), st.none() | st.sampled_from(("", NO_HOLDER, *PROCESSES))
    entries = st.lists(st.sampled_from((b"", b"one", b"\xfftwo")), max_size=3)
    puts = st.builds(Put, kinds, keys, data, owners, expected, life_s, holder, sizes)
    appends = st.builds(
        Append, kinds, keys, st.integers(0, 1), st.integers(-1, 3), entries, st.sampled_from((0, 0, 1, 2))
    )
    takes, drops = st.builds(Take, kinds, keys, processes), st.builds(Drop, kinds, keys, expected)
    operations: st.SearchStrategy[Op] = st.one_of(puts, puts, appends, takes, drops, st.just(Signal("topic")))
    lists = st.lists(operations, min_size=1, max_size=4).filter(is_allowed).map(tuple)
    steps = st.builds(Step, lists, st.none() | st.just(0), st.booleans())
    return st.one_of(
        steps,
        steps,
        steps,
        evictions(of),
        st.builds(Get, kinds, keys),
        st.builds(Later, st.sampled_from((0.5, 4.0, 7.0, 35.0, 100.0, 4_000.0))),
        st.builds(Listing, indexed, st.none() | owners, st.sampled_from((2, 100))),
        st.builds(Log, kinds, keys, st.integers(0, 1), st.integers(0, 3), st.integers(1, 4)),
        st.builds(Mark, processes, st.sampled_from((0.0, 6.0))),
        st.builds(Count, window_lists, st.booleans()),
        st.builds(Places, processes, st.integers(1, 5), st.lists(wishes, max_size=2).map(tuple)),
    )


def evictions(of: Sequence[Kind]) -> st.SearchStrategy[Act]:
    """Strategy of writes and reads of rows, of which most find no room."""
    kinds, more_keys = st.sampled_from(of), st.sampled_from("abcdef")
    size, holder = st.sampled_from((0, 100, 250)), st.sampled_from((None, None, "p1", NO_HOLDER))
    put = st.builds(Put, kinds, more_keys, st.just(b""), owners, holder=holder, size=size)
    logged = put.map(lambda put: Step((put, Append(put.kind, put.key, 0, -1, [b"x"])), None, stale=False))
    plain = put.map(lambda put: Step((put,), None, stale=False))
    return st.one_of(logged, plain, st.builds(Get, kinds, more_keys))


def histories() -> st.SearchStrategy[list[Act]]:
    """Strategy of acts on rows of all kinds, or of one, of which some only fill it."""
    filled = [evictions([kind]) for kind in KINDS if kind.bounded]
    each = st.sampled_from([acts(KINDS), *(acts([kind]) for kind in KINDS), *filled, *filled])
    return each.flatmap(lambda acts: st.lists(acts, min_size=20, max_size=40))


class Seconds(float):
    """Equal to another one in spite of what passed on a real clock."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and abs(self - other) < 3

    __hash__ = float.__hash__


def rounded(row: Row | None) -> Row | None:
    return row and replace(row, life_s=None if row.life_s is None else Seconds(row.life_s))


async def done(store: Store, act: Act) -> Any:
    match act:
        case Get(kind, key):
            return rounded(await store.get(kind, key))
        case Listing(kind, owner, most):
            return [rounded(row) for row in await store.of_owner(kind, owner, most)]
        case Log(kind, key, log, after, most):
            return list(await store.read_log(kind, key, log, after, most))
        case Mark(process, mark_s):
            beat = await store.beat(process, mark_s=mark_s)
            return Beat({kind: sorted(found) for kind, found in sorted(beat.lapsed.items())}, beat.lost)
        case Count(asked, peek):
            refused = await store.count(asked, peek=peek)
            return refused and Refused(refused.index, round(refused.retry_after_s, 1))
        case Places(process, limit, wishes):
            return list(await store.places("calls", process, limit, wishes))
        case Step(ops, fenced, stale):
            fence = None
            if fenced is not None and not isinstance(op := ops[fenced], Signal):
                row = await store.get(op.kind, op.key)
                if row is not None and row.holder:
                    fence = Fence(op.kind, op.key, row.holder, row.term + stale)
            try:
                return list(await store.step(ops, fence=fence))
            except Conflict as conflict:
                return "conflict", conflict.at
            except Full as full:
                return "full", full.scope
    return None


async def everything(store: Store) -> Any:
    rows = [store.get(kind, key) for kind in KINDS for key in KEYS]
    logs = [store.read_log(kind, key, log, 0) for kind in KINDS for key in KEYS for log in (0, 1)]
    lists = [store.of_owner(kind, None) for kind in KINDS if kind.bounded or kind.listed]
    return (
        [rounded(row) for row in await asyncio.gather(*rows)],
        [list(found) for found in await asyncio.gather(*logs)],
        [[row.key for row in found] for found in await asyncio.gather(*lists)],
    )


@pytest.mark.usefixtures("with_a_clock")
@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(histories())
@requirement("EXEC-118")
def test_a_file_and_redis_do_what_memory_does(redis: RedisServer, history: Sequence[Act]) -> None:
    async def run(folder: Path) -> None:
        redis.flush()
        hosts = [TimedHost(), TimedHost(folder / "store.db"), TimedHost(server=redis)]
        try:
            stores = [host.open() for host in hosts]
            for act in history:
                results = []
                for host, store in zip(hosts, stores, strict=True):
                    await host.pass_s(act.seconds if isinstance(act, Later) else 0.001)
                    results.append(await done(store, act))
                assert all(result == results[0] for result in results), f"{act} {results} after {history}"
            for parts in zip(*[await everything(store) for store in stores], strict=True):
                for each in zip(*parts, strict=True):
                    assert all(one == each[0] for one in each), f"{each} after {history}"
        finally:
            for host in hosts:
                await host.aclose()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder)))
