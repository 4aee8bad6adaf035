"""The share of a window that a conversation may take (CHAT-79 to CHAT-83)."""

import asyncio

import pytest

from wicketgate.context.build import CountedTexts, message_tokens
from wicketgate.engine.turn import ModelWindow
from wicketgate.errors import ContextOverflow
from wicketgate.models.provider import Message, ModelTool
from wicketgate.tokens import load_token_counter

TOKENS = CountedTexts(load_token_counter())
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

    async with asyncio.timeout(10):
        beating = asyncio.create_task(beat())
        shown = await ModelWindow(2_000_000, 4_096, TOKENS).fit(messages, ())
        beating.cancel()
    assert shown.tokens == sum(message_tokens(message, TOKENS) for message in messages)
    assert beats > 1
