import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.catalog.fixtures import definition, item, tokens
from tests.support.requirement import requirement
from wicketgate.catalog.card import card_json, render_card
from wicketgate.catalog.catalog import Catalog, SkippedDefinition, build_catalog
from wicketgate.catalog.tool_id import hash8, parse_tool_id
from wicketgate.errors import CatalogError, HydrateFailed, PathNotFound

TOO_LONG = "".join(f"Q{i}z_x" for i in range(25))[:128]
LONG_SERVER = "q7z_x" * 12


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


@requirement("CARD-14")
@pytest.mark.parametrize(
    "definitions",
    [
        {"a": [definition("read", _meta={"version": "1"}), definition("a.read", "Other.", _meta={"version": "1"})]},
        {"a": [definition("a.read"), definition("a.read", "Other.")]},
        {"a": [definition("a.read"), definition("a.read")]},
        {"gw": [definition("a.read")], "gw2": [definition("a.read")]},
    ],
)
def test_a_collision_names_both_tools_and_the_former_catalog_stays_whole(definitions: Any) -> None:
    former = build_catalog({"b": [definition("b.read")]}, tokens())
    with pytest.raises(CatalogError, match=r"two tools have the id a:read.*read' of .* and 'a\.read' of "):
        build_catalog(definitions, tokens(), previous=former, infer=("gw", "gw2"))
    assert former.get(one(former)) is not None
    assert [card.id for card in former.cards_at(("b",))] == [tool_id for tool_id, _ in former.router.route("read", 5)]


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


@requirement("CARD-24")
def test_a_tool_whose_card_cannot_fit_is_quarantined_and_the_others_are_browsed() -> None:
    found = build_catalog({LONG_SERVER: [definition("read"), definition(TOO_LONG)]}, tokens())
    (held,) = found.quarantine
    assert held.startswith(f"{LONG_SERVER}:{TOO_LONG}#")
    assert "hard cap" in found.quarantine[held]
    assert [card.name for card in found.cards_at((LONG_SERVER,))] == ["read"]
    assert held not in [tool_id for tool_id, _ in found.router.route(TOO_LONG, 5)]
    with pytest.raises(HydrateFailed):
        found.hydrate(held)


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
    assert (
        found.definition_chars()
        == found.definition_chars(lambda tool_id: True)
        == catalog(files=[definition("read")]).definition_chars()
    )
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
@settings(deadline=None, max_examples=50)
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
    assert list(second.graph.walk()) == list(first.graph.walk())
    assert {made.upstream_name for made in first.items.values()} == {tool["name"] for tool in drawn}
    assert not first.quarantine
    assert not first.skipped
    for tool_id in first.items:
        assert first.graph.path_of(tool_id) == second.graph.path_of(tool_id)
        assert tokens().count(render_card(first.card(tool_id))) <= 80


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
def test_a_catalog_by_hand_refuses_two_tools_of_one_id_and_leaves_out_what_cannot_be_a_card() -> None:
    with pytest.raises(CatalogError, match="github:create_issue"):
        Catalog([item("create_issue"), item("create_issue")])
    too_large = item(TOO_LONG, LONG_SERVER)
    made = Catalog([too_large])
    assert (made.all(), list(made.quarantine)) == ((), [too_large.id])
