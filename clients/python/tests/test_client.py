"""Run by ``make sdk``, which starts the gate, and a proxy that cuts each stream after its first event."""

import asyncio
import json
import os
import uuid

import httpx
import pytest
from wicketgate_client import (
    Chat,
    ChatFailed,
    Client,
    ConnectionLost,
    Done,
    Event,
    Refused,
    TextDelta,
    ToolCall,
    ToolResult,
)

QUESTION = "What time is it in Tokyo?"
URL, CUT_URL = os.environ["WG_URL"], os.environ["CUT_URL"]
KEY, OWNER, ASKER, LEAD = (os.environ[name] for name in ("WG_KEY", "OWNER_KEY", "ASKER_KEY", "LEAD_KEY"))

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def running_calls() -> int:
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {KEY}"}) as http:
        answer = await http.post(f"{URL}/operations/call", json={"operation": "/slow/count_running"})
        return int(answer.json()["result"])


async def until_calls(running: bool) -> None:
    for _ in range(600):
        if (await running_calls() > 0) is running:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("never")


async def test_a_chat_is_streamed_as_typed_events_and_kept_as_a_history() -> None:
    async with Client(URL, KEY) as gate, gate.chat(QUESTION) as chat:
        events: list[Event] = [event async for event in chat]
        assert {type(event) for event in events} == {TextDelta, ToolCall, ToolResult, Done}
        assert chat.done is events[-1] and chat.done.finish_reason == "stop"
        assert chat.text == "".join(event.content for event in events if isinstance(event, TextDelta))
        assert [message["role"] for message in chat.messages][:3] == ["user", "assistant", "tool"]
        async with gate.chat([*chat.messages, {"role": "user", "content": QUESTION}]) as second:
            async for _ in second:
                pass
        assert second.done is not None and len(second.messages) > len(chat.messages) + 1


async def test_a_stream_that_is_cut_is_resumed_and_runs_each_call_once() -> None:
    key = uuid.uuid4().hex
    async with Client(CUT_URL, KEY) as gate, gate.chat(QUESTION, idempotency_key=key) as chat:
        events = [event async for event in chat]
    calls = [event.id for event in events if isinstance(event, ToolCall)]
    assert chat.done is not None and len(calls) == len(set(calls)) >= 2
    async with Client(URL, KEY) as gate, gate.chat(QUESTION, idempotency_key=key) as again:
        assert [event async for event in again] == events
    async with (
        Client(URL, KEY) as gate,
        gate.chat(QUESTION, idempotency_key=key, last_event_id=chat.last_event_id) as end,
    ):
        assert [event async for event in end] == [chat.done]


async def test_a_stream_that_is_cut_without_a_key_is_not_repeated() -> None:
    async with Client(CUT_URL, KEY) as gate, gate.chat(QUESTION) as chat:
        with pytest.raises(ConnectionLost):
            _ = [event async for event in chat]


async def test_the_owner_approves_a_call_and_the_history_has_its_result() -> None:
    async with Client(URL, OWNER) as gate:
        async with gate.chat(QUESTION) as chat:
            _ = [event async for event in chat]
        assert chat.done is not None and chat.done.finish_reason == "approval_required"
        [(approval, call)] = chat.waiting.items()
        assert call.name == "tool_execute"
        async with gate.chat(chat.messages, approvals={approval: "approve"}) as second:
            events = [event async for event in second]
    assert [type(event) for event in events[:2]] == [ToolCall, ToolResult]
    [answer] = [message for message in second.messages if message.get("tool_call_id") == call.id]
    assert json.loads(answer["content"])["status"] == "ok"
    assert second.done is not None and second.done.finish_reason == "stop" and "Tokyo" in second.text


def test_lines_below_the_id_of_an_approval_are_no_part_of_it() -> None:
    chat = Client(URL, KEY).chat(QUESTION)
    call = ToolCall("c1", "tool_execute", {})
    chat._calls["c1"] = call
    chat._result(ToolResult("c1", None, "approval_required apr_1\nIt sends to eve@evil.example."))
    assert chat.waiting == {"apr_1": call}
    chat._result(ToolResult("c1", None, "approval_required apr_2 by role:lead\nIt sends to eve@evil.example."))
    assert chat.waiting == {"apr_1": call}


async def test_an_approver_decides_on_the_call_of_another() -> None:
    async with Client(URL, ASKER) as asker, Client(URL, LEAD) as lead:
        async with asker.chat(QUESTION) as chat:
            _ = [event async for event in chat]
        assert chat.done is not None and chat.done.finish_reason == "approval_required" and chat.waiting == {}
        [call] = [each for each in await lead.approvals() if each["may_decide"]]
        assert await lead.decide(call["id"], "deny")
        async with asker.chat(chat.messages) as second:
            results = [event async for event in second if isinstance(event, ToolResult)]
        assert results[0].error is not None and results[0].error.startswith("denied")
        with pytest.raises(Refused) as found:
            await lead.decide(call["id"], "deny")
    assert (found.value.status, found.value.code) == (404, "not_found")


async def until_it_rests(chat: Chat) -> None:
    async for event in chat:
        if isinstance(event, ToolCall) and event.arguments.get("args") == {}:
            await until_calls(True)
            return


async def test_leaving_a_chat_cancels_its_tools() -> None:
    async with Client(URL, KEY) as gate:
        async with gate.chat("Rest, please") as chat:
            await until_it_rests(chat)
        await until_calls(False)
        assert chat.done is None


async def test_a_keyed_run_without_a_reader_ends_as_cancelled() -> None:
    key = uuid.uuid4().hex
    async with Client(URL, KEY) as gate:
        async with gate.chat("Rest, please", idempotency_key=key) as chat:
            await until_it_rests(chat)
        await until_calls(False)
        async with gate.chat("Rest, please", idempotency_key=key) as again:
            _ = [event async for event in again]
    assert again.done is not None and again.done.finish_reason == "cancelled"


async def test_refusals_and_failures_are_errors() -> None:
    async with Client(URL, "wg_unknown") as gate, gate.chat(QUESTION) as chat:
        with pytest.raises(Refused) as found:
            _ = [event async for event in chat]
        assert (found.value.status, found.value.code) == (401, "unauthorized")
    wrong = [{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]}]
    async with Client(URL, KEY) as gate, gate.chat(wrong) as chat:
        with pytest.raises(Refused) as found:
            _ = [event async for event in chat]
        assert (found.value.status, found.value.code) == (400, "invalid_request")
    async with Client(URL, KEY) as gate, gate.chat("time " * 150_000) as chat:
        with pytest.raises(ChatFailed) as failed:
            _ = [event async for event in chat]
        assert failed.value.code == "context_overflow"


async def test_a_gate_that_is_down_is_a_lost_connection() -> None:
    async with Client("http://127.0.0.1:9", KEY) as gate:
        with pytest.raises(ConnectionLost):
            await gate.approvals()
        async with gate.chat(QUESTION, retries=1) as chat:
            with pytest.raises(ConnectionLost):
                _ = [event async for event in chat]
