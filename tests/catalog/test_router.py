import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.effort import bounded_effort
from tests.support.properties import examples
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


@requirement("BROWSE-38")
@pytest.mark.parametrize(("server", "name"), [("CoinMarketCap", "quotes"), ("all", "CoinMarketCap.quotes")])
def test_the_capitals_of_a_servers_name_part_its_words(server: str, name: str) -> None:
    spelled = replace(tool("coinmarketcap:quotes", name=name), server=server)
    router = Router.build([spelled, tool("a:coin"), tool("b:market")])
    assert ids(router, "market cap of a coin", 1) == [spelled.id]
    assert ids(router, "coinmarketcap", 1) == [spelled.id]


@requirement("BROWSE-38")
def test_a_servers_other_words_are_not_its_namespace() -> None:
    router = Router.build([replace(tool("work:quotes"), server="GitHub of everyone"), tool("a:x")])
    assert ids(router, "github") == []
    assert ids(router, "work") == ["work:quotes"]


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


HALF = tool("a:menu_restaurant")


def whole(length: int) -> SelectableItem:
    text = "Translate the menu of a restaurant into simple French sentences "
    return tool("b:words", text + "and other pages " * length)


@requirement("BROWSE-36")
def test_a_tool_with_the_whole_of_a_long_request_comes_before_one_that_is_called_by_half_of_it() -> None:
    router = Router.build([*catalog(100), HALF, whole(60)])
    assert ids(router, "translate menu restaurant simple french sentences", 2) == ["b:words", HALF.id]


@requirement("BROWSE-36")
def test_a_short_request_is_not_ordered_again() -> None:
    router = Router.build([*catalog(100), HALF, whole(9)])
    assert ids(router, "translate menu restaurant", 2) == [HALF.id, "b:words"]


@requirement("BROWSE-36")
def test_of_two_requests_each_tool_need_not_have_both() -> None:
    router = Router.build(
        [
            tool("a:invoice", "Invoice"),
            tool("b:weather", "Weather"),
            tool("c:z", "Invoice and weather of " + "word " * 60),
        ]
    )
    assert set(ids(router, "Pay the invoice. Then show the weather.", 2)) == {"a:invoice", "b:weather"}


@requirement("BROWSE-62")
@pytest.mark.parametrize("verb", ["create", "add", "make"])
def test_new_behind_a_verb_of_creating_says_nothing_of_the_tool(verb: str) -> None:
    tools = [
        tool("git:git_create_branch", "Creates a new branch from an optional base branch."),
        tool("shop:create_discount", "Make a new discount code."),
        tool("shop:create_order", "Place an order of one product for a customer; the pieces are taken from stock."),
        tool("shop:list_new_customers", "Lists customers of the last days."),
    ]
    router = Router.build(tools)
    assert router.route(f"{verb} a new order", 1)[0][0] == "shop:create_order"
    assert router.route(f"{verb} a new order", 9) == router.route(f"{verb} an order", 9)
    assert router.route("new customers", 1)[0][0] == "shop:list_new_customers"


@requirement("BROWSE-37")
@pytest.mark.parametrize("asked", ["create a chat completion", "Could you please create a chat completion?"])
def test_a_name_that_says_another_deed_comes_after_one_that_says_this(asked: str) -> None:
    stored = "a stored chat completion. Only chat completions that have been created with `store` can be "
    router = Router.build(
        [
            tool("ai:create", "A model response for the given conversation. " * 20, name="createChatCompletion"),
            tool("ai:delete", f"Delete {stored} deleted.", name="deleteChatCompletion"),
            tool("ai:get", f"Get {stored} returned.", name="getChatCompletion"),
            tool("ai:update", f"Update {stored} modified.", name="updateChatCompletion"),
        ]
    )
    assert ids(router, asked)[0] == "ai:create"


@requirement("BROWSE-37")
def test_a_verb_within_a_request_rules_no_name_out() -> None:
    router = Router.build([tool("a:get_deleted_files", "Files"), tool("b:zip", "Files")])
    assert ids(router, "files that somebody wants to delete")[0] == "a:get_deleted_files"


GIT = {
    "git_status": "Shows the working tree status",
    "git_diff_unstaged": "Shows changes in the working directory that are not yet staged",
    "git_diff_staged": "Shows changes that are staged for commit",
    "git_diff": "Shows differences between branches or commits",
    "git_commit": "Records changes to the repository",
    "git_add": "Adds file contents to the staging area",
    "git_reset": "Unstages all staged changes",
    "git_log": "Shows the commit logs",
    "git_create_branch": "Creates a new branch from an optional base branch",
    "git_checkout": "Switches branches",
    "git_show": "Shows the contents of a commit",
    "git_init": "Initialize a new Git repository",
    "git_branch": "List Git branches",
}


@requirement("BROWSE-7")
@pytest.mark.parametrize("arguments", [{}, {"properties": {"repo_path": {"type": "string"}}}])
def test_the_history_of_a_repository_is_its_log(arguments: dict[str, Any]) -> None:
    git = [tool(f"git:{name}", description, args=arguments) for name, description in GIT.items()]
    router = Router.build([*git, *catalog(100)])
    assert "git:git_log" in ids(router, "git history of this repository", 3)


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
@given(QUERIES, st.integers(1, 70))
@settings(max_examples=examples(60))
def test_stopping_early_never_changes_the_first_k(query: str, k: int) -> None:
    everything, first = LARGE_ROUTER.route(query, len(LARGE)), LARGE_ROUTER.route(query, k)
    assert [score for _, score in first] == [score for _, score in everything[:k]]
    least = first[-1][1] if first else 0.0
    assert [pair for pair in first if pair[1] > least] == [pair for pair in everything if pair[1] > least]


@requirement("BROWSE-39")
def test_a_common_word_counts_although_only_rare_ones_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Router.build([*LARGE, tool("a:create_zebra"), tool("a:delete_zebra")])
    every = found.route("create the zebra of the github issue", 2)
    monkeypatch.setattr("wicketgate.catalog.router.READ_POSTINGS", 2)
    monkeypatch.setattr("wicketgate.catalog.router._ORDERED_AGAIN", 2)
    assert found.route("create the zebra of the github issue", 2) == every
    assert every[0][0] == "a:create_zebra"


@requirement("BROWSE-39")
def test_a_caller_who_sees_none_of_the_rare_ones_gets_common_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Router.build([*LARGE, *(tool(f"a:zebra_{number}") for number in range(60))])
    monkeypatch.setattr("wicketgate.catalog.router.READ_POSTINGS", 2)
    ranked = found.route("create a zebra", 10, lambda tool_id: not tool_id.startswith("a:"))
    assert len(ranked) == 10


@requirement("BROWSE-39")
def test_a_paragraph_of_requests_costs_little_more_than_its_words() -> None:
    query = "Create the issue of the branch. Then send a message. List the weather. Delete an invoice. " * 5
    with bounded_effort(calls=20_000):
        assert LARGE_ROUTER.route(query, 10)


@requirement("BROWSE-18")
@given(QUERIES, st.integers(1, 15), st.integers(1, 40))
@settings(max_examples=examples(60))
def test_hidden_tools_never_take_a_place(query: str, k: int, every: int) -> None:
    shown = {item.id for item in LARGE[::every]}
    ranked = LARGE_ROUTER.route(query, k, shown.__contains__)
    reachable = [tool_id for tool_id, _ in LARGE_ROUTER.route(query, len(LARGE)) if tool_id in shown]
    assert {tool_id for tool_id, _ in ranked} <= shown
    assert len(ranked) == min(k, len(reachable))


@requirement("BROWSE-18")
def test_nothing_visible_gives_nothing() -> None:
    assert LARGE_ROUTER.route("create an issue. Then send a message", 10, lambda tool_id: False) == []


@requirement("BROWSE-80")
@pytest.mark.parametrize("hidden", ["zebra", "forge"])
@pytest.mark.parametrize("query", ["create {}", "create {} in a repository that has a wiki and a board for people"])
def test_a_word_that_only_hidden_tools_have_scores_like_an_unknown_word(query: str, hidden: str) -> None:
    shown = [item for item in LARGE if "issue" not in item.id]
    found = Router.build([*shown, *(tool(f"a:{hidden}_{number}", hidden) for number in range(3))])
    unknown = found.route(query.format("qqqq"), 10, lambda tool_id: not tool_id.startswith("a:"))
    assert found.route(query.format(hidden), 10, lambda tool_id: not tool_id.startswith("a:")) == unknown


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
    with bounded_effort():
        router = Router.build([tool("a:mark_target", args=schema)])
    assert ids(router, "mark target") == ["a:mark_target"]


@requirement("BROWSE-9")
def test_a_description_that_is_not_text_is_passed_over() -> None:
    description: Any = {"a": 1}
    assert ids(Router.build([tool("a:target", description)]), "target") == ["a:target"]


@requirement("BROWSE-9")
@pytest.mark.parametrize("filler", ["create ", "x", "作成", "a. then ", "\ud800", "ﷺ", ", and ", "aB1"])
def test_a_query_of_a_megabyte_is_answered_quickly(filler: str) -> None:
    query = "invoice " + filler * (1_000_000 // len(filler))
    with bounded_effort():
        found = LARGE_ROUTER.route(query, 10)
    assert found
