from base64 import b64encode
from typing import Any

import pytest

from conformance.names import Names
from tests.support.requirement import requirement


def names(face: str) -> Names:
    return Names(face, lambda _: "conf", frozenset({"conf"}))


def call(name: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, **params}}


@requirement("OPS-150")
@pytest.mark.parametrize(
    ("face", "params"),
    [
        ("namespaced", {"name": "conf__echo", "arguments": {"a": 1}}),
        ("gateway", {"name": "tool_execute", "arguments": {"tool_id": "conf:echo", "args": {"a": 1}}}),
        ("transparent", {"name": "tool_execute", "arguments": {"tool_id": "conf:echo", "args": {"a": 1}}}),
        ("registry", {"name": "call", "arguments": {"operation": "/conf/echo", "input": {"a": 1}}}),
    ],
)
def test_a_call_of_the_suite_becomes_one_that_the_face_takes(face: str, params: dict[str, Any]) -> None:
    sent = names(face).request(call("echo", arguments={"a": 1}, _meta={"x": 1}))
    assert sent["params"] == {**params, "_meta": {"x": 1}}


@requirement("OPS-150")
def test_a_call_of_a_tool_of_the_face_itself_stays_as_it_is() -> None:
    own = call("tool_browse", arguments={"query": "x"})
    assert names("gateway").request(own) is own


@requirement("OPS-150")
def test_uris_prompts_and_references_travel_under_the_name_of_the_server() -> None:
    of = names("namespaced")
    read = of.request({"method": "resources/read", "params": {"uri": "test://a"}})
    complete = of.request({"method": "completion/complete", "params": {"ref": {"type": "ref/prompt", "name": "p"}}})
    assert (read["params"]["uri"], complete["params"]["ref"]["name"]) == ("conf+test://a", "conf__p")
    skill = of.request({"method": "skills/get", "params": {"uri": "skill://a/SKILL.md"}})
    assert skill["params"]["uri"] == "conf+skill://a/SKILL.md"
    answer = {
        "result": {"contents": [{"uri": "conf+test://a", "text": "conf+test://a"}], "tools": [{"name": "conf__x"}]}
    }
    undone = {"result": {"contents": [{"uri": "test://a", "text": "conf+test://a"}], "tools": [{"name": "x"}]}}
    assert of.answer(answer) == undone


@requirement("OPS-150")
def test_the_header_follows_the_body_unless_it_was_wrong_before() -> None:
    of, before = names("namespaced"), call("echo")
    after = of.request(before)
    encoded = f"=?base64?{b64encode(b'echo').decode()}?="
    assert of.header("  echo ", before, after) == "  conf__echo "
    assert of.header(encoded, before, after) == f"=?base64?{b64encode(b'conf__echo').decode()}?="
    assert [of.header(wrong, before, after) for wrong in ("other", "=?base64?!?=", "Echo")] == [
        *("other", "=?base64?!?=", "Echo"),
    ]
