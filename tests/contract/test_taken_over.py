"""Runs that a process has left in the file, as a service goes on with them (CHAT-123 to CHAT-127)."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.contract.test_coming_back import ids, post, reading
from tests.contract.test_keyed_restarts import stored
from tests.contract.test_tool_calls import execute
from tests.support.requirement import requirement
from tests.support.script import ScriptModel, calls, says
from tests.support.service import BOUND_S, FileServer, chat_body, frames, running_service
from tests.support.until import until
from wicketgate.access.identity import Identity
from wicketgate.engine.checkpoint import Recorder, RunState
from wicketgate.engine.contract import ChatRequest, OnDisconnect, call_context
from wicketgate.engine.events import Event, ToolCallEvent, ToolOutput, encode
from wicketgate.engine.keyed_runs import _digest, _name
from wicketgate.models.provider import TextDelta, Usage
from wicketgate.storage.process import Process
from wicketgate.storage.runs import Batch, HeldRun, JournalBounds, SharedRuns
from wicketgate.storage.sqlite import SqliteStore

OWNER = Identity("owner_1", ("memory:*", "tools:*"), "test")
SAID: Sequence[Event] = [TextDelta("I look."), ToolCallEvent("c1", "tool_execute", {}), ToolOutput("c1", "found")]
USED: Sequence[Any] = [
    {"role": "user", "content": "hello"},
    {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "tool_execute", "arguments": "{}"}}],
    },
    {"role": "tool", "content": "found", "tool_call_id": "c1"},
]


@pytest.fixture(autouse=True)
def short_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process is gone after a second without a beat, and not after six."""
    defaults = Process.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "mark_s", 1.0)
    monkeypatch.setitem(defaults, "beat_s", 0.2)


class Left:
    """A process that was killed, and the runs that it left."""

    def __init__(self, folder: Path) -> None:
        self.store = SqliteStore(folder / "a.db")
        self._runs = SharedRuns(self.store, "killed", JournalBounds())

    async def run(
        self,
        key: str,
        identity: Identity = OWNER,
        on_disconnect: OnDisconnect = "continue",
        used: bool = False,
        more: Sequence[Event] = (),
    ) -> None:
        """A run under *key*: begun, or in its second turn where it has *used* a tool and then shown *more*."""
        request = ChatRequest.model_validate(chat_body("hello"))
        recorder = Recorder(1_000_000)
        name = _name(identity, key)
        part = recorder.first(request, call_context(request, identity, "10.0.0.1"), on_disconnect)
        run = await self._runs.claim(name, f"id{key}", _digest(request, identity), identity.actor, part)
        assert isinstance(run, HeldRun)
        if used:
            state = recorder.next(RunState(USED, ["c1"], Usage(100, 10), turns=1))
            await self._runs.write(run, Batch([encode(event) for event in SAID], part=state))
            await self._runs.write(run, Batch([encode(event) for event in more]))


async def read(service: Any, key: str, **headers: str) -> str:
    answer = await service.http.post(
        "/engine/chat", json=chat_body("hello"), headers={"Idempotency-Key": key, **headers}
    )
    assert answer.status_code == 200
    return str(answer.text)


@requirement("CHAT-123", "CHAT-125", "CHAT-127")
async def test_a_service_goes_on_with_the_runs_that_were_left_in_its_file(tmp_path: Path) -> None:
    left = Left(tmp_path)
    await left.run("used", used=True)
    await left.run("said", used=True, more=[TextDelta("and")])
    await left.run("gone", Identity("owner_1", OWNER.permissions, "revoked"))
    await left.store.aclose()
    model, files = (
        ScriptModel(calls(execute("c1", "read_file", {"path": "a"})), says("ok", usage=Usage(1, 2))),
        FileServer(),
    )
    async with running_service(model, [files], settings=stored(tmp_path)) as service, asyncio.timeout(BOUND_S):
        used = frames(await read(service, "used", **{"Last-Event-ID": "idused-2"}))
        said, gone = frames(await read(service, "said")), frames(await read(service, "gone"))
    # Behind what was shown: its result, then a call under an id of its own, the answer, and the sum of all usage.
    assert [event for event, _ in used] == ["tool-result", "tool-call", "tool-result", "text-delta", "done"]
    assert used[1][1]["id"] == "c1_2"
    assert used[-1][1]["usage"]["prompt_tokens"] == 101
    assert [dict(message) for message in model.requests[0].messages] == list(USED)
    assert len(files.calls) == 1
    # Words were shown: it ends. The key is not good any more: it is cancelled, and asks no model.
    assert [event for event, _ in said] == ["text-delta", "tool-call", "tool-result", "text-delta", "error"]
    assert gone == [("done", {"finish_reason": "cancelled", "usage": {"prompt_tokens": 0, "completion_tokens": 0}})]
    assert len(model.requests) == 2


@requirement("CHAT-127")
async def test_a_run_whose_key_may_less_than_it_could_is_cancelled(tmp_path: Path) -> None:
    left = Left(tmp_path)
    permissions = ("tools:files:read_file",)
    await left.run("k", Identity("reader", (*permissions, "tools:files:write_file"), "reader"), used=True)
    await left.store.aclose()
    model = ScriptModel()
    async with running_service(model, settings=stored(tmp_path)), asyncio.timeout(BOUND_S):
        store = SqliteStore(tmp_path / "a.db")
        runs, name = SharedRuns(store, "looks", JournalBounds()), _name(Identity("reader"), "k")
        await until(lambda: runs.find(name), lambda found: found and found.ended)
        (end,) = await runs.read(name, 3)
        await store.aclose()
    assert b"cancelled" in end.event
    assert b'"prompt_tokens":100' in end.event
    assert model.requests == []


@requirement("CHAT-75", "CHAT-127")
async def test_a_run_that_nobody_comes_back_to_is_cancelled_and_asks_no_model(tmp_path: Path) -> None:
    left = Left(tmp_path)
    await left.run("k", on_disconnect="cancel", used=True)
    await left.store.aclose()
    model = ScriptModel()
    settings = {**stored(tmp_path), "engine": {"resume": {"grace_s": 0.05, "keep_s": 0.05}}}
    async with running_service(model, settings=settings) as service, asyncio.timeout(BOUND_S):
        store = SqliteStore(tmp_path / "a.db")
        runs = SharedRuns(store, "looks", JournalBounds())
        await until(lambda: runs.find(_name(OWNER, "k")), lambda found: found and found.ended)
        await store.aclose()
        # Its key is kept for longer than that of others: nothing runs again.
        text = await read(service, "k")
    assert [event for event, _ in frames(text)] == ["text-delta", "tool-call", "tool-result", "done"]
    assert frames(text)[-1][1]["finish_reason"] == "cancelled"
    assert ids(text)[0] == "idk-1"
    assert model.requests == []


@requirement("CHAT-128")
async def test_a_client_that_leaves_another_process_ends_the_run_where_it_is(tmp_path: Path) -> None:
    model = ScriptModel([[TextDelta("one")], asyncio.Event()])
    settings = {**stored(tmp_path), "engine": {"resume": {"grace_s": 0.05}}}
    async with running_service(model, settings=settings) as here, running_service(settings=settings) as there:
        async with reading(here, b"one"):
            elsewhere = reading(there, b"one")
            await elsewhere.__aenter__()
        assert not model.aborted.is_set()
        await elsewhere.__aexit__(None, None, None)
        async with asyncio.timeout(BOUND_S):
            await model.aborted.wait()
        ended = await post(there)
    assert [data["finish_reason"] for event, data in frames(ended.text) if event == "done"] == ["cancelled"]
