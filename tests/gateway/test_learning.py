"""The lessons of runs, for whom they count, and that nothing waits for them (BROWSE-42 to BROWSE-51)."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.support.clock import Clock
from tests.support.effort import bounded_effort
from tests.support.requirement import requirement
from wicketgate.access.identity import Identity
from wicketgate.catalog.learned_words import DAY_S, HALF_LIFE_S, Lesson
from wicketgate.errors import GatewayError, HydrateFailed, RateLimited
from wicketgate.fleet.member import MultiplexUpstream
from wicketgate.gateway.learning import Browses, Learning, LearnScope
from wicketgate.gateway.options import RuntimeOptions, RuntimePolicies
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.ports import CallContext, LearnedRows, LearnedStore, session_key
from wicketgate.storage.learned_words import StoredLearnedWords
from wicketgate.storage.memory import MemoryStore
from wicketgate.upstreams.embedded import StubUpstream

BOUND_S = 30.0
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}


def tool(name: str, description: str) -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": SCHEMA}


TOOLS = [
    tool("search_titles", "Search titles of the catalog."),
    tool("search_people", "Search people of the catalog."),
    tool("list_genres", "List genres of the catalog."),
    tool("search_orders", "Search orders of the shop."),
]
QUERY = "search the catalog for blockbusters"


async def answer(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
    if arguments.get("text") == "fail":
        return {"content": [{"type": "text", "text": "no"}], "isError": True}
    return {"content": [{"type": "text", "text": "done"}]}


class Setting:
    """A runtime over four tools, whose callers are named by their actor."""

    def __init__(
        self,
        learn: LearnScope = "actor",
        *,
        store: LearnedStore | None = None,
        tools: Sequence[Mapping[str, Any]] = TOOLS,
        **policies: Any,
    ) -> None:
        self.clock = Clock(1_000_000.0)
        self.store = store or StoredLearnedWords(MemoryStore(), shared=False, now=self.clock)
        self.upstream = StubUpstream(list(tools), answer, name="media")
        self.runtime = ProxyRuntime(
            MultiplexUpstream([self.upstream]),
            RuntimeOptions(RuntimePolicies(learn=learn, **policies), learned=self.store),
        )

    async def ready(self) -> "Setting":
        await self.runtime.refresh_catalog()
        return self

    def context(self, actor: str = "ann", session: str = "s", permissions: tuple[str, ...] = ("*",)) -> CallContext:
        return CallContext(Identity(actor, permissions), "trace", session_key("test", actor, session))

    def id_of(self, name: str) -> str:
        (found,) = (item.id for item in self.runtime.catalog().items.values() if item.upstream_name == name)
        return found

    async def ranks(self, query: str, actor: str = "ann", **more: Any) -> list[str]:
        """The tools that a browse shows, best first."""
        cards = (await self.runtime.browse_query(query, 10, self.context(actor, **more))).cards
        best = sorted(cards, key=lambda card: (-(card.score or 0), card.id))
        return [self.runtime.catalog().items[card.id].upstream_name for card in best if card.kind == "tool"]

    def scores(self, query: str, actor: str = "ann") -> dict[str, float]:
        return dict(self.runtime.browsing.rank(query, 50, self.context(actor)))

    async def runs(self, name: str, actor: str = "ann", *, text: str = "", session: str = "s", **more: Any) -> None:
        await self.runtime.execute(self.id_of(name), {"text": text}, self.context(actor, session), **more)
        await self.runtime.learning.settle()

    async def teach(self, query: str, name: str, actor: str = "ann", times: int = 1) -> None:
        for _ in range(times):
            await self.ranks(query, actor)
            await self.runs(name, actor)

    async def learned(self) -> dict[tuple[str, str], dict[str, float]]:
        rows = await self.store.learn((), 0)
        assert rows is not None
        return {(actor, tool_id): dict(words.counts) for actor, tool_id, words in rows.rows}


@requirement("BROWSE-42", "BROWSE-43")
async def test_words_of_a_browse_lead_to_the_tool_that_was_run() -> None:
    here = await Setting().ready()
    assert await here.ranks("blockbusters") == []
    assert (await here.ranks(QUERY))[:2] == ["search_people", "search_titles"], "equal but for the id"
    await here.runs("search_titles")
    assert await here.ranks("blockbusters") == ["search_titles"]
    assert (await here.ranks(QUERY))[0] == "search_titles"


@requirement("BROWSE-42")
async def test_a_run_through_a_face_that_shows_results_as_they_are_teaches_too() -> None:
    here = await Setting().ready()
    await here.ranks(QUERY)
    await here.runtime.call(here.id_of("search_titles"), {}, here.context())
    await here.runtime.learning.settle()
    assert await here.ranks("blockbusters") == ["search_titles"]


@requirement("BROWSE-42")
async def test_what_failed_was_refused_or_only_tried_teaches_nothing() -> None:
    here = await Setting(per_actor=1).ready()
    await here.ranks(QUERY)
    titles = here.id_of("search_titles")
    await here.runs("search_titles", dry_run=True)
    with pytest.raises(GatewayError):
        await here.runtime.execute(titles, {"text": 1}, here.context())
    with pytest.raises(HydrateFailed):
        await here.runtime.execute(titles, {}, here.context(permissions=("tools:else:*",)))
    await here.runs("search_titles", text="fail")
    with pytest.raises(RateLimited):
        await here.runs("search_titles")
    assert await here.learned() == {}
    assert here.runtime.learning.lessons == 0


@requirement("BROWSE-42")
async def test_only_a_tool_that_the_browse_showed_learns_and_only_in_its_session() -> None:
    here = await Setting().ready()
    assert "search_orders" not in await here.ranks("titles of blockbusters")
    await here.runs("search_orders")
    await here.ranks(QUERY)
    await here.runs("search_titles", session="another")
    await here.runs("search_titles", "bob")
    await here.runtime.browse_path("/media", here.context())
    await here.runs("list_genres", session="another")
    assert await here.learned() == {}


@requirement("BROWSE-42")
async def test_a_browse_teaches_a_tool_once_and_the_latest_browse_counts() -> None:
    here = await Setting().ready()
    await here.ranks(QUERY)
    await asyncio.gather(*(here.runs("search_titles") for _ in range(5)))
    titles = here.id_of("search_titles")
    assert (await here.learned())["ann", titles]["blockbust"] == 1
    await here.ranks("search the catalog for sequels")
    await here.ranks("search the catalog for musicals")
    await here.runs("search_people")
    words = (await here.learned())["ann", here.id_of("search_people")]
    assert "musical" in words
    assert "sequel" not in words
    here.clock.now += 2 * 3_600
    await here.runs("search_people")
    assert "sequel" not in (await here.learned())["ann", here.id_of("search_people")], "too long ago"


@requirement("BROWSE-44")
async def test_a_tool_that_stood_first_needs_no_words() -> None:
    here = await Setting().ready()
    assert (await here.ranks("search titles for blockbusters"))[0] == "search_titles"
    await here.runs("search_titles")
    assert await here.learned() == {("ann", here.id_of("search_titles")): {}}


@requirement("BROWSE-45")
async def test_learned_words_show_no_hidden_tool() -> None:
    here = await Setting("all").ready()
    for actor in ("ann", "bob"):
        await here.teach(QUERY, "search_titles", actor, times=3)
    assert await here.ranks("blockbusters", "carl") == ["search_titles"]
    assert await here.ranks("blockbusters", "carl", permissions=("tools:media:list_genres",)) == []
    assert await here.ranks("blockbusters", "ann", permissions=("tools:media:list_genres",)) == []


@requirement("BROWSE-46")
async def test_with_actor_nobody_elses_ranking_moves() -> None:
    here = await Setting("actor").ready()
    queries = (QUERY, "blockbusters", "list genres", "orders")
    before = {query: here.scores(query, "bob") for query in queries}
    for actor in ("ann", "mallory"):
        await here.teach(QUERY, "search_titles", actor, times=20)
    assert {query: here.scores(query, "bob") for query in queries} == before


@requirement("BROWSE-46")
async def test_one_actor_with_thousands_of_calls_lifts_no_tool_for_others() -> None:
    here = await Setting("all").ready()
    for actor in ("ann", "bob"):
        await here.teach(QUERY, "search_titles", actor)
    queries = (QUERY, "blockbusters", "find me some tickets", "search orders and people")
    before = {query: here.scores(query, "carl") for query in queries}
    assert before["blockbusters"], "what two actors have in common is there for a third"
    # Mallory wants everyone's requests for tickets, and those for orders, to end at its tool.
    genres = here.id_of("list_genres")
    said = ("ticket", "find", "order", "people", "search")
    rows = await here.store.learn([Lesson("mallory", genres, said) for _ in range(10_000)], 0)
    assert rows is not None
    await here.teach("list genres of the catalog, tickets", "list_genres", "mallory")
    assert await here.ranks("tickets", "mallory") == ["list_genres"]
    assert {query: here.scores(query, "carl") for query in queries} == before


@requirement("BROWSE-46")
async def test_seconding_what_another_said_moves_a_score_a_little() -> None:
    here = await Setting("all").ready()
    await here.teach(QUERY, "list_genres", "ann")
    before = here.scores(QUERY, "carl")
    rows = await here.store.learn([Lesson("mallory", here.id_of("list_genres"), ("blockbust",))] * 10_000, 0)
    assert rows is not None
    await here.teach(QUERY, "list_genres", "mallory")
    after = here.scores(QUERY, "carl")
    moved = {tool_id: after[tool_id] - before[tool_id] for tool_id in after}
    assert 0 < moved.pop(here.id_of("list_genres")) < 0.1
    assert set(moved.values()) == {0.0}


@requirement("BROWSE-49")
async def test_what_was_learned_fades() -> None:
    here = await Setting().ready()
    await here.teach(QUERY, "search_titles", times=4)
    (fresh,) = here.scores("blockbusters").values()
    here.clock.now += 2 * HALF_LIFE_S + DAY_S
    (old,) = here.scores("blockbusters").values()
    assert 0 < old < 0.7 * fresh


@requirement("BROWSE-49")
async def test_another_description_keeps_the_words_and_other_arguments_or_another_name_do_not() -> None:
    here = await Setting().ready()
    await here.teach(QUERY, "search_titles")
    here.upstream.tools[0] = tool("search_titles", "Look something up.")
    await here.runtime.refresh_catalog()
    assert await here.ranks("blockbusters") == ["search_titles"]
    schema = {"type": "object", "properties": {"year": {"type": "integer"}}}
    here.upstream.tools[0] = {**tool("search_titles", "Look something up."), "inputSchema": schema}
    await here.runtime.refresh_catalog()
    assert await here.ranks("blockbusters") == []
    here.upstream.tools[0] = tool("find_titles", "Look something up.")
    await here.runtime.refresh_catalog()
    assert await here.ranks("blockbusters") == []
    here.upstream.tools[0] = TOOLS[0]
    await here.runtime.refresh_catalog()
    assert await here.ranks("blockbusters") == ["search_titles"], "it is the same tool again"


@requirement("BROWSE-50")
async def test_only_stems_reach_the_store() -> None:
    here = await Setting().ready()
    await here.teach("search the catalog for blockbusters, key sk-12345678abc, of ann@example.com", "search_titles")
    assert await here.learned() == {
        ("ann", here.id_of("search_titles")): {"catalog": 1.0, "blockbust": 1.0, "key": 1.0, "search": 1.0}
    }


class SlowStore(StoredLearnedWords):
    """Holds lessons until it is let go."""

    def __init__(self) -> None:
        super().__init__(MemoryStore(), shared=False, now=Clock(1_000_000.0))
        self.go = asyncio.Event()
        self.batches: list[int] = []

    async def learn(self, lessons: Sequence[Lesson], since: int) -> LearnedRows | None:
        self.batches.append(len(lessons))
        await self.go.wait()
        return await super().learn(lessons, since)


@requirement("BROWSE-51")
async def test_no_call_waits_for_the_store_and_its_end_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wicketgate.gateway.learning._MAX_WAITING", 100)
    store = SlowStore()
    here = await Setting(store=store).ready()
    async with asyncio.timeout(BOUND_S):
        for _ in range(120):
            await here.ranks(QUERY)
            await here.runtime.execute(here.id_of("search_titles"), {}, here.context())
            await asyncio.sleep(0)
    assert await here.ranks("blockbusters") == []
    store.go.set()
    await here.runtime.aclose()
    assert store.batches == [1, 100], "one batch, and no more than wait"
    assert len(await here.learned()) == 1


class HalfStore(StoredLearnedWords):
    """Does not count the first of several lessons."""

    async def learn(self, lessons: Sequence[Lesson], since: int) -> LearnedRows | None:
        if len(lessons) < 2:
            return await super().learn(lessons, since)
        rows = await super().learn(lessons[1:], since)
        assert rows is not None
        return replace(rows, left=lessons[:1])


@requirement("BROWSE-74", "BROWSE-106")
@pytest.mark.parametrize("patient", [True, False])
async def test_lessons_that_the_store_gives_back_are_counted_later_and_the_others_once(patient: bool) -> None:
    learning = Learning(HalfStore(MemoryStore(), shared=False, now=Clock(1_000_000.0)), "actor", patient=patient)
    context = CallContext(Identity("ann", ("*",)), "-", session_key("test", "ann", "s"))
    for tool_id in ("a:x", "a:y"):
        learning.browsed(context, "blockbusters", ["a:first", tool_id])
        learning.ran(context, tool_id)
    await learning.settle()
    await learning.aclose()
    rows = await learning._store.learn((), 0)
    assert rows is not None
    kept = {"a:x", "a:y"} if patient else {"a:y"}
    assert {(tool_id, words.runs) for _, tool_id, words in rows.rows} == {(tool_id, 1.0) for tool_id in kept}
    assert learning.dropped == (0 if patient else 1)


@requirement("BROWSE-48", "BROWSE-105")
async def test_words_that_the_store_evicted_are_forgotten_after_a_tenth_more() -> None:
    rows = MemoryStore()
    here, other = (StoredLearnedWords(rows, shared=True, now=Clock(1_000_000.0), max_size=1_000) for _ in range(2))
    learning = Learning(here, "all")
    ids: set[str] = set()
    for start in range(0, 900, 30):
        await other.learn([Lesson("mallory", f"m:{start + n}", (f"w{start + n}",)) for n in range(30)], 0)
        learning._looked_at = float("-inf")
        learning.words(CallContext(Identity("ann", ("*",)), "-", session_key("test", "ann", "s")))
        await learning.settle()
        ids = set(learning._actors["mallory"]._tools)
        assert len(ids) <= 500 + 50 + 60
    assert "m:899" in ids
    assert "m:0" not in ids


class BrokenStore(StoredLearnedWords):
    async def learn(self, lessons: Sequence[Lesson], since: int) -> LearnedRows | None:
        raise OSError("/secret/path")


@requirement("BROWSE-51")
async def test_a_store_with_a_fault_loses_learning_only(caplog: pytest.LogCaptureFixture) -> None:
    here = await Setting(store=BrokenStore(MemoryStore(), shared=False)).ready()
    with caplog.at_level(logging.INFO, "wicketgate.learning"):
        await here.teach(QUERY, "search_titles", times=3)
    assert [record.getMessage() for record in caplog.records] == [
        "the store of learned words failed; nothing is learned"
    ]
    assert await here.ranks("blockbusters") == []


@requirement("BROWSE-51")
async def test_a_lesson_costs_the_call_little() -> None:
    here = await Setting(store=SlowStore()).ready()
    context, titles = here.context(), here.id_of("search_titles")
    for _ in range(50):
        await here.ranks(QUERY)
    with bounded_effort(calls=2_000):
        for _ in range(50):
            here.runtime.learning.ran(context, titles)
    with bounded_effort(calls=20_000):
        for _ in range(100):
            here.runtime.learning.browsed(context, QUERY, [titles])
    here.runtime.learning._store.go.set()  # type: ignore[attr-defined]
    await here.runtime.aclose()


@requirement("BROWSE-42", "OPS-55")
async def test_off_learns_nothing_and_ranks_without_what_was_learned() -> None:
    here = await Setting().ready()
    await here.teach(QUERY, "search_titles")
    await here.ranks("search the catalog for sequels")

    async def change(scope: LearnScope) -> None:
        members = list(here.runtime.fleet.members.values())
        await here.runtime.rearrange(members, RuntimePolicies(learn=scope), lambda: None)

    await change("off")
    assert await here.ranks("blockbusters") == []
    await here.runs("search_titles")
    await change("actor")
    await here.runs("search_titles")
    assert await here.ranks("blockbusters") == ["search_titles"], "it was kept"
    assert await here.ranks("sequels") == []
    # The change to all takes effect a moment later, when the words of everyone are put together.
    await here.teach(QUERY, "search_titles", "bob")
    await change("all")
    await here.ranks("blockbusters", "carl")
    await here.runtime.learning.settle()
    assert await here.ranks("blockbusters", "carl") == ["search_titles"]


@requirement("LIB-22")
def test_a_runtime_learns_if_it_is_told_to_on_one_loop_after_the_other() -> None:
    runtime = ProxyRuntime(StubUpstream(TOOLS, answer, name="media"), RuntimeOptions(RuntimePolicies(learn="actor")))

    async def teach() -> None:
        await runtime.refresh_catalog()
        (found,) = (card for card in (await runtime.browse_query(QUERY)).cards if "search_titles" in card.id)
        await runtime.execute(found.id, {})
        await runtime.learning.settle()

    asyncio.run(teach())
    assert [card.name for card in asyncio.run(runtime.browse_query("blockbusters")).cards] == ["search_titles"]
    asyncio.run(teach())
    plain = ProxyRuntime(StubUpstream(TOOLS, answer, name="media"))

    async def run_plain() -> None:
        await plain.refresh_catalog()
        (found,) = (card for card in (await plain.browse_query(QUERY)).cards if "search_titles" in card.id)
        await plain.execute(found.id, {})
        assert (await plain.browse_query("blockbusters")).cards == ()

    asyncio.run(run_plain())


@requirement("BROWSE-48")
def test_remembered_browses_are_bounded_and_an_actor_pushes_out_only_its_own() -> None:
    browses = Browses(Clock(1_000_000.0), max_sessions=20, max_per_actor=10)
    key = session_key("test", "ann", "s")
    browses.note(key, QUERY, ["a:b"])
    for number in range(1_000):
        browses.note(session_key("test", "mallory", str(number)), QUERY, ["a:b"])
    assert len(browses) == 11
    for number in range(1_000):
        browses.note(session_key("test", f"actor {number % 3}", str(number)), QUERY, ["a:b"])
    assert len(browses) == 20
    assert browses.taught_by(key, "a:b") is not None
    for number in range(10):
        browses.note(key, QUERY, [f"a:{number}"])
    assert browses.taught_by(key, "a:0") is None, "the latest few"
    assert browses.taught_by(key, "a:9") == (("search", "catalog", "blockbust"), True)


@requirement("BROWSE-48")
def test_of_actors_with_equally_many_sessions_the_one_that_browsed_longest_ago_gives_way() -> None:
    browses = Browses(Clock(1_000_000.0), max_sessions=3)
    sessions = {actor: session_key("test", actor, "s") for actor in ("ann", "bob", "cid", "dan")}
    for actor in ("ann", "bob", "cid", "ann", "dan"):
        browses.note(sessions[actor], "blockbusters", ["a:x"])
    assert [actor for actor, session in sessions.items() if browses.taught_by(session, "a:x") is None] == ["bob"]
