"""The model of ``make chaos``, at the wire of chat completions: slow enough that a fault meets it between two words.

``python -m bench.chaos_model CHARGE LOOK SLOWNESS``, with the ids of both tools and a multiple of the usual pauses,
prints its port. Everything that it says follows from the number in the user's message and from the result of the tool.
"""

import asyncio
import json
import sys
from contextlib import suppress
from typing import Any

from bench.chaos_story import between_words_s, charges, first_words, last_words, thought_s

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


class Model:
    def __init__(self, charge: str, look: str, slowness: float) -> None:
        self._tools = {True: charge, False: look}
        self._slowness = slowness

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(head.split("content-length:")[1].split("\r\n")[0])
            messages = json.loads(await reader.readexactly(length))["messages"]
            number = int(next(one["content"] for one in messages if one["role"] == "user"))
            writer.write(_HEAD)
            if messages[-1]["role"] == "tool":
                await self._say(writer, number, 1, last_words(number, json.dumps(messages[-1]["content"])))
                writer.write(_chunk({}, "stop"))
            else:
                await self._say(writer, number, 0, first_words(number))
                tool = {"tool_id": self._tools[charges(number)], "args": {"number": number}}
                function = {"name": "tool_execute", "arguments": json.dumps(tool)}
                call = {"index": 0, "id": f"c{number}", "type": "function", "function": function}
                writer.write(_chunk({"tool_calls": [call]}) + _chunk({}, "tool_calls"))
            writer.write(b"data: [DONE]\n\n")
            await writer.drain()
        writer.close()

    async def _say(self, writer: asyncio.StreamWriter, number: int, turn: int, words: Any) -> None:
        await writer.drain()
        await asyncio.sleep(thought_s(number, turn) * self._slowness)
        for word in words:
            writer.write(_chunk({"content": word}))
            await writer.drain()
            await asyncio.sleep(between_words_s(number) * self._slowness)


def _chunk(delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    body = {"id": "1", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


async def main(charge: str, look: str, slowness: str) -> None:
    server = await asyncio.start_server(Model(charge, look, float(slowness)).answer, "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
