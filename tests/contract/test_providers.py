"""The same service over either provider, over HTTP (CHAT-61)."""

import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support.anthropic_replies import messages_text_turn, messages_tool_turn
from tests.support.model_server import CUT, ModelServer, Reply, chunk, json_reply, text_turn, tool_turn
from tests.support.requirement import requirement
from tests.support.service import TOOLS, FileServer, Frame, RunningService, chat_body, running_service
from wicketgate.catalog.tool_id import derive_tool_id

READ_FILE, FAIL = (derive_tool_id(tool["name"], tool["inputSchema"], None, "files") for tool in TOOLS[:2])

TURNS: Mapping[str, tuple[Callable[..., Reply], Callable[..., Reply]]] = {
    "openai-chat": (tool_turn, text_turn),
    "anthropic-messages": (messages_tool_turn, messages_text_turn),
}


def model(server: ModelServer, provider: str = "openai-chat", **more: Any) -> dict[str, Any]:
    return {"provider": provider, "base_url": server.base_url, "model": "m", "api_key": "key-0123456789", **more}


@asynccontextmanager
async def service_over(server: ModelServer, provider: str = "openai-chat") -> AsyncIterator[RunningService]:
    settings = {"model": model(server, provider)}
    async with running_service(upstreams=[FileServer()], settings=settings, configured_model=True) as service:
        yield service


async def conversation(provider: str) -> tuple[list[Frame], ModelServer]:
    tools, text = TURNS[provider]
    path = {"path": "a.txt"}
    script = [
        tools(("c1", "tool_browse", {"query": "read a file"}), text="Let me see. ", usage=(10, 5)),
        tools(
            ("c2", "tool_execute", {"tool_id": READ_FILE, "args": path}),
            ("c3", "tool_execute", {"tool_id": FAIL, "args": {}}),
            usage=(20, 6),
        ),
        text("It is ", "short.", usage=(30, 7)),
    ]
    async with ModelServer(*script) as server, service_over(server, provider) as service:
        return await service.chat(), server


@requirement("CHAT-34", "CHAT-42", "CHAT-43", "CHAT-61", "CHAT-86", "OPS-14")
async def test_a_conversation_with_tools_is_the_same_over_both_providers() -> None:
    streams = {provider: await conversation(provider) for provider in TURNS}
    (one, asked_one), (other, asked_other) = streams.values()
    assert [event for event in one if event[0] != "tool-result"] == [e for e in other if e[0] != "tool-result"]
    assert sorted(d["id"] for n, d in one if n == "tool-result") == ["c1", "c2", "c3"]
    assert one[-1][1]["finish_reason"] == "stop"
    usage = one[-1][1]["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (60, 18)
    results = [
        {d["id"]: str(d.get("output", d.get("error"))) for n, d in s if n == "tool-result"} for s in (one, other)
    ]
    assert results[0] == results[1]
    assert "contents of a.txt" in results[0]["c2"] and "no such luck" in results[0]["c3"]
    for server in (asked_one, asked_other):
        assert [request.headers["x-correlation-id"] for request in server.requests] == ["req_1"] * 3


@requirement("CHAT-56")
async def test_a_provider_that_is_overloaded_for_a_moment_is_not_noticed() -> None:
    busy = json_reply(503, {"error": {"message": "busy"}}, {"retry-after-ms": "1"})
    async with ModelServer(busy, busy, text_turn("x")) as server, service_over(server) as service:
        assert [name for name, _ in await service.chat()] == ["text-delta", "done"]


@requirement("CHAT-63")
async def test_a_fallback_of_another_kind_answers_when_the_first_model_is_gone() -> None:
    async with ModelServer() as gone:
        address = gone.base_url
    async with ModelServer(messages_text_turn("x")) as server:
        first = {"provider": "openai-chat", "base_url": address, "model": "m"}
        settings = {"model": {**first, "fallbacks": [model(server, "anthropic-messages")]}}
        async with running_service(settings=settings, configured_model=True) as service:
            assert await service.chat() == [
                ("text-delta", {"content": "x"}),
                ("done", {"finish_reason": "stop", "usage": {"prompt_tokens": 10, "completion_tokens": 5}}),
            ]


@requirement("CHAT-36", "CHAT-37", "CHAT-58")
@pytest.mark.parametrize("attempts", [1, 3])
async def test_words_that_went_out_are_never_taken_back(attempts: int) -> None:
    broken = Reply([chunk({"content": "par"}), CUT])
    async with ModelServer(broken, text_turn("never")) as server:
        settings = {"model": model(server, attempts=attempts)}
        async with running_service(settings=settings, configured_model=True) as service:
            assert [(n, d.get("content") or d["code"]) for n, d in await service.chat()] == [
                ("text-delta", "par"),
                ("error", "provider_error"),
            ]
            assert len(server.requests) == 1


@requirement("OPS-12")
async def test_what_the_provider_counted_is_in_the_metrics_by_kind() -> None:
    details = {"prompt_tokens_details": {"cached_tokens": 3}, "completion_tokens_details": {"reasoning_tokens": 2}}
    usage = chunk(usage={"prompt_tokens": 10, "completion_tokens": 5, **details})
    reply = Reply([chunk({"content": "x"}), chunk({}, "stop"), usage, b"data: [DONE]\n\n"])
    async with ModelServer(reply) as server, service_over(server) as service:
        assert (await service.chat())[-1][1]["usage"] == {"prompt_tokens": 10, "completion_tokens": 5}
        metrics = await service.metrics()
    for kind, tokens in {"prompt": 10, "completion": 5, "cache_read": 3, "cache_write": 0, "reasoning": 2}.items():
        assert f'wicketgate_model_tokens_total{{kind="{kind}",model="m"}} {tokens}.0' in metrics


@requirement("OPS-532")
async def test_models_are_counted_by_their_configured_names_and_no_caller_or_server_adds_one() -> None:
    refusals, turns = [json_reply(503, {})] * 3, [text_turn("well")] * 3
    async with ModelServer(*refusals) as busy, ModelServer(*turns) as server:
        other = {**model(server), "model": "other"}
        settings = {"model": {**model(busy, attempts=1), "fallbacks": [other]}}
        async with running_service(settings=settings, configured_model=True) as service:
            await service.chat()
            for path in ("/engine/chat", "/engine/chat?model=invented"):
                response = await service.http.post(path, json={**chat_body(model="invented"), "model": "invented"})
                assert response.status_code == 200
            metrics = await service.metrics()
    lines = metrics.splitlines()
    for line in (
        'wicketgate_model_calls_total{model="m",outcome="unavailable"} 3.0',
        'wicketgate_model_calls_total{model="other",outcome="ok"} 3.0',
        'wicketgate_model_seconds_count{model="m"} 3.0',
        'wicketgate_model_first_token_seconds_count{model="m"} 0.0',
        'wicketgate_model_first_token_seconds_bucket{le="30.0",model="other"} 3.0',
        'wicketgate_model_tokens_total{kind="completion",model="m"} 0.0',
        'wicketgate_model_tokens_total{kind="completion",model="other"} 15.0',
    ):
        assert line in lines
    # The server of these models calls itself "scripted".
    assert set(re.findall(r'model="(.*?)"', metrics)) == {"m", "other"}
