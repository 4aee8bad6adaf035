"""The transparent face: a catalog of stripped entries, and two meta-tools that use it (FACE-18 to FACE-21)."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.requirement import requirement
from wicketgate.access.identity import Identity
from wicketgate.faces.operations import Operations
from wicketgate.faces.registry import RegistryFace
from wicketgate.faces.surface import UnknownTool
from wicketgate.faces.transparent import TransparentFace
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.ports import CallContext
from wicketgate.tokens import shipped_token_counter
from wicketgate.upstreams.embedded import StubUpstream

OWNER = CallContext(Identity("owner_1", ("*",)), "req_1", "s")
READER = CallContext(Identity("reader", ("tools:files:read",)), "req_2", "s")
LONG = "Reads a file and tells everything about it that anybody could ever want to know. " * 40
TOOLS: list[dict[str, Any]] = [
    {
        "name": "read",
        "description": LONG,
        "inputSchema": {
            "type": "object",
            "properties": {"path": {"type": "string"}},
            "required": ["path"],
            "examples": [{"path": "a"}],
        },
        "outputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True, "title": "Reads"},
        "_meta": {"secret": 1},
    },
    {"name": "fail", "description": "Always fails."},
]


async def answer(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
    if name == "fail":
        return {"content": [{"type": "text", "text": "no such luck"}], "isError": True}
    return {"content": [{"type": "text", "text": "x" * 5_000}], "structuredContent": {"n": 1}, "_meta": {"k": "v"}}


@pytest.fixture
async def upstream() -> StubUpstream:
    return StubUpstream(TOOLS, answer, name="files")


@pytest.fixture
async def face(upstream: StubUpstream) -> TransparentFace:
    runtime = ProxyRuntime(upstream)
    await runtime.refresh_catalog()
    return TransparentFace(runtime)


def named(face: TransparentFace, part: str) -> str:
    return next(tool.name for tool in face.tools(OWNER) if part in tool.name)


@requirement("FACE-18")
async def test_every_tool_is_an_entry_without_its_schema_beside_the_two_meta_tools(face: TransparentFace) -> None:
    meta, entries = face.tools(OWNER)[:2], face.tools(OWNER)[2:]
    assert [tool.name for tool in meta] == ["tool_hydrate", "tool_execute"]
    assert [tool.name.split("#")[0] for tool in entries] == ["files:fail", "files:read"]
    for entry in entries:
        assert (entry.input_schema, entry.output_schema, entry.hints, entry.title) == (
            {"type": "object"},
            None,
            {},
            None,
        )


@requirement("FACE-18")
async def test_a_long_description_is_cut_as_on_a_card(face: TransparentFace) -> None:
    (entry,) = (tool for tool in face.tools(OWNER) if "read" in tool.name)
    assert entry.description and shipped_token_counter().count(entry.description) <= 60


@requirement("FACE-18")
async def test_a_caller_sees_its_own_tools_and_the_same_list_as_long_as_nothing_changes(face: TransparentFace) -> None:
    shown = face.tools(READER)
    assert [tool.name.split("#")[0] for tool in shown[2:]] == ["files:read"]
    assert face.tools(READER) is shown


@requirement("FACE-19")
async def test_hydrate_gives_the_real_schema(face: TransparentFace) -> None:
    tool_id = named(face, "read")
    body = (await face.call("tool_hydrate", {"tool_id": tool_id}, OWNER)).structured
    assert (body["tool_id"], body["args_schema"]["required"], body["examples"]) == (tool_id, ["path"], [{"path": "a"}])
    assert body["constraints"]["side_effects"] is False


@requirement("FACE-19", "FACE-20")
async def test_execute_gives_the_servers_result_as_it_came_and_checks_first(
    face: TransparentFace, upstream: StubUpstream
) -> None:
    tool_id = named(face, "read")
    refused = await face.call("tool_execute", {"tool_id": tool_id, "args": {}}, OWNER)
    assert (refused.is_error, refused.structured["error"]) == (True, "ARGS_INVALID")
    checked = await face.call("tool_execute", {"tool_id": tool_id, "args": {"path": "a"}, "dry_run": True}, OWNER)
    assert checked.structured["args_valid"] is True
    assert upstream.calls == []
    result = await face.call("tool_execute", {"tool_id": tool_id, "args": {"path": "a"}}, OWNER)
    assert result.as_it_came == await answer("read", {}, OWNER)
    failed = await face.call("tool_execute", {"tool_id": named(face, "fail")}, OWNER)
    assert failed.is_error and failed.as_it_came is not None


@requirement("FACE-21")
async def test_an_entry_cannot_be_called_by_its_own_name(face: TransparentFace, upstream: StubUpstream) -> None:
    refused = await face.call(named(face, "read"), {"path": "a"}, OWNER)
    assert (refused.is_error, refused.structured["error"]) == (True, "ARGS_INVALID")
    assert "tool_execute" in refused.structured["message"]
    for name, context in ((named(face, "fail"), READER), ("files:nope", OWNER), ("ping", OWNER)):
        with pytest.raises(UnknownTool):
            await face.call(name, {}, context)
    assert upstream.calls == []


@requirement("EXEC-11", "FACE-19")
@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("tool_hydrate", {"tool_id": "files:nope#00000000"}, "HYDRATE_FAILED"),
        ("tool_hydrate", {}, "ARGS_INVALID"),
        ("tool_hydrate", {"tool_id": 5}, "ARGS_INVALID"),
        ("tool_execute", {"tool_id": "files:nope#00000000"}, "HYDRATE_FAILED"),
        ("tool_execute", {"tool_id": "x", "dry_run": "false"}, "ARGS_INVALID"),
        ("tool_execute", [], "ARGS_INVALID"),
        ("tool_execute", {"tool_id": "x", "more": 1}, "ARGS_INVALID"),
    ],
)
async def test_bad_arguments_are_answers_in_the_one_shape(
    face: TransparentFace, name: str, arguments: object, error: str
) -> None:
    result = await face.call(name, arguments, OWNER)
    assert (result.is_error, result.structured["error"]) == (True, error)
    assert set(result.structured) >= {"error", "message", "path", "retryable"}


@requirement("FACE-35")
async def test_no_tool_is_unknown_before_the_servers_have_started() -> None:
    runtime = ProxyRuntime(StubUpstream([]))
    result = await TransparentFace(runtime, started=lambda: False).call("tool_execute", {"tool_id": "a:b@1"}, OWNER)
    assert result.structured["error"] == "UPSTREAM_UNAVAILABLE"


@requirement("FACE-19", "ROUTE-49")
async def test_hydrate_gives_the_rest_of_the_definition_but_no_picture_written_out() -> None:
    rest = {
        "title": "Read",
        "annotations": {"readOnlyHint": False, "destructiveHint": False},
        "_meta": {"theirs": 1},
        "com.example/odd": 1,
    }
    icons = [{"src": "https://example.com/a.png"}, {"src": "data:image/png;base64,AAAA"}]
    tool = {"name": "read", "description": "Reads.", "inputSchema": {"type": "object"}, **rest, "icons": icons}
    plain = {"name": "plain", "inputSchema": {"type": "object"}, "_meta": {"wicketgate/source": "ours"}}
    runtime = ProxyRuntime(StubUpstream([tool, plain], answer, name="files"))
    await runtime.refresh_catalog()
    face = TransparentFace(runtime)
    body = (await face.call("tool_hydrate", {"tool_id": named(face, "read")}, OWNER)).structured
    assert body["definition"] == {**rest, "icons": icons[:1]}
    assert "definition" not in (await face.call("tool_hydrate", {"tool_id": named(face, "plain")}, OWNER)).structured
    spec = (await RegistryFace(Operations(runtime)).call("schema", {"name": "/files/read"}, OWNER)).structured
    assert spec["definition"] == body["definition"]
