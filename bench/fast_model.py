"""A model that writes as fast as its reader takes it, for ``bench.pause_causes``.

``python -m bench.fast_model`` prints its port.
"""

import asyncio
import json

_CHUNK = {
    "id": "c",
    "object": "chat.completion.chunk",
    "choices": [{"index": 0, "delta": {"content": "and on it goes "}}],
}
_PIECE = b"data: %b\n\n" % json.dumps(_CHUNK).encode() * 64
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-le")
        )
        await reader.readexactly(length)
        writer.write(_HEAD)
        while not writer.is_closing():
            writer.write(_PIECE)
            await writer.drain()
    except (OSError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
