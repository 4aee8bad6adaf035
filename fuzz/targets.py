"""The readers of strangers' bytes, each as a function of bytes.

A target passes for every input for which its reader gives a value or raises the errors that it documents. Where there
is an oracle, both must agree: the same bytes in pieces, a slow reader of the same grammar, or the way back.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import httpx
import uvicorn
from uvicorn.server import ServerState

from app.json_body import ValueCount
from app.mcp.requests import addressed
from app.port.protocol import GuardedHttpProtocol
from tests.support.bare_port import echo
from wicketgate.access.conditions import Asked, CannotEvaluate, condition_of
from wicketgate.access.identity import Identity
from wicketgate.access.issuer import TokenRefused, read_jwt
from wicketgate.access.seal import Seal
from wicketgate.catalog.name_patterns import compile_glob, split_pattern
from wicketgate.errors import GatewayError, ProviderError
from wicketgate.faces.mcp.message import Fault, heading_of, is_second_attempt, read_message, reply_in, request_in
from wicketgate.faces.mcp.session_tokens import SessionTokens
from wicketgate.models.anthropic.stream import MessagesStream
from wicketgate.models.openai.stream import ChatStream
from wicketgate.net.challenge import read_challenges
from wicketgate.net.connection import HttpConnection
from wicketgate.net.sse import SseDecoder
from wicketgate.schemas.patterns import compile_pattern
from wicketgate.schemas.validation import compile_schema
from wicketgate.upstreams.mcp import wire
from wicketgate.upstreams.openapi.document import DocumentRefused, read_document
from wicketgate.upstreams.openapi.operations import read_operations
from wicketgate.upstreams.openapi.security import Configured
from wicketgate.yaml_text import NotYaml, read_yaml, write_yaml

Target = Callable[[bytes], None]
SEAL = Seal(["k" * 43], b"k" * 32, lambda: 0.0, lambda: "uid")
LOOP = asyncio.new_event_loop()
FAILED: list[Mapping[str, Any]] = []
LOOP.set_exception_handler(lambda loop, context: FAILED.append(context))


def pieces(data: bytes) -> list[bytes]:
    """*data* in three pieces, whose lengths its first bytes decide."""
    first, second = (data[0], data[1]) if len(data) > 1 else (0, 0)
    return [data[:first], data[first : first + second], data[first + second :]]


def json_rpc(data: bytes) -> None:
    message = wire.decode(data)
    wire.answered_id(data[:300], data[-300:])
    if message is not None:
        wire.params_of(message)
        wire.error_of(message)
    lines = wire.LineReader(lambda head, tail: None, 4_096)
    apart = [bytes(line) for piece in pieces(data) for line in lines.feed(piece)]
    whole = [bytes(line) for line in wire.LineReader(lambda head, tail: None, 4_096).feed(data)]
    assert apart == whole


def request(data: bytes) -> None:
    read = read_message(data)
    heading_of(data)
    reply_in(data)
    addressed(data)
    is_second_attempt(data)
    is_request, id = request_in(data)
    assert isinstance(read, Fault | dict)
    if isinstance(read, dict):
        assert read == json.loads(data)
        assert not is_request or read.get("id") == id
    count = ValueCount()
    for piece in pieces(data):
        count.feed(piece)
    whole = ValueCount()
    whole.feed(data)
    assert count.values == whole.values


def sse(data: bytes) -> None:
    def events(parts: list[bytes]) -> list[object]:
        decoder, found = SseDecoder(2_048, 8_192), list[object]()
        try:
            for part in parts:
                found += [(event.name, bytes(event.data)) for event in decoder.feed(part)]
            found += [(event.name, bytes(event.data)) for event in decoder.close()]
        except ProviderError:
            found.append("too large")
        return found

    assert events(pieces(data)) == events([data])


def openai(data: bytes) -> None:
    _turn(ChatStream(1_000), data)


def anthropic(data: bytes) -> None:
    _turn(MessagesStream(1_000), data)


def _turn(stream: ChatStream | MessagesStream, data: bytes) -> None:
    for piece in pieces(data):
        list(stream.feed(piece))
    list(stream.close())


def http_request(data: bytes) -> None:
    async def served() -> bytes:
        config = uvicorn.Config(echo, log_config=None, lifespan="off")
        protocol = GuardedHttpProtocol(config, ServerState(), {}, LOOP)
        transport = Transport()
        protocol.connection_made(transport)
        for piece in pieces(data):
            if not transport.is_closing():
                protocol.data_received(piece)
            await _turns()
        protocol.connection_lost(None)
        await _turns()
        return bytes(transport.written)

    answer = LOOP.run_until_complete(served())
    assert not answer or answer.startswith(b"HTTP/1.1 ")
    assert not FAILED, FAILED.pop()


def http_answer(data: bytes) -> None:
    async def asked() -> None:
        connection, transport = HttpConnection(), Transport()
        connection.connection_made(transport)
        asking = LOOP.create_task(connection.ask(b"GET / HTTP/1.1\r\n\r\n"))
        await _turns()
        for piece in pieces(data):
            connection.data_received(piece)
        connection.connection_lost(None)
        with suppress(httpx.TransportError):
            await asking

    LOOP.run_until_complete(asked())
    assert not FAILED, FAILED.pop()


async def _turns() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


class Transport(asyncio.Transport):
    """The other end of the connection: keeps what is written."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.written = bytearray()
        self._closing = False

    def write(self, data: Any) -> None:
        self.written += data

    def write_eof(self) -> None: ...
    def can_write_eof(self) -> bool:
        return True

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self._closing = True

    def abort(self) -> None:
        self._closing = True

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def is_reading(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...


def yaml_file(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    with suppress(NotYaml):
        read_yaml(text)
    with suppress(NotYaml):
        value = read_yaml(text, strict=True)
        if "*" not in text and "&" not in text:
            assert repr(read_yaml(write_yaml(value))) == repr(value)


def openapi(data: bytes) -> None:
    with suppress(DocumentRefused):
        read_operations(read_document(data), Configured())


def schema(data: bytes) -> None:
    """A list of a schema and of arguments."""
    with suppress(ValueError, RecursionError):
        found = json.loads(data)
        if isinstance(found, list) and found:
            with suppress(GatewayError):
                validator = compile_schema(found[0], path="")
                for args in found[1:3]:
                    with suppress(GatewayError):
                        validator.admit(args, path="", tolerant=True)


def pattern(data: bytes) -> None:
    """A pattern of a schema and a text, parted by a line end."""
    wanted, _, text = data.decode("utf-8", "replace").partition("\n")
    if (made := compile_pattern(wanted)) is not None:
        made.search(text)
    with suppress(ValueError):
        compile_glob(split_pattern(wanted)[1])


def condition(data: bytes) -> None:
    with suppress(ValueError):
        made, identity = condition_of(data.decode("utf-8", "replace")), Identity("a", ("*",), roles=("lead",))
        with suppress(CannotEvaluate):
            made.holds(Asked(identity, {"amount": 3, "a": "aaa!", "l": [1, {"x": None}]}, claims=True))


def token(data: bytes) -> None:
    text = data.decode("latin-1")
    with suppress(TokenRefused):
        read_jwt(text)
    read_challenges(text)
    assert SEAL.open("p", "a", text) is None


def session(data: bytes) -> None:
    assert SessionTokens("gateway", SEAL).open("a", data.decode("latin-1")) is None


TARGETS: Mapping[str, Target] = {
    each.__name__: each
    for each in (
        *(json_rpc, request, sse, openai, anthropic, http_request, http_answer, yaml_file),
        *(openapi, schema, pattern, condition, token, session),
    )
}
