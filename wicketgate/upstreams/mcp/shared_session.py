"""One MCP session over stdio that several clients use side by side: whose is each message? (OPS-183)

Pure: takes one message at a time and returns what is to be sent. Clients are programs like this one, so their
handshakes are alike: the server sees the first of them, and the others get the answer that it gave. Ids and progress
tokens of clients are exchanged for our own. A question of the server, and what it logs, goes to a client only if no
other client has a call running: nobody may be asked, or told, about the call of another.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count

import msgspec

from wicketgate.mcp_names import METHOD_NOT_FOUND
from wicketgate.upstreams.mcp.wire import DAMAGED, SHOWN, Raw, answered_id

Parts = dict[str, msgspec.Raw]
"""A message, or a member of one, whose own members are still encoded."""

_TOKEN = "progressToken"  # noqa: S105  # a name of the protocol
_SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"

_parts = msgspec.json.Decoder(Parts)
_any = msgspec.json.Decoder()
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class ToServer:
    line: bytes


@dataclass(frozen=True, slots=True)
class ToClient:
    client: int
    line: bytes


Out = ToServer | ToClient


@dataclass(frozen=True, slots=True)
class _Request:
    """A request under way: its client, the id that it has there, still encoded, and its progress token likewise."""

    client: int
    own_id: bytes
    method: str
    token: bytes | None = None


@dataclass(slots=True)
class _Handshake:
    """*answer* is the result of ``initialize``, when there is one; *waiting* those who asked meanwhile."""

    request: str = ""
    answer: msgspec.Raw | None = None
    waiting: list[tuple[int, bytes]] = field(default_factory=list)
    confirmed: bool = False


class SharedSession:
    """*clients* are known by numbers of the caller's choice."""

    def __init__(self) -> None:
        self._clients: dict[int, None] = {}
        self._ids = count()
        self._requests: dict[str, _Request] = {}
        self._questions: dict[bytes, int] = {}
        self._handshake = _Handshake()

    def joined(self, client: int) -> None:
        self._clients[client] = None

    def left(self, client: int) -> Iterator[Out]:
        """Ends what *client* has under way."""
        self._clients.pop(client, None)
        for own in [own for own, request in self._requests.items() if request.client == client]:
            if own == self._handshake.request:
                continue  # others may wait for it
            del self._requests[own]
            yield ToServer(_notification("notifications/cancelled", {"requestId": own}))
        for question in [question for question, asked in self._questions.items() if asked == client]:
            del self._questions[question]
            yield ToServer(_answer(question, {"action": "cancel"}))

    def from_client(self, client: int, line: bytes | bytearray) -> Iterator[Out]:
        """Returns what follows from a message of *client*; nothing from one that is no message."""
        message = _decoded(line)
        method = _text(message.get("method"))
        own_id = bytes(message["id"]) if "id" in message else None
        if not method:
            # An answer to a question, from the one who was asked.
            if own_id is not None and self._questions.get(own_id) == client:
                del self._questions[own_id]
                yield ToServer(bytes(line))
        elif own_id is not None:
            yield from self._request(client, own_id, method, message)
        elif method == "notifications/cancelled":
            yield from self._cancelled(client, message)
        elif method == "notifications/initialized":
            if not self._handshake.confirmed:
                self._handshake.confirmed = True
                yield ToServer(bytes(line))
        else:
            yield ToServer(bytes(line))

    def from_server(self, line: bytes | bytearray) -> Iterator[Out]:
        """Returns what follows from a message of the server."""
        message = _decoded(line)
        method = _text(message.get("method"))
        if not message:
            # An answer without result and error, as the client sees it, is no valid one.
            if (found := self.unreadable(bytes(line[:SHOWN]), bytes(line[-SHOWN:]))) is not None:
                yield ToClient(found[0], _encode({"jsonrpc": "2.0", "id": Raw(found[1])}))
        elif not method:
            yield from self._answered(message)
        elif "id" in message:
            yield from self._asked(bytes(message["id"]), method, bytes(line))
        else:
            yield from self._said(method, message, bytes(line))

    def is_answer(self, line: bytes | bytearray) -> bool:
        """Returns true if a line of the server answers a request under way."""
        message = _decoded(line)
        return "method" not in message and "id" in message and _text(message["id"]) in self._requests

    def unreadable(self, head: bytes, tail: bytes) -> tuple[int, bytes] | None:
        """Forgets the request whose answer could not be taken, if its id is in what is left of that. Returns its
        client, and the id that it has there, still encoded."""
        request = self._requests.pop(answered_id(head, tail), None)
        return (request.client, request.own_id) if request is not None else None

    def _request(self, client: int, own_id: bytes, method: str, message: Parts) -> Iterator[Out]:
        shake = self._handshake
        if method == "initialize":
            if shake.answer is not None:
                yield ToClient(client, _result(own_id, shake.answer))
                return
            shake.waiting.append((client, own_id))
            if shake.request:
                return
        own = f"wgs-{next(self._ids)}"
        if method == "initialize":
            shake.request = own
        params, token = _with_token(message.get("params"), own)
        self._requests[own] = _Request(client, own_id, method, token)
        changed = {**message, "id": Raw(_encode(own))}
        if params is not None:
            changed["params"] = params
        yield ToServer(_encode(changed))

    def _cancelled(self, client: int, message: Parts) -> Iterator[Out]:
        params = _members(message.get("params"))
        wanted = bytes(params.get("requestId", b""))
        for own, request in self._requests.items():
            if request.client == client and request.own_id == wanted:
                # An answer that still comes is nobody's.
                del self._requests[own]
                changed = {**message, "params": Raw(_encode({**params, "requestId": Raw(_encode(own))}))}
                yield ToServer(_encode(changed))
                return

    def _answered(self, message: Parts) -> Iterator[Out]:
        own = _text(message.get("id"))
        request = self._requests.pop(own, None)
        if request is None:
            return
        if own != self._handshake.request:
            yield ToClient(request.client, _encode({**message, "id": Raw(request.own_id)}))
            return
        shake = self._handshake
        shake.answer, shake.request = message.get("result"), ""
        waiting, shake.waiting = shake.waiting, []
        for client, own_id in waiting:
            yield ToClient(client, _encode({**message, "id": Raw(own_id)}))

    def _asked(self, question: bytes, method: str, line: bytes) -> Iterator[Out]:
        if method == "ping":
            yield ToServer(_answer(question, {}))
            return
        client = self._only_caller()
        if client is not None and question not in self._questions:
            self._questions[question] = client
            yield ToClient(client, line)
        elif method == "elicitation/create":
            yield ToServer(_answer(question, {"action": "cancel"}))
        else:
            yield ToServer(_error(question, METHOD_NOT_FOUND, "Method not found"))

    def _said(self, method: str, message: Parts, line: bytes) -> Iterator[Out]:
        params = _members(message.get("params"))
        match method:
            case "notifications/progress":
                request = self._requests.get(_text(params.get(_TOKEN)))
                if request is not None and request.token is not None:
                    changed = {**message, "params": Raw(_encode({**params, _TOKEN: Raw(request.token)}))}
                    yield ToClient(request.client, _encode(changed))
                return
            case "notifications/message":
                client = self._only_caller()
                if client is not None:
                    yield ToClient(client, line)
                return
            case "notifications/cancelled":
                client = self._questions.pop(bytes(params.get("requestId", b"")), None)
                if client is not None:
                    yield ToClient(client, line)
                return
        meta = _members(params.get("_meta"))
        if _SUBSCRIPTION in meta:
            request = self._requests.get(_text(meta[_SUBSCRIPTION]))
            if request is not None:
                meta = {**meta, _SUBSCRIPTION: Raw(request.own_id)}
                changed = {**message, "params": Raw(_encode({**params, "_meta": Raw(_encode(meta))}))}
                yield ToClient(request.client, _encode(changed))
            return
        for client in self._clients:
            yield ToClient(client, line)

    def _only_caller(self) -> int | None:
        """Returns the one client that has calls under way."""
        callers = {request.client for request in self._requests.values() if request.method not in _OF_NO_CALL}
        return callers.pop() if len(callers) == 1 else None


_OF_NO_CALL = frozenset({"initialize", "ping", "server/discover", "subscriptions/listen", "tools/list"})


def _with_token(params: msgspec.Raw | None, own: str) -> tuple[msgspec.Raw | None, bytes | None]:
    """Returns *params* with *own* for the progress token, and the token that was there."""
    members = _members(params)
    meta = _members(members.get("_meta"))
    if _TOKEN not in meta:
        return params, None
    token = bytes(meta[_TOKEN])
    meta = {**meta, _TOKEN: Raw(_encode(own))}
    return Raw(_encode({**members, "_meta": Raw(_encode(meta))})), token


def _decoded(line: bytes | bytearray) -> Parts:
    try:
        return _parts.decode(line)
    except DAMAGED:
        return {}


def _members(raw: msgspec.Raw | None) -> Parts:
    return _decoded(bytes(raw)) if raw is not None else {}


def _text(raw: msgspec.Raw | None) -> str:
    """Returns a value that is a text; empty for any other."""
    if raw is None:
        return ""
    try:
        value = _any.decode(raw)
    except DAMAGED:
        return ""
    return value if isinstance(value, str) else ""


def _result(own_id: bytes, value: msgspec.Raw) -> bytes:
    return _encode({"jsonrpc": "2.0", "id": Raw(own_id), "result": value})


def _answer(own_id: bytes, value: Mapping[str, object]) -> bytes:
    return _encode({"jsonrpc": "2.0", "id": Raw(own_id), "result": value})


def _error(own_id: bytes, code: int, message: str) -> bytes:
    return _encode({"jsonrpc": "2.0", "id": Raw(own_id), "error": {"code": code, "message": message}})


def _notification(method: str, params: Mapping[str, object]) -> bytes:
    return _encode({"jsonrpc": "2.0", "method": method, "params": params})
