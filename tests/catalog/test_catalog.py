import copy
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.catalog.fixtures import definition, item, tokens, walk
from tests.support.effort import bounded_effort
from tests.support.properties import examples
from tests.support.requirement import requirement
from wicketgate.catalog.card import card_json, render_card
from wicketgate.catalog.catalog import Catalog, SkippedDefinition, build_catalog
from wicketgate.catalog.former import with_former
from wicketgate.catalog.graph import parse_path
from wicketgate.catalog.selectable import OPERATION_KEY
from wicketgate.catalog.tool_id import hash8, parse_tool_id
from wicketgate.errors import CatalogError, HydrateFailed, PathNotFound

TOO_LONG = "".join(f"Q{i}z_x" for i in range(25))[:128]
LONG_SERVER = "q7z_x" * 10
NO_ROOM = "q0x9z1" * 10
"""As a namespace it leaves no room on a card for a name, however short that is cut."""


def catalog(previous: Catalog | None = None, infer: tuple[str, ...] = (), **definitions: Any) -> Catalog:
    return build_catalog(definitions, tokens(), previous=previous, infer=infer)


def one(found: Catalog) -> str:
    (tool_id,) = found.items
    return tool_id


@requirement("CARD-8")
def test_tools_are_under_the_name_of_their_upstream() -> None:
    found = catalog(
        github=[definition("list_pull_requests"), definition("github.get_job_logs")], files=[definition("read")]
    )
    assert {item.namespace for item in found.items.values()} == {"files", "github"}
    assert [(made.server, made.namespace, made.upstream_name) for made in found.items.values()] == [
        ("files", "files", "read"),
        ("github", "github", "github.get_job_logs"),
        ("github", "github", "list_pull_requests"),
    ]


@requirement("CARD-8")
def test_with_infer_the_tools_of_one_upstream_have_several_namespaces() -> None:
    found = catalog(infer=("gw",), gw=[definition("github.create_issue"), definition("read")], up=[definition("a.b")])
    assert {item.namespace for item in found.items.values()} == {"github", "mcp", "up"}
    assert {made.server for made in found.items.values()} == {"gw", "up"}


@requirement("CARD-31")
def test_an_inferred_namespace_is_never_that_of_another_upstream() -> None:
    gw = [definition("pyt.echo"), definition("gw.own"), definition("Pyt.map"), definition("old.x"), definition("ok.y")]
    found = build_catalog(
        {"gw": gw, "pyt": [definition("echo")]}, tokens(), infer=("gw",), taken=("gw", "pyt", "old"), unnamed=("up1",)
    )
    assert [(made.namespace, made.server) for made in found.items.values()] == [
        *(("gw", "gw"), ("ok", "gw"), ("pyt", "pyt"))
    ]
    assert [(skipped.server, skipped.index) for skipped in found.skipped] == [("gw", 0), ("gw", 2), ("gw", 3)]
    assert "'pyt.echo' gives the namespace 'pyt'" in found.skipped[0].reason
    assert "another upstream, pyt" in found.skipped[0].reason
    unnamed = build_catalog({"up1": gw}, tokens(), taken=("gw", "pyt", "up1"), unnamed=("up1",))
    assert {made.namespace for made in unnamed.items.values()} == {"old", "ok"}


@requirement("CARD-14")
def test_a_collision_names_both_tools_and_the_former_catalog_stays_whole() -> None:
    former = build_catalog({"b": [definition("b.read")]}, tokens())
    with pytest.raises(CatalogError, match=r"two tools have the id a:read.*'a\.read' of gw and 'a\.read' of gw2"):
        build_catalog(
            {"gw": [definition("a.read"), definition("a.read")], "gw2": [definition("a.read")]},
            tokens(),
            previous=former,
            infer=("gw", "gw2"),
        )
    assert former.get(one(former)) is not None
    assert [card.id for card in former.cards_at(("b",))] == [tool_id for tool_id, _ in former.router.route("read", 5)]


VERSION_1: dict[str, Any] = {"_meta": {"version": "1"}}


@requirement("CARD-36")
@pytest.mark.parametrize(
    ("first", "twin"),
    [
        (definition("read", **VERSION_1), definition("a.read", "Other.", **VERSION_1)),
        (definition("a.read"), definition("a.read", "Other.")),
        (definition("a.read"), definition("a.read")),
        (definition(TOO_LONG), definition(TOO_LONG, "Other.")),
    ],
)
def test_twins_of_one_upstream_leave_the_first_and_are_told_by_place_and_reason(first: Any, twin: Any) -> None:
    alone = catalog(a=[definition("other"), first])
    listed = [definition("other"), first, twin, twin]
    for found in (catalog(a=listed), catalog(alone, a=listed), catalog(catalog(a=listed), a=listed)):
        assert (found.tools, found.version) == (alone.tools, alone.version)
        kept = next(made for made in found.tools.values() if made.upstream_name == first["name"])
        assert kept.description == first["description"]
        assert found.skipped == tuple(
            SkippedDefinition("a", index, f"{twin['name']!r} has the id {kept.id}, as has a[1], which is kept")
            for index in (2, 3)
        )


@requirement("CARD-36")
def test_tools_of_one_name_with_other_ids_are_no_twins() -> None:
    other_shape, other_version = definition("read", properties=("path",)), definition("read", **VERSION_1)
    found = catalog(a=[definition("read"), other_shape, other_version])
    assert (len(found.items), found.skipped) == (3, ())


@requirement("CARD-8", "CARD-14")
def test_the_same_tool_of_two_upstreams_is_two_tools() -> None:
    found = catalog(a=[definition("read")], b=[definition("read")])
    assert [tool_id.partition("#")[0] for tool_id in found.items] == ["a:read", "b:read"]


@requirement("CARD-11")
def test_what_is_not_well_formed_is_skipped_and_told_by_its_index() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    found = catalog(
        files=[
            definition("first"),
            {"description": "no name"},
            "not-even-a-dict",
            definition("  "),
            definition("second"),
            {"name": "x", "inputSchema": {"properties": ["a"]}},
            {"name": "x", "inputSchema": True},
            {"name": "x", "annotations": "x"},
            {"name": "x", "inputSchema": {"default": deep}},
            {"name": "x", "inputSchema": {"default": object()}},
        ]
    )
    assert [made.name for made in found.items.values()] == ["first", "second"]
    assert [(left.index, left.reason.partition(":")[0]) for left in found.skipped] == [
        (1, "name"),
        (2, "definition"),
        (3, "name"),
        (5, "inputSchema.properties"),
        (6, "inputSchema"),
        (7, "annotations"),
        (8, "definition"),
        (9, "definition"),
    ]
    assert found.skipped[1] == SkippedDefinition("files", 2, "definition: not an object")


@requirement("CARD-9")
@pytest.mark.parametrize("server", ["files", LONG_SERVER])
@pytest.mark.parametrize("name", ["QXZ" * 40, TOO_LONG, "Ω" * 70])
def test_a_tool_has_a_card_whatever_its_name(name: str, server: str) -> None:
    found = build_catalog({server: [definition(name), definition(name + "q")]}, tokens())
    assert not found.quarantine
    assert {made.upstream_name for made in found.items.values()} == {name, name + "q"}
    assert all(tokens().count(render_card(found.card(tool_id)) + "\n") <= 80 for tool_id in found.items)
    assert {card.id for card in found.cards_at((server,))} == set(found.items)


@requirement("CARD-24", "CARD-37")
def test_a_tool_whose_card_cannot_fit_is_not_browsed_and_the_others_are() -> None:
    found = build_catalog(
        {NO_ROOM: [definition("a", annotations={"readOnlyHint": True}), definition(TOO_LONG)]}, tokens()
    )
    (held,) = found.quarantine
    assert held.startswith(f"{NO_ROOM}:{TOO_LONG}#")
    assert "hard cap" in found.quarantine[held]
    assert [card.name for card in found.cards_at((NO_ROOM,))] == ["a"]
    assert held not in [tool_id for tool_id, _ in found.router.route(TOO_LONG, 5)]
    assert held not in found.items
    assert list(found.tools) == sorted([held, one(found)])
    assert (found.hydrate(held).tool_id, found.tools[held].upstream_name) == (held, TOO_LONG)


@requirement("CARD-18", "FACE-23")
def test_a_subscription_is_nowhere_but_in_the_list_of_what_was_left_aside() -> None:
    stream = definition("watch", "Watch the files.", _meta={"wicketgate/operation": "subscription"})
    found = catalog(files=[definition("read"), stream])
    (held,) = found.subscriptions
    assert held.startswith("files:watch#")
    assert [card.name for card in found.cards_at(("files",))] == ["read"]
    assert found.router.route("watch the files", 5, None)[0][0] == one(found)
    assert found.get(held) is None
    with pytest.raises(HydrateFailed):
        found.hydrate(held)
    assert not found.quarantine
    assert found.definition_chars() == catalog(files=[definition("read")]).definition_chars()
    turned = catalog(found, files=[definition("read"), definition("watch", "Watch the files.")])
    assert (set(turned.items) - set(found.items), turned.subscriptions) == ({held}, ())


@requirement("CARD-9")
@pytest.mark.parametrize("length", [64, 65, 100, 128, 129])
@pytest.mark.parametrize("version", [None, "1.2"])
def test_a_long_name_is_reachable_whatever_its_length(length: int, version: str | None) -> None:
    name = ("q7Xz_" * 30)[:length]
    meta = {} if version is None else {"version": version}
    found = catalog(files=[definition(name, _meta=meta), definition(name + "'", _meta=meta)])
    assert not found.quarantine
    assert {made.upstream_name for made in found.items.values()} == {name, name + "'"}
    tool_id = next(tool_id for tool_id, made in found.items.items() if made.upstream_name == name)
    parts = parse_tool_id(tool_id)
    assert parts.name == found.items[tool_id].name == (name if length <= 65 else name[:64])
    assert parts.version == version
    assert parts.hash8 == (None if version and length <= 65 else hash8(name, found.items[tool_id].args_schema))
    assert found.graph.path_of(tool_id).startswith("/files/q7xz_")


@requirement("CARD-9")
def test_a_long_name_whose_card_fits_keeps_its_whole_id() -> None:
    assert one(catalog(a=[definition("very_" * 25, _meta={"version": "1"})])) == f"a:{'very_' * 25}@1"


@requirement("CARD-15", "FACE-19")
def test_hydrating_gives_the_schemas_examples_and_hints() -> None:
    schema = {"type": "object", "properties": {"title": {}}, "examples": [{"title": "x"}]}
    found = catalog(
        a=[
            definition(
                "create",
                inputSchema=schema,
                outputSchema={"type": "object"},
                annotations={"idempotentHint": True, "costHint": 2, "destructiveHint": True},
            )
        ]
    )
    result = found.hydrate(one(found))
    assert (result.tool_id, result.args_schema, result.output_schema) == (one(found), schema, {"type": "object"})
    assert result.examples == ({"title": "x"},)
    assert result.constraints == {"side_effects": True, "cost_hint": 2.0, "idempotentHint": True}


@requirement("CARD-15", "EXEC-1")
def test_an_unknown_id_is_neither_hydrated_nor_shown() -> None:
    found = catalog(a=[definition("read")])
    for attempt in (found.hydrate, found.card):
        with pytest.raises(HydrateFailed) as refused:
            attempt("does:not_exist#deadbeef")
        assert refused.value.path == "does:not_exist#deadbeef"
    assert found.get("does:not_exist#deadbeef") is None


@requirement("CARD-19")
def test_a_card_takes_the_score_of_a_query_and_stays_as_it_is() -> None:
    found = catalog(a=[definition("read")])
    assert found.card(one(found), 0.75).score == 0.75
    assert found.card(one(found)).score is None
    assert "inputSchema" not in json.dumps(card_json(found.card(one(found))))


@requirement("BROWSE-11", "BROWSE-14")
def test_browsing_the_root_gives_a_card_for_each_namespace() -> None:
    found = build_catalog({f"s{n:02}": [definition(f"do_{t}") for t in range(40)] for n in range(25)}, tokens())
    cards = found.cards_at(())
    assert [card.id for card in cards] == [f"/s{n:02}" for n in range(25)]
    assert {card.kind for card in cards} == {"internal"}
    assert all(tokens().count(render_card(card)) <= 60 for card in cards)


@requirement("BROWSE-18")
def test_cards_of_a_path_are_those_of_the_visible_tools() -> None:
    found = catalog(a=[definition("read"), definition("drop")], b=[definition("drop")])

    def visible(tool_id: str) -> bool:
        return "drop" not in tool_id

    (namespace,) = found.cards_at((), visible)
    assert render_card(namespace) == "/a (internal) — 1 tool: read"
    with pytest.raises(PathNotFound):
        found.cards_at(("b",), visible)


@requirement("BROWSE-11")
def test_an_empty_catalog_has_nothing_and_fails_at_nothing() -> None:
    found = catalog()
    assert (dict(found.items), found.cards_at(()), found.router.route("read", 5)) == ({}, (), [])


@requirement("CARD-16", "UP-2")
def test_a_refresh_keeps_what_did_not_change_and_drops_what_is_gone() -> None:
    first = catalog(a=[definition("read"), definition("old"), definition("write")])
    second = catalog(first, a=[definition("read"), definition("new"), definition("write", "Other.")])
    names = {made.name: tool_id for tool_id, made in (*first.items.items(), *second.items.items())}
    assert second.items[names["read"]] is first.items[names["read"]]
    assert second.card(names["read"]) is first.card(names["read"])
    assert second.card(names["write"]).description == "Other."
    assert second.get(names["old"]) is None
    assert first.get(names["new"]) is None
    assert [tool_id for tool_id, _ in second.router.route("old", 5)] == []
    assert second.router.route("new", 1)[0][0] == names["new"]


@requirement("CARD-16", "CARD-17")
def test_an_unchanged_refresh_takes_over_everything() -> None:
    definitions = {"a": [definition(f"tool_{i}") for i in range(30)]}
    first = build_catalog(definitions, tokens())
    second = build_catalog(copy.deepcopy(definitions), tokens(), previous=first)
    assert second.version == first.version
    assert second.router is first.router
    assert all(second.items[tool_id] is made for tool_id, made in first.items.items())


@requirement("CARD-17")
def test_the_upstream_is_part_of_what_a_definition_means() -> None:
    first = catalog(a=[definition("read")])
    assert one(catalog(first, b=[definition("read")])).startswith("b:read")
    assert one(catalog(first, ("a",), a=[definition("read")])).startswith("mcp:read")


@requirement("CARD-17")
@pytest.mark.parametrize(
    "changed",
    [
        definition("read", "Other."),
        definition("read", properties=["a"]),
        definition("read", annotations={"readOnlyHint": True}),
        definition("read", annotations={"readOnlyHint": 1}),
    ],
)
def test_the_version_is_of_the_content(changed: Any) -> None:
    first = catalog(a=[definition("read")])
    assert len(first.version) == 16
    assert catalog(a=[changed]).version != first.version
    assert catalog(a=[definition("read")]).version == first.version


def test_true_and_one_are_different_contents() -> None:
    first = catalog(a=[definition("read", annotations={"readOnlyHint": 1})])
    second = catalog(first, a=[definition("read", annotations={"readOnlyHint": True})])
    assert (first.items[one(first)].side_effects, second.items[one(second)].side_effects) == (True, False)


names = st.text(min_size=1, max_size=20).filter(str.strip)
tools = st.builds(definition, names, st.none() | st.text(max_size=40), st.lists(st.sampled_from("abc"), unique=True))


@requirement("CARD-17")
@settings(deadline=None, max_examples=examples(50))
@given(
    st.lists(tools, max_size=30, unique_by=lambda tool: str(tool["name"])),
    st.lists(tools, max_size=5),
    st.randoms(use_true_random=False),
)
def test_a_catalog_depends_on_the_tools_alone_and_shows_each_of_them(
    drawn: list[Any], earlier: list[Any], random: Any
) -> None:
    former = build_catalog({"x": list({tool["name"]: tool for tool in earlier}.values())}, tokens())
    first = build_catalog({"x": drawn}, tokens())
    shuffled = random.sample(drawn, len(drawn))
    second = build_catalog({"x": shuffled}, tokens(), previous=former)
    assert (second.version, list(second.items), second.items) == (first.version, list(first.items), first.items)
    assert walk(second.graph) == walk(first.graph)
    assert {made.upstream_name for made in first.items.values()} == {tool["name"] for tool in drawn}
    assert not first.quarantine
    assert not first.skipped
    for tool_id in first.items:
        assert first.graph.path_of(tool_id) == second.graph.path_of(tool_id)
        assert tokens().count(render_card(first.card(tool_id))) <= 80


def state(found: Catalog) -> Any:
    """All that a catalog shows."""
    places = walk(found.graph)
    levels = [(), *(parse_path(node.path) for node in places)]
    return (
        (found.version, list(found.items.items()), found.definition_chars(), found.skipped),
        (found.subscriptions, dict(found.quarantine), places, [found.cards_at(path) for path in levels]),
        [found.router.route(query, 9) for query in ("read", "a", "the tool of words")],
    )


changes = st.lists(
    st.sampled_from(
        [definition(f"{space}.{name}", text) for space in "ab" for name in "xyz" for text in ("Read.", "A.")]
    )
    | st.sampled_from([{"name": "sub", "_meta": {OPERATION_KEY: "subscription"}}, {"name": ""}, definition(TOO_LONG)]),
    max_size=8,
    unique_by=lambda tool: str(tool["name"]),
)


@requirement("CARD-16", "CARD-39")
@settings(deadline=None, max_examples=examples(60))
@given(st.lists(changes, min_size=2, max_size=4))
def test_a_catalog_that_took_over_what_was_there_is_as_one_built_anew(listings: list[list[Any]]) -> None:
    found = catalog()
    former: Sequence[Any] = ()
    for listing in listings:
        former = with_former(copy.deepcopy(listing), former)
        found = catalog(found, ("x",), x=former)
        assert state(found) == state(catalog(None, ("x",), x=listing))


def many(count: int) -> list[Any]:
    return [definition(f"service{number // 20}.get_thing_{number}", "Get one thing.") for number in range(count)]


@requirement("CARD-39")
def test_one_changed_description_costs_little_beside_building_the_catalog() -> None:
    before = many(2_000)
    first = catalog(infer=("x",), x=before)
    after = copy.deepcopy(before)
    after[700]["description"] = "Get another thing."
    # Building takes several hundred calls a tool.
    with bounded_effort(calls=2_000 * 20):
        second = catalog(first, ("x",), x=with_former(after, before))
    assert [tool_id for tool_id in first.items if first.items[tool_id] is not second.items[tool_id]] == [
        tool_id for tool_id in first.items if "thing_700#" in tool_id
    ]


@requirement("LIB-11")
def test_a_catalog_by_hand_is_browsed_and_hydrated_like_any_other() -> None:
    assert Catalog().all() == ()
    create, read = item("create_issue", properties=("title",)), item("read_file", "files")
    by_hand = Catalog([read]).with_items([create])
    assert by_hand.all() == (read, create)
    assert by_hand.hydrate(create.id).args_schema == create.args_schema
    assert by_hand.router.route("create an issue", 1)[0][0] == create.id
    assert [card.id for card in by_hand.cards_at(())] == ["/files", "/github"]
    assert by_hand.definition_chars() > 0
    assert by_hand.version == Catalog([create, read]).version != Catalog([read]).version


@requirement("LIB-11")
def test_a_catalog_by_hand_refuses_two_tools_of_one_id_and_browses_nothing_that_cannot_be_a_card() -> None:
    with pytest.raises(CatalogError, match="github:create_issue"):
        Catalog([item("create_issue"), item("create_issue")])
    too_large = item(TOO_LONG, NO_ROOM)
    made = Catalog([too_large])
    assert (made.all(), list(made.quarantine)) == ((), [too_large.id])


@requirement("ROUTE-49")
def test_a_tool_that_gains_icons_and_meta_keeps_its_id_its_card_and_its_digest() -> None:
    before = catalog(a=[definition("read")])
    now = catalog(before, a=[definition("read", _meta={"theirs": 1}, icons=[{"src": "https://example.com/a.png"}])])
    (tool_id,) = before.items
    assert list(now.items) == [tool_id]
    assert now.card(tool_id) == before.card(tool_id)
    assert now.items[tool_id].digest == before.items[tool_id].digest
    assert now.items[tool_id].definition["_meta"] == {"theirs": 1}
    assert now.version != before.version


@requirement("EXEC-26")
def test_what_a_model_would_not_be_given_is_not_counted_as_spared() -> None:
    bare = definition("read", "Read a file.")
    more = {**bare, "outputSchema": {"type": "object", "description": "x" * 1_000}, "title": "y" * 1_000}
    assert catalog(files=[more]).definition_chars() == catalog(files=[bare]).definition_chars()
    longer = {**bare, "description": "Read a file." + "z" * 100}
    assert catalog(files=[longer]).definition_chars() == catalog(files=[bare]).definition_chars() + 100
