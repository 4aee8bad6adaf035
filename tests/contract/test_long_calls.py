"""Calls that take longer than clients wait, by the official client of either era, over HTTP and without."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp import Client
from mcp import types as t
from mcp.shared.exceptions import MCPDeprecationWarning

from app.commands.gate_client import open_gate
from tests.contract.replicas import Gates
from tests.support.mcp_client import ERAS, NEW, OLD, mcp_client
from tests.support.requirement import requirement
from tests.support.service import BOUND_S, KEY, OTHER_KEY, running_service
from wicketgate.access.identity import LOCAL
from wicketgate.access.seal import Seal
from wicketgate.config.settings import Settings
from wicketgate.errors import InputRequired
from wicketgate.faces.assembly import Face
from wicketgate.faces.gateway import GatewayFace
from wicketgate.faces.mcp.server import McpDoor
from wicketgate.gateway.options import RuntimeOptions
from wicketgate.gateway.running_calls import RunningLimits
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.ports import CallContext
from wicketgate.upstreams.embedded import StubUpstream

pytestmark = pytest.mark.filterwarnings(f"ignore::{MCPDeprecationWarning.__module__}.{MCPDeprecationWarning.__name__}")

AFTER_S = 0.01
"""Calls of these tests outlive it, since they wait for an event."""
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
QUESTION = {"mode": "form", "message": "Your name?", "requestedSchema": NAME}


class Job:
    """A server with one tool, which ends when it is told to, and may ask a person then."""

    def __init__(self, *, asks: bool = False) -> None:
        self.asks = asks
        self.begun, self.end, self.cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def upstream(self) -> StubUpstream:
        return StubUpstream([{"name": "index", "inputSchema": {"type": "object"}}], self.run, name="files")

    async def run(self, name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        self.begun.set()
        try:
            await self.end.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        who = await self._who(context) if self.asks else "nobody"
        return {"content": [{"type": "text", "text": f"indexed for {who}"}]}

    async def _who(self, context: CallContext) -> str:
        if context.caller.answers == "now":
            answer = await context.caller.ask("elicitation/create", QUESTION)
            return str(answer["content"]["name"])
        if context.answers is None:
            raise InputRequired({"who": {"method": "elicitation/create", "params": QUESTION}}, "s1")
        return f"{context.answers.responses['who']['content']['name']} {context.answers.request_state}"


async def body(call: Any) -> dict[str, Any]:
    result: t.CallToolResult = await call
    assert isinstance(result.structured_content, dict)
    return result.structured_content


async def execute(client: Client) -> dict[str, Any]:
    return await body(client.call_tool("tool_execute", {"tool_id": "files:index", "args": {}}))


async def view(client: Client, handle: str, **selector: Any) -> dict[str, Any]:
    arguments = {"handle": handle, "selector": selector or {"type": "wait", "timeout_s": 0}}
    return await body(client.call_tool("tool_view", arguments))


async def result_of(client: Client, handle: str) -> dict[str, Any]:
    async with asyncio.timeout(BOUND_S):
        while (answer := await view(client, handle, type="wait"))["status"] == "running":
            pass
    return answer


SETTINGS = {"tasks": {"after_s": AFTER_S}}


@ERAS
@requirement("FACE-68", "FACE-69", "FACE-70", "FACE-108", "EXEC-47", "OPS-147")
async def test_a_result_is_given_to_a_later_session_of_the_same_actor_and_to_no_other(gates: Gates, mode: str) -> None:
    job = Job()
    async with gates([job.upstream()], **SETTINGS) as (here, there):
        async with mcp_client(here, mode) as client:
            running = await execute(client)
            handle = running["handle"]
            assert (running["status"], running["next"]) == ("running", {"type": "wait", "timeout_s": AFTER_S})
            assert (await view(client, handle))["status"] == "running"
            second = (await execute(client))["handle"]
        async with mcp_client(there, mode, OTHER_KEY) as other:
            assert (await view(other, handle))["error"] == "VIEW_FAILED"
        async with mcp_client(there, mode) as client:
            assert (await view(client, handle))["status"] == "running"
            assert (await view(client, handle[:-1] + ("0" if handle[-1] != "0" else "1")))["error"] == "VIEW_FAILED"
            assert not job.cancelled.is_set()
            metrics = await here.metrics()
            assert 'wicketgate_active{kind="running"} 2.0' in metrics
            assert 'wicketgate_refused_total{kind="running",scope="all"} 0.0' in metrics
            assert (await view(client, second, type="cancel"))["summary"].startswith("The call was cancelled.")
            async with asyncio.timeout(BOUND_S):
                await job.cancelled.wait()
            job.end.set()
            assert (await result_of(client, handle))["summary"] == "indexed for nobody"


async def answer_ada(context: Any, params: Any) -> t.ElicitResult:
    assert params.message == "`files` asks: Your name?"
    return t.ElicitResult(action="accept", content={"name": "Ada"})


@requirement("FACE-71", "FACE-108")
async def test_a_question_reaches_the_client_that_waits_for_the_call(gates: Gates) -> None:
    job, asked = Job(asks=True), {"elicitation_callback": answer_ada}
    async with (
        gates([job.upstream()], **SETTINGS) as (here, there),
        mcp_client(here, OLD, client=asked) as first,
        mcp_client(there, OLD, client=asked) as second,
    ):
        handle = (await execute(first))["handle"]
        job.end.set()
        assert (await result_of(second, handle))["summary"] == "indexed for Ada"


@requirement("FACE-71")
async def test_a_client_of_the_newer_era_is_asked_by_the_answer_to_its_view() -> None:
    job = Job(asks=True)
    async with (
        running_service(upstreams=[job.upstream()], settings=SETTINGS) as service,
        mcp_client(service, NEW, client={"elicitation_callback": answer_ada}) as client,
    ):
        handle = (await execute(client))["handle"]
        job.end.set()
        assert (await result_of(client, handle))["summary"] == "indexed for Ada s1"


@asynccontextmanager
async def local_client(job: Job, mode: str) -> AsyncIterator[Client]:
    """A client of a door without HTTP, as over stdio."""
    runtime = ProxyRuntime(job.upstream(), RuntimeOptions(running=RunningLimits(after_s=AFTER_S)))
    await runtime.refresh_catalog()
    seal = Seal((), b"k" * 32, lambda: 0.0, lambda: "n")
    face = Face(GatewayFace(runtime), "", runtime.running, runtime.may_still_use)
    door = McpDoor(face, name="gateway", version="0", seal=seal, local=LOCAL)
    async with Client(door.sdk.server, mode=mode) as client:
        yield client
    await runtime.aclose()


@ERAS
@requirement("FACE-68", "FACE-69")
async def test_a_client_without_http_gets_a_handle_too(mode: str) -> None:
    job = Job()
    async with local_client(job, mode) as client:
        handle = (await execute(client))["handle"]
        job.end.set()
        assert (await result_of(client, handle))["summary"] == "indexed for nobody"


@requirement("OPS-148")
async def test_a_command_in_a_terminal_waits_for_the_call() -> None:
    job = Job()
    async with (
        running_service(upstreams=[job.upstream()], settings=SETTINGS) as service,
        open_gate(Settings(), LOCAL, service.url, KEY) as gate,
    ):
        answer = asyncio.ensure_future(gate.call("tool_execute", {"tool_id": "files:index", "args": {}}))
        running = service.app.state.gate.runtime.running
        async with asyncio.timeout(BOUND_S):
            while not running.held:
                await asyncio.sleep(0)
            job.end.set()
            assert (await answer).structured["summary"] == "indexed for nobody"
