"""Words that led to a tool: which are kept, what they weigh, what one actor can do to others, who gives way."""

import random
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.catalog.test_router import CATALOGS, QUERIES, WORDS, tool
from tests.support.effort import bounded_effort
from tests.support.requirement import requirement
from wicketgate.catalog.learned_words import (
    DAY_S,
    HALF_LIFE_S,
    MAX_QUERY_WORDS,
    MAX_TOOL_WORDS,
    ActorWords,
    OwnAndShared,
    SharedWords,
    ToolWords,
    words_to_learn,
)
from wicketgate.catalog.router import Router
from wicketgate.catalog.words import stem


class Actors(dict[str, ActorWords]):
    """Several actors with the words they were taught, and the words they share."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = SharedWords(self)

    def ran(
        self, actor: str, tool_id: str, words: str, *, times: int = 1, first: bool = False, at: float = 0.0
    ) -> None:
        own = self.setdefault(actor, ActorWords())
        former = words_now = own.get(tool_id)
        for _ in range(times):
            words_now = words_now.taught(words.split(), at, first=first)
        own.put(tool_id, words_now)
        self.shared.note(actor, tool_id, former, words_now)

    def learned(self, actor: str) -> OwnAndShared:
        return OwnAndShared(self.get(actor, ActorWords()), self.shared)


def afresh(actors: Actors) -> SharedWords:
    """The words that the same actors share, counted at once."""
    shared = SharedWords(actors)
    for actor, own in actors.items():
        for tool_id, words in own._tools.items():
            shared.note(actor, tool_id, ToolWords(), words)
    return shared


def taught(**tools: str) -> ActorWords:
    """Each tool was run once, and had not stood first."""
    words = ActorWords()
    for name, said in tools.items():
        words.put(f"a:{name}", ToolWords().taught(said.split(), 0.0))
    return words


@pytest.mark.parametrize(
    ("query", "kept"),
    [
        ("Show me the films of this year", ("film", "year")),
        ("a bucket in S3", ("bucket", "s3")),
        ("send 4111111111111111 to john.doe@example.com", ("send",)),
        ("open https://intranet.example.com/secret/page", ("open",)),
        ("use the key sk-proj-9fB2kLq81xZ", ("key",)),
        (r"delete C:\Users\ann\diary.txt", ("delete",)),
        ("token eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9 please", ("token",)),
        ("in 2026 or on 2026-11-22", ()),
        ("correcthorsebatterystaplecorrect opens it", ("open",)),
        ("密钥是sk-proj-9fB2kLq81xZ吧", ("密钥", "钥是", "吧")),
        ("send to ann＠example.com", ("send",)),
        ("x" * 5_000, ()),
        ("", ()),
        ("please", ()),
    ],
)
@requirement("BROWSE-50")
def test_only_the_stems_of_plain_words_are_kept(query: str, kept: tuple[str, ...]) -> None:
    assert words_to_learn(query) == tuple(map(stem, kept))


@requirement("BROWSE-50")
def test_a_long_query_teaches_a_few_words_only() -> None:
    chance = random.Random(3)
    words = ["".join(chance.choices("bcdfglmnprst", k=8)) for _ in range(400)]
    assert len(words_to_learn(" ".join(words))) == MAX_QUERY_WORDS
    assert len(words_to_learn("".join(map(chr, range(0x4E00, 0x4E64))))) == MAX_QUERY_WORDS


@requirement("BROWSE-44")
def test_a_word_is_taken_up_only_where_the_tool_had_not_stood_first_and_counted_from_then_on() -> None:
    words = ToolWords().taught(["film"], 0.0, first=True)
    assert (words.runs, dict(words.counts)) == (1.0, {})
    words = words.taught(["film"], 0.0).taught(["film", "new"], 0.0, first=True)
    assert (words.runs, dict(words.counts)) == (3.0, {"film": 2.0})


@requirement("BROWSE-44")
def test_a_weight_is_the_share_of_the_runs_shrunk_where_they_are_few() -> None:
    once, often, sometimes = ToolWords().taught(["film"], 0.0), ToolWords(), ToolWords()
    for number in range(20):
        often = often.taught(["film"], 0.0)
        sometimes = sometimes.taught(["film"] if number % 2 else [], 0.0)
    words = ActorWords()
    shares: dict[str, float] = {}
    for name, each in (("once", once), ("often", often), ("sometimes", sometimes)):
        words.put(name, each)
        shares[name] = each.share("film", 0.0)
    assert shares == {"once": 1 / 3, "often": 20 / 22, "sometimes": 10 / 22}
    # A word of all tools counts less than one of a single tool, in the same proportions.
    of_all = words.weights("film")
    assert of_all["often"] / of_all["once"] == pytest.approx(shares["often"] / shares["once"])
    assert 0 < of_all["often"] < taught(often="film").weights("film")["a:often"] * 3
    assert all(of_all[name] < share for name, share in shares.items())


@requirement("BROWSE-49")
def test_counts_halve_every_thirty_days_and_end() -> None:
    words = ActorWords()
    words.put("a:b", ToolWords(8.0, {"film": 8.0}, at=0.0))
    weights = [words.on(age * HALF_LIFE_S).weights("film")["a:b"] for age in range(4)]
    assert weights == [8 / 10, 4 / 6, 2 / 4, 1 / 3]
    later = words.get("a:b").taught(["show"], 7 * HALF_LIFE_S)
    assert dict(later.counts) == {"show": 1.0}, "what has faded is not kept"
    assert later.runs == 1 + 8 / 2**7
    # A clock that was put back changes nothing.
    assert words.get("a:b").share("film", -DAY_S) == 8 / 10


@requirement("BROWSE-48")
def test_a_tool_keeps_its_most_frequent_words() -> None:
    words = ToolWords().taught(["kept"], 0.0).taught(["kept"], 0.0)
    for number in range(3 * MAX_TOOL_WORDS):
        words = words.taught([f"w{number}"], 0.0)
    assert len(words.counts) == MAX_TOOL_WORDS
    assert "kept" in words.counts
    assert f"w{3 * MAX_TOOL_WORDS - 1}" in words.counts, "the newest word has its chance"


@requirement("BROWSE-44")
def test_what_is_replaced_leaves_no_weight_behind() -> None:
    words = taught(films="film", plays="play")
    words.put("a:films", ToolWords(1.0, {"cinema": 1.0}))
    assert words.weights("film") == {}
    assert set(words.weights("cinema")) == {"a:films"}


@requirement("BROWSE-46")
def test_what_one_actor_says_alone_is_heard_by_no_other() -> None:
    actors = Actors()
    actors.ran("mallory", "evil:tool", "film cinema", times=10_000)
    actors.ran("ann", "a:films", "movie")
    actors.ran("bob", "a:films", "movie")
    assert actors.learned("ann").weights("film") == {}
    assert set(actors.learned("ann").weights("movie")) == {"a:films"}
    assert set(actors.learned("mallory").weights("film")) == {"evil:tool"}, "it harms itself only"


@requirement("BROWSE-46")
def test_the_more_actors_use_a_word_the_more_it_weighs_for_others() -> None:
    actors = Actors()
    weights = []
    for number in range(20):
        actors.ran(f"actor {number}", "a:films", "movie")
        weights.append(actors.learned("new").weights("movie").get("a:films", 0.0))
    assert weights[0] == 0
    assert weights == sorted(weights)
    assert weights[-1] == pytest.approx(19 / 21)
    # Those who ran the tool for something else count against it.
    for number in range(20):
        actors.ran(f"other {number}", "a:films", "play")
    assert actors.learned("new").weights("movie")["a:films"] == pytest.approx(19 / 41)


RUNS = st.lists(
    st.tuples(
        st.sampled_from(["ann", "bob", "carl", "mallory"]),
        st.sampled_from(["a:x", "a:y", "a:z"]),
        st.lists(st.sampled_from(["film", "play", "song"]), max_size=3, unique=True).map(" ".join),
        st.integers(1, 30),
    ),
    max_size=12,
)


def shared_weights(runs: list[tuple[str, str, str, int]]) -> Mapping[tuple[str, str], float]:
    actors = Actors()
    for actor, tool_id, words, times in runs:
        actors.ran(actor, tool_id, words, times=times)
    return {
        (word, tool_id): weight
        for word in ("film", "play", "song")
        for tool_id, weight in actors.shared.weights(word).items()
    }


@requirement("BROWSE-46")
@given(RUNS)
def test_one_actor_moves_the_weights_of_others_by_one_voice_at_most(runs: list[tuple[str, str, str, int]]) -> None:
    honest = [run for run in runs if run[0] != "mallory"]
    before, after = shared_weights(honest), shared_weights(runs)
    for word in ("film", "play", "song"):
        for tool_id in ("a:x", "a:y", "a:z"):
            ran_it = {actor for actor, ran, _, _ in honest if ran == tool_id}
            said_it = {actor for actor, ran, said, _ in honest if ran == tool_id and word in said.split()}
            was, now = before.get((word, tool_id), 0.0), after.get((word, tool_id), 0.0)
            assert now <= was + (1 / (len(ran_it) + 2) if said_it else 0.0) + 1e-9
            assert now >= was - 0.1 - 1e-9


@requirement("BROWSE-46")
@given(RUNS, st.randoms(use_true_random=False))
def test_the_order_of_actors_does_not_matter(runs: list[tuple[str, str, str, int]], chance: random.Random) -> None:
    once = {(actor, tool_id): (actor, tool_id, words, times) for actor, tool_id, words, times in runs}
    mixed = list(once.values())
    chance.shuffle(mixed)
    assert shared_weights(list(once.values())) == shared_weights(mixed)


@requirement("BROWSE-58")
def test_a_word_of_very_many_actors_costs_a_browse_little_and_the_most_usual_tools_count() -> None:
    actors = Actors()
    for number in range(1_000):
        actors.ran(f"actor {number}", "a:most", "film")
        actors.ran(f"actor {number}", f"a:{number // 2}", "film")
    with bounded_effort(calls=40_000):
        weights = actors.shared.weights("film")
    assert max(weights, key=lambda tool_id: weights[tool_id]) == "a:most"


@requirement("BROWSE-58")
def test_one_run_more_leaves_the_weights_of_other_words_worked_out() -> None:
    actors = Actors()
    for number in range(200):
        for tool_id in "abcde":
            actors.ran(f"actor {number}", f"a:{tool_id}", "film")
    actors.shared.weights("film")
    actors.ran("ann", "a:x", "song")
    with bounded_effort(calls=20):
        actors.shared.weights("film")
    actors.ran("actor 1", "a:x", "song")
    assert dict(actors.shared.weights("film")) == pytest.approx(afresh(actors).weights("film"))


FILMS = [
    tool("media:search_titles", "Search titles of the catalog"),
    tool("media:list_genres", "List genres of the catalog"),
    tool("shop:search_orders", "Search orders of the shop"),
]


def learned(word: str, *tool_ids: str, runs: int = 50) -> ActorWords:
    words = ActorWords()
    for tool_id in tool_ids:
        words.put(tool_id, ToolWords(float(runs), {stem(word): float(runs)}))
    return words


@requirement("BROWSE-43")
def test_a_learned_word_brings_its_tool_up_where_nothing_else_matches() -> None:
    router = Router.build(FILMS)
    assert router.route("blockbusters", 5) == []
    ((found, score),) = router.route("blockbusters", 5, learned=learned("blockbusters", "media:search_titles"))
    assert found == "media:search_titles"
    assert 0 < score < 0.3, "weakly"


@requirement("BROWSE-43")
def test_a_learned_word_lifts_least_where_the_definition_has_it() -> None:
    router = Router.build(FILMS)
    words = learned("search", "shop:search_orders")
    assert router.route("search", 5, learned=words) == router.route("search", 5), "nothing to fill up"
    plain, more = (
        dict(router.route("search catalog", 5, learned=each))
        for each in (None, learned("catalog", "shop:search_orders"))
    )
    assert more["shop:search_orders"] > plain["shop:search_orders"]
    assert next(iter(more)) == "media:search_titles", "what the definition says counts more"


@requirement("BROWSE-45")
def test_what_the_caller_may_not_see_or_is_gone_is_not_lifted() -> None:
    router = Router.build(FILMS)
    words = learned("blockbusters", "media:search_titles", "media:gone", "shop:search_orders")
    found = router.route("blockbusters", 1, lambda tool_id: tool_id.startswith("shop:"), learned=words)
    assert [tool_id for tool_id, _ in found] == ["shop:search_orders"]
    assert "media:gone" not in dict(router.route("blockbusters", 9, learned=words))


@st.composite
def tables(draw: st.DrawFn, ids: list[str]) -> ActorWords:
    words = ActorWords()
    for tool_id in ids:
        runs = draw(st.integers(1, 40))
        counts = draw(
            st.dictionaries(st.sampled_from([stem(word) for word in WORDS]), st.integers(1, runs), max_size=4)
        )
        words.put(tool_id, ToolWords(float(runs), {word: float(count) for word, count in counts.items()}))
    return words


class Without:
    """Implements Learned: *words*, but for those of one tool."""

    def __init__(self, words: ActorWords, tool_id: str) -> None:
        self.words, self.tool_id = words, tool_id

    def weights(self, term: str) -> Mapping[str, float]:
        return {tool_id: weight for tool_id, weight in self.words.weights(term).items() if tool_id != self.tool_id}


@requirement("BROWSE-45")
def test_words_of_a_hidden_tool_change_no_score_of_another() -> None:
    router = Router.build([tool("genres_of_films", "Genres and more."), tool("list_titles", "Titles"), tool("secret")])
    hidden = next(tool_id for tool_id in router._indexed if "secret" in tool_id)
    words = ActorWords()
    words.put(hidden, ToolWords().taught(words_to_learn("blockbusters"), 0.0))

    def visible(tool_id: str) -> bool:
        return tool_id != hidden

    for query in (
        "genres of the catalog, then blockbusters",
        "titles list of genres. blockbusters",
        "films; titles, then blockbusters, then more genres",
    ):
        seen = router.route(query, 5, visible, learned=words)
        assert seen == router.route(query, 5, visible, learned=Without(words, hidden))
        assert seen


@requirement("BROWSE-43", "BROWSE-8")
@given(CATALOGS, QUERIES, st.integers(1, 5), st.data())
def test_with_learned_words_scores_stay_between_zero_and_one_and_the_first_are_the_first_of_all(
    catalog: list[Any], query: str, k: int, data: st.DataObject
) -> None:
    router = Router.build(catalog)
    words = data.draw(tables([item.id for item in catalog]))
    every = router.route(query, 50, learned=words)
    assert all(0 < score <= 1 for _, score in every)
    assert router.route(query, k, learned=words) == every[:k]
    assert router.route(query, 50, learned=ActorWords()) == router.route(query, 50)
    plain = dict(router.route(query, 50))
    assert plain.keys() <= dict(every).keys()
    reversed_router = Router.build(list(reversed(catalog)))
    assert reversed_router.route(query, 50, learned=words) == every
