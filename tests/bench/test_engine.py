import asyncio

import anyio
import pytest

from bench.engine import Contestant, _lock, _requests, shown
from bench.engine_streams import Streams
from tests.support.process import program


async def test_every_delta_is_seen_by_the_client_through_the_bare_relay() -> None:
    streams = Streams()
    model = await streams.serve_model()
    port = model.sockets[0].getsockname()[1]
    with anyio.fail_after(30):
        async with program("bench.engine_raw", str(port)) as relay:
            url = (await relay.wait_for(r"ready on (http://\S+)", "stdout")).group(1)
            contestant = Contestant("raw relay", url, relay.process.pid)
            assert await _lock(streams, contestant, 2) > 0
            assert await _requests(streams, contestant, 3) > 0
            assert streams.by_number == {}
    model.close()
    await model.wait_closed()


async def test_an_answer_that_is_not_one_ends_the_measurement() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    opened = await Streams().open(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", {})
    with anyio.fail_after(10), pytest.raises(RuntimeError, match="not a good answer"):
        await opened.opened
    assert isinstance(opened.over.exception(), RuntimeError)
    server.close()
    await server.wait_closed()


def test_the_table_compares_with_the_bare_relay() -> None:
    row = dict.fromkeys(("lock", "fire", "request", "memory", "p50", "p99"), 2.0) | {"tool": None}
    made = shown({"raw relay": row, "other": {**row, "lock": 5.0}})
    assert made.rows[1][:5] == ["other", "5.00", "2.50", "2.00", "1.00"]
