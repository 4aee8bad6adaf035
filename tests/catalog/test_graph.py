import functools
import itertools
import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.catalogs import MISSING, routing_data
from tests.catalog.fixtures import item, tokens, vectors, walk
from tests.support.properties import examples
from tests.support.requirement import requirement
from wicketgate.catalog.card import build_inner_card, render_card
from wicketgate.catalog.clusters import MAX_CHILDREN, MAX_INNER_PATH_CHARS, Leaf, shared_label, singular, topics
from wicketgate.catalog.graph import ChoiceGraph, Inner, Node, parse_path
from wicketgate.catalog.selectable import SelectableItem, mcp_tool_to_selectable
from wicketgate.errors import PathInvalid, PathNotFound


@requirement("BROWSE-3", "BROWSE-10")
@pytest.mark.parametrize("row", vectors("parse_path"), ids=lambda row: ascii(row["in"])[:40])
def test_a_path_is_parsed_as_the_grammar_says(row: dict[str, Any]) -> None:
    if isinstance(row["expected"], dict):
        with pytest.raises(PathInvalid) as refused:
            parse_path(row["in"])
        assert (refused.value.code, refused.value.path) == (row["expected"]["error"], row["in"])
    else:
        assert parse_path(row["in"]) == tuple(row["expected"])


@requirement("BROWSE-10")
@pytest.mark.parametrize("value", [5, None, [], b"/a"])
def test_what_is_not_a_string_is_no_path(value: object) -> None:
    with pytest.raises(PathInvalid):
        parse_path(value)


@requirement("BROWSE-10")
@given(
    st.from_regex(r"[a-z][a-z0-9_-]{0,63}", fullmatch=True),
    st.lists(st.from_regex(r"[a-z0-9][a-z0-9_-]{0,63}", fullmatch=True), max_size=4),
    st.sampled_from([(), ("*",)]),
)
def test_legal_segments_come_back_as_they_went_in(first: str, more: list[str], wildcard: tuple[str, ...]) -> None:
    segments = (first, *more, *wildcard)
    assert parse_path("/" + "/".join(segments)) == segments


@requirement("BROWSE-10")
@given(st.text(alphabet="/ab0_-*.A \n", max_size=12))
def test_a_text_is_either_refused_or_exactly_a_path(text: str) -> None:
    try:
        segments = parse_path(text)
    except PathInvalid:
        return
    assert "/" + "/".join(segments) == text


GITHUB = [
    "add_issue_comment",
    "create_issue",
    "get_issue",
    "list_issues",
    "search_issues",
    "update_issue",
    "create_pull_request",
    "get_pull_request",
    "get_pull_request_diff",
    "list_pull_requests",
    "merge_pull_request",
    "update_pull_request_branch",
    "list_workflows",
    "run_workflow",
    "get_workflow_run",
    "create_repository",
    "fork_repository",
    "search_repositories",
    "get_me",
    "list_tags",
    "push_files",
    "search_code",
]

REAL = routing_data()


def graph(names: Iterable[str], server: str | None = "github") -> ChoiceGraph:
    return ChoiceGraph(item(name, server) for name in names)


def paths(nodes: Iterable[Node]) -> list[str]:
    return [node.path for node in nodes]


def at(found: ChoiceGraph, path: str, visible: Callable[[str], bool] | None = None) -> list[str]:
    return paths(found.children(parse_path(path), visible))


def walked(found: ChoiceGraph, visible: Callable[[str], bool] | None = None) -> list[Node]:
    """Every node, found the way an agent finds it: by browsing from '/' on."""
    nodes: list[Node] = []
    todo = ["/"]
    while todo:
        for node in found.children(parse_path(todo.pop()), visible):
            nodes.append(node)
            if isinstance(node, Inner):
                todo.append(node.path)
    return nodes


def tool_paths(found: ChoiceGraph) -> dict[str, str]:
    return {node.tool_id: node.path for node in walk(found) if isinstance(node, Leaf)}


@requirement("BROWSE-11", "BROWSE-12")
def test_a_small_catalog_is_namespaces_and_their_tools() -> None:
    found = graph(["github.close_issue", "github.create_issue", "slack.post", "weather.get"], None)
    assert at(found, "/") == at(found, "/*") == ["/github", "/slack", "/weather"]
    assert at(found, "/github") == at(found, "/github/*") == ["/github/close_issue", "/github/create_issue"]
    assert at(found, "/github/create_issue") == ["/github/create_issue"]
    assert found.children(())[0] == Inner("/github", "github", "github", 2, ("close_issue", "create_issue"))


@requirement("BROWSE-3", "BROWSE-12")
@pytest.mark.parametrize("path", ["/missing", "/missing/*", "/github/no_such_tool", "/github/create_issue/more"])
def test_a_path_that_leads_nowhere_is_not_found(path: str) -> None:
    with pytest.raises(PathNotFound) as refused:
        at(graph(["github.create_issue"], None), path)
    assert refused.value.path == path


@requirement("BROWSE-13")
def test_a_large_namespace_has_clusters_named_by_what_tools_share() -> None:
    found = graph(GITHUB)
    assert at(found, "/github")[:4] == [
        "/github/issues",
        "/github/pull_requests",
        "/github/repositories",
        "/github/workflows",
    ]
    assert at(found, "/github/issues/create_issue") == at(found, "/github/issues/create_issue/*")
    assert at(found, "/github/workflows") == [
        f"/github/workflows/{name}" for name in ("get_workflow_run", "list_workflows", "run_workflow")
    ]


@requirement("BROWSE-15")
def test_every_name_has_a_legal_segment_and_only_those_that_meet_carry_a_hash() -> None:
    found = graph(["_priv", "v1.users.list", "CreateIssue", "createissue", "__", "x" * 100])
    segments = {node.path.removeprefix("/github/") for node in walked(found)[1:]}
    plain = {segment for segment in segments if segment in ("priv", "v1-users-list", "createissue", "tool")}
    hashed = {segment.rpartition("-")[0] for segment in segments - plain}
    assert plain == {"priv", "v1-users-list", "createissue", "tool"}
    assert hashed == {"createissue", "x" * 55}


@requirement("BROWSE-11", "BROWSE-13", "BROWSE-14")
@pytest.mark.parametrize(("namespaces", "each"), [(1, 60), (3, 25), (25, 4), (25, 40), (1, 3000)])
def test_generated_catalogs_are_reached_whole_by_walking(namespaces: int, each: int) -> None:
    names = [f"ns{n:02}.do_thing_{t}" for n in range(namespaces) for t in range(each)]
    found = graph(names, None)
    nodes = walked(found)
    assert len(found.children(())) == namespaces
    assert sum(isinstance(node, Leaf) for node in nodes) == len(names)
    assert max(len(found.children(parse_path(node.path))) for node in nodes) <= MAX_CHILDREN


LONG_NAMESPACE = "n" + "q7z_x" * 12 + "abc"
SHAPES = {
    "a long name of which the end differs": (
        "crm",
        [f"customer_relationship_management_enterprise_resource_planning_accounts_{n:04}" for n in range(500)],
    ),
    "one long word before a number": ("github", ["a" * 60 + f"_{n:04}" for n in range(2000)]),
    "numbers below a deep path": ("github", [f"api_v1_resources_users_{n}" for n in range(1500)]),
    "a namespace that leaves no room": (LONG_NAMESPACE, [f"api_v1_resources_users_{n}" for n in range(1500)]),
    "names that begin with each other": ("github", ["a" * n for n in range(1, 129)]),
    "names that differ in case alone": (
        "github",
        ["".join(pair) for pair in itertools.product(*((c, c.upper()) for c in "something"))],
    ),
    "another script": ("github", [f"検索{chr(0x4E00 + n)}" for n in range(500)]),
}


@requirement("BROWSE-13")
@pytest.mark.parametrize(("server", "drawn"), SHAPES.values(), ids=SHAPES)
def test_no_shape_of_names_makes_a_level_of_more_than_50(server: str, drawn: list[str]) -> None:
    found = graph(drawn, server)
    nodes = walked(found)
    inner = [node for node in nodes if isinstance(node, Inner)]
    assert len({node.tool_id for node in nodes if isinstance(node, Leaf)}) == len(nodes) - len(inner) == len(drawn)
    for node in inner:
        made = build_inner_card(node.path, node.label, node.namespace, node.tool_count, node.members, tokens())
        assert len(found.children(parse_path(node.path))) <= MAX_CHILDREN
        assert len(node.path) <= MAX_INNER_PATH_CHARS
        assert tokens().count(render_card(made)) < 80
    assert max(node.path.count("/") for node in nodes) <= 8


@requirement("BROWSE-14")
def test_where_a_path_would_get_too_long_the_end_of_a_label_stands_for_it() -> None:
    found = graph(SHAPES["a long name of which the end differs"][1], "crm")
    assert at(found, "/crm/customer_relationship_management")[:2] == [
        "/crm/customer_relationship_management/planning_accounts_00",
        "/crm/customer_relationship_management/planning_accounts_01",
    ]
    leaf = found.children(parse_path("/crm/customer_relationship_management/planning_accounts_01/012"))[0]
    assert leaf.path.rpartition("/")[2].startswith("management_enterprise_resource_planning_accounts_012")


@requirement("BROWSE-16")
@pytest.mark.parametrize(("server", "drawn"), SHAPES.values(), ids=SHAPES)
def test_a_tool_more_moves_few_others_in_any_shape(server: str, drawn: list[str]) -> None:
    most = drawn[:-1]
    before, after = tool_paths(graph(most, server)), tool_paths(graph(drawn, server))
    assert len(after) == len(drawn)
    assert sum(after[tool_id] != path for tool_id, path in before.items()) <= MAX_CHILDREN


@requirement("BROWSE-13")
@settings(deadline=None, max_examples=examples(15))
@given(
    st.sampled_from(["github", "n" * 40, LONG_NAMESPACE]),
    st.text("ab_", max_size=70),
    st.sets(st.text("aA_.1-", min_size=1, max_size=8), min_size=51, max_size=200),
)
def test_names_that_are_alike_stand_in_levels_of_at_most_50(server: str, shared: str, ends: set[str]) -> None:
    found = graph([f"x{shared}{end}" for end in ends], server)
    nodes = walked(found)
    assert sum(isinstance(node, Leaf) for node in nodes) == len(ends)
    assert len(set(paths(nodes))) == len(nodes)
    for node in nodes:
        if isinstance(node, Inner):
            assert len(found.children(parse_path(node.path))) <= MAX_CHILDREN
            assert len(node.path) <= MAX_INNER_PATH_CHARS


@requirement("BROWSE-14")
def test_members_in_another_script_go_by_their_own_name_which_cannot_be_taken_for_two() -> None:
    (shop,) = graph(["検索", "create_issue", "Créer\nune, delete_all — x … [y]: (z)", "語" * 90], "shop").children(())
    assert isinstance(shop, Inner)
    assert sorted(shop.members) == ["Créer une delete_all x y z", "create_issue", "検索", "語" * 32]


words = st.sampled_from(
    ["get", "list", "create", "issue", "issues", "repo", "pull", "request", "tool", "user", "X", "1", "22", "a", "b"]
)
names = st.lists(words, min_size=1, max_size=4).map("_".join) | st.text(min_size=1, max_size=80).filter(str.strip)
catalogs = st.lists(st.tuples(names, st.sampled_from(["github", "n" * 64, None])), max_size=120, unique=True)


@functools.cache
def _item(name: str, server: str | None) -> SelectableItem:
    return item(name, server)


@requirement("BROWSE-13", "BROWSE-14")
@settings(deadline=None, max_examples=examples(60))
@given(catalogs)
def test_in_any_catalog_every_tool_has_one_path_and_every_inner_card_fits(drawn: list[tuple[str, str | None]]) -> None:
    items = {made.id: made for made in (_item(*one) for one in drawn)}
    found = ChoiceGraph(items.values())
    nodes = walked(found)
    leaves = [node for node in nodes if isinstance(node, Leaf)]
    assert sorted(leaf.tool_id for leaf in leaves) == sorted(items)
    assert len(set(paths(nodes))) == len(nodes)
    assert sorted(paths(nodes)) == sorted(paths(walk(found)))
    for leaf in leaves:
        assert found.children(parse_path(leaf.path)) == (leaf,)
        assert found.path_of(leaf.tool_id) == leaf.path
    for node in nodes:
        if isinstance(node, Inner):
            below = [leaf for leaf in leaves if leaf.path.startswith(node.path + "/")]
            made = build_inner_card(node.path, node.label, node.namespace, node.tool_count, node.members, tokens())
            assert node.tool_count == len(below) > 0
            assert len(node.path) <= MAX_INNER_PATH_CHARS
            assert len(found.children(parse_path(node.path))) <= MAX_CHILDREN
            assert tokens().count(render_card(made)) < 80


@requirement("BROWSE-13")
@pytest.mark.skipif(REAL is None, reason=MISSING)
@pytest.mark.parametrize("source", ["azure", "bfcl", "mcpzero", "metatool", "sealtools"])
def test_real_catalogs_are_reached_whole_in_levels_of_at_most_50(source: str) -> None:
    assert REAL
    lines = (REAL / source / "tools.jsonl").read_text("utf-8").splitlines()
    items = {made.id: made for made in (mcp_tool_to_selectable(json.loads(line), source) for line in lines)}
    found = ChoiceGraph(items.values())
    nodes = walked(found)
    assert sorted(node.tool_id for node in nodes if isinstance(node, Leaf)) == sorted(items)
    assert max(len(found.children(parse_path(node.path))) for node in nodes) <= MAX_CHILDREN


@requirement("BROWSE-16")
@settings(deadline=None, max_examples=examples(40))
@given(catalogs)
def test_places_do_not_depend_on_order_or_on_what_was_there_before(drawn: list[tuple[str, str | None]]) -> None:
    items = list({made.id: made for made in (_item(*one) for one in drawn)}.values())
    expected = tool_paths(ChoiceGraph(items))
    assert tool_paths(ChoiceGraph(reversed(items))) == expected
    halves = ChoiceGraph(items[::2]).updated((), items[1::2])
    assert tool_paths(halves) == expected
    assert walk(halves) == walk(ChoiceGraph(items))
    fewer = halves.updated(items[::3], ())
    rest = [one for place, one in enumerate(items) if place % 3]
    assert walk(fewer) == walk(ChoiceGraph(rest))
    assert walk(fewer.updated((), items[::3])) == walk(halves)


@requirement("BROWSE-16")
def test_a_tool_more_moves_only_tools_that_share_its_topic() -> None:
    before = tool_paths(graph(GITHUB))
    for added in ["get_tag", "transfer_issue", "get_pull_hook", "list_gists", "zip", "pull"]:
        topic = added.split("_")[-1].rstrip("s") if added != "get_pull_hook" else "pull"
        after = tool_paths(graph([*GITHUB, added]))
        moved = {tool_id for tool_id, path in before.items() if after[tool_id] != path}
        assert all(topic in tool_id for tool_id in moved), added
    assert tool_paths(graph([*GITHUB, "transfer_issue"])).items() >= before.items()


@requirement("BROWSE-16")
def test_a_level_parted_by_letters_keeps_its_tools_when_more_come() -> None:
    initials = [f"{a}{b}" for a in "abcdefghij" for b in "klmnop"]
    before = tool_paths(graph(initials))
    assert at(graph(initials), "/github") == [f"/github/{letter}" for letter in "abcdefghij"]
    assert tool_paths(graph([*initials, "az", "zz"])).items() >= before.items()


@requirement("BROWSE-16")
def test_the_places_of_an_unchanged_namespace_are_kept_as_they_are() -> None:
    first = graph(["a.x", "b.y"], None)
    second = first.updated((), [item("b.z", None)])
    assert second.namespaces["a"] is first.namespaces["a"]
    assert at(second, "/b") == ["/b/y", "/b/z"]
    assert at(second, "/a") == ["/a/x"]


@requirement("BROWSE-18", "ACCESS-13")
def test_what_is_not_visible_does_not_exist() -> None:
    found = graph([*GITHUB, "delete_issue"])
    secret = graph(GITHUB)

    def visible(tool_id: str) -> bool:
        return "delete" not in tool_id

    issues, shown = found.children(("github", "issues"), visible), found.children(("github",), visible)
    assert paths(issues) == at(secret, "/github/issues")
    assert shown == secret.children(("github",))
    assert walked(found, visible) == walked(secret)
    for path in ("/github/issues/delete_issue", "/github/issues/never_there"):
        with pytest.raises(PathNotFound) as refused:
            at(found, path, visible)
        assert refused.value.as_dict() == {
            "error": "PATH_NOT_FOUND",
            "message": "Nothing is at this path. Browse '/' for all namespaces.",
            "path": path,
            "retryable": False,
        }
    assert found.children((), lambda _: False) == ()
    with pytest.raises(PathNotFound):
        at(found, "/github", lambda _: False)


@requirement("BROWSE-3")
def test_the_path_of_an_unknown_tool_is_not_found() -> None:
    with pytest.raises(PathNotFound):
        graph(GITHUB).path_of("github:none#00000000")


@requirement("BROWSE-16")
@pytest.mark.parametrize(
    ("name", "namespace", "expected"),
    [
        ("list_pull_requests", "github", ("pull", "requests")),
        ("pull_request_read", "github", ("pull", "request")),
        ("acr_registry_repository_list", "azure", ("acr", "registry", "repository")),
        ("slack_send_message", "slack", ("message",)),
        ("repos.list", "github", ("repos",)),
        ("getUserByHTTPHeader", "web", ("user", "http", "header")),
        ("list_s3_buckets", "aws", ("s3", "buckets")),
        ("list", "files", ("list",)),
        ("get_all", "files", ("all",)),
        ("tool_0001", "big", ("tool",)),
        ("_1", "big", ()),
    ],
)
def test_a_name_tells_what_its_tool_is_about(name: str, namespace: str, expected: tuple[str, ...]) -> None:
    assert topics(name, namespace) == expected


@requirement("BROWSE-16")
@pytest.mark.parametrize(
    ("one", "many"),
    [("issue", "issues"), ("policy", "policies"), ("status", "statuses"), ("box", "boxes"), ("branch", "branches"),
     ("database", "databases"), ("cache", "caches"), ("address", "addresses")],
)  # fmt: skip
def test_singular_and_plural_are_one_topic(one: str, many: str) -> None:
    assert singular(one) == singular(many)


@requirement("BROWSE-16")
def test_a_label_is_what_all_have_in_common_in_the_plural_that_one_of_them_writes() -> None:
    assert shared_label([("pull", "request"), ("pull", "requests"), ("pull", "request", "diff")]) == (
        "pull_requests",
        2,
    )
    assert shared_label([("issue",), ("issues",), ("issue", "comments")]) == ("issues", 1)
    assert shared_label([("code", "scan"), ("code", "review")]) == ("code", 1)


@requirement("BROWSE-16")
@given(st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,40}", fullmatch=True))
def test_topics_are_made_of_the_characters_of_a_segment(name: str) -> None:
    assert all(word.isascii() and word.isalnum() and word == word.lower() for word in topics(name, "n"))
