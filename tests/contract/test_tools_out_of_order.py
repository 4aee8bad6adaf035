"""The end of a stream when no tool can be run at all, and what is no such end (CHAT-104, CHAT-105)."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.contract.test_approvals import GATED, READ, Conversation, asked
from tests.contract.test_audited_service import audited
from tests.contract.test_tool_calls import IDS, execute
from tests.support.mcp_client import call_statelessly
from tests.support.requirement import requirement
from tests.support.script import ScriptModel, calls, says
from tests.support.service import FileServer, Frame, running_service
from wicketgate.errors import UpstreamUnavailable
from wicketgate.models.provider import ToolCall
from wicketgate.ports import CallContext

BROWSE = ToolCall("c2", "tool_browse", {"path": "/files"}, '{"path":"/files"}')
THE_END: Frame = ("error", {"code": "tool_error", "message": "A tool could not be run."})


def break_log(folder: Path) -> None:
    """From now on the audit log cannot be opened."""
    log = folder / "audit.jsonl"
    log.unlink(missing_ok=True)
    log.mkdir()


def assert_one_end(stream: list[Frame]) -> dict[str, dict[str, Any]]:
    """The stream ends with the one error; the results before it, by id."""
    assert [frame for frame in stream if frame[0] in ("done", "error")] == [THE_END]
    assert stream[-1] == THE_END
    made = {data["id"] for event, data in stream if event == "tool-call"}
    results = {data["id"]: data for event, data in stream if event == "tool-result"}
    assert set(results) == made, "a client can send the conversation back"
    return results


@requirement("CHAT-104")
async def test_an_audit_log_that_cannot_be_written_ends_the_stream_and_mcp_goes_on_answering(tmp_path: Path) -> None:
    files = FileServer()
    model = ScriptModel(calls(execute("c1", "read_file", {"path": "x"}), BROWSE), calls(execute("c1", "fail")))
    async with running_service(model, [files], settings=audited(tmp_path)) as service:
        break_log(tmp_path)
        first, second = await service.chat(), await service.chat()
        arguments = {"tool_id": IDS["read_file"], "args": {"path": "x"}}
        over_mcp = (await call_statelessly(service.http, "tool_execute", arguments)).text
    results = assert_one_end(first)
    assert json.loads(results["c1"]["error"])["error"] == "FORBIDDEN"
    assert "output" in results["c2"]
    assert_one_end(second)
    assert '"FORBIDDEN"' in over_mcp
    assert (len(model.requests), files.calls) == (2, []), "the model is not asked again"
    assert str(tmp_path) not in json.dumps([first, second])


class Breaking(FileServer):
    """Its tool runs, and leaves an audit log that cannot be written."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    async def _answer(self, name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        break_log(self._folder)
        return await super()._answer(name, arguments, context)


@requirement("CHAT-104")
async def test_a_call_that_ran_and_could_not_be_recorded_says_so_before_the_end(tmp_path: Path) -> None:
    model = ScriptModel(calls(execute("c1", "read_file", {"path": "x"})))
    async with running_service(model, [Breaking(tmp_path)], settings=audited(tmp_path)) as service:
        results = assert_one_end(await service.chat())
    error = json.loads(results["c1"]["error"])
    assert error["error"] == "UPSTREAM_ERROR"
    assert error["message"].startswith("The call was made, but it could not be recorded")


@requirement("CHAT-104", "ACCESS-18")
@pytest.mark.parametrize("in_history", [True, False])
async def test_approvals_that_cannot_be_kept_end_the_stream(tmp_path: Path, in_history: bool) -> None:
    files = FileServer()
    store = tmp_path / "store.db"
    model = ScriptModel(calls(READ), calls(READ))
    settings = {**GATED, "storage": {"url": f"sqlite:///{store}"}}
    async with running_service(model, [files], settings=settings) as service:
        talk = Conversation(service)
        approval = asked(await talk.go_on())["c1"]
        for file in tmp_path.glob("store.db*"):
            file.unlink()
        store.mkdir()
        if not in_history:
            talk.messages = talk.messages[:1]
        stream = await talk.go_on((approval, "approve"))
    assert [frame for frame in stream if frame[0] in ("done", "error")] == [THE_END]
    assert files.calls == []


class Away(FileServer):
    async def _answer(self, name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        raise UpstreamUnavailable("not there")


@requirement("CHAT-105")
async def test_servers_that_are_all_away_are_tool_results() -> None:
    model = ScriptModel(calls(execute("c1", "read_file", {"path": "x"})), says("it is away"))
    async with running_service(model, [Away()]) as service:
        stream = await service.chat()
    result = json.loads(next(data["error"] for event, data in stream if event == "tool-result"))
    assert (result["error"], result["retryable"]) == ("UPSTREAM_UNAVAILABLE", True)
    assert stream[-1][1]["finish_reason"] == "stop"
