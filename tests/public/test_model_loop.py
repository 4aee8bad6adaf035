"""The three tools in a model loop of one's own."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.requirement import requirement
from wicketgate import CallContext, Identity, ProxyRuntime, StubUpstream

GREET = {
    "name": "greet",
    "description": "Greets somebody by name.",
    "inputSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
}


async def answer(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
    return {"content": [{"type": "text", "text": f"Hello {arguments['name']}, from {context.identity.actor}"}]}


@pytest.fixture
async def runtime() -> ProxyRuntime:
    made = ProxyRuntime(StubUpstream([GREET], answer, name="people"))
    await made.refresh_catalog()
    return made


@requirement("LIB-25")
def test_definitions_are_those_that_providers_take() -> None:
    runtime = ProxyRuntime(StubUpstream([]))
    names = ["tool_browse", "tool_execute", "tool_view"]
    openai, anthropic = runtime.tool_definitions("openai"), runtime.tool_definitions("anthropic")
    assert [(each["type"], each["function"]["name"]) for each in openai] == [("function", name) for name in names]
    assert [each["name"] for each in anthropic] == names
    assert [each["function"]["parameters"] for each in openai] == [each["input_schema"] for each in anthropic]
    with pytest.raises(ValueError, match="'openai' or 'anthropic', not 'other'"):
        runtime.tool_definitions("other")  # type: ignore[arg-type]


@requirement("LIB-25")
async def test_a_model_finds_runs_and_is_taught(runtime: ProxyRuntime) -> None:
    found = await runtime.call_tool("tool_browse", {"query": "greet somebody"})
    (tool_id,) = (word.rstrip(":") for word in found.split() if word.startswith("people:greet"))
    said = await runtime.call_tool("tool_execute", json.dumps({"tool_id": tool_id, "args": {"name": "Ada"}}))
    assert said == "Hello Ada, from local"
    ann = CallContext(Identity("ann", ("tools:*",)), "c-1", "s-1")
    said = await runtime.call_tool("tool_execute", {"tool_id": tool_id, "args": {"name": "Ada"}}, ann)
    assert said == "Hello Ada, from ann"


@requirement("LIB-25")
@pytest.mark.parametrize(
    ("name", "args", "taught"),
    [
        ("tool_execute", {"tool_id": "people:greet"}, "name"),
        ("tool_execute", "[1]", "one JSON object"),
        ("tool_execute", '{"tool_id": ', "one JSON object"),
        ("tool_view", {}, "handle is required"),
        ("greet", {"name": "Ada"}, "is run with tool_execute"),
        (5, {}, "There is no tool 5."),
        ("\ud800", {}, "There is no tool \ufffd."),
        ("tool_execute", {"tool_id": "\ud800"}, "HYDRATE_FAILED"),
        ("nothing", {}, "There is no tool nothing. The tools are tool_browse, tool_execute, tool_view."),
    ],
)
async def test_every_mistake_is_a_text_that_says_what_to_do(
    runtime: ProxyRuntime, name: str, args: Mapping[str, Any] | str, taught: str
) -> None:
    said = await runtime.call_tool(name, args)
    assert taught in said
    said.encode()
