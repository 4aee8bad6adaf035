"""Upstreams in /readyz and /metrics, and the answer to a caller of one that fails (UP-19, OPS-12)."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from tests.support.requirement import requirement
from tests.support.script import ScriptModel, calls, says
from tests.support.service import TOOLS, FileServer, RunningService, running_service
from tests.support.until import until
from wicketgate.catalog.tool_id import derive_tool_id
from wicketgate.errors import UpstreamLost, UpstreamUnavailable
from wicketgate.models.provider import ToolCall
from wicketgate.ports import CallContext


class Crashing(FileServer):
    """Every call to ``boom`` ends it, and it answers no ping."""

    async def ping(self, timeout_s: float) -> None:
        raise UpstreamUnavailable("files cannot be reached.")

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], context: CallContext, timeout_s: float
    ) -> Mapping[str, Any]:
        if name == "boom":
            raise UpstreamLost("files was lost while the tool ran.")
        return await super().call_tool(name, arguments, context, timeout_s)


def execute(call_id: str, tool: str, argument: str = "call") -> ToolCall:
    schema = next(known["inputSchema"] for known in TOOLS if known["name"] == tool)
    arguments = {"tool_id": derive_tool_id(tool, schema, None, "files"), "args": {argument: call_id}}
    return ToolCall(call_id, "tool_execute", arguments, json.dumps(arguments))


async def metrics(service: RunningService) -> dict[str, float]:
    text = await service.metrics()
    lines = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in lines}


@requirement("UP-19", "OPS-12")
async def test_one_that_crashes_at_every_call_is_left_alone_and_health_and_metrics_say_so() -> None:
    model = ScriptModel(calls(*(execute(f"c{n}", "boom") for n in range(5))), calls(execute("c9", "boom")), says("ok"))
    async with running_service(model, [Crashing()]) as service:
        stream = await service.chat()
        upstream = (await service.health())["upstreams"]["files"]
        told = await metrics(service)
    results = [json.loads(data["error"]) for event, data in stream if event == "tool-result"]
    assert [result["error"] for result in results] == ["UPSTREAM_ERROR"] * 5 + ["UPSTREAM_UNAVAILABLE"]
    assert results[-1]["retryable"]
    assert 0 < results[-1]["details"]["retry_after_s"] <= 1
    assert upstream["breaker"] == "open"
    assert told['wicketgate_upstream_breaker{upstream="files"}'] == 1
    assert told['wicketgate_upstream_breaker_opened_total{upstream="files"}'] == 1
    assert upstream["held_off"] == told['wicketgate_upstream_actors_held_off{upstream="files"}'] == 1
    assert told['wicketgate_upstream_calls_turned_away_total{upstream="files"}'] == 1


@requirement("OPS-12")
async def test_calls_in_flight_are_shown_and_the_process_is_counted() -> None:
    files = FileServer()
    async with running_service(ScriptModel(calls(execute("c1", "slow")), says("ok")), [files]) as service:
        chat = asyncio.create_task(service.chat())
        await until(lambda: files.slow_running)
        assert (await service.health())["upstreams"]["files"]["in_flight"] == 1
        told = await metrics(service)
        files.release.set()
        await chat
        after = await metrics(service)
    assert told['wicketgate_upstream_calls_in_flight{upstream="files"}'] == 1
    assert after['wicketgate_upstream_calls_in_flight{upstream="files"}'] == 0
    assert told['wicketgate_upstream_calls_queued{upstream="files"}'] == 0
    for name in ("wicketgate_tasks", "wicketgate_threads", "process_open_fds", "process_resident_memory_bytes"):
        assert told[name] > 0
    assert told['wicketgate_active{kind="streams_gateway"}'] == 0


@requirement("OPS-531")
async def test_calls_are_counted_by_upstream_and_outcome_and_how_long_they_took() -> None:
    made = calls(execute("c1", "read_file", "path"), execute("c2", "fail"), execute("c3", "boom"))
    async with running_service(ScriptModel(made, says("ok")), [Crashing()]) as service:
        before = await metrics(service)
        await service.chat()
        told = await metrics(service)
    shown = {name: value for name, value in told.items() if name.startswith("wicketgate_upstream_calls_total")}
    outcomes = ("ok", "error", "asked", "login", "timeout", "lost", "unavailable", "cancelled", "fault")
    series = {each: f'wicketgate_upstream_calls_total{{outcome="{each}",upstream="files"}}' for each in outcomes}
    # Nothing that a caller names makes another one.
    assert shown.keys() == set(series.values())
    assert {name for name in before if name.startswith("wicketgate_upstream_calls_total")} == shown.keys()
    assert {each: shown[name] for each, name in series.items() if shown[name]} == {"ok": 1, "error": 1, "lost": 1}
    assert told['wicketgate_upstream_seconds_count{upstream="files"}'] == 3
    assert told['wicketgate_upstream_seconds_bucket{le="60.0",upstream="files"}'] == 3
