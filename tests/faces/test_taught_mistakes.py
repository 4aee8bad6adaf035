"""Slips of models at the three tools, and the answers that say how it is done (FACE-192, EXEC-100, EXEC-101)."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.requirement import requirement
from wicketgate.access.identity import Identity
from wicketgate.faces.gateway import GatewayFace
from wicketgate.faces.surface import ToolSurface, UnknownTool
from wicketgate.faces.transparent import TransparentFace
from wicketgate.fleet.member import MultiplexUpstream
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.ports import CallContext
from wicketgate.upstreams.embedded import StubUpstream

OWNER = CallContext(Identity("owner", ("*",)), "req_1", "s")
READER = CallContext(Identity("reader", ("tools:time:*",)), "req_2", "s")
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


@pytest.fixture
async def runtime() -> ProxyRuntime:
    async def run(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        return {"content": [{"type": "text", "text": json.dumps(arguments)}]}

    def upstream(server: str, *names: str) -> StubUpstream:
        tools = [{"name": name, "description": "Does it.", "inputSchema": SCHEMA} for name in names]
        return StubUpstream(tools, run, name=server)

    runtime = ProxyRuntime(MultiplexUpstream([upstream("time", "now", "Über"), upstream("echo", "now", "echo")]))
    await runtime.refresh_catalog()
    return runtime


@requirement("FACE-192")
@pytest.mark.parametrize("name", ["echo", "echo:echo", "echo__echo", "/echo/echo"])
async def test_a_tool_called_by_its_own_name_is_answered_with_tool_execute_and_its_id(
    runtime: ProxyRuntime, name: str
) -> None:
    face = GatewayFace(runtime)
    (tool_id,) = (each for each in runtime.catalog().items if each.startswith("echo:echo"))
    result = await face.call(name, {"text": "a"}, OWNER)
    assert (result.is_error, result.structured["error"], result.structured["path"]) == (True, "ARGS_INVALID", tool_id)
    assert "tool_execute" in result.shown and tool_id in result.shown
    # A caller that may not see it is answered as for a tool that is not there.
    for unknown in (name, "nope", "/", "", "x" * 70_000):
        with pytest.raises(UnknownTool):
            await face.call(unknown, {}, READER)


@requirement("FACE-192")
async def test_several_tools_of_one_name_are_named_those_of_the_caller_alone(runtime: ProxyRuntime) -> None:
    face = GatewayFace(runtime)
    shown = (await face.call("now", {}, OWNER)).shown
    assert "echo:now" in shown and "time:now" in shown
    assert "echo:now" not in (await face.call("now", {}, READER)).shown
    assert "tool_execute" in (await face.call("Über", {}, READER)).shown


@requirement("EXEC-100")
@pytest.mark.parametrize("make", [GatewayFace, TransparentFace])
@pytest.mark.parametrize(
    ("args", "taken"),
    [('{"text": "a"}', True), ('{"text": "a"} {}', False), ('["a"]', False), ("text", False), ('{"text": 5}', False)],
)
async def test_args_as_the_json_text_of_one_object_are_that_object(
    runtime: ProxyRuntime, make: type[ToolSurface], args: str, taken: bool
) -> None:
    face = make(runtime)  # type: ignore[call-arg]
    tool_id = next(each for each in runtime.catalog().items if each.startswith("echo:echo"))
    result = await face.call("tool_execute", {"tool_id": tool_id, "args": args}, OWNER)
    assert result.is_error is not taken
    if taken and make is GatewayFace:
        repairs = result.structured["provenance"]["arg_repairs"]
        assert repairs == [{"path": "$", "rule": "json_to_object"}]
        assert result.structured["summary"] == '{"text": "a"}'


@requirement("EXEC-101")
@pytest.mark.parametrize("make", [GatewayFace, TransparentFace])
async def test_an_argument_beside_args_is_told_where_it_belongs(runtime: ProxyRuntime, make: type[ToolSurface]) -> None:
    face = make(runtime)  # type: ignore[call-arg]
    message = (await face.call("tool_execute", {"tool_id": "echo:echo", "text": "a"}, OWNER)).structured["message"]
    assert 'Put it into args: {"text": …}' in message


@requirement("EXEC-101")
@pytest.mark.parametrize(
    ("slip", "taught"),
    [
        ({"tool_id": "echo:echo", "arguments": {"text": "a"}}, "Send args instead of arguments."),
        ({"name": "echo:echo", "input": {}}, "Send args instead of input, tool_id instead of name."),
        ({"tool_id": "echo:echo", "args": {}, "input": "a"}, 'Put it into args: {"input": …}.'),
        ({"tool_id": "echo:echo", "name": "a"}, 'Put it into args: {"name": …}.'),
    ],
)
async def test_args_and_tool_id_by_another_name_are_told_their_own(
    runtime: ProxyRuntime, slip: dict[str, Any], taught: str
) -> None:
    message = (await GatewayFace(runtime).call("tool_execute", slip, OWNER)).structured["message"]
    assert taught in message
