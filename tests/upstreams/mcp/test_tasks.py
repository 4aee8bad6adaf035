"""Calls that a server goes on with as tasks, at the connector: looks, questions, ends of every kind."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.http_service import HttpService, Reply
from tests.support.recording_caller import RecordingCaller
from tests.support.requirement import requirement
from tests.support.scripted_server import HANDSHAKE, Outcome, ScriptedServer, scripted_server
from tests.support.supervised import BOUND_S, connected, context
from tests.support.task_server import (
    CANCELLED,
    EXTENSION,
    FORM,
    ID,
    TASK,
    WORKING,
    ScriptedTasks,
    asking,
    done,
    failed,
    task_server,
)
from wicketgate.errors import InputRequired, UpstreamError, UpstreamLost, UpstreamRefused, UpstreamUnclear
from wicketgate.ports import SILENT, CallContext, Caller, InputAnswers
from wicketgate.upstreams.mcp.call import Malformed
from wicketgate.upstreams.mcp.task_follower import TaskBounds
from wicketgate.upstreams.mcp.tasks import LeftTask, left_task, task_of

CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
ACCEPTED = {"action": "accept", "content": {"name": "Ada"}}
CUT = Reply(b"{", cut=True)
HASTY = TaskBounds(answer_s=30, lost_s=0.2, failures=2, cancel_s=10, ttl_grace_s=0.0)


async def call(
    server: ScriptedServer, caller: Caller = SILENT, answers: InputAnswers | None = None, of: CallContext | None = None
) -> Mapping[str, Any]:
    of = of or context(caller, answers=answers)
    async with connected(server.upstream), asyncio.timeout(BOUND_S):
        outcome = (await asyncio.gather(server.upstream.call_tool("job", {}, of, 10), return_exceptions=True))[0]
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def text_of(result: Mapping[str, Any]) -> str:
    text: str = result["content"][0]["text"]
    return text


@requirement("UP-107", "UP-108")
async def test_a_call_that_becomes_a_task_is_looked_at_until_it_has_its_result() -> None:
    tasks = ScriptedTasks(WORKING, WORKING, done("42", structuredContent={"n": 42}, isError=True))
    async with task_server(tasks) as server:
        result = await call(server)
        looks, calls = server.seen("tasks/get"), server.seen("tools/call")
        cancelled = server.seen("tasks/cancel")
        named = [seen.headers.get("mcp-name") for seen in server.service.seen]
    assert result == {"content": [{"type": "text", "text": "42"}], "structuredContent": {"n": 42}, "isError": True}
    assert [look["params"]["taskId"] for look in looks] == [ID] * 3
    assert (len(calls), cancelled) == (1, [])
    assert named.count(ID) == 3, "a balancer finds the instance that has the task"
    for message in [*looks, *calls]:
        meta = message["params"]["_meta"]
        assert meta[CAPABILITIES]["extensions"] == {EXTENSION: {}}
        assert meta["wicketgate/correlation_id"] == "trace-1"


@requirement("UP-107")
async def test_only_calls_of_callers_declare_tasks() -> None:
    async with task_server(ScriptedTasks(done())) as server:
        async with connected(server.upstream):
            await server.upstream.list_tools()
        await call(server)
        others = [m for m in server.messages if not str(m.get("method")).startswith("tasks/")]
        shown = {m["method"]: m["params"]["_meta"][CAPABILITIES].get("extensions", {}) for m in others}
    assert {method: EXTENSION in extensions for method, extensions in shown.items()} == {
        "server/discover": False,
        "tools/list": False,
        "tools/call": True,
    }


@requirement("UP-107")
@pytest.mark.parametrize("created", [{"status": "working"}, {**WORKING, "status": "odd"}, {**WORKING, "taskId": ""}])
async def test_a_task_without_a_usable_id_or_state_is_no_result(created: dict[str, Any]) -> None:
    async with task_server(ScriptedTasks(done(), created=created)) as server:
        with pytest.raises(UpstreamError, match="not a valid MCP result"):
            await call(server)


@requirement("UP-107")
async def test_a_task_of_a_handshake_server_is_no_result() -> None:
    tasks = ScriptedTasks(done())
    async with scripted_server(tasks.answers, era=HANDSHAKE) as server:
        with pytest.raises(UpstreamError, match="not a valid MCP result"):
            await call(server)
        assert server.seen("tasks/get") == []


@requirement("UP-108")
@pytest.mark.parametrize(
    ("end", "code", "refusal", "data"),
    [
        (failed(-32000, "no paper", {"tray": 2}), -32000, "no paper", {"tray": 2}),
        (CANCELLED, -32800, "out of paper", None),
    ],
    ids=["failed", "cancelled by the server"],
)
async def test_a_task_that_came_to_nothing_is_a_refusal_in_the_servers_words(
    end: dict[str, Any], code: int, refusal: str, data: object
) -> None:
    async with task_server(ScriptedTasks(end)) as server:
        with pytest.raises(UpstreamRefused) as refused:
            await call(server)
        assert server.seen("tasks/cancel") == []
    assert (refused.value.upstream_code, refused.value.refusal, refused.value.data) == (code, refusal, data)


@requirement("UP-108")
@pytest.mark.parametrize("result", [None, "text", {"resultType": "task"}, {"resultType": "input_required"}])
async def test_a_completed_task_without_a_result_is_an_error(result: Any) -> None:
    async with task_server(ScriptedTasks({**done(), "result": result})) as server:
        with pytest.raises(UpstreamError, match="not a valid MCP result"):
            await call(server)


@requirement("UP-109")
async def test_words_of_the_task_reach_the_caller_once_each_as_growing_progress() -> None:
    one, two = {**WORKING, "statusMessage": "one"}, {**WORKING, "statusMessage": "two"}
    caller = RecordingCaller()
    async with task_server(ScriptedTasks(one, one, two, WORKING, two, done(), created=one)) as server:
        of = context(caller)
        of.marks.progress = 50  # the server had said so before there was a task
        await call(server, of=of)
    assert caller.told == [("progress", 51, None, "one"), ("progress", 52, None, "two")]


@requirement("UP-110")
async def test_questions_of_a_task_are_put_once_and_answered_by_an_update() -> None:
    tasks = ScriptedTasks(asking("a", "b"), after=(asking("a", "b"), asking("b", "c"), WORKING, done()))
    caller = RecordingCaller("now", ACCEPTED)
    async with task_server(tasks) as server:
        result = await call(server, caller)
        updates = [message["params"] for message in server.seen("tasks/update")]
    assert text_of(result) == "done"
    assert [update["inputResponses"] for update in updates] == [{"a": ACCEPTED, "b": ACCEPTED}, {"c": ACCEPTED}]
    assert updates[0]["taskId"] == ID
    assert updates[0]["_meta"][CAPABILITIES]["extensions"] == {EXTENSION: {}}
    assert caller.asked == [("elicitation/create", FORM)] * 3


@requirement("UP-110")
async def test_a_question_is_taken_back_when_its_task_ends_first() -> None:
    tasks = ScriptedTasks(asking("a"), asking("a"), asking("a"), done())
    caller = RecordingCaller("now")
    async with task_server(tasks) as server:
        assert text_of(await call(server, caller)) == "done"
    assert caller.given_up.is_set()


@requirement("UP-110")
async def test_a_client_that_answers_later_finds_the_task_again_by_its_state() -> None:
    tasks = ScriptedTasks(asking("a"), after=(asking("b"), done()))
    caller = RecordingCaller("later")
    async with task_server(tasks) as server:
        with pytest.raises(InputRequired) as first:
            await call(server, caller)
        state = first.value.request_state
        assert list(first.value.requests) == ["a"]
        with pytest.raises(InputRequired) as second:
            await call(server, caller, InputAnswers({"a": ACCEPTED}, state))
        assert list(second.value.requests) == ["b"]
        result = await call(server, caller, InputAnswers({"b": ACCEPTED}, second.value.request_state))
        updates = [message["params"]["inputResponses"] for message in server.seen("tasks/update")]
        assert (len(server.seen("tools/call")), server.seen("tasks/cancel")) == (1, [])
    assert text_of(result) == "done"
    assert updates == [{"a": ACCEPTED}, {"b": ACCEPTED}]


@requirement("UP-110")
@pytest.mark.parametrize(
    "state", [asking("a"), asking("a", method="com.example/odd"), asking("a", params={}) | {"inputRequests": {"a": 1}}]
)
async def test_a_task_that_asks_what_nobody_can_answer_is_cancelled(state: dict[str, Any]) -> None:
    tasks = ScriptedTasks(state)
    async with task_server(tasks) as server:
        with pytest.raises(UpstreamError):
            await call(server)
        await tasks.came("tasks/cancel")


@requirement("UP-110")
async def test_an_update_that_is_refused_counts_only_while_the_task_waits_for_it() -> None:
    refused = {"error": {"code": -32602, "message": "no"}}
    over = ScriptedTasks(asking("a"), update=refused, after=(done(),))
    waits = ScriptedTasks(asking("a"), update=refused)
    async with task_server(over) as server:
        assert text_of(await call(server, RecordingCaller("now", ACCEPTED))) == "done"
    async with task_server(waits) as server:
        with pytest.raises(UpstreamRefused):
            await call(server, RecordingCaller("now", ACCEPTED))
        await waits.came("tasks/cancel")


@requirement("UP-111")
async def test_a_caller_that_leaves_has_its_task_cancelled_and_nothing_else() -> None:
    tasks = ScriptedTasks(WORKING)
    async with task_server(tasks) as server, connected(server.upstream):
        calling = asyncio.create_task(server.upstream.call_tool("job", {}, context(), 10))
        await tasks.came("tasks/get")
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
        assert [message["params"]["taskId"] for message in server.seen("tasks/cancel")] == [ID]
        assert server.seen("notifications/cancelled") == []
    assert calling.cancelled()


@requirement("UP-111")
async def test_a_server_that_does_not_answer_a_cancellation_holds_nobody_up() -> None:
    tasks = ScriptedTasks(WORKING)
    tasks.answers["tasks/cancel"] = lambda params: {"error": {"code": -32601, "message": "unknown"}}
    async with task_server(tasks) as server, connected(server.upstream):
        calling = asyncio.create_task(server.upstream.call_tool("job", {}, context(), 10))
        await tasks.came("tasks/get")
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
    assert calling.cancelled()


@requirement("UP-112")
async def test_a_task_outlives_failures_in_between() -> None:
    def broken(params: Mapping[str, Any]) -> Outcome:
        return {"error": {"code": -32603, "message": "later"}}

    tasks = ScriptedTasks(broken, WORKING, broken, broken, done())
    async with task_server(tasks) as server:
        assert text_of(await call(server)) == "done"


@requirement("UP-112")
@pytest.mark.parametrize("refusal", [CUT, Reply(status=429), Reply(status=502)], ids=["cut", "429", "502"])
async def test_a_task_outlives_looks_without_an_answer(refusal: Reply) -> None:
    tasks = ScriptedTasks(WORKING)
    async with task_server(tasks, bounds=TaskBounds(failures=1)) as server, connected(server.upstream):
        calling = asyncio.create_task(server.upstream.call_tool("job", {}, context(), 10))
        await tasks.came("tasks/get")
        server.refusal = refusal
        async with asyncio.timeout(BOUND_S):
            await server.turned_away.wait()
            tasks.now(done("after"))
            server.refusal = None
            assert text_of(await calling) == "after"
        assert len(server.seen("tools/call")) == 1


@requirement("UP-112")
async def test_a_task_outlives_a_connection_that_was_lost() -> None:
    tasks = ScriptedTasks(WORKING)
    async with task_server(tasks) as server, connected(server.upstream) as changes:
        calling = asyncio.create_task(server.upstream.call_tool("job", {}, context(), 10))
        await tasks.came("tasks/get")
        await server.service.__aexit__(None, None, None)
        async with asyncio.timeout(BOUND_S):
            while server.upstream.status.phase != "down":
                await asyncio.sleep(0)
            tasks.now(done("after"))
            port = int(server.service.url.rpartition(":")[2])
            async with HttpService(server.reply, port=port):
                await changes.get()
                assert text_of(await calling) == "after"
        assert server.upstream.status.connections == 2
        assert len(server.seen("tools/call")) == 1


@requirement("UP-112")
async def test_a_server_that_stays_away_while_a_task_runs_leaves_its_effect_unknown() -> None:
    tasks = ScriptedTasks(WORKING)
    async with task_server(tasks, bounds=HASTY) as server, connected(server.upstream):
        calling = asyncio.create_task(server.upstream.call_tool("job", {}, context(), 10))
        await tasks.came("tasks/get")
        server.refusal = CUT
        async with asyncio.timeout(BOUND_S):
            outcome = (await asyncio.gather(calling, return_exceptions=True))[0]
    assert isinstance(outcome, UpstreamLost)


@requirement("UP-113")
@pytest.mark.parametrize("code", [-32602, -32601, -32603])
async def test_a_task_that_the_server_does_not_know_any_more_has_an_unknown_effect(code: int) -> None:
    tasks = ScriptedTasks(lambda params: {"error": {"code": code, "message": "Task not found"}})
    async with task_server(tasks, bounds=HASTY) as server:
        with pytest.raises(UpstreamUnclear):  # the code is about the look, not about the call
            await call(server)


@requirement("UP-113")
async def test_a_task_that_is_older_than_its_server_keeps_it_is_given_up() -> None:
    tasks = ScriptedTasks({**WORKING, "ttlMs": 1})
    async with task_server(tasks, bounds=HASTY) as server:
        with pytest.raises(UpstreamError, match="within the time that it keeps tasks"):
            await call(server)
        await tasks.came("tasks/cancel")


@requirement("UP-113")
@pytest.mark.parametrize(("interval", "poll_s"), [(1, 0.05), (2_000, 2), (10**9, 60), (None, 1), ("5", 1), (True, 1)])
def test_the_interval_of_looks_is_the_servers_within_bounds(interval: Any, poll_s: float) -> None:
    assert task_of({**WORKING, "pollIntervalMs": interval}).poll_s == poll_s


@pytest.mark.parametrize("ttl", [None, 0, -1, "5", False, float("nan")])
def test_a_time_to_live_that_makes_no_sense_is_none(ttl: Any) -> None:
    assert task_of({**WORKING, "ttlMs": ttl}).ttl_s is None


@pytest.mark.parametrize(
    "given", [{}, {**TASK, "status": 1}, {**WORKING, "taskId": "x" * 2_001}, {**WORKING, "resultType": "odd"}]
)
def test_what_is_no_task_is_not_read_as_one(given: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        task_of(given)


@requirement("UP-110")
def test_a_left_task_is_found_again_by_its_state_and_by_no_other() -> None:
    left = LeftTask("é/1", frozenset({"a", "b"}))
    assert left_task(InputAnswers({}, left.state)) == left
    for state in (None, "", "state", "wicketgate-task:", "wicketgate-task:{}", "wicketgate-task:[1]"):
        assert left_task(InputAnswers({}, state)) is None
    assert left_task(None) is None


def test_questions_without_end_are_given_up() -> None:
    with pytest.raises(Malformed):
        LeftTask("1").with_answers(dict.fromkeys(map(str, range(300))))
