"""The share of a window that a conversation may take (CHAT-79 to CHAT-83)."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import pytest

from tests.support.memory import held_blocks
from tests.support.requirement import requirement
from tests.support.service import chat_body
from wicketgate.access.identity import Identity
from wicketgate.context.build import CountedTexts, message_tokens
from wicketgate.engine.contract import ChatRequest
from wicketgate.engine.events import Done
from wicketgate.engine.loop import Engine
from wicketgate.engine.turn import MAX_TEXT_CHARS, ModelWindow, Turn
from wicketgate.errors import ContextOverflow
from wicketgate.faces.surface import SurfaceResult, SurfaceTool
from wicketgate.models.provider import Message, ModelEvent, ModelRequest, ModelTool, TextDelta
from wicketgate.ports import CallContext
from wicketgate.tokens import shipped_token_counter

TOKENS = CountedTexts(shipped_token_counter())
TOOL = ModelTool("look", "Look at it. " * 20, {"type": "object", "properties": {"at": {"type": "string"}}})


def says(words: int) -> list[Message]:
    return [{"role": "user", "content": "word " * words}]


async def fits(window: ModelWindow, words: int, *tools: ModelTool) -> bool:
    try:
        return bool((await window.fit(says(words), tools)).messages)
    except ContextOverflow:
        return False


async def test_the_answer_and_the_tools_have_their_share() -> None:
    window = ModelWindow(2_000, 500, TOKENS)
    assert await fits(window, 1_490)
    assert not await fits(window, 1_500)
    assert await fits(window, 1_300, TOOL)
    assert not await fits(window, 1_490, TOOL)


async def test_the_answer_never_takes_more_than_half_of_what_the_tools_leave() -> None:
    window = ModelWindow(1_000, 4_096, TOKENS)
    assert await fits(window, 490)
    assert not await fits(window, 510)
    assert await fits(window, 400, TOOL)
    assert not await fits(window, 490, TOOL)
    with pytest.raises(ContextOverflow):
        await ModelWindow(50, 4_096, TOKENS).fit(says(1), [TOOL])


def long_arguments() -> list[Message]:
    function = {"name": "write", "arguments": "word " * 300_000}
    calling = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }
    return [*says(1), calling, {"role": "tool", "tool_call_id": "c1", "content": "ok"}]


@pytest.mark.parametrize("messages", [says(300_000), long_arguments(), says(10) * 3_000])
async def test_a_bulky_history_is_counted_beside_the_loop(messages: list[Message]) -> None:
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            beats += 1
            await asyncio.sleep(0)

    async with asyncio.timeout(30):
        beating = asyncio.create_task(beat())
        shown = await ModelWindow(2_000_000, 4_096, TOKENS).fit(messages, ())
        beating.cancel()
    assert shown.tokens == sum(message_tokens(message, TOKENS) for message in messages)
    assert beats > 1


@requirement("CHAT-94")
async def test_a_model_that_writes_without_end_is_stopped() -> None:
    piece = TextDelta("w" * 65_536)
    seen = 0
    closed = asyncio.Event()

    class Endless:
        async def aclose(self) -> None:
            """It holds nothing."""

        async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[ModelEvent], None]:
            nonlocal seen
            try:
                # Twice the bound: then the test fails instead of filling the memory.
                while seen < 2 * MAX_TEXT_CHARS:
                    seen += 16 * len(piece.content)
                    yield [piece] * 16
            finally:
                closed.set()

    engine = Engine(Endless(), NoTools(), ModelWindow(100_000, 1_000, TOKENS))
    events = [event async for event in engine.run(ChatRequest.model_validate(chat_body()), Identity("alice"))]
    assert isinstance(events[-1], Done)
    assert events[-1].finish_reason == "length"
    assert seen <= MAX_TEXT_CHARS + 2 * 16 * len(piece.content)
    assert sum(len(event.content) for event in events if isinstance(event, TextDelta)) == seen
    assert closed.is_set()


@requirement("CHAT-94")
def test_the_text_of_a_turn_is_held_once() -> None:
    turn = Turn(set())
    before = held_blocks()
    for number in range(50_000):
        turn.read([TextDelta(f"word {number} ")])
    assert held_blocks() - before < 5_000
    assert turn.message()["content"] == "".join(f"word {number} " for number in range(50_000))


class NoTools:
    async def prepare(self, context: CallContext) -> None:
        pass

    def tools(self, context: CallContext) -> Sequence[SurfaceTool]:
        return ()

    def may_write(self, name: str, arguments: Mapping[str, Any], context: CallContext) -> bool:
        return True

    def shown_again(self, name: str, text: str) -> str:
        return text

    async def call(self, name: str, args: Any, context: CallContext) -> SurfaceResult:
        raise AssertionError("there is none")
