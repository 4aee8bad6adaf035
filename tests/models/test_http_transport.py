"""The transport below httpx against a server that sends exactly the bytes it is told to, however they are cut."""

import asyncio
import datetime
import ipaddress
import random
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from wicketgate.models.http_connection import MAX_HEAD_BYTES
from wicketgate.models.http_transport import Body, LeanTransport

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
INTERIM = b"HTTP/1.1 100 Continue\r\nx: y\r\n\r\n"
WHOLE = OK + b"content-length: 5\r\n\r\nhello"


class RawServer:
    """For each request the next answer: pieces of bytes, each in a write of its own, and whether to close after them.

    *requests* holds what was asked, *left* tells that a client has gone."""

    def __init__(self, *answers: tuple[Sequence[bytes], bool]) -> None:
        self.answers = list(answers)
        self.requests: list[bytes] = []
        self.connections = 0
        self.left = asyncio.Event()
        self.url = ""
        self.go_on = asyncio.Event()
        """Pieces that are empty wait for it."""

    @asynccontextmanager
    async def running(self, tls: ssl.SSLContext | None = None) -> AsyncIterator["RawServer"]:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=tls)
        port = server.sockets[0].getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}/v1/x?a=%2C"
        async with asyncio.timeout(10):
            try:
                yield self
            finally:
                server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or b"0")
                self.requests.append(head + await reader.readexactly(length))
                pieces, close = self.answers.pop(0)
                for piece in pieces:
                    if piece:
                        writer.write(piece)
                        await writer.drain()
                        await asyncio.sleep(0)
                    elif not await self._goes_on(reader):
                        self.left.set()
                        return
                if close:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            self.left.set()
        finally:
            writer.close()

    async def _goes_on(self, reader: asyncio.StreamReader) -> bool:
        waiting = [asyncio.ensure_future(self.go_on.wait()), asyncio.ensure_future(reader.read(1))]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            return self.go_on.is_set()
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)


@asynccontextmanager
async def transport_to(
    *answers: tuple[Sequence[bytes], bool], tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[LeanTransport, RawServer]]:
    async with RawServer(*answers).running() as server, LeanTransport(tls) as transport:
        yield transport, server


def post(url: str, content: bytes = b"{}") -> httpx.Request:
    return httpx.Request("POST", url, content=content, extensions={"timeout": {"connect": 5.0}})


async def ask(transport: LeanTransport, url: str) -> tuple[httpx.Response, bytes]:
    response = await transport.handle_async_request(post(url))
    try:
        return response, b"".join([piece async for piece in response.aiter_raw()])
    finally:
        await response.aclose()


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


GOOD = {
    "content-length": (WHOLE, b"hello", False),
    "chunks": (CHUNKED + b"3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n", b"hello", False),
    "trailers": (CHUNKED + b"5\r\nhello\r\n0\r\nx-sum: 1\r\n\r\n", b"hello", False),
    "interim answers first": (
        b"HTTP/1.1 100 Continue\r\nx: y\r\n\r\nHTTP/1.1 103 Early\r\n\r\n" + WHOLE,
        b"hello",
        False,
    ),
    "up to the end of the connection": (OK + b"\r\nhello", b"hello", True),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\n\r\nhello", b"hello", True),
    "an empty body": (OK + b"content-length: 0\r\n\r\n", b"", False),
    "no body at all": (b"HTTP/1.1 204 No Content\r\n\r\n", b"", False),
    "line feeds alone": (b"HTTP/1.1 200 OK\ncontent-length: 5\n\nhello", b"hello", False),
    "to be closed": (OK + b"connection: close\r\ncontent-length: 5\r\n\r\nhello", b"hello", False),
}

BAD_HEADS = {
    "nothing": b"",
    "half a head": b"HTTP/1.1 200 OK\r\nconte",
    "an interim answer alone": b"HTTP/1.1 100 Continue\r\n\r\n",
    "another protocol": b"SSH-2.0-OpenSSH_9.6\r\n",
    "a bad field": OK + b"bad field\r\n\r\n",
    "two lengths": OK + b"content-length: 5\r\ncontent-length: 6\r\n\r\nhello",
    "a length and chunks": OK + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\nhello",
    "a length that is no number": OK + b"content-length: five\r\n\r\nhello",
    "a coding not asked for": OK + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "another protocol by upgrade": b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: x\r\n\r\nabc",
    "a head that is too large": OK + b"x: " + b"y" * (MAX_HEAD_BYTES + 1),
    "many fields": OK + b"x: y\r\n" * 20_000,
    "interim answers for ever": b"HTTP/1.1 103 Early\r\nx: y\r\n\r\n" * 5_000,
}

BROKEN_BODIES = {
    "shorter than its length": OK + b"content-length: 9\r\n\r\nhello",
    "cut between chunks": CHUNKED + b"5\r\nhello\r\n",
    "cut in a chunk": CHUNKED + b"9\r\nhello",
    "cut before the last line": CHUNKED + b"5\r\nhello\r\n0\r\n",
    "a chunk's size that is none": CHUNKED + b"5\r\nhello\r\nzz\r\n",
    "a chunk longer than its size": CHUNKED + b"5\r\nhello!\r\n0\r\n\r\n",
    "trailers for ever": CHUNKED + b"5\r\nhello\r\n0\r\nx: " + b"y" * (MAX_HEAD_BYTES + 1),
}


@pytest.mark.parametrize("size", [1, 2, 7, 100_000])
@pytest.mark.parametrize("name", GOOD)
async def test_an_answer_is_the_same_however_it_is_cut(name: str, size: int) -> None:
    data, body, close = GOOD[name]
    async with transport_to((cut(data, size), close)) as (transport, server):
        response, read = await ask(transport, server.url)
    assert (response.status_code, read) == (204 if "204" in data.decode() else 200, body)
    assert b"x" not in [key for key, _ in response.headers.raw]  # what came with an interim answer or as a trailer


@pytest.mark.parametrize("size", [1 << 20, 3])
@pytest.mark.parametrize("name", BAD_HEADS)
async def test_what_is_no_answer_is_an_error_and_its_connection_is_closed(name: str, size: int) -> None:
    data = BAD_HEADS[name]
    size = size if len(data) < 1000 else 1 << 20
    async with transport_to((cut(data, size), True), ([WHOLE], False)) as (transport, server):
        with pytest.raises(httpx.TransportError):
            await ask(transport, server.url)
        assert (await ask(transport, server.url))[1] == b"hello"
        assert server.connections == 2


@pytest.mark.parametrize("name", BROKEN_BODIES)
async def test_what_was_said_before_a_body_breaks_off_is_given_first(name: str) -> None:
    async with transport_to(([BROKEN_BODIES[name]], True)) as (transport, server):
        response = await transport.handle_async_request(post(server.url))
        assert isinstance(response.stream, Body)
        read = b""
        with pytest.raises(httpx.TransportError):
            while piece := await response.stream.read():
                read += piece
        assert read.startswith(b"hello")
        await response.aclose()


async def test_any_stream_of_chunks_is_read_as_it_was_written() -> None:
    chance = random.Random(7)
    for _ in range(40):
        body = chance.randbytes(chance.randrange(3000))
        data, at = CHUNKED, 0
        while at < len(body):
            piece = body[at : at + chance.choice([1, 3, 50, 700])]
            data += b"%X\r\n%b\r\n" % (len(piece), piece)
            at += len(piece)
        data += b"0\r\n\r\n"
        pieces, at = [], 0
        while at < len(data):
            size = chance.choice([1, 2, 5, 80, 4000])
            pieces.append(data[at : at + size])
            at += size
        async with transport_to((pieces, False), ([WHOLE], False)) as (transport, server):
            assert (await ask(transport, server.url))[1] == body
            assert (await ask(transport, server.url))[1] == b"hello"
            assert server.connections == 1


async def test_the_request_is_sent_as_it_is_written_with_its_body() -> None:
    async with transport_to(([WHOLE], False)) as (transport, server):
        await (await transport.handle_async_request(post(server.url, b"abc"))).aclose()
        head, _, content = server.requests[0].partition(b"\r\n\r\n")
        assert head.startswith(b"POST /v1/x?a=%2C HTTP/1.1\r\n")
        assert b"\r\nHost: 127.0.0.1:" in head
        assert content == b"abc"


@pytest.mark.parametrize("value", [b"a\r\nx: y", b"a\ny", b"a\rb", b"a\0b"])
async def test_a_header_cannot_become_two(value: bytes) -> None:
    async with transport_to() as (transport, server):
        request = httpx.Request("POST", server.url, headers=[(b"x", value)], content=b"")
        with pytest.raises(httpx.LocalProtocolError):
            await transport.handle_async_request(request)
        assert server.connections == 0


async def test_a_connection_serves_again_only_after_an_answer_that_was_whole() -> None:
    async with transport_to(
        ([WHOLE], False), ([CHUNKED + b"5\r\nhello\r\n", b"", b"0\r\n\r\n"], False), ([WHOLE], False), ([WHOLE], False)
    ) as (transport, server):
        await ask(transport, server.url)
        response = await transport.handle_async_request(post(server.url))
        assert server.connections == 1
        await response.aclose()
        await server.left.wait()
        await ask(transport, server.url)
        await ask(transport, server.url)
        assert server.connections == 2


@pytest.mark.parametrize("more", [b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nbad", b"rubbish", b"\0"])
@pytest.mark.parametrize("later", [False, True])
async def test_what_comes_behind_an_answer_is_never_the_next_one(more: bytes, later: bool) -> None:
    pieces = [WHOLE, more] if later else [WHOLE + more]
    async with transport_to((pieces, False), ([WHOLE], False)) as (transport, server):
        assert (await ask(transport, server.url))[1] == b"hello"
        await server.left.wait()
        assert (await ask(transport, server.url))[1] == b"hello"
        assert server.connections == 2


async def test_a_kept_connection_that_the_server_has_closed_is_not_used() -> None:
    async with transport_to(([WHOLE], True), ([WHOLE], False)) as (transport, server):
        await ask(transport, server.url)
        while any(connection.is_reusable for idle in transport._idle.values() for _, connection in idle):
            await asyncio.sleep(0)
        await ask(transport, server.url)
        assert server.connections == 2


async def test_streams_side_by_side_have_connections_of_their_own() -> None:
    answer = ([CHUNKED + b"1\r\nx\r\n", b"", b"0\r\n\r\n"], False)
    async with transport_to(*[answer] * 20) as (transport, server):
        responses = [await transport.handle_async_request(post(server.url)) for _ in range(20)]
        server.go_on.set()
        assert [await response.aread() for response in responses] == [b"x"] * 20
        assert server.connections == 20


@pytest.mark.parametrize("head", [b"", CHUNKED])
async def test_who_is_cancelled_leaves_at_once(head: bytes) -> None:
    async with transport_to(([head, b""], False)) as (transport, server):
        reading = asyncio.create_task(ask(transport, server.url))
        while not server.requests:
            await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        server.go_on.set()
        await server.left.wait()


async def test_a_server_is_held_back_while_nobody_reads_and_nothing_is_lost() -> None:
    size = 8 << 20
    async with transport_to(([OK + b"content-length: %d\r\n\r\n" % size, b"x" * size], False), ([WHOLE], False)) as (
        transport,
        server,
    ):
        response = await transport.handle_async_request(post(server.url))
        connection = next(iter(transport._open))
        while not connection._paused:
            await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        assert connection._waiting_bytes < 1 << 20
        assert len(await response.aread()) == size
        assert (await ask(transport, server.url))[1] == b"hello"
        assert server.connections == 1


async def test_a_body_read_after_its_end_is_closed_gives_nothing_of_the_next() -> None:
    async with transport_to(([WHOLE], False)) as (transport, server):
        response = await transport.handle_async_request(post(server.url))
        assert isinstance(response.stream, Body)
        await response.aclose()
        with pytest.raises(httpx.ReadError):
            await response.stream.read()


async def test_closing_the_transport_ends_the_streams_that_are_open() -> None:
    async with transport_to(([CHUNKED, b""], False)) as (transport, server):
        reading = asyncio.create_task(ask(transport, server.url))
        while not transport._open or not next(iter(transport._open)).has_head:
            await asyncio.sleep(0)
        await transport.aclose()
        with pytest.raises(httpx.ReadError):
            await reading
        server.go_on.set()


async def test_connections_that_nobody_needs_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wicketgate.models.http_transport._IDLE_S", 0.0)
    async with transport_to(([WHOLE], False)) as (transport, server):
        await ask(transport, server.url)
        await server.left.wait()
        assert not transport._idle


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "http://no-such-host.invalid/", "http://a..b/"])
async def test_who_cannot_be_reached_is_a_connect_error(url: str) -> None:
    async with LeanTransport() as transport:
        with pytest.raises(httpx.ConnectError):
            await transport.handle_async_request(post(url))


async def test_a_connection_that_does_not_come_about_in_time_is_a_connect_timeout() -> None:
    async with transport_to() as (_, server), LeanTransport() as transport:
        # A server that never answers the greeting of TLS.
        url = server.url.replace("http:", "https:")
        request = httpx.Request("POST", url, content=b"", extensions={"timeout": {"connect": 0.05}})
        with pytest.raises(httpx.ConnectTimeout):
            await transport.handle_async_request(request)


async def test_over_tls_only_a_server_that_is_trusted_is_asked(tmp_path: Path) -> None:
    serving, trusting = _certificate(tmp_path)
    async with RawServer(([CHUNKED + b"5\r\nhello\r\n", b"0\r\n\r\n"], False), ([WHOLE], False)).running(
        serving
    ) as server:
        async with LeanTransport(trusting) as transport:
            assert (await ask(transport, server.url))[1] == b"hello"
            assert (await ask(transport, server.url))[1] == b"hello"
            assert server.connections == 1
        async with LeanTransport() as transport:
            with pytest.raises(httpx.ConnectError):
                await ask(transport, server.url)


async def test_it_serves_the_client_of_httpx() -> None:
    async with (
        transport_to(([CHUNKED + b"5\r\nhello\r\n0\r\n\r\n"], False)) as (transport, server),
        httpx.AsyncClient(transport=transport, trust_env=False) as client,
    ):
        assert (await client.post(server.url, json={})).text == "hello"


def _certificate(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """One for the server and one that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = folder / "server.pem"
    file.write_bytes(private + pem)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(file)
    return serving, ssl.create_default_context(cadata=pem.decode())
