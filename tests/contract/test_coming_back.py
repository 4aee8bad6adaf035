"""One run for one Idempotency-Key, and clients that come back to it (CHAT-73 to CHAT-75)."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from tests.contract.test_before_the_stream import refusal
from tests.contract.test_tool_calls import execute
from tests.support.requirement import requirement
from tests.support.script import ScriptModel, calls, says
from tests.support.service import (
    BOUND_S,
    KEY,
    READER_KEY,
    FileServer,
    RunningService,
    chat_body,
    frames,
    running_service,
)
from tests.support.slow_client import posting as slow_posting
from tests.support.until import until
from wicketgate.access.identity import hash_key
from wicketgate.config import engine
from wicketgate.models.provider import Finish, ModelEvent, ModelRequest, TextDelta

KEYED = {"Idempotency-Key": "order-66"}
CONTINUE = {**KEYED, "X-On-Disconnect": "continue"}
SHORT_GRACE = {"engine": {"resume": {"grace_s": 0.05}}}


def ids(text: str) -> list[str]:
    return [line.removeprefix("id: ") for line in text.split("\n") if line.startswith("id: ")]


async def post(service: RunningService, headers: dict[str, str] = KEYED, **metadata: Any) -> httpx.Response:
    return await service.http.post("/engine/chat", json=chat_body(**metadata), headers=headers)


@asynccontextmanager
async def reading(
    service: RunningService, until: bytes, headers: dict[str, str] = KEYED
) -> AsyncIterator[tuple[bytes, AsyncIterator[bytes]]]:
    """A stream that was read as far as *until*, and the rest of it; hung up at the end."""
    async with service.http.stream("POST", "/engine/chat", json=chat_body(), headers=headers) as response:
        assert response.status_code == 200
        pieces = response.aiter_raw()
        read = b""
        async for piece in pieces:
            read += piece
            if until in read:
                break
        yield read, pieces


@requirement("CHAT-73")
async def test_every_event_of_a_keyed_stream_has_an_id_and_others_have_none() -> None:
    async with running_service(ScriptModel(says("a", "b"), says("a", "b"))) as service:
        plain = await post(service, {})
        keyed = await post(service)
    assert ids(plain.text) == []
    assert len(set(ids(keyed.text))) == 3
    without_ids = "".join(line for line in keyed.text.splitlines(keepends=True) if not line.startswith("id: "))
    assert without_ids == plain.text


@requirement("CHAT-73")
async def test_the_same_request_again_gets_the_same_bytes_and_runs_no_tool_again() -> None:
    files = FileServer()
    model = ScriptModel(calls(execute("c1", "read_file", {"path": "a"})), says("ok"))
    async with running_service(model, [files]) as service:
        first = await post(service)
        second = await post(service)
        other_trace = await post(service, correlation_id="req_2")
    assert first.content == second.content == other_trace.content
    assert other_trace.headers["x-correlation-id"] == "req_2"
    assert (len(files.calls), len(model.requests)) == (1, 2)


@requirement("CHAT-73")
async def test_two_clients_on_one_key_read_the_same_while_the_run_goes_on() -> None:
    gate = asyncio.Event()
    files = FileServer()
    model = ScriptModel(calls(execute("c1", "slow"), text="one"), [[TextDelta("two")], gate, *says("three")])
    async with running_service(model, [files]) as service, reading(service, b"tool-call") as (read, rest):
        other = asyncio.create_task(post(service))
        files.release.set()
        gate.set()
        one = read + b"".join([piece async for piece in rest])
        assert one == (await other).content
    assert [event for event, _ in frames(one.decode())].count("tool-result") == 1
    assert frames(one.decode())[-1][0] == "done"
    assert len(files.calls) == 1


@requirement("CHAT-72", "CHAT-73")
async def test_a_client_that_was_cut_off_goes_on_where_it_was() -> None:
    gate = asyncio.Event()
    model = ScriptModel([[TextDelta("one")], [TextDelta("two")], gate, *says("three")])
    async with running_service(model) as service:
        async with reading(service, b"two") as (read, _):
            pass
        last = ids(read.decode())[-1]
        resuming = asyncio.create_task(post(service, {**KEYED, "Last-Event-ID": last}))
        await asyncio.sleep(0)
        gate.set()
        resumed = (await resuming).content
        whole = (await post(service)).content
    assert read + resumed == whole
    assert [data.get("content") for _, data in frames(resumed.decode())] == ["three", None]
    assert len(model.requests) == 1


async def test_who_asks_for_more_after_the_end_is_told_the_end_again() -> None:
    async with running_service(ScriptModel(says("x"))) as service:
        whole = (await post(service)).text
        again = (await post(service, {**KEYED, "Last-Event-ID": ids(whole)[-1]})).text
    assert again == "id: " + whole.split("id: ")[-1]
    assert [event for event, _ in frames(again)] == ["done"]


@requirement("CHAT-72", "CHAT-75")
async def test_a_keyed_run_that_nobody_comes_back_to_is_cancelled_after_a_while() -> None:
    model = ScriptModel([[TextDelta("one")], asyncio.Event()])
    async with running_service(model, settings=SHORT_GRACE) as service:
        async with reading(service, b"one"):
            pass
        async with asyncio.timeout(BOUND_S):
            await model.aborted.wait()
        end = frames((await post(service)).text)[-1]
    assert end[1]["finish_reason"] == "cancelled"


@requirement("CHAT-75")
async def test_a_run_with_continue_goes_on_without_its_client_and_is_read_later() -> None:
    gate = asyncio.Event()
    model = ScriptModel([[TextDelta("one")], gate, [TextDelta("two")], [Finish("stop", None)]])
    async with running_service(model, settings=SHORT_GRACE) as service:
        async with reading(service, b"one", CONTINUE):
            pass
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.15):  # three times the grace
                await model.aborted.wait()
        gate.set()
        later = frames((await post(service)).text)
    assert [data.get("content") or data["finish_reason"] for _, data in later] == ["one", "two", "stop"]


@requirement("CHAT-75")
async def test_a_detached_run_holds_its_place_and_has_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "DETACHED_S", 0.3)
    model = ScriptModel([[TextDelta("one")], asyncio.Event()], says("other"))
    settings = {"engine": {"max_streams": 1, "on_disconnect": "continue"}}
    async with running_service(model, settings=settings) as service:
        async with reading(service, b"one"):
            pass
        refused = await post(service, {})
        refusal(refused, 503, "engine_unavailable")
        assert refused.headers["retry-after"]
        async with reading(service, b"one"):
            pass  # its own client needs no place of its own
        async with asyncio.timeout(BOUND_S):
            await model.aborted.wait()
            taken = await until(lambda: post(service, {}), lambda answer: answer.status_code != 503)
    assert frames(taken.text)[-1][0] == "done"


@requirement("CHAT-74")
async def test_a_key_belongs_to_one_request_of_one_actor() -> None:
    model = ScriptModel(says("mine"), says("theirs"))
    async with running_service(model) as service:
        mine = await post(service)
        for changed in (
            {**chat_body("other words")},
            chat_body(conversation_id="c9"),
            {"messages": [], "metadata": {"correlation_id": "req_1"}},
        ):
            answer = await service.http.post("/engine/chat", json=changed, headers=KEYED)
            refusal(answer, 400, "invalid_request")
        theirs = await post(service, {**KEYED, "Authorization": f"Bearer {READER_KEY}"})
        spaced = await service.http.post("/engine/chat", content=json.dumps(chat_body(), indent=2), headers=KEYED)
    assert (frames(mine.text)[0][1]["content"], frames(theirs.text)[0][1]["content"]) == ("mine", "theirs")
    assert spaced.text == mine.text


@requirement("CHAT-73")
async def test_another_credential_of_the_actor_reads_no_run_that_had_other_permissions() -> None:
    granted = {"wide": ["tools:*", "memory:*"], "same": ["memory:*", "tools:*"], "narrow": ["tools:files:read_file"]}
    keys = [
        {"id": name, "sha256": hash_key(f"wg_{name}"), "actor": "ann", "permissions": permissions}
        for name, permissions in granted.items()
    ]
    bearer = {name: {**KEYED, "Authorization": f"Bearer wg_{name}"} for name in granted}
    model = ScriptModel(says("what the wide one may see"))
    async with running_service(model, settings={"auth": {"keys": keys}}) as service:
        wide = await post(service, bearer["wide"])
        same = await post(service, bearer["same"])
        for more in ({}, {"Last-Event-ID": ids(wide.text)[0]}):
            refusal(await post(service, {**bearer["narrow"], **more}), 400, "invalid_request")
    assert same.content == wide.content
    assert len(model.requests) == 1


UNUSABLE = [
    {"Idempotency-Key": ""},
    {"Idempotency-Key": "with space"},
    {"Idempotency-Key": "x" * 129},
    {**KEYED, "X-On-Disconnect": "perhaps"},
    {"Last-Event-ID": "abc-1"},
    {"X-On-Disconnect": "continue"},
    {**KEYED, "Last-Event-ID": "abc-1"},
]


@requirement("CHAT-74")
async def test_what_cannot_be_resumed_is_refused_before_anything_runs() -> None:
    model = ScriptModel()
    async with running_service(model) as service:
        for headers in UNUSABLE:
            refusal(await post(service, headers), 400, "invalid_request")
    assert model.requests == []


@requirement("CHAT-74")
async def test_an_id_that_no_event_of_the_run_has_is_refused() -> None:
    async with running_service(ScriptModel(says("x"))) as service:
        run = ids((await post(service)).text)[0].split("-")[0]
        for last in ("nothing", "-1", "abc-1", f"{run}-99", f"{run}--1", f"{run}-x", f"{run}-1x", run):
            refusal(await post(service, {**KEYED, "Last-Event-ID": last}), 400, "invalid_request")


async def test_two_keys_in_one_request_are_none() -> None:
    async with running_service(ScriptModel()) as service:
        answer = await service.http.post(
            "/engine/chat", json=chat_body(), headers=[("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
        )
        refusal(answer, 400, "invalid_request")


@requirement("CHAT-74")
async def test_events_that_are_not_kept_any_more_are_refused_not_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "RUN_BYTES", 100_000)
    model = ScriptModel([*([TextDelta("x" * 10_000)] for _ in range(40)), *says("end")])
    async with running_service(model) as service:
        whole = (await post(service)).text
        assert len(frames(whole)) == 42
        refusal(await post(service), 400, "invalid_request")
        early, late = ids(whole)[1], ids(whole)[-3]
        refusal(await post(service, {**KEYED, "Last-Event-ID": early}), 400, "invalid_request")
        assert len(frames((await post(service, {**KEYED, "Last-Event-ID": late})).text)) == 2
    assert len(model.requests) == 1


@requirement("CHAT-75")
async def test_after_its_time_a_key_is_new_again() -> None:
    model = ScriptModel(says("first"), says("second"))
    async with running_service(model, settings={"engine": {"resume": {"keep_s": 0.05}}}) as service:
        first = await post(service)
        again = await until(lambda: post(service), lambda answer: answer.text != first.text)
        stale = {**KEYED, "Last-Event-ID": ids(first.text)[0]}
        refusal(await post(service, stale), 400, "invalid_request")
    assert frames(again.text)[0][1]["content"] == "second"


async def test_a_run_has_only_so_many_readers() -> None:
    gate = asyncio.Event()
    model = ScriptModel([gate, *says("x")])
    async with running_service(model) as service:
        waiting = [asyncio.create_task(post(service)) for _ in range(9)]
        async with asyncio.timeout(BOUND_S):
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            refusal(done.pop().result(), 429, "rate_limited")
            gate.set()
            answers = await asyncio.gather(*waiting)
    assert sorted(answer.status_code for answer in answers) == [200] * 8 + [429]
    assert len({answer.content for answer in answers if answer.status_code == 200}) == 1


async def test_a_run_that_nobody_came_back_to_ends_no_later_run_of_its_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Lingering(ScriptModel):
        """Takes its time to end when it is told to."""

        async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[ModelEvent], None]:
            self.requests.append(request)
            try:
                yield [TextDelta("x" * 1_000_000)] * 12
                if len(self.requests) == 1:
                    await asyncio.Event().wait()
                yield [Finish("stop", None)]
            finally:
                if len(self.requests) == 1:
                    self.aborted.set()
                    await may_end.wait()

    may_end = asyncio.Event()
    model = Lingering()
    monkeypatch.setattr(engine, "RUN_BYTES", 64_000_000)
    resume = {"grace_s": 0.05, "keep_s": 0.05}
    async with running_service(model, settings={"engine": {"resume": resume}}) as service:
        async with reading(service, b"xxx"):
            pass
        async with asyncio.timeout(BOUND_S):
            await model.aborted.wait()
            async with slow_posting(service.url, chat_body(), {"Authorization": f"Bearer {KEY}", **KEYED}) as late:
                await late.read(b"xxx")
                may_end.set()
                again = await until(lambda: post(service), lambda answer: "cancelled" not in answer.text[-200:])
    assert again.text.count("event: done") == 1
    assert '"stop"' in again.text[-200:]
    assert len(model.requests) == 2
