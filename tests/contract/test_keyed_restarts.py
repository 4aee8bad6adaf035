"""Runs with a key and a file: what a restart, another process of the host or a locked file leaves of them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.contract.replicas import SEAL
from tests.contract.test_coming_back import CONTINUE, KEYED, ids, post, reading
from tests.contract.test_tool_calls import execute
from tests.support.locked_file import locked
from tests.support.requirement import requirement
from tests.support.script import ScriptModel, calls, says
from tests.support.service import FileServer, chat_body, frames, running_service
from wicketgate.models.provider import TextDelta
from wicketgate.storage.sqlite import SqliteStore
from wicketgate.storage.store import StoreUnavailable


def stored(folder: Path) -> dict[str, Any]:
    return {**SEAL, "storage": {"url": f"sqlite:///{folder}/a.db"}}


def asks(path: str = "a") -> ScriptModel:
    return ScriptModel(calls(execute("c1", "read_file", {"path": path})), says("ok"))


@requirement("CHAT-110")
async def test_a_finished_run_is_read_again_after_a_restart_and_nothing_runs_again(tmp_path: Path) -> None:
    files = FileServer()
    async with running_service(asks(), [files], settings=stored(tmp_path)) as service:
        first = await post(service)
    unused = ScriptModel()
    async with running_service(unused, [files], settings=stored(tmp_path)) as service:
        second = await post(service)
        after = ids(first.text)[0]
        third = await post(service, {**KEYED, "Last-Event-ID": after})
        other = await service.http.post("/engine/chat", json=chat_body("another"), headers=KEYED)
    assert frames(first.text)[-1][0] == "done"
    assert second.content == first.content
    assert first.content.endswith(third.content)
    assert len(ids(third.text)) == len(ids(first.text)) - 1
    assert other.status_code == 400
    assert (len(files.calls), unused.requests) == (1, [])


@requirement("CHAT-110", "CHAT-115")
async def test_a_run_is_followed_live_at_another_process_of_the_host(tmp_path: Path) -> None:
    gate = asyncio.Event()
    model = ScriptModel([[TextDelta("one")], gate, *says("two")])
    settings = {**stored(tmp_path), "engine": {"resume": {"grace_s": 0.05}}}
    async with running_service(model, settings=settings) as here, running_service(settings=settings) as there:
        async with reading(here, b"one") as (read, _):
            following = reading(there, b"one", {**KEYED})
            read_there, rest = await following.__aenter__()
        # The reader here has left: the one elsewhere keeps the run alive.
        first = ids(read.decode())[0]
        resuming = asyncio.create_task(post(there, {**KEYED, "Last-Event-ID": first}))
        gate.set()
        whole = read_there + b"".join([piece async for piece in rest])
        resumed = await resuming
        await following.__aexit__(None, None, None)
        again = await post(here)
    assert whole == again.content
    assert whole.endswith(resumed.content)
    assert frames(whole.decode())[-1][1]["finish_reason"] == "stop"
    assert len(model.requests) == 1


@requirement("CHAT-110")
async def test_the_same_key_at_two_processes_at_once_runs_once(tmp_path: Path) -> None:
    files = FileServer()
    async with (
        running_service(asks(), [files], settings=stored(tmp_path)) as here,
        running_service(asks(), [files], settings=stored(tmp_path)) as there,
    ):
        answers = await asyncio.gather(*(post(service) for service in (here, there) * 4))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    assert len(files.calls) == 1


@requirement("CHAT-110")
async def test_a_run_that_a_stop_cancels_ends_in_the_file_too(tmp_path: Path) -> None:
    settings = stored(tmp_path) | {"server": {"drain_s": 0}}
    model = ScriptModel([[TextDelta("one")], asyncio.Event()])
    async with running_service(model, settings=settings) as service, reading(service, b"one", CONTINUE):
        pass
    async with running_service(ScriptModel(), settings=settings) as service:
        read = frames((await post(service)).text)
    assert read[0] == ("text-delta", {"content": "one"})
    assert read[-1][0] in ("done", "error")
    assert len(read) == 2


@requirement("CHAT-114")
async def test_while_the_file_is_locked_no_run_begins_and_what_runs_waits(tmp_path: Path) -> None:
    gate = asyncio.Event()
    model = ScriptModel([[TextDelta("one")], gate, *says("two")])
    async with running_service(model, settings=stored(tmp_path)) as service:
        async with reading(service, b"one") as (read, rest):
            with locked(tmp_path / "a.db"):
                gate.set()
                refused = await post(service, {"Idempotency-Key": "another"})
            read += b"".join([piece async for piece in rest])
        assert [data.get("content") for _, data in frames(read.decode())] == ["one", "two", None]
        assert (refused.status_code, refused.json()["code"]) == (503, "engine_unavailable")
        assert "Retry-After" in refused.headers
        assert len(model.requests) == 1


@requirement("CHAT-114")
async def test_a_call_waits_for_a_file_that_is_locked_and_is_made_once(tmp_path: Path) -> None:
    gate, files = asyncio.Event(), FileServer()
    asked = calls(execute("c1", "read_file", {"path": "a"}))
    model = ScriptModel([[TextDelta("one")], gate, *asked], says("two"))
    async with running_service(model, [files], settings=stored(tmp_path)) as service, reading(service, b"one") as read:
        with locked(tmp_path / "a.db"):
            gate.set()
            # By then the call was tried to be kept.
            assert (await post(service, {"Idempotency-Key": "another"})).status_code == 503
            assert files.calls == []
        rest = b"".join([piece async for piece in read[1]])
    assert frames(rest.decode())[-1][1]["finish_reason"] == "stop"
    assert len(files.calls) == 1


@requirement("CHAT-111", "CHAT-104")
async def test_a_call_whose_claim_cannot_be_kept_is_not_made_and_the_stream_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, files = asyncio.Event(), FileServer()
    model = ScriptModel([[TextDelta("one")], gate, *calls(execute("c1", "read_file", {"path": "a"}))])
    step = SqliteStore.step

    async def not_durable(store: SqliteStore, ops: Any, *, fence: Any = None, durable: bool = False) -> Any:
        if durable:
            raise StoreUnavailable("no replica has it")
        return await step(store, ops, fence=fence)

    async with running_service(model, [files], settings=stored(tmp_path)) as service, reading(service, b"one") as read:
        # Events can be written, and claims of calls cannot.
        monkeypatch.setattr(SqliteStore, "step", not_durable)
        gate.set()
        rest = b"".join([piece async for piece in read[1]])
    result, end = frames(rest.decode())[-2:]
    assert "cannot be kept at the moment" in result[1]["error"]
    assert (end[0], end[1]["code"]) == ("error", "tool_error")
    assert files.calls == []
