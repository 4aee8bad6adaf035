"""Attacks on requests that are answered past the SDK's server, and on what makes calls cheap."""

import gc
import json
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from middleware.answer import Answer
from routers.json_bodies import SurrogateJson
from tests.contract.test_direct_way import both_ways, told
from tests.support.door import ERAS, META, NEWER, OLDER, WAYS, Door
from tests.support.requirement import requirement
from tests.support.service import running_service
from tests.support.wire_client import messages_in
from wicketgate.faces.mcp import fit
from wicketgate.faces.mcp.direct import refused
from wicketgate.ports import CallContext
from wicketgate.results.bulk import json_bytes
from wicketgate.upstreams.embedded import StubUpstream


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


RESULTS: dict[str, Mapping[str, Any]] = {
    "deep": {"content": [], "structuredContent": {"a": nested(1_500)}},
    "unwritable": {"content": [], "structuredContent": {"a": float("inf"), "b": "\ud800"}},
    "rows": {"content": [], "structuredContent": {"rows": [{"id": n, "é": "\ud83d", "v": [n]} for n in range(80_000)]}},
}


def odd_server() -> StubUpstream:
    """``deep``, ``unwritable`` and ``rows`` give what a Python tool can, and a wire cannot. ``text`` takes a text, says
    its schema."""

    async def answer(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        return RESULTS.get(name, {"content": []})

    tools = [
        {"name": name, "description": "d", "inputSchema": {"type": "string" if name == "text" else "object"}}
        for name in (*RESULTS, "text")
    ]
    return StubUpstream(tools, answer, name="odd")


def refuse_constant(name: str) -> Any:
    raise AssertionError(f"{name} is not JSON")


@requirement("FACE-135")
@ERAS
@WAYS
async def test_a_result_that_is_too_deep_is_answered_as_a_message(era: str, direct: bool) -> None:
    async with running_service(upstreams=[odd_server()], settings={"mcp": {"direct": direct}}) as service:
        answer = await (await Door(service, era).open()).call("odd__deep", id=7)
    (message,) = messages_in(answer)
    assert (answer.status_code, message["id"]) == (200, 7)
    assert "error" in message or message["result"]["isError"]


@requirement("FACE-135")
@ERAS
async def test_arguments_that_are_nested_deeply_are_answered_alike(era: str) -> None:
    async with both_ways() as services:
        doors = [await Door(service, era).open() for service in services]
        for depth in (150, 190, 210, 400, 900):
            answers = [told(await door.call("files__read_file", path=nested(depth))) for door in doors]
            assert answers[0] == answers[1], depth
        wide = [told(await door.call("files__read_file", path=[[]] * 500)) for door in doors]
        assert wide[0] == wide[1]


@requirement("FACE-135")
def test_an_error_whose_data_is_too_deep_is_answered_without_them() -> None:
    message = json.loads(refused(7, -32000, "broken", nested(1_500)).message)
    assert message == {"jsonrpc": "2.0", "id": 7, "error": {"code": -32000, "message": "broken"}}


@requirement("FACE-135")
@ERAS
async def test_an_answer_is_json_whatever_a_tool_gives(era: str) -> None:
    async with running_service(upstreams=[odd_server()], settings={"mcp": {"direct": True}}) as service:
        answer = await (await Door(service, era).open()).call("odd__unwritable")
    json.loads(answer.text, parse_constant=refuse_constant)


@requirement("EXEC-27")
@ERAS
async def test_a_large_result_is_written_beside_the_loop(era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    on_the_loop, beside, loop = [0], [0], threading.get_ident()
    encode = fit._encoded

    def watched(value: object) -> bytes:
        part = encode(value)
        (on_the_loop if threading.get_ident() == loop else beside).append(len(part))
        return part

    monkeypatch.setattr(fit, "_encoded", watched)
    async with running_service(upstreams=[odd_server()], settings={"mcp": {"direct": True}}) as service:
        answer = await (await Door(service, era).open()).call("odd__rows")
    assert answer.json()["result"]["structuredContent"] == RESULTS["rows"]["structuredContent"]
    assert max(on_the_loop) < 100_000
    assert max(beside) > 3_000_000


@requirement("EXEC-27")
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("call", {"operation": "/odd/rows", "input": {}}),
        ("batch", {"calls": [{"operation": "/odd/rows", "input": {}}]}),
    ],
)
async def test_a_large_output_of_an_operation_is_written_beside_the_loop(
    path: str, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_the_loop, beside, loop = [0], [0], threading.get_ident()
    render = SurrogateJson.render

    def watched(self: SurrogateJson, content: object) -> bytes:
        part = render(self, content)
        (on_the_loop if threading.get_ident() == loop else beside).append(len(part))
        return part

    monkeypatch.setattr(SurrogateJson, "render", watched)
    async with running_service(upstreams=[odd_server()]) as service:
        answer = await service.http.post(f"/operations/{path}", json=body)
    output = answer.json() if path == "call" else answer.json()["results"][0]["output"]
    assert output == RESULTS["rows"]["structuredContent"]
    assert max(on_the_loop) < 100_000
    assert max(beside) > 3_000_000


@requirement("EXEC-27")
def test_what_is_kept_of_a_result_is_json() -> None:
    written = json_bytes(RESULTS["unwritable"]["structuredContent"])
    assert written is not None
    json.loads(written.decode("utf-8", "surrogatepass"), parse_constant=refuse_constant)


@requirement("EXEC-61", "EXEC-1")
async def test_arguments_that_are_no_object_are_refused_whatever_the_schema_says() -> None:
    async with running_service(upstreams=[odd_server()]) as service:
        answer = await service.http.post("/operations/call", json={"operation": "/odd/text", "input": "x"})
        assert (answer.status_code, answer.json().get("code")) == (422, "INVALID_INPUT")


@requirement("FACE-135")
async def test_a_call_without_a_name_in_its_head_is_refused_as_the_sdk_does() -> None:
    async with both_ways() as services:
        answers = []
        for service in services:
            params = {"name": "", "arguments": {}, "_meta": META}
            message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
            answers.append(told(await Door(service, NEWER).post(message, **{"Mcp-Method": "tools/call"})))
    assert answers[0] == answers[1]


@requirement("FACE-135")
@WAYS
async def test_an_empty_cursor_means_the_same_before_and_after_a_listing(direct: bool) -> None:
    async with running_service(upstreams=[odd_server()], settings={"mcp": {"direct": direct}}) as service:
        door = await Door(service, OLDER).open()
        before = told(await door.ask("tools/list", {"cursor": ""}))
        await door.ask("tools/list")
        assert told(await door.ask("tools/list", {"cursor": ""})) == before


_NULLS = """
import gc
import json
import sys
from wicketgate.access.conditions import Asked, CannotEvaluate, Condition, join
from wicketgate.access.identity import Identity

sources, given = json.loads(sys.argv[1])
conditions, caller = [Condition(each) for each in sources], Identity("a", ("tools:*",))
together = set(join(dict(enumerate(conditions))).values())

def ask(times):
    for _ in range(times):
        asked = Asked(caller, {"force": given}, claims=False)
        assert not any([each.none_holds(asked) for each in together])
        for condition in conditions:
            try:
                raise AssertionError(condition.holds(asked))
            except CannotEvaluate:
                pass

ask(10)
before = sys.getrefcount(None)
ask(1_000)
assert sys.getrefcount(None) > before - 500, f"{before - sys.getrefcount(None)} references to None are lost"
"""


@requirement("ACCESS-241", "ACCESS-12")
@pytest.mark.parametrize("given", [None, [None], {"a": {"b": None}}, "text"], ids=["null", "list", "map", "text"])
@pytest.mark.parametrize(
    "sources",
    [["args.force"], ["args.force", "args['force'] // as it is"], ["false ? actor == 'x' : args.force"]],
    ids=["alone", "joined", "chosen"],
)
def test_a_condition_that_comes_to_null_leaves_none_alone(sources: list[str], given: Any) -> None:
    """In a process of its own, because a process that has lost all references to None dies."""
    command = [sys.executable, "-c", _NULLS, json.dumps([sources, given])]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=40)
    assert ended.returncode == 0, ended.stderr[-500:]


@ERAS
async def test_a_call_leaves_nothing_to_the_garbage_collector(era: str) -> None:
    def answers() -> int:
        return sum(isinstance(each, Answer) for each in gc.get_objects())

    class Forgetful(StubUpstream):
        async def call_tool(
            self, name: str, arguments: Mapping[str, Any], context: CallContext, timeout_s: float
        ) -> Mapping[str, Any]:
            return {"content": []}

    stub = Forgetful([{"name": "get", "inputSchema": {"type": "object"}}], name="stub")
    async with running_service(upstreams=[stub]) as service:
        door = await Door(service, era).open()
        (first,) = messages_in(await door.call("stub__get"))
        gc.collect()
        gc.disable()
        before = answers()
        try:
            for _ in range(5):
                await door.call("stub__get")
            left = answers() - before
        finally:
            gc.enable()
    assert first["result"]["content"] == []
    assert left == 0
