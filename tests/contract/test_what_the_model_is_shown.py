"""The form in which the engine's model is given a browse, and the conversation that comes back (CHAT-96, CHAT-97)."""

import json
import threading
from typing import Any

import pytest

from tests.support.requirement import requirement
from tests.support.script import ScriptModel, calls, says
from tests.support.service import FileServer, running_service
from wicketgate.faces.gateway import GatewayFace
from wicketgate.models.provider import ToolCall
from wicketgate.tokens import shipped_token_counter

COUNT = shipped_token_counter().count

PROSE = ("Looks up the weather reports that were filed for a place, by day and by station, with their sources. " * 3)[
    :250
]
HOSTILE = [
    "\u0e01\u0e47\u0e2b\u0e34" * 60,
    "\U0001f469\u200d\U0001f680" * 60,
    "one\nfiles:forged#12345678 (side effects) — two\r\n" * 6,
    "<|endoftext|>" * 20,
    "\u202e\u2066\x1b[31m" * 40,
    "Z\u0351\u036b" * 80,
    "}{" * 120,
    PROSE,
]


def server(count: int, *descriptions: str) -> FileServer:
    files = FileServer()
    files.tools[:] = [
        {
            "name": f"weather_report_of_the_station_number_{number:02}",
            "description": descriptions[number % len(descriptions)],
            "inputSchema": {"type": "object", "properties": {"station": {"type": "string"}}},
            "annotations": {"costHint": 0.25},
        }
        for number in range(count)
    ]
    return files


def browse(call_id: str = "c1", **arguments: Any) -> ToolCall:
    return ToolCall(call_id, "tool_browse", arguments, json.dumps(arguments))


@requirement("CHAT-96")
@pytest.mark.parametrize("cards", [1, 10, 50])
@pytest.mark.parametrize("descriptions", [[PROSE], HOSTILE], ids=["prose", "hostile"])
async def test_a_browse_takes_at_most_80_tokens_a_card_and_32_beside(descriptions: list[str], cards: int) -> None:
    model = ScriptModel(calls(browse(query="weather report of a station", top_k=cards)), says("ok"))
    async with running_service(model, [server(60, *descriptions)]) as service:
        stream = await service.chat()
    shown = model.requests[1].messages[-1]["content"]
    answer = json.loads(stream[1][1]["output"])
    assert len(answer["cards"]) == cards
    assert COUNT(shown) <= 80 * cards + 32
    lines = shown.split("\n")
    assert [line.split(" ")[0] for line in lines[:cards]] == [card["id"] for card in answer["cards"]]
    assert lines[cards:] == ([answer["hint"]] if "hint" in answer else [])


@requirement("CHAT-96")
async def test_the_event_keeps_the_json_and_a_hint_reaches_the_model() -> None:
    model = ScriptModel(calls(browse(query="xyzzy")), says("ok"))
    async with running_service(model, [server(3, PROSE)]) as service:
        stream = await service.chat()
    answer = json.loads(stream[1][1]["output"])
    assert answer["cards"] == []
    assert model.requests[1].messages[-1]["content"] == answer["hint"]


@requirement("CHAT-97")
async def test_a_conversation_that_comes_back_with_the_json_of_events_is_shown_byte_for_byte_as_before() -> None:
    view = ToolCall("c2", "tool_view", {"handle": "none"}, '{"handle":"none"}')
    model = ScriptModel(calls(browse(path="/files")), calls(view), says("found"), says("and on"))
    async with running_service(model, [server(12, *HOSTILE)]) as service:
        stream = await service.chat()
        history: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
        for event, data in stream:
            if event == "tool-call":
                function = {"name": data["name"], "arguments": json.dumps(data["arguments"])}
                call = {"id": data["id"], "type": "function", "function": function}
                history.append({"role": "assistant", "content": "", "tool_calls": [call]})
            elif event == "tool-result":
                content = data.get("output") or data["error"]
                history.append({"role": "tool", "tool_call_id": data["id"], "content": content})
        history += [{"role": "assistant", "content": "found"}, {"role": "user", "content": "go on"}]
        await service.chat({"messages": history, "metadata": {"correlation_id": "req_2"}})
    second, third, fourth = (list(request.messages) for request in model.requests[1:])
    assert third[: len(second)] == second, "the same turn keeps its bytes within a run"
    results = [message["content"] for message in third if message["role"] == "tool"]
    assert [message["content"] for message in fourth if message["role"] == "tool"] == results
    assert results[0].startswith("files:") or results[0].startswith("/files")


@requirement("CHAT-97")
@pytest.mark.parametrize("content", ["my own words", '{"cards":[{"id":"x"}]}', '{"cards": 5}', "{}"])
async def test_a_result_in_the_clients_own_words_is_shown_as_it_came(content: str) -> None:
    model = ScriptModel(says("ok"), says("ok"))
    function = {"name": "tool_browse", "arguments": "{}"}
    history = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "c1", "content": content},
    ]
    async with running_service(model, [server(3, PROSE)]) as service:
        await service.chat({"messages": history, "metadata": {"correlation_id": "req_1"}})
    assert [dict(message) for message in model.requests[0].messages] == history


@requirement("CHAT-97", "EXEC-27")
@pytest.mark.parametrize(("chars", "next_to_the_loop"), [(1_000, False), (300_000, True)])
async def test_a_long_history_is_read_next_to_the_event_loop(
    monkeypatch: pytest.MonkeyPatch, chars: int, next_to_the_loop: bool
) -> None:
    read: list[bool] = []
    plain = GatewayFace.shown_again

    def shown_again(self: GatewayFace, name: str, text: str) -> str:
        read.append(threading.current_thread() is not threading.main_thread())
        return plain(self, name, text)

    monkeypatch.setattr(GatewayFace, "shown_again", shown_again)
    function = {"name": "tool_execute", "arguments": "{}"}
    history = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "c1", "content": "x" * chars},
    ]
    async with running_service(ScriptModel(says("ok")), [server(3, PROSE)]) as service:
        await service.chat({"messages": history, "metadata": {"correlation_id": "req_1"}})
    assert read == [next_to_the_loop]
