"""Rules that each provider over HTTP follows, whatever its dialect."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

import anyio
import pytest

from tests.models.asking import KEY, ask, closing
from tests.support.anthropic_replies import begin, end, text_block
from tests.support.model_server import DONE, HOLD, ModelServer, Reply, Step, chunk
from tests.support.requirement import requirement
from wicketgate.models.anthropic.exchange import AnthropicMessagesProvider
from wicketgate.models.endpoint import ModelAddress, Timeouts
from wicketgate.models.openai.exchange import OpenAIChatProvider
from wicketgate.models.provider import Finish, TextDelta

OPENAI = ([chunk({"content": "a"})], [chunk({"content": "b"}), chunk({}, "stop"), DONE])
FIRST, SECOND, *REST = text_block(0, "a", "b")
ANTHROPIC = ([begin(), FIRST, SECOND], [*REST, *end("end_turn")])


def made(dialect: str, server: ModelServer) -> OpenAIChatProvider | AnthropicMessagesProvider:
    address = ModelAddress(server.base_url, KEY, Timeouts(5, 5))
    if dialect == "openai":
        return OpenAIChatProvider(address, "model-1", context_tokens=8192)
    return AnthropicMessagesProvider(address, "model-1", context_tokens=8192, max_tokens=1000)


@requirement("CHAT-72")
@pytest.mark.parametrize(("dialect", "steps"), [("openai", OPENAI), ("anthropic", ANTHROPIC)])
async def test_a_delta_is_out_before_the_next_is_sent_and_closing_ends_the_request_at_once(
    dialect: str, steps: tuple[Sequence[Step | bytes], Sequence[Step | bytes]]
) -> None:
    more = asyncio.Event()
    replies = Reply([*steps[0], more, *steps[1]]), Reply([*steps[0], HOLD])
    async with ModelServer(*replies) as server, closing(made(dialect, server)) as provider:
        async with aclosing(provider.stream(ask())) as turn:
            assert await anext(turn) == [TextDelta("a")]
            more.set()
            rest = [event async for batch in turn for event in batch]
            assert (rest[0], type(rest[-1])) == (TextDelta("b"), Finish)
        async with aclosing(provider.stream(ask())) as turn:
            assert await anext(turn) == [TextDelta("a")]
        with anyio.fail_after(1):
            await server.requests[1].hung_up.wait()
