"""Text on its shorter way past the reader, over HTTP (ModelRequest.take_text)."""

import asyncio
from collections.abc import Sequence

from tests.models.asking import HI
from tests.models.openai.test_exchange import provider_for
from tests.support.model_server import DONE, ModelServer, Reply, Step, chunk
from wicketgate.models.provider import Finish, ModelEvent, ModelRequest, TextDelta


async def test_texts_behind_the_first_take_the_shorter_way_in_their_order_and_those_refused_go_to_the_reader() -> None:
    came: list[str] = []
    came_by: dict[str, str] = {}
    gates = {word: asyncio.Event() for word in "abcdefgh"}

    def note(text: str, way: str) -> None:
        came.append(text)
        came_by[text] = way
        gates[text].set()

    def take(text: str) -> bool:
        if text in "dg":
            return False
        note(text, "taken")
        return True

    steps: list[bytes | Step | asyncio.Event] = []
    for word, gate in gates.items():
        steps += [chunk({"content": word}), gate]
    steps.append(chunk({"content": "i"}) + chunk({"content": "j"}) + chunk({}, "stop") + DONE)
    async with ModelServer(Reply(steps)) as server, provider_for(server) as provider:
        request = ModelRequest((HI,), (), "req_1", take)
        last: Sequence[ModelEvent] = ()
        async for batch in provider.stream(request):
            last = batch
            for event in batch:
                if isinstance(event, TextDelta) and event.content in gates:
                    note(event.content, "read")
    assert came == list("abcdefgh")
    assert "".join(text for text, way in came_by.items() if way == "read") == "adg"
    assert last == [TextDelta("i"), TextDelta("j"), Finish("stop", None)]


async def test_nothing_takes_the_shorter_way_while_the_reader_is_busy() -> None:
    busy, said = asyncio.Event(), asyncio.Event()
    taken: list[str] = []

    def take(text: str) -> bool:
        taken.append(text)
        return True

    steps: list[bytes | Step | asyncio.Event] = [chunk({"content": "a"}), busy, chunk({"content": "b"}), said]
    reply = Reply([*steps, chunk({"content": "c"}), chunk({}, "stop"), DONE])
    async with ModelServer(reply) as server, provider_for(server) as provider:
        read: list[ModelEvent] = []
        async for batch in provider.stream(ModelRequest((HI,), (), "req_1", take)):
            read += batch
            if batch == [TextDelta("a")]:
                busy.set()
                await asyncio.sleep(0.1)  # "b" comes meanwhile
                assert not taken
                said.set()
                await asyncio.sleep(0.1)  # and "c"
                assert not taken
    assert read == [*(TextDelta(word) for word in "abc"), Finish("stop", None)]
