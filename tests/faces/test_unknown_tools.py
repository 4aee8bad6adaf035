"""A request that names no tool of the caller is in the audit record, at every face (ACCESS-23)."""

from contextlib import suppress
from typing import Any

import pytest

from tests.support.audit_memory import AuditMemory
from tests.support.requirement import requirement
from wicketgate.access.identity import Identity
from wicketgate.faces.namespaced import NamespacedFace
from wicketgate.faces.operations import Operations
from wicketgate.faces.registry import RegistryFace
from wicketgate.faces.surface import Refusal, ToolSurface, UnknownTool
from wicketgate.faces.transparent import TransparentFace
from wicketgate.gateway.audit import Attached, Auditor
from wicketgate.gateway.options import RuntimeOptions
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.ports import CallContext
from wicketgate.upstreams.embedded import StubUpstream

READER = CallContext(Identity("reader_1", ("tools:fs:read",)), "req_1", "s")


@pytest.fixture
def sink() -> AuditMemory:
    return AuditMemory()


@pytest.fixture
async def runtime(sink: AuditMemory) -> ProxyRuntime:
    auditor = Auditor([Attached("memory", sink)], wall_clock=lambda: 0.0)
    upstream = StubUpstream([{"name": "read"}, {"name": "write"}], name="fs")
    runtime = ProxyRuntime(upstream, RuntimeOptions(auditor=auditor))
    await runtime.refresh_catalog()
    return runtime


def face_of(runtime: ProxyRuntime, face: str) -> ToolSurface:
    match face:
        case "registry":
            return RegistryFace(Operations(runtime))
        case "transparent":
            return TransparentFace(runtime)
        case _:
            return NamespacedFace(runtime, dict)


@requirement("FACE-26", "ACCESS-23")
@pytest.mark.parametrize(
    ("face", "tool", "arguments", "outcome"),
    [
        ("registry", "call", {"operation": "no/such"}, "invalid"),
        ("registry", "call", {"operation": "fs/write"}, "denied"),
        ("registry", "call", {}, "invalid"),
        ("registry", "call", {"operation": "fs/read", "args": {}}, "invalid"),
        ("registry", "batch", {"calls": [{"operation": "fs/write"}]}, "denied"),
        ("transparent", "fs:read", {}, "invalid"),
        ("transparent", "fs:write", {}, "denied"),
        ("transparent", "no_such", {}, "invalid"),
        ("namespaced", "echo", {}, "invalid"),
        ("namespaced", "nope__echo", {}, "invalid"),
        ("namespaced", "fs__write", {}, "denied"),
    ],
)
async def test_a_request_for_an_unknown_tool_leaves_one_audit_record(
    runtime: ProxyRuntime, sink: AuditMemory, face: str, tool: str, arguments: dict[str, Any], outcome: str
) -> None:
    ids = {tool_id.partition("#")[0]: tool_id for tool_id in runtime.catalog().items}
    with suppress(Refusal, UnknownTool):
        assert (await face_of(runtime, face).call(ids.get(tool, tool), arguments, READER)).is_error or tool == "batch"
    (record,) = sink.records
    assert (record.outcome, record.code, record.actor) == (outcome, "HYDRATE_FAILED", "reader_1")


async def test_without_audit_the_answer_is_the_same_for_known_and_unknown_tools(
    runtime: ProxyRuntime, sink: AuditMemory
) -> None:
    sink.broken = True
    face = face_of(runtime, "registry")
    results = [await face.call("call", {"operation": name}, READER) for name in ("fs/read", "fs/write", "no/such")]
    assert {result.structured["code"] for result in results} == {"FORBIDDEN"}
    assert len({result.text for result in results}) == 1
