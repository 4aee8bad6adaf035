"""Heads are bounded before anything is checked."""

import asyncio
import json

import httpx
import pytest

from app.port.protocol import MAX_HEAD_BYTES
from tests.support.bare_port import BOUND_S, exchange, server
from tests.support.open_sockets import closed, connections
from tests.support.requirement import requirement
from tests.support.service import running_service


@requirement("OPS-15")
async def test_a_head_without_end_is_cut_off() -> None:
    line = b"x-filler: " + b"a" * 1_000 + b"\r\n"
    async with server() as port:
        answer = await exchange(port, b"GET / HTTP/1.1\r\n", line * (MAX_HEAD_BYTES // 1_000 + 2))
    assert answer.startswith(b"431")
    assert json.loads(answer[4:])["code"] == "head_too_large"


@requirement("OPS-15")
@pytest.mark.parametrize(("size", "status"), [(MAX_HEAD_BYTES - 100, b"200"), (MAX_HEAD_BYTES + 100, b"431")])
async def test_a_complete_head_is_bounded_and_a_body_behind_it_does_not_count(size: int, status: bytes) -> None:
    head = b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\nx-filler: "
    async with server() as port:
        answer = await exchange(port, head.ljust(size, b"a") + b"\r\n\r\n" + b"b" * 100_000)
    assert answer.startswith(status)


@requirement("OPS-46")
@pytest.mark.parametrize("path", [b"/", b"/healthz", b"/status/404"])
@pytest.mark.parametrize("piece", [b"a:b\r\n", b"x"])
@pytest.mark.parametrize("begin", [b"0\r\n", b"0\r\nTrailer: ", b"5;"])
async def test_trailers_and_chunk_extensions_without_end_are_cut_off(path: bytes, piece: bytes, begin: bytes) -> None:
    if piece == b"x" and begin == b"0\r\n":
        begin = b"0\r\nA: "
    head = b"POST %b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" % path
    async with server(keep_alive_s=75) as port, asyncio.timeout(BOUND_S):
        with connections(port, 1, first=head + begin) as (sock,):
            answer = await closed(sock, drip=piece * 10_000)
    assert answer.count(b"HTTP/1.1 ") == 1, answer
    # What has been answered gets no second answer; a path that answers at once may still come too late for its own.
    own = (b"HTTP/1.1 404 ",) if path == b"/status/404" else ()
    assert answer.startswith((*own, b"HTTP/1.1 431 ", b"HTTP/1.1 400 "))


@requirement("OPS-46")
async def test_short_chunks_with_extensions_are_read() -> None:
    chunks = b"1;name=value\r\nx\r\n" * 20_000
    head = b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with server() as port:
        assert await exchange(port, head + chunks + b"0\r\n\r\n") == b'200 ["/a", 20000]'


@requirement("OPS-47")
@pytest.mark.parametrize("path", [b"/", b"/status/200"])
async def test_bytes_that_are_no_http_behind_a_head_are_no_failure_of_the_application(
    path: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    head = b"POST %b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" % path
    async with server() as port, asyncio.timeout(BOUND_S):
        with connections(port, 1, first=head) as (sock,):
            answer = await closed(sock, drip=b"x")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


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


@requirement("OPS-15")
async def test_a_further_head_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.port.protocol.HEAD_DEADLINE_S", 0.1)
    async with server() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.timeout(BOUND_S):
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
            writer.write(b"GET / HTTP/1.1\r\nHost:")
            answer = await reader.read()
        assert b"HTTP/1.1" not in answer
        writer.close()


@requirement("OPS-35")
async def test_health_is_answered_by_the_port_as_the_application_does() -> None:
    with_body = b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab"
    async with server() as port:
        assert await exchange(port, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n") == b'200 {"status":"ok"}'
        assert await exchange(port, with_body) == b'200 ["/healthz", 2]'
    async with running_service() as service, httpx.AsyncClient(transport=httpx.ASGITransport(service.app)) as http:
        by_the_application = await http.get("http://localhost/healthz")
        by_the_port = await service.http.get("/healthz")
    assert by_the_port.content == by_the_application.content
    assert by_the_port.headers["content-type"] == by_the_application.headers["content-type"]
