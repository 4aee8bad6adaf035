"""Connections that are closed, so that the client can read the answer."""

import asyncio
import socket
from asyncio import selector_events
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from tests.support.bare_port import BOUND_S, echo, server
from tests.support.open_sockets import closed, connections
from tests.support.requirement import requirement


@requirement("OPS-27")
@pytest.mark.parametrize("status", [401, 408, 413, 421, 431])
async def test_a_refusal_closes_the_connection_and_a_dripped_body_does_not_keep_it_open(status: int) -> None:
    async with server() as port, asyncio.timeout(BOUND_S):
        with connections(port, 1, first=b"POST /status/%d HTTP/1.1\r\nContent-Length: 1000\r\n\r\n{" % status) as (
            sock,
        ):
            answer = await closed(sock, drip=b" ")
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert b"\r\nconnection: close\r\n" in answer
    assert answer.endswith(b"\r\n\r\nrefused")


@requirement("OPS-27")
async def test_a_client_that_still_sends_can_read_the_answer() -> None:
    body = b"x" * 8_000_000

    def send_all_then_read(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port), BOUND_S) as sock:
            sock.sendall(b"POST /status/401 HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            received = b""
            while data := sock.recv(65_536):
                received += data
            return received

    async with server() as port:
        answer = await asyncio.to_thread(send_all_then_read, port)
    assert answer.endswith(b"refused")


@requirement("OPS-27")
async def test_what_is_no_http_is_refused_in_words_and_closed_while_more_comes() -> None:
    async with server() as port, asyncio.timeout(BOUND_S):
        with connections(port, 1, first=b"\x16\x03\x01 no http\r\n\r\n" + b"x" * 100_000) as (sock,):
            assert (await closed(sock, drip=b"x")).startswith(b"HTTP/1.1 400 ")


@requirement("OPS-27")
async def test_any_other_answer_keeps_the_connection_although_the_body_comes_later() -> None:
    async with server() as port, asyncio.timeout(BOUND_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /status/404 HTTP/1.1\r\nContent-Length: 4\r\n\r\n")
        assert b"close" not in await reader.readuntil(b"refused")
        writer.write(b"bodyGET /second HTTP/1.1\r\n\r\n")
        assert (await reader.readuntil(b'["/second", 0]')).startswith(b"HTTP/1.1 200")
        writer.close()


@requirement("OPS-28")
@pytest.mark.parametrize("rest", [b"\r\n", b"body"])
async def test_what_comes_after_an_answer_does_not_keep_a_connection_open(rest: bytes) -> None:
    async with server(keep_alive_s=0.2) as port, asyncio.timeout(BOUND_S):
        head = b"POST /status/404 HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (0 if rest == b"\r\n" else 1_000)
        with connections(port, 1, first=head) as (sock,):
            assert (await closed(sock, drip=rest)).endswith(b"refused")


@requirement("OPS-28")
async def test_a_body_without_end_after_the_answer_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.port.protocol.MAX_DROPPED_BYTES", 1_000_000)
    async with server(keep_alive_s=75) as port, asyncio.timeout(BOUND_S):
        with connections(port, 1, first=b"POST /status/404 HTTP/1.1\r\nContent-Length: 9000000\r\n\r\n") as (sock,):
            assert (await closed(sock, drip=b"x" * 100_000)).endswith(b"refused")


@requirement("FACE-140")
async def test_the_head_of_an_answer_goes_out_with_its_body_and_of_a_stream_without_waiting_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[bytes] = []
    transport: Any = selector_events._SelectorSocketTransport  # type: ignore[attr-defined]
    write = transport.write

    def noted(self: Any, data: bytes) -> None:
        if bytes(data).find(b"HTTP/1.1", 1) == -1:  # no request of the client
            written.append(bytes(data))
        write(self, data)

    go_on = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != "/late":
            await echo(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await go_on.wait()
        await send({"type": "http.response.body", "body": b"late"})

    async with server(app=app) as port, asyncio.timeout(BOUND_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        monkeypatch.setattr(transport, "write", noted)
        writer.write(b"GET /one HTTP/1.1\r\n\r\n")
        await reader.readuntil(b'["/one", 0]')
        assert len(written) == 1
        writer.write(b"GET /stream HTTP/1.1\r\n\r\n")
        await reader.readuntil(b"0\r\n\r\n")
        # The other parts; the second is empty.
        assert [each.partition(b"\r\n\r\n")[2] for each in written[1:2]] == [b'e\r\n["/stream", 0]\r\n']
        assert b"".join(written[2:]) == b"4\r\nmore\r\n0\r\n\r\n"
        # Heads alone.
        writer.write(b"HEAD /none HTTP/1.1\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"GET /late HTTP/1.1\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        go_on.set()
        await reader.readuntil(b"0\r\n\r\n")
        writer.close()


@requirement("FACE-140")
async def test_a_head_without_a_body_is_not_lost_with_the_connection() -> None:
    async with server() as port, asyncio.timeout(BOUND_S):
        with connections(port, 1, first=b"HEAD /one HTTP/1.1\r\nConnection: close\r\n\r\n") as (sock,):
            assert (await closed(sock)).startswith(b"HTTP/1.1 200 ")


@requirement("OPS-27")
async def test_a_client_that_asks_first_is_told_to_go_on_only_when_its_body_is_wanted() -> None:
    head = b"POST /%b HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"
    async with server() as port, asyncio.timeout(BOUND_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head % b"a")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"body")
        assert (await reader.readuntil(b'["/a", 4]')).startswith(b"HTTP/1.1 200 ")
        writer.write(head % b"status/401")
        assert (await reader.read()).startswith(b"HTTP/1.1 401 ")
        writer.close()
