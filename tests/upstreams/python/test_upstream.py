"""Functions of a package as tools: what they are shown as, what reaches them, and what they cannot break (UP-34 to
UP-36)."""

import asyncio
import base64
import json
import sys
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jsonschema
import pytest

from tests.support import python_tools
from tests.support.requirement import requirement
from tests.support.until import until
from wicketgate.access.identity import Identity
from wicketgate.errors import ArgsInvalid, HydrateFailed, UpstreamError, UpstreamTimeout, UpstreamUnavailable
from wicketgate.fleet.member import Member
from wicketgate.gateway.archive import Execution
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.ports import SILENT, CallContext, Caller, SilentCaller
from wicketgate.tools import ToolContext, ToolRegistry
from wicketgate.upstreams.python.results import to_mcp_result
from wicketgate.upstreams.python.tool import UnusableFunction, read_function
from wicketgate.upstreams.python.upstream import PythonUpstream

BOUND_S = 30.0
TARGET = "tests.support.python_tools:registry"


def context(caller: Caller = SILENT) -> CallContext:
    return CallContext(Identity("owner_1", ("*",)), "trace-1", "s", caller)


@asynccontextmanager
async def loaded(
    target: str | ToolRegistry = TARGET, threads: int = 2, folder: str = "."
) -> AsyncIterator[PythonUpstream]:
    upstream = PythonUpstream("local", target, threads=threads, folder=folder)
    changed = asyncio.Event()
    supervisor = asyncio.create_task(upstream.supervise(lambda name: changed.set()))
    try:
        await until(lambda: not (not changed.is_set() and upstream.status.phase != "down"))
        yield upstream
    finally:
        supervisor.cancel()
        await asyncio.gather(supervisor, return_exceptions=True)


async def call(upstream: PythonUpstream, name: str, caller: Caller = SILENT, /, **arguments: Any) -> Any:
    async with asyncio.timeout(BOUND_S):
        return await upstream.call_tool(name, arguments, context(caller), BOUND_S)


async def definition(upstream: PythonUpstream, name: str) -> Mapping[str, Any]:
    (found,) = (tool for tool in await upstream.list_tools() if tool["name"] == name)
    return found


@requirement("UP-34")
async def test_a_schema_comes_from_the_hints_and_the_words_from_the_docstring() -> None:
    async with loaded() as upstream:
        due, place = await definition(upstream, "due"), await definition(upstream, "place")
    assert due["description"] == "The day when a bill is due.\n\nWeekends count."
    assert due["annotations"] == {"readOnlyHint": True}
    schema = due["inputSchema"]
    assert (schema["required"], schema["additionalProperties"]) == (["start"], False)
    assert schema["properties"]["start"] == {
        "type": "string",
        "format": "date",
        "description": "The day of the bill, as it is printed.",
    }
    assert schema["properties"]["days"] == {
        "type": "integer",
        "minimum": 0,
        "default": 14,
        "description": "How many days later",
    }
    assert schema["properties"]["size"]["default"] == "small"
    assert schema["properties"]["note"]["default"] is None
    assert place["_meta"] == {"version": "2"}
    assert list(place["inputSchema"]["properties"]) == ["order"], "the context is not an argument"
    assert place["inputSchema"]["properties"]["order"]["description"] == "What is ordered, and by whom."
    for tool in (due, place):
        jsonschema.Draft202012Validator.check_schema(tool["inputSchema"])
        jsonschema.Draft202012Validator.check_schema(tool["outputSchema"])


@requirement("EXEC-22", "FACE-27", "UP-34")
async def test_arguments_arrive_in_their_types_and_results_as_their_schema_says() -> None:
    async with loaded() as upstream:
        due = await call(upstream, "due", start="2026-02-20", size="large")
        assert due["structuredContent"] == {"due": "2026-03-06", "size": "large", "note": None}
        order = {"customer": "ada", "lines": [{"article": "a"}, {"article": "b", "pieces": 2}]}
        placed = await call(upstream, "place", order=order)
        assert placed["structuredContent"]["lines"] == [{"article": "a", "pieces": 1}, {"article": "b", "pieces": 2}]
        counted = await call(upstream, "count", text="four")
        assert counted == {"content": [{"type": "text", "text": "4"}], "structuredContent": {"result": 4}}
        for name, result in (("due", due), ("place", placed), ("count", counted)):
            jsonschema.validate(result["structuredContent"], (await definition(upstream, name))["outputSchema"])


@requirement("EXEC-22")
async def test_text_and_media_become_content_and_a_whole_result_stays_as_it_is() -> None:
    async with loaded() as upstream:
        picture = await call(upstream, "picture")
        assert "outputSchema" not in await definition(upstream, "picture")
        assert (await call(upstream, "raw")) == {"content": [{"type": "text", "text": "as it is"}], "isError": True}
    assert picture["content"] == [
        {"type": "text", "text": "A dot."},
        {"type": "image", "data": base64.b64encode(b"\x89PNG").decode(), "mimeType": "image/png"},
        {
            "type": "resource",
            "resource": {
                "uri": "file:///all.zip",
                "mimeType": "application/zip",
                "blob": base64.b64encode(b"\0\1").decode(),
            },
        },
    ]


@pytest.mark.parametrize("kind", python_tools.UNSPEAKABLE)
@pytest.mark.parametrize("name", ["unspeakable", "unspeakable_on_the_loop"])
async def test_a_whole_result_that_json_cannot_hold_is_an_error_of_the_upstream(name: str, kind: str) -> None:
    async with loaded() as upstream:
        with pytest.raises(UpstreamError) as refused:
            await call(upstream, name, kind=kind)
        assert refused.value.message == "local: the tool returned a result that JSON cannot hold."
        assert (await call(upstream, "count", text="four"))["structuredContent"] == {"result": 4}


async def test_a_whole_result_is_given_on_as_plain_json() -> None:
    given = MappingProxyType({"content": deque([{"type": "text", "text": "a"}]), "structuredContent": {"x": (1, None)}})
    made = to_mcp_result(given)
    assert made == {"content": [{"type": "text", "text": "a"}], "structuredContent": {"x": [1, None]}}
    assert json.loads(json.dumps(made)) == made


async def test_what_fits_the_schema_but_not_the_type_is_refused_with_every_error() -> None:
    async with loaded() as upstream:
        with pytest.raises(ArgsInvalid) as refused:
            await call(upstream, "due", start="yesterday", days=-1, more=1)
    assert refused.value.details is not None
    assert [error["path"] for error in refused.value.details["errors"]] == ["$.start", "$.days", "$.more"]
    assert "yesterday" not in str(refused.value.as_dict())


@requirement("UP-34")
async def test_a_failure_that_was_meant_is_reported_and_others_are_only_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with loaded() as upstream:
        refused = await call(upstream, "refuse", copy="secret copy")
        assert refused == {"content": [{"type": "text", "text": "There is no secret copy."}], "isError": True}
        for name, arguments in (
            ("share", {"total": 1}),
            ("leave", {}),
            ("leave", {"hard": True}),
            ("leave_the_thread", {}),
        ):
            broken = await call(upstream, name, **arguments)
            assert broken["isError"] is True
            assert "division" not in str(broken)
            assert "correlation id trace-1" in broken["content"][0]["text"]
        assert (await call(upstream, "count", text="still here"))["structuredContent"] == {"result": 10}
    assert "division by zero" in caplog.text
    assert "the tool share failed (correlation id trace-1)" in caplog.text


@requirement("UP-34")
async def test_progress_and_logs_reach_the_caller_in_order_before_the_result() -> None:
    heard: list[Any] = []

    class Listening(SilentCaller):
        async def progress(self, progress: float, total: float | None, message: str | None) -> None:
            heard.append((progress, total, message))

        async def log(self, level: str, data: object, logger: str | None) -> None:
            heard.append((level, data))

    async with loaded() as upstream:
        await call(
            upstream, "place", Listening(), order={"customer": "ada", "lines": [{"article": "a"}, {"article": "b"}]}
        )
    assert heard == [(1, 2, "a"), (2, 2, "b"), ("info", {"by": "owner_1", "when": "2026-01-02"})]


async def test_a_call_that_was_given_up_is_ended_on_the_loop() -> None:
    python_tools.cancelled.clear()
    async with loaded() as upstream:
        with pytest.raises(UpstreamTimeout):
            await Member(upstream).call_tool("hang", {}, context(), 0.01)
        async with asyncio.timeout(BOUND_S):
            await python_tools.cancelled.wait()


@requirement("UP-35")
async def test_a_thread_that_was_given_up_keeps_its_place_and_is_counted_until_it_ends() -> None:
    python_tools.release.clear()
    python_tools.entered.clear()
    try:
        async with loaded(threads=1) as upstream:
            held = asyncio.create_task(upstream.call_tool("hold", {}, context(), BOUND_S))
            assert await asyncio.to_thread(python_tools.entered.wait, BOUND_S)
            held.cancel()
            await asyncio.gather(held, return_exceptions=True)
            assert upstream.status.error == "1 of 1 threads still run cancelled calls"
            with pytest.raises(UpstreamUnavailable):
                await call(upstream, "count", text="no room")
            assert (await call(upstream, "leave"))["isError"], "async functions need no thread"
            python_tools.release.set()
            await until(lambda: not upstream.status.error)
            assert (await call(upstream, "count", text="room"))["structuredContent"] == {"result": 4}
    finally:
        python_tools.release.set()


@requirement("UP-35")
async def test_calls_beyond_the_threads_wait_for_their_turn() -> None:
    async with loaded(threads=2) as upstream:
        answers = await asyncio.gather(*(call(upstream, "count", text="x" * n) for n in range(20)))
    assert [answer["structuredContent"]["result"] for answer in answers] == list(range(20))


@requirement("CARD-18", "UP-30")
async def test_an_async_generator_is_a_subscription_and_never_a_tool() -> None:
    async with loaded() as upstream:
        assert (await definition(upstream, "ticks"))["_meta"] == {"wicketgate/operation": "subscription"}
        with pytest.raises(UpstreamError):
            await call(upstream, "ticks")
        runtime = ProxyRuntime(upstream)
        await runtime.refresh_catalog()
        (held,) = runtime.catalog().subscriptions
        with pytest.raises(HydrateFailed):
            await runtime.execute(held, {}, context())
        (count,) = (item.id for item in runtime.catalog().items.values() if item.name == "count")
        answer = await runtime.execute(count, {"text": "abc"}, context())
    assert isinstance(answer, Execution)
    assert answer.envelope.summary == "3"


PLAIN = """
from os.path import join

def add(a: int, b: int) -> int:
    "Adds."
    return a + b

def twice(text: str) -> str:
    return text * 2

def _own() -> None: ...

both = [twice, add]
number = 3
"""


@requirement("UP-284")
@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("plain_functions:add", ["add"]),
        ("plain_functions:both", ["twice", "add"]),
        ("plain_functions", ["add", "twice"]),
    ],
)
async def test_plain_functions_are_tools(source: str, names: list[str], tmp_path: Path) -> None:
    (tmp_path / "plain_functions.py").write_text(PLAIN)
    try:
        async with loaded(source, folder=str(tmp_path)) as upstream:
            assert [tool["name"] for tool in await upstream.list_tools()] == names
            if "add" in names:
                assert (await call(upstream, "add", a=1, b=2))["structuredContent"] == {"result": 3}
    finally:
        sys.modules.pop("plain_functions", None)


@requirement("UP-284")
async def test_a_registry_that_the_program_has_needs_no_place() -> None:
    async with loaded(ToolRegistry.of(lambda_free)) as upstream:
        assert (await definition(upstream, "lambda_free"))["description"] == "Says so."


def lambda_free() -> str:
    """Says so."""
    return "so"


@requirement("UP-36")
@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("no_such_package.tools:registry", "the module no_such_package.tools cannot be imported (ModuleNotFoundError)"),
        (
            "tests.support.python_leaves:registry",
            "the module tests.support.python_leaves cannot be imported (SystemExit)",
        ),
        ("tests.support.python_tools:missing", "the module tests.support.python_tools has no missing"),
        (
            "tests.support.python_tools:not_a_registry",
            "tests.support.python_tools:not_a_registry is neither a ToolRegistry nor functions",
        ),
    ],
)
async def test_a_module_that_cannot_be_used_is_down_with_the_reason(target: str, reason: str) -> None:
    async with loaded(target) as upstream:
        assert (upstream.status.phase, upstream.status.error) == ("down", reason)
        with pytest.raises(UpstreamUnavailable):
            await upstream.list_tools()


@requirement("UP-36")
def test_a_function_that_cannot_be_described_is_refused_by_its_name() -> None:
    registry = ToolRegistry()

    @registry.tool
    def many(*numbers: int) -> int:
        return sum(numbers)

    @registry.tool
    def strange(thing: "NoSuchType") -> None:  # type: ignore[name-defined]  # noqa: F821
        return

    for tool in registry:
        with pytest.raises(UnusableFunction, match=tool.name):
            read_function(tool)
    with pytest.raises(ValueError, match="two tools"):
        registry.tool(many)
    with pytest.raises(ValueError, match="needs a name"):
        registry.tool(lambda: 1)


def test_a_context_can_be_made_for_a_test_of_ones_own() -> None:
    silent = ToolContext(actor="me")
    silent.progress(1)
    silent.log("info", "x")
    assert not silent.cancelled
