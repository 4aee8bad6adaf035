"""The contract of the store of learned words, over each back end of ``Store``."""

import asyncio
import json
import logging
from collections.abc import Callable, Sequence

import pytest

from tests.support.clock import Clock
from tests.support.failing_store import FailingStore
from tests.support.requirement import requirement
from wicketgate.access.identity import Identity
from wicketgate.catalog.learned_words import HALF_LIFE_S, MAX_SIZE, Lesson, ToolWords
from wicketgate.errors import ConfigError
from wicketgate.gateway.learning import Learning
from wicketgate.ports import CallContext, LearnedRows, session_key
from wicketgate.storage import learned_words
from wicketgate.storage.encoding import packed, unpacked
from wicketgate.storage.learned_words import StoredLearnedWords
from wicketgate.storage.measures import StorageMeasures
from wicketgate.storage.memory import MemoryStore
from wicketgate.storage.store import Conflict, Drop, Fence, Kind, Op, Put, Store, StoreUnavailable

pytestmark = pytest.mark.usefixtures("patient_stores")

Stores = tuple[str, Callable[[], Store]]

# Bounds do not matter for what is read and damaged here.
ROWS = Kind("learned", most_bytes=MAX_SIZE, gives="row", listed=True)
CHANGES = Kind("learned_changes")


@pytest.fixture
def clock() -> Clock:
    return Clock(1_000_000.0)


@pytest.fixture
def store(stores: Stores) -> Store:
    return stores[1]()


@pytest.fixture
def words(store: Store, clock: Clock) -> StoredLearnedWords:
    return StoredLearnedWords(store, shared=True, now=clock)


def lesson(actor: str, tool_id: str, words: str, *, first: bool = False) -> Lesson:
    return Lesson(actor, tool_id, tuple(words.split()), first)


async def learned(words: StoredLearnedWords, *lessons: Lesson, since: int = 0) -> LearnedRows:
    rows = await words.learn(lessons, since)
    assert rows is not None
    assert not rows.left
    return rows


async def held(words: StoredLearnedWords) -> dict[tuple[str, str], ToolWords]:
    return {(actor, tool_id): found for actor, tool_id, found in (await learned(words)).rows}


@requirement("BROWSE-44")
async def test_lessons_are_counted_by_actor_and_tool(words: StoredLearnedWords) -> None:
    await learned(words, lesson("ann", "a:x", "film new"), lesson("ann", "a:x", "film"), lesson("bob", "a:x", "play"))
    await learned(words, lesson("ann", "a:x", "film song", first=True), lesson("ann", "a:y", ""))
    found = await held(words)
    assert found.keys() == {("ann", "a:x"), ("bob", "a:x"), ("ann", "a:y")}
    assert found["ann", "a:x"].runs == 3
    assert dict(found["ann", "a:x"].counts) == {"film": 3.0, "new": 1.0}


@requirement("BROWSE-44")
async def test_any_string_is_an_actor_a_tool_and_a_word(words: StoredLearnedWords) -> None:
    odd = ["", "\0", "é", "\ud800", "x" * 5_000, "天気", "'; --", "100%", "a b"]
    await learned(words, *(Lesson(name, name, (name,)) for name in odd))
    assert {(name, name): {name: 1.0} for name in odd} == {
        key: dict(found.counts) for key, found in (await held(words)).items()
    }


@requirement("BROWSE-49")
async def test_counts_fade_with_the_clock(words: StoredLearnedWords, clock: Clock) -> None:
    await learned(words, *(lesson("ann", "a:x", "film") for _ in range(4)))
    clock.now += HALF_LIFE_S
    assert words.now() == clock.now
    await learned(words, lesson("ann", "a:x", "play"))
    found = (await held(words))["ann", "a:x"]
    assert (found.runs, dict(found.counts), found.at) == (3.0, {"film": 2.0, "play": 1.0}, clock.now)


@requirement("BROWSE-48")
async def test_one_actor_evicts_no_words_of_another(store: Store, clock: Clock) -> None:
    words = StoredLearnedWords(store, shared=True, now=clock, max_size=100)
    await learned(words, *(lesson("ann", f"a:{number}", "film play song") for number in range(5)))
    for number in range(100):
        await learned(words, lesson("mallory", f"m:{number}", f"w{number} v{number}"))
    found = await held(words)
    assert {key for key in found if key[0] == "ann"} == {("ann", f"a:{number}") for number in range(5)}
    assert sum(each.size for each in found.values()) <= 100
    assert ("mallory", "m:99") in found
    assert ("mallory", "m:0") not in found


@requirement("BROWSE-48")
async def test_the_tools_of_an_actor_are_bounded(store: Store, clock: Clock) -> None:
    words = StoredLearnedWords(store, shared=True, now=clock, max_actor_tools=10)
    for number in range(30):
        await learned(words, lesson("ann", f"a:{number}", "film"))
    assert (await held(words)).keys() == {("ann", f"a:{number}") for number in range(20, 30)}


async def test_concurrent_lessons_are_all_counted(words: StoredLearnedWords) -> None:
    await asyncio.gather(*(learned(words, lesson("ann", "a:x", "film")) for _ in range(30)))
    assert (await held(words))["ann", "a:x"].counts["film"] == 30


@requirement("BROWSE-51", "EXEC-51")
async def test_lessons_of_several_processes_are_all_counted(stores: Stores, clock: Clock) -> None:
    views = [StoredLearnedWords(stores[1](), shared=True, now=clock) for _ in range(3)]
    await asyncio.gather(*(learned(view, lesson("ann", "a:x", "film")) for _ in range(10) for view in views))
    assert (await held(views[0]))["ann", "a:x"].counts["film"] == 30
    assert await held(views[0]) == await held(views[1])


@requirement("BROWSE-105")
async def test_a_reader_gets_only_what_changed(stores: Stores, clock: Clock) -> None:
    one, other = (StoredLearnedWords(stores[1](), shared=True, now=clock) for _ in range(2))
    first = await learned(one, lesson("ann", "a:x", "film"))
    await learned(other, lesson("bob", "a:x", "play"), lesson("bob", "a:y", "play"))
    second = await learned(one, since=first.version)
    assert sorted(row[:2] for row in second.rows) == [("bob", "a:x"), ("bob", "a:y")]
    assert not second.whole
    third = await learned(one, since=second.version)
    assert (third.version, third.rows, third.whole) == (second.version, [], False)


@requirement("BROWSE-105")
async def test_a_reader_that_missed_too_many_changes_reads_everything(
    stores: Stores, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learned_words, "_CHANGES_KEPT", 40)
    one, other = (StoredLearnedWords(stores[1](), shared=True, now=clock) for _ in range(2))
    first = await learned(one, lesson("ann", "a:x", "film"))
    since = 0
    for _ in range(6):
        taught = (lesson("bob", f"b:{number}", "play") for number in range(20))
        since = (await learned(other, *taught, since=since)).version
    after = await learned(one, since=first.version)
    assert after.whole
    assert len(after.rows) == 21
    assert not (await learned(one, since=after.version)).whole
    assert len(await other._store.read_log(CHANGES, "all", 0, 0, 10_000)) <= 60, "the log is bounded"


@requirement("BROWSE-48", "BROWSE-105", "OPS-54")
async def test_a_reader_notices_a_reset(stores: Stores, clock: Clock) -> None:
    words, other = (StoredLearnedWords(stores[1](), shared=True, now=clock) for _ in range(2))
    before = await learned(words, lesson("ann", "a:x", "film"), lesson("bob", "a:x", "film"), lesson("bob", "b:y", "z"))
    assert await other.reset(actor="bob", tool_id="a:x") == 1
    after = await learned(words, since=before.version)
    assert after.whole
    assert sorted(row[:2] for row in after.rows) == [("ann", "a:x"), ("bob", "b:y")]
    assert await words.reset(tool_id="a:x") == 1
    assert await words.reset(actor="nobody") == 0
    assert await words.reset() == 1
    assert await held(words) == {}
    again = await learned(words, lesson("ann", "a:x", "film"))
    assert [(row[:2], row[2].runs) for row in again.rows] == [(("ann", "a:x"), 1)]


@requirement("BROWSE-105", "EXEC-51")
@pytest.mark.parametrize("changes", [0, 3, 5])
async def test_words_that_the_store_has_lost_are_forgotten(stores: Stores, clock: Clock, changes: int) -> None:
    words, other = (StoredLearnedWords(stores[1](), shared=True, now=clock) for _ in range(2))
    for _ in range(3):
        before = await learned(words, lesson("ann", "a:x", "film"))
    (row,) = await words._store.of_owner(ROWS, None)
    await words._store.step([Drop(ROWS, row.key), Drop(CHANGES, "all")])
    for number in range(changes):
        await learned(other, lesson("bob", f"b:{number}", "play"))
    after = await learned(words, since=before.version)
    assert after.whole
    assert sorted(row[:2] for row in after.rows) == [("bob", f"b:{number}") for number in range(changes)]
    assert (await learned(words, lesson("bob", "b:x", "play"), since=after.version)).rows


@requirement("BROWSE-51")
async def test_an_unavailable_store_keeps_no_lesson_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    store, measures = FailingStore(), StorageMeasures()
    words = StoredLearnedWords(store, shared=True, measures=measures)
    await learned(words, lesson("ann", "a:x", "film"))
    store.unavailable = True
    with caplog.at_level(logging.INFO, "wicketgate.learning"):
        for _ in range(3):
            assert await words.learn([lesson("ann", "a:x", "film")], 0) is None
    assert [record.getMessage() for record in caplog.records] == [
        "learned words cannot be kept or read at the moment: it is unavailable"
    ]
    assert measures.fail.degraded(away=False) == {"learned_words": "open"}
    with pytest.raises(ConfigError, match=r"storage\.url: it is unavailable"):
        await words.reset()
    store.unavailable = False
    assert (await learned(words, lesson("ann", "a:x", "film"))).rows[0][2].runs == pytest.approx(2)
    assert not measures.fail.degraded(away=False)


@requirement("BROWSE-106")
async def test_lessons_that_were_not_counted_are_given_back(caplog: pytest.LogCaptureFixture) -> None:
    class RefusesBob(MemoryStore):
        async def step(self, ops: Sequence[Op], *, fence: Fence | None = None, durable: bool = False) -> Sequence[int]:
            if isinstance(ops[0], Put) and unpacked(ops[0].data or b"null")[0] == "bob":
                raise StoreUnavailable("it is locked")
            return await super().step(ops, fence=fence, durable=durable)

    words = StoredLearnedWords(RefusesBob(), shared=True)
    lessons = [lesson("bob", "a:x", "film"), lesson("ann", "a:x", "film"), lesson("bob", "a:x", "song")]
    rows = await words.learn(lessons, 0)
    assert rows is not None
    assert (rows.left, [row[0] for row in rows.rows]) == ([lessons[0], lessons[2]], ["ann"])
    many = [lesson("bob", f"b:{number}", "film") for number in range(100)]
    assert await words.learn(many, 0) == LearnedRows(rows.version, rows.rows, whole=True, left=many)


@requirement("BROWSE-106")
async def test_a_row_that_others_always_change_first_is_left_for_later() -> None:
    class Contended(MemoryStore):
        async def step(self, ops: Sequence[Op], *, fence: Fence | None = None, durable: bool = False) -> Sequence[int]:
            raise Conflict(0)

    rows = await StoredLearnedWords(Contended(), shared=True).learn([lesson("ann", "a:x", "film")], 0)
    assert rows is not None
    assert rows.left == [lesson("ann", "a:x", "film")]


DAMAGED = [
    b"",
    b"\xff",
    b"[1",
    b"{}",
    b"[" * 100_000,
    b'["ann","a:x",2.0,5.0]',
    b'[7,"a:x",2.0,5.0,{"film":1.0}]',
    b'["ann",null,2.0,5.0,{"film":1.0}]',
    *(b'["ann","a:x",%s,5.0,{"film":1.0}]' % runs for runs in (b'"2"', b"-2.0", b"9e999", b"null", b"1" * 400)),
    *(b'["ann","a:x",2.0,%s,{"film":1.0}]' % at for at in (b'"today"', b"-1.0", b"9e999")),
    *(b'["ann","a:x",2.0,5.0,{"film":%s}]' % count for count in (b'"1"', b"NaN", b"-5", b"3.0")),
    b'["ann","a:x",2.0,5.0,[]]',
    packed(["ann", "a:x", 2.0, 5.0, {str(number): 1.0 for number in range(49)}]),
]


@requirement("BROWSE-56")
@pytest.mark.parametrize("data", DAMAGED, ids=lambda data: data[:40].decode("latin-1"))
async def test_a_damaged_row_is_ignored_and_never_mended(
    words: StoredLearnedWords, store: Store, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    await learned(words, lesson("ann", "a:x", "film"))
    (row,) = await store.of_owner(ROWS, None)
    await store.step([Put(ROWS, row.key, data, size=2)])
    await learned(words, lesson("ann", "a:x", "film"), lesson("bob", "a:y", "film"))
    assert (await held(words)).keys() == {("bob", "a:y")}
    assert f"damaged row (learned '{row.key}')" in caplog.text
    kept = await store.get(ROWS, row.key)
    assert kept is not None
    assert kept.data == data
    learning = Learning(words, "all")
    await learning.load()
    context = CallContext(Identity("ann", ("*",)), "-", session_key("test", "ann", ""))
    assert (found := learning.words(context)) is None or not found.weights("film")
    assert await words.reset() == 2, "a reset removes it"


@requirement("BROWSE-56")
async def test_a_time_to_come_does_not_keep_words_for_ever(store: Store, clock: Clock) -> None:
    await learned(StoredLearnedWords(store, shared=True, now=lambda: 9e9), lesson("ann", "a:x", "film"))
    assert (await held(StoredLearnedWords(store, shared=True, now=clock)))["ann", "a:x"].at == clock.now


@requirement("BROWSE-57")
async def test_the_store_does_not_show_the_order_of_the_words(words: StoredLearnedWords, store: Store) -> None:
    await learned(words, lesson("ann", "a:x", "who sacked ann yesterday"))
    (row,) = await store.of_owner(ROWS, None)
    assert list(json.loads(row.data)[4]) == ["ann", "sacked", "who", "yesterday"]


@requirement("BROWSE-107")
async def test_words_that_nothing_is_added_to_expire(words: StoredLearnedWords, store: Store) -> None:
    await learned(words, lesson("ann", "a:x", "film"))
    (row,) = await store.of_owner(ROWS, None)
    for each in (row, await store.get(CHANGES, "all")):
        assert each is not None
        assert each.life_s == pytest.approx(6 * HALF_LIFE_S, abs=60)
