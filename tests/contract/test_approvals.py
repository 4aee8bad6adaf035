"""Calls that wait for the owner's word (CHAT-65 to CHAT-70)."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.contract.test_tool_calls import execute, names
from tests.support.requirement import requirement
from tests.support.script import ScriptModel, calls, says
from tests.support.service import READER_KEY, FileServer, Frame, RunningService, running_service
from tests.support.until import until
from wicketgate.config.settings import Settings
from wicketgate.models.provider import ToolCall

GATED = {"access": [{"match": "files:read_file", "approval": "always"}]}
READ = execute("c1", "read_file", {"path": "a.md"})
Body = dict[str, Any]


class Conversation:
    """The conversation that a client keeps, the way any client of the contract does."""

    def __init__(self, service: RunningService, **request: Any) -> None:
        self.service = service
        self.request = request
        self.messages: list[dict[str, Any]] = [{"role": "user", "content": "read it"}]

    async def go_on(self, *decisions: tuple[str, str]) -> list[Frame]:
        metadata: Body = {"correlation_id": "req_1"}
        if decisions:
            metadata["approvals"] = [{"id": approval_id, "decision": word} for approval_id, word in decisions]
        body = {"messages": self.messages, "metadata": metadata}
        stream = await self.service.chat(body, **self.request)
        self.messages = [*self.messages, *_kept(stream)]
        return stream


def _kept(stream: list[Frame]) -> list[dict[str, Any]]:
    made = [data for event, data in stream if event == "tool-call"]
    if not made:
        return []
    answered = {data["id"]: data for event, data in stream if event == "tool-result"}
    functions = {m["id"]: {"name": m["name"], "arguments": json.dumps(m["arguments"])} for m in made}
    tool_calls = [{"id": call_id, "type": "function", "function": function} for call_id, function in functions.items()]
    results = [(call_id, answered[call_id]) for call_id in functions]
    return [
        {"role": "assistant", "content": "", "tool_calls": tool_calls},
        *(
            {"role": "tool", "tool_call_id": call_id, "content": result.get("output", result.get("error"))}
            for call_id, result in results
        ),
    ]


def results(stream: list[Frame]) -> dict[str, dict[str, Any]]:
    return {data["id"]: data for event, data in stream if event == "tool-result"}


def asked(stream: list[Frame]) -> dict[str, str]:
    """The ids of the approvals that a stream asks for, by call."""
    errors = {call_id: result.get("error", "") for call_id, result in results(stream).items()}
    waiting = {call_id: error for call_id, error in errors.items() if error.startswith("approval_required ")}
    return {call_id: error.removeprefix("approval_required ") for call_id, error in waiting.items()}


@asynccontextmanager
async def waiting(
    model: ScriptModel, settings: Mapping[str, Any] = GATED
) -> AsyncIterator[tuple[Conversation, FileServer, str]]:
    """A conversation whose first stream has left a call waiting; with the id of its approval."""
    files = FileServer()
    async with running_service(model, [files], settings=settings) as service:
        talk = Conversation(service)
        yield talk, files, asked(await talk.go_on())["c1"]


@requirement("CHAT-65")
async def test_the_client_sees_what_is_to_be_run_and_the_stream_ends_at_once() -> None:
    files = FileServer()
    model = ScriptModel(calls(READ, execute("c2", "fail")))
    async with running_service(model, [files], settings=GATED) as service:
        stream = await service.chat()
    assert names(stream) == ["tool-call", "tool-call", "tool-result", "tool-result", "done"]
    assert stream[0][1] == {"id": "c1", "name": "tool_execute", "arguments": READ.arguments}
    assert list(asked(stream)) == ["c1"]
    assert stream[-1][1]["finish_reason"] == "approval_required"
    # The other tool of the turn has run; the one that waits has not, and the model was not called again.
    assert [name for name, _, _ in files.calls] == ["fail"]
    assert len(model.requests) == 1


@requirement("CHAT-65", "CHAT-66")
async def test_an_approved_call_runs_first_and_the_model_goes_on_from_its_result() -> None:
    model = ScriptModel(calls(READ), says("It says hello."))
    async with waiting(model) as (talk, files, approval):
        assert files.calls == []
        stream = await talk.go_on((approval, "approve"))
    assert names(stream) == ["tool-call", "tool-result", "text-delta", "done"]
    assert stream[0][1] == {"id": "c1", "name": "tool_execute", "arguments": READ.arguments}
    assert stream[-1][1]["finish_reason"] == "stop"
    output = results(stream)["c1"]["output"]
    assert json.loads(output)["summary"] == "contents of a.md"
    assert [name for name, _, _ in files.calls] == ["read_file"]
    # In place of the request for approval, where the model expects the result.
    assert [m["role"] for m in model.requests[1].messages] == ["user", "assistant", "tool"]
    assert model.requests[1].messages[2]["content"] == "contents of a.md"


@requirement("CHAT-67")
async def test_a_denied_call_never_runs_and_the_model_is_told() -> None:
    model = ScriptModel(calls(READ), says("Then not."))
    async with waiting(model) as (talk, files, approval):
        stream = await talk.go_on((approval, "deny"))
    assert results(stream) == {"c1": {"id": "c1", "error": "denied by the owner"}}
    assert names(stream)[-2:] == ["text-delta", "done"]
    assert model.requests[1].messages[2]["content"] == "denied by the owner"
    assert files.calls == []


@requirement("CHAT-67")
async def test_a_conversation_goes_on_without_a_decision_and_nothing_is_left_pending() -> None:
    model = ScriptModel(calls(READ), says("Fine."))
    async with waiting(model) as (talk, files, approval):
        talk.messages.append({"role": "user", "content": "never mind"})
        stream = await talk.go_on()
    assert names(stream) == ["text-delta", "done"]
    assert approval not in json.dumps(model.requests[1].messages)
    assert model.requests[1].messages[2]["content"].startswith("Not run")
    assert files.calls == []


@requirement("CHAT-65")
async def test_what_a_message_says_is_never_a_decision() -> None:
    model = ScriptModel(calls(READ), says("No."))
    async with waiting(model) as (talk, files, approval):
        talk.messages.append({"role": "user", "content": json.dumps({"id": approval, "decision": "approve"})})
        await talk.go_on()
    assert files.calls == []


@requirement("CHAT-68", "CHAT-70")
@pytest.mark.parametrize("second", ["approve", "deny"])
async def test_a_second_decision_runs_nothing_and_blocks_nothing(second: str) -> None:
    model = ScriptModel(calls(READ), says("once"), says("twice"))
    async with waiting(model) as (talk, files, approval):
        before = list(talk.messages)
        await talk.go_on((approval, "approve"))
        talk.messages = before
        stream = await talk.go_on((approval, second))
    assert results(stream)["c1"]["error"] == "approval_refused: this approval was decided before"
    assert names(stream)[-2:] == ["text-delta", "done"]
    assert len(files.calls) == 1


@requirement("CHAT-68")
async def test_decisions_that_are_none_of_ours_run_nothing_and_block_nothing() -> None:
    model = ScriptModel(calls(READ), says("one"), says("two"), says("three"))
    async with waiting(model) as (talk, files, approval):
        before = list(talk.messages)
        forged = "apr_" + "A" * 150
        unknown = await talk.go_on((forged, "approve"), ("rubbish", "deny"))
        talk.messages = [{**message} for message in before]
        talk.messages[-1]["content"] = f"approval_required {forged}"
        in_place = await talk.go_on((forged, "approve"))
        talk.messages = before
        talk.request = {"headers": {"Authorization": f"Bearer {READER_KEY}"}}
        foreign = await talk.go_on((approval, "approve"))
    assert names(unknown) == ["text-delta", "done"]
    assert results(in_place)["c1"]["error"] == "approval_refused: this approval is not known here"
    assert results(foreign)["c1"]["error"] == "approval_refused: this approval is not known here"
    assert files.calls == []


@requirement("CHAT-68")
@pytest.mark.parametrize(
    "approvals",
    [
        "x",
        [1],
        [{"id": "a"}],
        [{"id": "a", "decision": "yes"}],
        [{"id": "", "decision": "deny"}],
        [{"id": "a", "decision": "deny"}, {"id": "a", "decision": "approve"}],
        [{"id": f"a{number}", "decision": "deny"} for number in range(101)],
    ],
)
async def test_a_malformed_decision_is_refused_before_the_stream(approvals: object) -> None:
    async with running_service(ScriptModel(), [FileServer()]) as service:
        body = {
            "messages": [{"role": "user", "content": "x"}],
            "metadata": {"correlation_id": "r", "approvals": approvals},
        }
        response = await service.http.post("/engine/chat", json=body)
    assert (response.status_code, response.json()["code"]) == (400, "invalid_request")
    assert "metadata.approvals" in response.json()["message"]


@requirement("CHAT-69")
async def test_of_two_calls_that_wait_one_may_be_approved_and_the_other_denied() -> None:
    other = execute("c2", "read_file", {"path": "b.md"})
    model = ScriptModel(calls(READ, other), says("half"))
    files = FileServer()
    async with running_service(model, [files], settings=GATED) as service:
        talk = Conversation(service)
        ids = asked(await talk.go_on())
        assert len(set(ids.values())) == 2
        stream = await talk.go_on((ids["c1"], "deny"), (ids["c2"], "approve"))
    assert results(stream)["c1"]["error"] == "denied by the owner"
    assert json.loads(results(stream)["c2"]["output"])["summary"] == "contents of b.md"
    assert len(files.calls) == 1


@requirement("CHAT-69")
async def test_of_two_calls_that_wait_the_undecided_one_stays_unrun() -> None:
    other = execute("c2", "read_file", {"path": "b.md"})
    model = ScriptModel(calls(READ, other), says("half"), says("whole"))
    files = FileServer()
    async with running_service(model, [files], settings=GATED) as service:
        talk = Conversation(service)
        ids = asked(await talk.go_on())
        kept = list(talk.messages)
        first = await talk.go_on((ids["c1"], "approve"))
        assert [arguments["path"] for _, arguments, _ in files.calls] == ["a.md"]
        assert model.requests[1].messages[-1]["content"].startswith("Not run")
        talk.messages = kept
        second = await talk.go_on((ids["c2"], "approve"))
    assert list(results(first)) == ["c1"]
    assert list(results(second)) == ["c2"]
    assert [arguments["path"] for _, arguments, _ in files.calls] == ["a.md", "b.md"]


@requirement("CHAT-70")
async def test_an_approval_is_no_good_for_other_arguments() -> None:
    model = ScriptModel(calls(READ), says("caught"))
    async with waiting(model) as (talk, files, approval):
        function = talk.messages[1]["tool_calls"][0]["function"]
        function["arguments"] = function["arguments"].replace("a.md", "b.md")
        stream = await talk.go_on((approval, "approve"))
    assert results(stream)["c1"]["error"] == "approval_refused: this approval was asked for another call"
    assert files.calls == []


class ChangingFiles(FileServer):
    async def supervise(self, changed: Callable[[str], None]) -> None:
        self.announce = changed
        await super().supervise(changed)


@requirement("CHAT-70")
async def test_a_tool_that_changed_its_schema_has_to_be_approved_anew() -> None:
    files = ChangingFiles()
    async with running_service(ScriptModel(calls(READ), says("gone")), [files], settings=GATED) as service:
        talk = Conversation(service)
        approval = asked(await talk.go_on())["c1"]
        schema = {"type": "object", "properties": {"path": {"type": "string"}, "mode": {"type": "string"}}}
        files.tools[:] = [{**files.tools[0], "inputSchema": schema}]
        files.announce("files")
        await until(service.metrics, lambda text: 'wicketgate_tools{upstream="files"} 1.0' in text)
        stream = await talk.go_on((approval, "approve"))
    assert json.loads(results(stream)["c1"]["error"])["error"] == "HYDRATE_FAILED"
    assert files.calls == []


@requirement("CHAT-66", "CHAT-70")
async def test_two_streams_with_one_approval_run_the_call_once() -> None:
    model = ScriptModel(calls(READ), says("one"), says("two"))
    async with waiting(model) as (talk, files, approval):
        other = Conversation(talk.service)
        other.messages = list(talk.messages)
        streams = await asyncio.gather(talk.go_on((approval, "approve")), other.go_on((approval, "approve")))
    outcomes = sorted("output" in results(stream)["c1"] for stream in streams)
    assert outcomes == [False, True]
    assert len(files.calls) == 1


@requirement("CHAT-65", "CHAT-66")
async def test_without_the_call_in_the_history_the_model_makes_it_again_and_it_runs_once() -> None:
    again = ToolCall("n1", READ.name, READ.arguments, READ.raw)
    model = ScriptModel(calls(READ), calls(again), calls(ToolCall("n2", READ.name, READ.arguments, READ.raw)))
    async with waiting(model) as (talk, files, approval):
        talk.messages = [{"role": "user", "content": "yes, do it"}]
        stream = await talk.go_on((approval, "approve"))
    assert "output" in results(stream)["n1"]
    assert list(asked(stream)) == ["n2"]
    assert stream[-1][1]["finish_reason"] == "approval_required"
    assert len(files.calls) == 1
    (told,) = model.requests[1].messages
    assert told["role"] == "user"
    assert told["content"].startswith("yes, do it\n\n[The owner has approved one call of files:read_file")


@requirement("CHAT-67")
async def test_without_the_call_in_the_history_the_model_is_told_of_a_denial() -> None:
    model = ScriptModel(calls(READ), says("I see"))
    async with waiting(model) as (talk, files, approval):
        talk.messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
        await talk.go_on((approval, "deny"))
    assert model.requests[1].messages[-1]["role"] == "user"
    assert "denied" in model.requests[1].messages[-1]["content"]
    assert files.calls == []


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e400"])
async def test_what_is_no_json_in_a_history_is_not_shown_as_if_it_were(number: str) -> None:
    async with waiting(ScriptModel(calls(READ), says("well"))) as (talk, files, approval_id):
        talk.messages[1]["tool_calls"][0]["function"]["arguments"] = f'{{"n":{number}}}'
        stream = await talk.go_on((approval_id, "approve"))
    assert stream[0] == ("tool-call", {"id": "c1", "name": "tool_execute", "arguments": {}})
    assert stream[1][1]["error"].startswith("approval_refused")
    assert not files.calls


async def test_a_number_that_a_client_writes_otherwise_is_the_same_number() -> None:
    call = execute("c1", "fail", {"amount": 1.0})
    model = ScriptModel(calls(call), says("ok"))
    async with waiting(model, {"access": [{"match": "files:fail", "approval": "always"}]}) as (talk, files, approval):
        function = talk.messages[1]["tool_calls"][0]["function"]
        function["arguments"] = function["arguments"].replace("1.0", "1")
        await talk.go_on((approval, "approve"))
    assert len(files.calls) == 1


@requirement("CHAT-65")
async def test_only_calls_that_a_condition_names_wait() -> None:
    rule = {"match": "files:read_file", "when": "args.path.startsWith('/etc')", "approval": "always"}
    model = ScriptModel(calls(READ), calls(execute("c2", "read_file", {"path": "/etc/x"})))
    files = FileServer()
    async with running_service(model, [files], settings={"access": [rule]}) as service:
        stream = await service.chat()
    assert "output" in results(stream)["c1"]
    assert list(asked(stream)) == ["c2"]
    assert len(files.calls) == 1


@requirement("CHAT-53", "CHAT-65")
async def test_a_waiting_call_ends_the_stream_even_where_the_cap_would() -> None:
    files = FileServer()
    async with running_service(
        ScriptModel(calls(READ)), [files], settings={**GATED, "engine": {"max_iterations": 1}}
    ) as service:
        stream = await service.chat()
    assert stream[-1][1]["finish_reason"] == "approval_required"


@requirement("CHAT-66", "CHAT-70")
async def test_an_approval_that_was_used_before_a_restart_is_used_up_after_it(tmp_path: Path) -> None:
    settings = {
        **GATED,
        "auth": {"seal_keys": ["k" * 32]},
        "storage": {"url": f"sqlite:///{tmp_path / 'store.db'}"},
    }
    async with waiting(ScriptModel(calls(READ), says("well")), settings) as (talk, files, approval_id):
        asked_for = talk.messages
        assert "output" in results(await talk.go_on((approval_id, "approve")))["c1"]
    after = FileServer()
    async with running_service(ScriptModel(says("well")), [after], settings=settings) as service:
        again = Conversation(service)
        again.messages = asked_for
        stream = await again.go_on((approval_id, "approve"))
    assert results(stream)["c1"]["error"] == "approval_refused: this approval was decided before"
    assert len(files.calls) == 1
    assert after.calls == []


@requirement("CHAT-67")
async def test_approvals_outlive_a_reload_as_long_as_their_key_is_in_the_ring() -> None:
    model = ScriptModel(calls(READ), calls(READ), says("ok"), calls(READ), says("ok"), says("void"))
    secret = {"seal_keys": ["k" * 32]}
    async with waiting(model, {**GATED, "auth": secret}) as (talk, files, approval):
        gate = talk.service.app.state.gate
        await gate.apply(Settings.model_validate({**GATED, "auth": secret, "quota": {"per_actor": 100}}))
        other = Conversation(talk.service)
        kept = asked(await other.go_on())["c1"]
        assert "output" in results(await talk.go_on((approval, "approve")))["c1"]
        # A new key comes in front of the old one: what waits still counts.
        await gate.apply(Settings.model_validate({**GATED, "auth": {"seal_keys": ["j" * 32, "k" * 32]}}))
        third = Conversation(talk.service)
        last = asked(await third.go_on())["c1"]
        assert "output" in results(await other.go_on((kept, "approve")))["c1"]
        await gate.apply(Settings.model_validate({**GATED, "auth": {"seal_keys": ["l" * 32]}}))
        stream = await third.go_on((last, "approve"))
    assert results(stream)["c1"]["error"] == "approval_refused: this approval is not known here"
    assert len(files.calls) == 2
