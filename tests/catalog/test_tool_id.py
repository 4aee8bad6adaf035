import string
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.catalog.fixtures import vectors
from tests.support.requirement import requirement
from wicketgate.catalog.tool_id import (
    NAMESPACE,
    ToolIdParts,
    derive_tool_id,
    format_tool_id,
    hash8,
    infer_namespace,
    near_ids,
    parse_tool_id,
    shorter_tool_ids,
)
from wicketgate.errors import CatalogError

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
parts = st.builds(
    ToolIdParts,
    namespace=st.from_regex(r"[a-z][a-z0-9_-]{0,63}", fullmatch=True),
    name=st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}", fullmatch=True),
    version=st.from_regex(r"[A-Za-z0-9._-]{1,32}", fullmatch=True),
    hash8=st.none() | st.from_regex(r"[0-9a-f]{8}", fullmatch=True),
)


@requirement("CARD-1", "CARD-2", "CARD-3")
@pytest.mark.parametrize("row", vectors("parse_tool_id"), ids=lambda row: ascii(row["in"])[:40])
def test_an_id_is_parsed_as_the_grammar_says(row: dict[str, Any]) -> None:
    if "error" in row["expected"]:
        with pytest.raises(CatalogError):
            parse_tool_id(row["in"])
    else:
        assert parse_tool_id(row["in"]) == ToolIdParts(**row["expected"])
        assert format_tool_id(parse_tool_id(row["in"])) == row["in"]


@requirement("CARD-5")
@pytest.mark.parametrize("row", vectors("hash8"), ids=lambda row: ascii(row["name"]))
def test_hash8_is_over_the_upstream_name_and_the_shape(row: dict[str, Any]) -> None:
    assert hash8(row["name"], row["schema"]) == row["expected"]


@requirement("CARD-6", "CARD-7")
@pytest.mark.parametrize("row", vectors("infer_namespace"), ids=lambda row: row["in"] or "empty")
def test_the_namespace_is_inferred_from_the_separator(row: dict[str, Any]) -> None:
    assert infer_namespace(row["in"]) == row["expected"]


@requirement("CARD-2")
@pytest.mark.parametrize("value", [42, None, b"g:x@1", "a:" + "b" * 300])
def test_what_is_not_a_short_string_is_no_id(value: object) -> None:
    with pytest.raises(CatalogError):
        parse_tool_id(value)


@requirement("CARD-2")
@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (ToolIdParts("a", "b"), "hash8"),
        (ToolIdParts("GitHub", "b", "1"), "namespace"),
        (ToolIdParts("a", "b", None, "GG"), "hash8"),
        (ToolIdParts("a", "b", "bad/version"), "version"),
        (ToolIdParts("a", "1b", "1"), "name"),
    ],
)
def test_a_part_outside_the_grammar_is_named(wrong: ToolIdParts, named: str) -> None:
    with pytest.raises(CatalogError, match=named):
        format_tool_id(wrong)


@requirement("CARD-3")
@given(parts)
def test_every_id_survives_format_and_parse(value: ToolIdParts) -> None:
    assert parse_tool_id(format_tool_id(value)) == value


@requirement("CARD-2", "CARD-3")
@given(st.text(alphabet=string.printable + "é\u2028", max_size=60) | parts.map(lambda p: format_tool_id(p) + "\n"))
def test_a_text_is_either_refused_or_exactly_an_id(text: str) -> None:
    try:
        found = parse_tool_id(text)
    except CatalogError:
        return
    assert format_tool_id(found) == text


@requirement("CARD-5")
@given(st.dictionaries(st.text(max_size=5), json_values, max_size=5), st.randoms(use_true_random=False))
def test_neither_order_nor_types_of_properties_change_the_hash(properties: dict[str, Any], random: Any) -> None:
    shuffled = list(properties)
    random.shuffle(shuffled)
    first = {"properties": properties, "required": sorted(properties)}
    second = {"properties": {key: {"type": "null"} for key in shuffled}, "required": shuffled, "description": "other"}
    assert hash8("x", first) == hash8("x", second)
    assert hash8("x", first) != hash8("x", {**first, "properties": {**properties, "new property": {}}})


@requirement("CARD-11")
@given(json_values)
def test_a_malformed_schema_counts_as_one_without_shape(schema: object) -> None:
    assert hash8("x", {"properties": ["a"], "required": "a", "x": schema}) == hash8("x", None)
    assert len(hash8("x", schema)) == 8


@requirement("CARD-9")
@given(st.text(min_size=1, max_size=200), st.none() | st.text(max_size=40), st.sampled_from([None, "github", "a-b_c"]))
def test_any_name_and_version_get_a_legal_id_that_never_changes(
    name: str, version: str | None, server: str | None
) -> None:
    tool_id = derive_tool_id(name, {}, version, server)
    found = parse_tool_id(tool_id)
    assert derive_tool_id(name, {}, version, server) == tool_id
    assert found.hash8 in (None, hash8(name, {}))
    if server is not None:
        assert found.namespace == server
    if found.hash8 is None:
        assert name.endswith(found.name)
        assert found.version == version


@requirement("CARD-9")
@pytest.mark.parametrize(
    ("name", "server", "expected"),
    [
        ("GitHub.create_issue", None, "github:create_issue"),
        ("1password.list", None, "n1password:list"),
        ("a/b/c", None, "a:b_c"),
        ("get weather", None, "mcp:get_weather"),
        ("日本.検索", None, "mcp:tool"),
        ("検索", "shop", "shop:tool"),
        ("Créer une tâche", "shop", "shop:Creer_une_tache"),
        ("2fa", "shop", "shop:_2fa"),
        ("x" * 129, "shop", "shop:" + "x" * 64),
        ("\ud800", "shop", "shop:tool"),
    ],
)
def test_a_name_outside_the_grammar_is_mapped_and_carries_its_hash_beside_a_version(
    name: str, server: str | None, expected: str
) -> None:
    digest = hash8(name, None)
    assert derive_tool_id(name, None, None, server) == f"{expected}#{digest}"
    assert derive_tool_id(name, None, "2.1.0", server) == f"{expected}@2.1.0#{digest}"


@requirement("CARD-9")
def test_a_version_outside_the_grammar_is_mapped_and_never_loses_the_tool() -> None:
    digest = hash8("read", None)
    assert derive_tool_id("read", None, "1.0 (beta)", "files") == f"files:read@1.0-beta#{digest}"
    assert derive_tool_id("read", None, "版", "files") == f"files:read#{digest}"
    assert derive_tool_id("read", None, "9" * 40, "files") == f"files:read@{'9' * 32}#{digest}"


@requirement("CARD-9")
def test_a_shortened_id_has_64_characters_of_the_name_and_the_hash_of_all() -> None:
    long, digest = "n" * 65, hash8("n" * 65, None)
    for version, told in ((None, ""), ("2", "@2")):
        tool_id = derive_tool_id(long, None, version, "files")
        assert list(shorter_tool_ids(tool_id, long, None)) == [
            f"files:{'n' * most}{told}#{digest}" for most in (64, 32, 16)
        ]
    assert list(shorter_tool_ids(derive_tool_id("n" * 16, None, "2", "files"), "n" * 16, None)) == []


@requirement("CARD-8", "CARD-9")
def test_a_configured_server_is_the_namespace_and_is_dropped_from_the_name() -> None:
    assert derive_tool_id("list_pull_requests", None, "1", "github") == "github:list_pull_requests@1"
    assert derive_tool_id("github.create_issue", None, "1", "github") == "github:create_issue@1"
    assert derive_tool_id("github/create_issue", None, "1", "github") == "github:create_issue@1"
    assert derive_tool_id("gitlab.create_issue", None, "1", "github") == "github:gitlab.create_issue@1"
    assert derive_tool_id("github.", None, "1", "github") == "github:github.@1"


@requirement("CARD-6")
@given(st.text(max_size=80))
def test_an_inferred_namespace_is_always_within_the_grammar(name: str) -> None:
    assert NAMESPACE.fullmatch(infer_namespace(name))


IDS = (
    "github:close_issue#0a1b2c3d",
    "github:create_issue#12345678",
    "github:v1.users.list@2",
    "gitlab:create_issue#87654321",
    "jira:create_issue@1.2",
    "slack:send_message#deadbeef",
)


@requirement("BROWSE-19")
@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("github:close_issue", ["github:close_issue#0a1b2c3d"]),
        ("github:close_issue#00000000", ["github:close_issue#0a1b2c3d"]),
        ("close_issue", ["github:close_issue#0a1b2c3d"]),
        ("jira:create_issue", [IDS[4], IDS[1], IDS[3]]),
        ("create_issue", [IDS[1], IDS[3], IDS[4]]),
        ("github__close_issue", ["github:close_issue#0a1b2c3d"]),
        ("slack.send_message", ["slack:send_message#deadbeef"]),
        ("v1.users.list", ["github:v1.users.list@2"]),
        ("github:close_isue#0a1b2c3d", ["github:close_issue#0a1b2c3d"]),
        ("slack:sendMessage", ["slack:send_message#deadbeef"]),
        ("slack:delete_channel#deadbeef", []),
        ("", []),
        (":", []),
        ("x" * 10_000, []),
        ("\ud800:\n#@", []),
    ],
)
def test_an_id_that_is_not_there_leads_to_those_that_were_meant(wanted: str, expected: list[str]) -> None:
    assert near_ids(wanted, IDS) == expected


@requirement("BROWSE-19")
@pytest.mark.parametrize("wanted", ["create_issue", "github:create_issue#12345678", "github:creat_issue#12345678"])
def test_a_hidden_tool_changes_nothing_in_the_answer(wanted: str) -> None:
    hidden = {each for each in IDS if each.startswith("github:")}
    shown = [each for each in IDS if each not in hidden]
    assert near_ids(wanted, IDS, lambda each: each not in hidden) == near_ids(wanted, shown)


@requirement("BROWSE-19")
def test_hidden_tools_take_no_place_among_those_compared() -> None:
    hidden = [f"a:send_messag{number:02d}#00000000" for number in range(99)]
    assert near_ids("slack:send_mesage", [*hidden, *IDS], lambda each: each in IDS) == ["slack:send_message#deadbeef"]


@requirement("BROWSE-19")
def test_ten_thousand_ids_are_looked_through_quickly() -> None:
    ids = [f"server{number % 250}:create_{number}_issue#12345678" for number in range(10_000)]
    for wanted in ("server3:create_253_issue", "server3:create_253_isue", "create_issues"):
        began = time.thread_time()
        near_ids(wanted, ids)
        assert time.thread_time() - began < 0.05
