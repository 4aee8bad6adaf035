import random
from collections.abc import Mapping
from time import perf_counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.requirement import requirement
from wicketgate.catalog.router import Router
from wicketgate.catalog.selectable import SelectableItem
from wicketgate.catalog.tool_id import ToolId

VERBS = ("create", "list", "delete", "get", "search", "update", "send")
NOUNS = ("issue", "pull_request", "file", "message", "invoice", "branch", "weather", "calendar_event")
SERVERS = ("github", "gitlab", "slack", "shop")
WORDS = tuple(dict.fromkeys([*VERBS, *"_".join(NOUNS).split("_"), *SERVERS, "the", "new", "zzzz"]))


def tool(
    tool_id: str, description: str = "", *, name: str = "", args: Mapping[str, Any] | None = None
) -> SelectableItem:
    namespace, _, own = tool_id.partition(":")
    return SelectableItem(
        id=ToolId(tool_id),
        kind="tool",
        name=own,
        description=description,
        namespace=namespace,
        tags=(),
        args_schema=args or {},
        output_schema=None,
        operation="mutation",
        side_effects=False,
        cost_hint=0.0,
        server=namespace,
        upstream_name=name or own,
        metadata={},
    )


def ids(router: Router, query: str, k: int = 10) -> list[str]:
    return [tool_id for tool_id, _ in router.route(query, k)]


def catalog(size: int) -> list[SelectableItem]:
    chance = random.Random(7)
    return [
        tool(
            f"{chance.choice(SERVERS)}:{chance.choice(VERBS)}_{chance.choice(NOUNS)}_{number}",
            " ".join(chance.choices(WORDS, k=chance.randrange(12))),
        )
        for number in range(size)
    ]


LARGE = catalog(600)
LARGE_ROUTER = Router.build(LARGE)


@st.composite
def items(draw: st.DrawFn) -> SelectableItem:
    server, verb, noun = (draw(st.sampled_from(choices)) for choices in (SERVERS, VERBS, NOUNS))
    description = " ".join(draw(st.lists(st.sampled_from(WORDS), max_size=6)))
    arguments = draw(st.lists(st.sampled_from(NOUNS), max_size=2))
    return tool(f"{server}:{verb}_{noun}", description, args={"properties": {key: {} for key in arguments}})


CATALOGS = st.lists(items(), max_size=12, unique_by=lambda item: item.id)
QUERIES = st.lists(st.sampled_from([*WORDS, "then", "."]), min_size=1, max_size=7).map(" ".join)


@requirement("BROWSE-4")
def test_a_plain_request_finds_its_tool() -> None:
    router = Router.build(
        [
            tool("github:create_issue", "Open a new issue in a repository"),
            tool("github:list_issues", "List issues"),
            tool("slack:send_message", "Send a message to a channel"),
        ]
    )
    assert ids(router, "open a github issue")[0] == "github:create_issue"
    assert ids(router, "post a msg to a channel") == ["slack:send_message"]


@requirement("BROWSE-4")
def test_a_tool_is_found_among_a_thousand() -> None:
    router = Router.build([*catalog(1_000), tool("github:create_issue", "Create an issue", name="github.create_issue")])
    assert "github:create_issue" in ids(router, "create a issue in github", 5)


@requirement("BROWSE-5")
@pytest.mark.parametrize("query", ["", "   ", "zzzz qqqq", "作成", "?!", "the of and"])
def test_a_query_that_matches_nothing_gives_nothing(query: str) -> None:
    assert Router.build([tool("github:create_issue", "Open the issue")]).route(query, 10) == []


def test_an_empty_catalog_gives_nothing() -> None:
    assert Router.build([]).route("create issue", 10) == []


def test_the_name_tells_near_twins_apart() -> None:
    router = Router.build([tool("acr:registry_list"), tool("acr:registry_repository_list"), tool("acr:registry_show")])
    assert ids(router, "list the registries")[0] == "acr:registry_list"
    assert ids(router, "list the repositories of a registry")[0] == "acr:registry_repository_list"


def test_the_parts_of_a_camel_case_name_are_words() -> None:
    router = Router.build([tool("a:x", name="getWeatherForecast"), tool("a:y", name="sendInvoice")])
    assert ids(router, "forecast of the weather") == ["a:x"]


def test_a_namespace_repeated_in_the_name_counts_once() -> None:
    plain = Router.build([tool("github:create_issue")])
    repeated = Router.build([tool("github:create_issue", name="github.create_issue")])
    for query in ("create issue", "github issue", "github"):
        assert plain.route(query, 1) == repeated.route(query, 1)


@requirement("BROWSE-7")
def test_argument_names_descriptions_and_enums_are_searched_at_every_level() -> None:
    schema = {
        "properties": {
            "latitude": {"type": "number"},
            "options": {
                "properties": {"unit": {"description": "kelvin or other", "enum": ["celsius", 7, None]}},
                "anyOf": [{"description": "hemisphere"}],
            },
            "days": {"type": "array", "items": {"description": "weekday"}},
        }
    }
    router = Router.build([tool("a:x", args=schema), tool("a:y", "something else")])
    for query in ("latitude", "kelvin", "celsius", "hemisphere", "weekday"):
        assert ids(router, query) == ["a:x"]


@requirement("BROWSE-7")
def test_what_is_called_so_comes_before_what_only_mentions_it() -> None:
    router = Router.build([tool("a:zip", "Pack an invoice"), tool("b:invoice", "Pack"), tool("c:zap", "Pack")])
    assert ids(router, "invoice") == ["b:invoice", "a:zip"]


@requirement("BROWSE-7")
def test_a_synonym_finds_a_tool_but_ranks_behind_the_word_itself() -> None:
    router = Router.build([tool("a:remove_user"), tool("a:delete_user"), tool("a:count_rows")])
    assert ids(router, "delete") == ["a:delete_user", "a:remove_user"]


def test_a_tool_may_be_called_by_a_small_word() -> None:
    assert ids(Router.build([tool("a:help"), tool("a:list")]), "help") == ["a:help"]


@requirement("BROWSE-6")
def test_japanese_finds_japanese() -> None:
    router = Router.build([tool("a:tenki", "今日の天気予報を調べる"), tool("a:chizu", "地図を開く")])
    assert ids(router, "天気予報") == ["a:tenki"]


@requirement("BROWSE-7")
def test_each_of_several_requests_gets_its_tool() -> None:
    near = [tool(f"shop:invoice_{word}", "The paid invoice of a customer account, as text") for word in WORDS]
    router = Router.build([*near, tool("a:weather_report", "Weather report"), tool("b:translate_text", "Translate")])
    query = "Get the paid invoice of the customer account. Then translate it. Finally the weather."
    assert {"a:weather_report", "b:translate_text"} <= set(ids(router, query, 3))


@requirement("BROWSE-7")
def test_small_talk_between_requests_brings_nothing_up() -> None:
    router = Router.build([tool("a:help", "Help"), tool("a:create_invoice", "Create an invoice")])
    assert ids(router, "Can you help me? Create an invoice.") == ["a:create_invoice"]


def test_equal_scores_are_ordered_by_id() -> None:
    twins = [tool(f"{server}:run", "Send a letter") for server in ("d", "b", "a", "c")]
    assert ids(Router.build(twins), "letter", 3) == ["a:run", "b:run", "c:run"]


@requirement("BROWSE-8")
@given(CATALOGS, QUERIES, st.integers(1, 12))
def test_scores_lie_between_zero_and_one_and_tell_the_order(found: list[SelectableItem], query: str, k: int) -> None:
    ranked = Router.build(found).route(query, k)
    assert ranked == sorted(ranked, key=lambda pair: (-pair[1], pair[0]))
    assert all(0 < score <= 1 for _, score in ranked)
    assert len({tool_id for tool_id, _ in ranked}) == len(ranked) <= k


@requirement("BROWSE-8")
@given(CATALOGS, QUERIES, st.randoms(use_true_random=False))
def test_the_order_in_which_tools_came_never_matters(
    found: list[SelectableItem], query: str, chance: random.Random
) -> None:
    shuffled = chance.sample(found, len(found))
    assert Router.build(found).route(query, 12) == Router.build(shuffled).route(query, 12)


@requirement("BROWSE-8")
@given(CATALOGS, CATALOGS, CATALOGS, QUERIES)
def test_an_updated_router_ranks_as_one_built_anew(
    first: list[SelectableItem], dropped: list[SelectableItem], added: list[SelectableItem], query: str
) -> None:
    old = Router.build(first)
    before = old.route(query, 12)
    gone = {item.id for item in dropped}
    kept = {item.id: item for item in first if item.id not in gone} | {item.id: item for item in added}
    assert old.updated(gone, added).route(query, 40) == Router.build(kept.values()).route(query, 40)
    assert old.route(query, 12) == before


@requirement("BROWSE-8")
@given(QUERIES.filter(lambda query: "." not in query and "then" not in query), st.integers(1, 30))
@settings(max_examples=60)
def test_stopping_early_never_changes_the_first_k(query: str, k: int) -> None:
    everything, first = LARGE_ROUTER.route(query, len(LARGE)), LARGE_ROUTER.route(query, k)
    assert [score for _, score in first] == [score for _, score in everything[:k]]
    least = first[-1][1] if first else 0.0
    assert [pair for pair in first if pair[1] > least] == [pair for pair in everything if pair[1] > least]


@requirement("BROWSE-18")
@given(QUERIES, st.integers(1, 15), st.integers(1, 40))
@settings(max_examples=60)
def test_hidden_tools_never_take_a_place(query: str, k: int, every: int) -> None:
    shown = {item.id for item in LARGE[::every]}
    ranked = LARGE_ROUTER.route(query, k, shown.__contains__)
    reachable = [tool_id for tool_id, _ in LARGE_ROUTER.route(query, len(LARGE)) if tool_id in shown]
    assert {tool_id for tool_id, _ in ranked} <= shown
    assert len(ranked) == min(k, len(reachable))


@requirement("BROWSE-18")
def test_nothing_visible_gives_nothing() -> None:
    assert LARGE_ROUTER.route("create an issue. Then send a message", 10, lambda tool_id: False) == []


@pytest.mark.parametrize("k", [0, -1])
def test_no_place_means_no_tool(k: int) -> None:
    assert LARGE_ROUTER.route("create issue", k) == []


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"description": "bottom"}
    for _ in range(levels):
        schema = {"properties": {"child": schema}, "items": schema}
    return schema


HOSTILE: dict[str, Any] = {
    "deep": deep(1_000),
    "wide": {"properties": {f"p{n}": {"description": "x" * 1_000} for n in range(10_000)}},
    "properties a list": {"properties": ["a", "b"]},
    "properties of nothing": {"properties": {"a": None, "b": [1], 3: {"description": 4, "enum": {"a": 1}}}},
    "choices a string": {"anyOf": "abc", "items": [1, 2]},
    "a large enum": {"properties": {"a": {"enum": ["value"] * 100_000}}},
    "a long description": {"properties": {"a": {"description": "word " * 200_000}}},
    "not an object": ["a"],
}


@requirement("BROWSE-9")
@pytest.mark.parametrize("schema", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_schema_is_indexed_quickly_and_the_tool_found(schema: Any) -> None:
    began = perf_counter()
    router = Router.build([tool("a:mark_target", args=schema)])
    assert perf_counter() - began < 1
    assert ids(router, "mark target") == ["a:mark_target"]


@requirement("BROWSE-9")
def test_a_description_that_is_not_text_is_passed_over() -> None:
    description: Any = {"a": 1}
    assert ids(Router.build([tool("a:target", description)]), "target") == ["a:target"]


@requirement("BROWSE-9")
@pytest.mark.parametrize("filler", ["create ", "x", "作成", "a. then ", "\ud800", "ﷺ", ", and ", "aB1"])
def test_a_query_of_a_megabyte_is_answered_quickly(filler: str) -> None:
    query = "invoice " + filler * (1_000_000 // len(filler))
    began = perf_counter()
    found = LARGE_ROUTER.route(query, 10)
    assert perf_counter() - began < 1
    assert found
