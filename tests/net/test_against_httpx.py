"""Any well-formed exchange comes to the same through our transport and through httpx's own."""

import gzip
import zlib
from dataclasses import dataclass

import httpx
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.properties import examples
from tests.support.raw_server import RawServer
from wicketgate.net import HttpClient, Outgoing

TOKENS = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~", min_size=1, max_size=12)
WORDS = st.text("".join(map(chr, range(0x21, 0x7F))), max_size=20)
METHODS = st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "SEARCH"])
FRAMINGS = st.sampled_from(["length", "chunks", "end"])
CODINGS = st.sampled_from(["", "gzip", "deflate", "identity"])
STATUSES = st.sampled_from([200, 201, 204, 206, 301, 304, 307, 400, 401, 404, 418, 429, 500, 503])


Request = tuple[str, list[tuple[str, str]], bytes]
Seen = list[tuple[int, list[tuple[bytes, bytes]], bytes]]


@dataclass(frozen=True)
class Answer:
    """*cuts* are where the bytes are cut for sending; *closes*: the connection ends with it."""

    head: bytes
    body: bytes
    cuts: list[int]
    closes: bool

    def pieces(self, method: str) -> list[bytes]:
        data = self.head if method == "HEAD" else self.head + self.body
        cuts = [at for at in self.cuts if at < len(data)]
        return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True) if a < b]


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    """A well-formed answer."""
    status = draw(STATUSES)
    body = draw(st.binary(max_size=3_000))
    coding, framing = draw(CODINGS), draw(FRAMINGS)
    fields = [(f"x-{name}", value) for name, value in draw(st.lists(st.tuples(TOKENS, WORDS), max_size=5))]

    # The content coding.
    if coding:
        fields.append(("Content-Encoding", coding))
    if coding == "gzip":
        body = gzip.compress(body)
    elif coding == "deflate":
        body = zlib.compress(body)
    if status in (204, 304):
        body, framing = b"", "none"

    # The framing.
    if framing == "length":
        fields.append(("Content-Length", str(len(body))))
    elif framing == "chunks":
        fields.append(("Transfer-Encoding", "chunked"))
        body = draw(chunks(body))
    closes = framing == "end" or draw(st.booleans())
    if closes and (framing != "end" or draw(st.booleans())):
        fields.append(("Connection", "close"))

    # The bytes.
    interim = draw(st.sampled_from(["", "HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 103 Early\r\nlink: x\r\n\r\n"]))
    head = f"{interim}HTTP/1.1 {status} {draw(st.sampled_from(['OK', 'Any reason at all']))}\r\n"
    head += "".join(f"{name}:{draw(st.sampled_from(['', ' ', '  ']))}{value}\r\n" for name, value in fields)
    data = f"{head}\r\n".encode()
    cuts = draw(st.lists(st.integers(0, len(data) + len(body)), max_size=6))
    return Answer(data, body, sorted(cuts), closes)


@st.composite
def chunks(draw: st.DrawFn, body: bytes) -> bytes:
    written, at = b"", 0
    while at < len(body):
        piece = body[at : at + draw(st.integers(1, 1_500))]
        written += b"%x%b\r\n%b\r\n" % (len(piece), draw(st.sampled_from([b"", b";a=b"])), piece)
        at += len(piece)
    return written + b"0\r\n" + draw(st.sampled_from([b"", b"x-trailer: 1\r\n"])) + b"\r\n"


requests = st.tuples(METHODS, st.lists(st.tuples(TOKENS, WORDS), max_size=4), st.binary(max_size=2_000))


async def exchanged(client: httpx.AsyncClient, asked: list[Request], said: list[Answer]) -> tuple[Seen, list[bytes]]:
    """The answer that the client gave, and the request that the server got."""
    script = [(answer.pieces(request[0]), answer.closes) for request, answer in zip(asked, said, strict=True)]
    seen: Seen = []
    async with RawServer(*script).running() as server, client:
        for (method, fields, content), answer in zip(asked, said, strict=True):
            headers = [(f"x-{name}", value) for name, value in fields]
            response = await client.request(method, server.url, headers=headers, content=content)
            # Ours takes a coding that it has undone out of the head, and the length that it had.
            left_out = (b"content-encoding", b"content-length") if b"Content-Encoding:" in answer.head else ()
            kept = [(name.lower(), value) for name, value in response.headers.raw if name.lower() not in left_out]
            seen.append((response.status_code, kept, response.content))
    return seen, [_without_port(request) for request in server.requests]


def _without_port(request: bytes) -> bytes:
    return b"\r\n".join(line for line in request.split(b"\r\n") if not line.lower().startswith(b"host:"))


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(requests, answers()), min_size=1, max_size=4))
async def test_ours_gives_what_httpx_gives(exchanges: list[tuple[Request, Answer]]) -> None:
    asked, said = [request for request, _ in exchanges], [answer for _, answer in exchanges]
    ours = await exchanged(HttpClient(Outgoing()), asked, said)
    usual = {"accept": "*/*", "accept-encoding": "identity", "user-agent": "wicketgate"}
    plain = httpx.AsyncClient(trust_env=False, headers=usual)
    del plain.headers["connection"]
    theirs = await exchanged(plain, asked, said)
    assert ours == theirs
