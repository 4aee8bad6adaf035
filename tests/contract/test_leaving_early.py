"""When the client leaves before the end (CHAT-38, CHAT-72). When the server stops: tests/e2e."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence

import pytest

from tests.contract.test_tool_calls import execute
from tests.support.requirement import requirement
from tests.support.script import ScriptModel, calls, says
from tests.support.service import FileServer, chat_body, frames, running_service
from tests.support.until import until
from wicketgate.models.provider import ModelEvent, ModelRequest, TextDelta


@requirement("CHAT-72")
async def test_a_client_that_hangs_up_ends_the_model_call(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="wicketgate")
    model = ScriptModel([[TextDelta("one")], asyncio.Event()])
    async with running_service(model) as service:
        async with service.http.stream("POST", "/engine/chat", json=chat_body()) as response:
            async for chunk in response.aiter_raw():
                assert b"one" in chunk
                break
        await until(model.aborted.is_set)
        await until(lambda: "cancelled" in caplog.messages)


@requirement("CHAT-72")
async def test_a_client_that_hangs_up_ends_the_tools_that_run() -> None:
    files = FileServer()
    async with running_service(ScriptModel(calls(execute("c1", "slow"))), [files]) as service:
        async with service.http.stream("POST", "/engine/chat", json=chat_body()) as response:
            async for chunk in response.aiter_raw():
                if b"tool-call" in chunk:
                    break
        await until(files.slow_cancelled.is_set)


@requirement("CHAT-38")
async def test_two_streams_at_once_never_mix() -> None:
    gate = asyncio.Event()
    model = ScriptModel([[TextDelta("first")], gate, *says()], [[TextDelta("second")], gate, *says()])
    async with running_service(model) as service:
        one = asyncio.create_task(service.http.post("/engine/chat", json=chat_body(correlation_id="one")))
        await until(lambda: len(model.requests) >= 1)
        two = asyncio.create_task(service.http.post("/engine/chat", json=chat_body(correlation_id="two")))
        await until(lambda: len(model.requests) >= 2)
        gate.set()
        answers = await asyncio.gather(one, two)
    assert [frames(answer.text)[0][1]["content"] for answer in answers] == ["first", "second"]
    assert [answer.headers["x-correlation-id"] for answer in answers] == ["one", "two"]


class Flood(ScriptModel):
    """Says something new every time it is asked, at once and without end."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[ModelEvent], None]:
        try:
            while True:
                yield [TextDelta("x" * 1000)]
        finally:
            self.aborted.set()


@requirement("CHAT-72")
async def test_a_model_that_never_pauses_is_ended_too_when_its_client_leaves() -> None:
    model = Flood()
    async with running_service(model, settings={"engine": {"max_streams": 1}}) as service:
        async with service.http.stream("POST", "/engine/chat", json=chat_body()) as response:
            async for _ in response.aiter_raw():
                break
        await until(model.aborted.is_set)
        await until(
            lambda: service.http.post("/engine/chat", json={**chat_body(), "messages": []}),
            lambda answer: answer.status_code != 503,
        )
