"""Splitting and restoring ``server__name`` (ROUTE-1 to ROUTE-6)."""

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.requirement import requirement
from wicketgate.faces.routing import (
    SPEAKABLE,
    RoutedRequest,
    join_name,
    parse_incoming_request,
    restore_name,
    speakable_name,
)
from wicketgate.faces.surface import Refusal

TOOL_TEXT = "All tool calls must use 'server__tool' format (e.g., 'filesystem__echo')"


@pytest.mark.parametrize(
    ("name", "server", "own_name"),
    [
        ("alpha__echo", "alpha", "echo"),
        ("alpha__beta__echo", "alpha", "beta__echo"),
        ("alpha___private", "alpha", "_private"),
        ("a__", None, None),
        ("__echo", None, None),
        ("echo", None, None),
        ("alpha_echo", None, None),
        ("", None, None),
    ],
)
@requirement("ROUTE-1", "ROUTE-2")
def test_a_name_is_split_at_its_first_separator(name: str, server: str | None, own_name: str | None) -> None:
    if server is None:
        with pytest.raises(Refusal) as refused:
            parse_incoming_request("tools/call", {"name": name})
        assert refused.value.code == -32602
        assert refused.value.message == f"Tool '{name}' is not properly namespaced. {TOOL_TEXT}"
        return
    routed = parse_incoming_request("tools/call", {"name": name, "arguments": {"a": 1}})
    assert routed == RoutedRequest("tools/call", own_name or "", {"a": 1}, server, name)


@pytest.mark.parametrize("params", [None, {}, {"name": None}, {"name": 5}, {"name": ["a"]}, ["a"], "alpha__echo", 7])
@requirement("ROUTE-2")
def test_params_that_name_no_tool_are_refused_as_invalid_params(params: Any) -> None:
    with pytest.raises(Refusal) as refused:
        parse_incoming_request("tools/call", params)
    assert refused.value.code == -32602
    if isinstance(params, dict) and params.get("name") is None:
        assert refused.value.message == "Tool call missing required 'name' parameter"


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("resources/read", {"uri": "alpha+demo://alpha/note"}, "demo://alpha/note"),
        ("resources/subscribe", {"uri": "ui://alpha/a__b/app.html"}, "ui://a__b/app.html"),
        ("resources/read", {"uri": "alpha__demo://alpha/note"}, "demo://alpha/note"),
        ("resources/read", {"uri": "alpha__mailto:a+b@example.com"}, "mailto:a+b@example.com"),
        ("resources/subscribe", {"uri": "alpha__demo://a__b"}, "demo://a__b"),
        ("prompts/get", {"name": "alpha__hello", "arguments": {"name": "bob"}}, "hello"),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "alpha__hello"}}, "hello"),
        ("completion/complete", {"ref": {"type": "ref/resource", "uri": "alpha__demo://{x}"}}, "demo://{x}"),
    ],
)
@requirement("ROUTE-4", "ROUTE-11")
def test_resources_and_prompts_are_routed_alike(method: str, params: dict[str, Any], name: str) -> None:
    routed = parse_incoming_request(method, params)
    assert (routed.target_server, routed.name) == ("alpha", name)


@requirement("ROUTE-2")
def test_a_resource_without_a_server_is_refused_in_its_own_words() -> None:
    with pytest.raises(Refusal) as refused:
        parse_incoming_request("resources/read", {"uri": "demo://alpha/note"})
    form = "All resource calls must use 'server+scheme://...' format"
    assert refused.value.code == -32602
    assert refused.value.message == f"Resource 'demo://alpha/note' is not properly namespaced. {form}"


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("Tool echo not found", "echo", "Tool raw__echo not found"),
        (
            "Tool 'echo' failed; echoes echo. my_echo echo-x",
            "echo",
            "Tool 'raw__echo' failed; echoes raw__echo. my_echo raw__echo-x",
        ),
        ("no read_file in thread_file_reader or read_files", "read_file", None),
        ("Tool raw__echo failed", "echo", None),
        ("Tool run! failed, run!", "run!", "Tool raw__run! failed, raw__run!"),
        ("éécho écho", "cho", None),
        ("cannot open C:\\dir\\1 at C:\\dir", "C:\\dir", "cannot open raw__C:\\dir\\1 at raw__C:\\dir"),
        ("echo", "echo", "raw__echo"),
        ("", "echo", ""),
        ("summary of the sum", "sum", "summary of the raw__sum"),
        (r"\g<0> $& \1 echo", "echo", r"\g<0> $& \1 raw__echo"),
    ],
)
@requirement("ROUTE-13", "ROUTE-14")
def test_a_name_is_restored_where_it_stands_whole_and_nowhere_else(text: str, name: str, expected: str | None) -> None:
    if expected is None:
        expected = text.replace(" read_file ", " raw__read_file ")
    assert restore_name(text, name, join_name("raw", name)) == expected


@requirement("ROUTE-14")
def test_an_empty_name_stands_nowhere_in_a_text() -> None:
    # In a separate process with little memory: the bug was a loop that allocates more in each round.
    ask = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "from wicketgate.faces.routing import restore_name; print(restore_name('no  such - thing.', '', 'raw__x'))"
    )
    ended = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, timeout=20, check=False)
    assert (ended.returncode, ended.stdout) == (0, "no  such - thing.\n")


@given(st.text("ab_ -"), st.text("ab_-", min_size=1))
@requirement("ROUTE-14")
def test_restoring_twice_is_restoring_once(text: str, name: str) -> None:
    once = restore_name(text, name, join_name("raw", name))
    if name[0] not in "-":  # a name that begins with a boundary follows "raw__" as it follows anything
        assert restore_name(once, name, join_name("raw", name)) == once


@given(st.text(min_size=1), st.text(min_size=1))
@requirement("ROUTE-6")
def test_every_tool_has_a_name_that_models_can_say_always_the_same(server: str, tool: str) -> None:
    full = join_name(server, tool)
    alias = speakable_name(full)
    assert SPEAKABLE.fullmatch(alias)
    assert alias == speakable_name(full)
    if SPEAKABLE.fullmatch(full):
        assert alias == full


@requirement("ROUTE-72")
@pytest.mark.parametrize(
    ("full", "title", "start"),
    [
        ("m__Größe", "Size", "m__Gro_e_"),
        ("m__検索", "Search: papers (検)", "m__Search_papers_"),
        ("m__検索2", "Search", "m__Search_"),
        ("m__検索", "", "m____"),
        ("m__検索", "探す", "m____"),
        ("m__検索_by_author", "Search", "m____by_author_"),
        ("m__a b", "Search", "m__a_b_"),
        ("m__検索", "Search " * 50, "m__Search_Search_"),
    ],
)
def test_an_alias_keeps_words_of_a_name_in_another_script_or_of_its_title(full: str, title: str, start: str) -> None:
    alias = speakable_name(full, title)
    assert SPEAKABLE.fullmatch(alias)
    assert alias.startswith(start)
    assert alias[-8:] == speakable_name(full)[-8:]


@requirement("ROUTE-6")
def test_long_names_that_begin_alike_have_different_aliases() -> None:
    assert speakable_name("files__" + "x" * 80) != speakable_name("files__" + "x" * 81)
