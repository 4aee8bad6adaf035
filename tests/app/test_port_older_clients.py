"""An offer to upgrade costs no request its body, and HTTP/1.0 gets answers that it can read."""

import asyncio

import pytest

from tests.support.bare_port import BOUND_S, exchange, server
from tests.support.requirement import requirement

OFFER = (
    b"POST /%s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nContent-Length: 10\r\n\r\n"
)


@requirement("OPS-15")
@pytest.mark.parametrize("cut", [None, 4, 40, len(OFFER) - 2, len(OFFER) + 3])
async def test_an_offer_to_upgrade_is_passed_over_wherever_the_bytes_are_cut(cut: int | None) -> None:
    whole = OFFER % b"a" + b"0123456789" + OFFER % b"b" + b"9876543210" + b"GET /c HTTP/1.1\r\nHost: x\r\n\r\n"
    pieces = [whole] if cut is None else [whole[:cut], whole[cut:]]
    async with server() as port:
        assert await exchange(port, *pieces, answers=3) == [b'200 ["/a", 10]', b'200 ["/b", 10]', b'200 ["/c", 0]']


async def test_an_offer_without_a_body_and_one_byte_at_a_time() -> None:
    request = b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    async with server() as port:
        assert await exchange(port, *(request[n : n + 1] for n in range(len(request)))) == [b'200 ["/a", 0]']


@requirement("OPS-15")
async def test_a_chunked_body_with_an_offer_is_refused_not_misread() -> None:
    request = OFFER.replace(b"Content-Length: 10", b"Transfer-Encoding: chunked") % b"a"
    async with server() as port:
        (answer,) = await exchange(port, request + b"5\r\nhello\r\n0\r\n\r\n")
    assert answer.startswith(b"400")


async def answer_to(port: int, request: bytes) -> bytes:
    """Everything that comes until the connection is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(BOUND_S):
            writer.write(request)
            return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize("header", [b"", b"Connection: keep-alive\r\n", b"Host: x\r\n"])
async def test_a_stream_to_http_1_0_has_no_chunks_and_ends_with_the_connection(header: bytes) -> None:
    async with server() as port:
        head, body = (await answer_to(port, b"GET /stream HTTP/1.0\r\n" + header + b"\r\n")).split(b"\r\n\r\n", 1)
    assert head.split(b" ")[1] == b"200"
    assert b"transfer-encoding" not in head.lower()
    assert body == b'["/stream", 0]more'


async def test_the_same_stream_to_http_1_1_has_chunks() -> None:
    async with server() as port:
        request = b"GET /stream HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        head, body = (await answer_to(port, request)).split(b"\r\n\r\n", 1)
    assert b"transfer-encoding: chunked" in head.lower()
    assert body == b'e\r\n["/stream", 0]\r\n4\r\nmore\r\n0\r\n\r\n'


async def test_an_answer_of_known_length_to_http_1_0_is_whole() -> None:
    async with server() as port:
        request = b"POST /a HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc"
        head, body = (await answer_to(port, request)).split(b"\r\n\r\n", 1)
    assert b"content-length: 9" in head.lower()
    assert body == b'["/a", 3]'
