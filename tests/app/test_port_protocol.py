"""Heads are bounded before anything is checked."""

import asyncio
import json

import httpx
import pytest

from app.port.protocol import MAX_HEAD_BYTES
from tests.support.bare_port import BOUND_S, exchange, server
from tests.support.requirement import requirement


@requirement("OPS-15")
async def test_a_head_without_end_is_cut_off() -> None:
    line = b"x-filler: " + b"a" * 1_000 + b"\r\n"
    async with server() as port:
        (answer,) = await exchange(port, b"GET / HTTP/1.1\r\n", line * (MAX_HEAD_BYTES // 1_000 + 2))
    assert answer.startswith(b"431")
    assert json.loads(answer[4:])["code"] == "head_too_large"


async def test_a_large_body_and_many_requests_on_one_connection_are_no_head() -> None:
    async with server() as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:
        for number in range(5):
            answer = await http.post(f"/{number}", content=b"x" * MAX_HEAD_BYTES * 3)
            assert answer.json() == [f"/{number}", MAX_HEAD_BYTES * 3]


@requirement("OPS-15")
async def test_a_head_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.port.protocol.HEAD_DEADLINE_S", 0.1)
    async with server() as port:
        for sent in (b"", b"GET / HTTP/1.1\r\nHost:"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            async with asyncio.timeout(BOUND_S):
                assert await reader.read() == b""
            writer.close()
