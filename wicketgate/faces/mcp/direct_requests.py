"""The requests that are answered without the SDK's server: one table of what is taken (FACE-135).

Taken is a request that is known whole, in its head and its body. Everything else goes to the SDK's server as it came:
other methods and header values, second attempts, what wants to hear of progress, and every message that is malformed in
any way. So nothing is refused here.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal

import msgspec
import pydantic_core

from wicketgate.faces.mcp.kept_sessions import KeptSession

MODERN = "2026-07-28"
HANDSHAKE = frozenset({"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"})
UNNAMED = "2025-03-26"
"""The version of a request that names none, and belongs to no session."""

Method = Literal["tools/call", "tools/list", "ping"]

_SESSION = b"mcp-session-id"
_ROUTING = (b"mcp-protocol-version", b"mcp-method", b"mcp-name", _SESSION)
_TRACING = (b"traceparent", b"tracestate", b"baggage")
_READ = frozenset({b"content-type", b"accept", *_ROUTING, *_TRACING})
_PARAM = b"mcp-param-"
_ENCODED_NAME = "=?"
_USUAL = (b"application/json", b"application/json, text/event-stream")
"""Values of ``Content-Type`` and ``Accept`` that nearly all clients send, and that need not be read."""

_RESERVED = "io.modelcontextprotocol/"
_VERSION = f"{_RESERVED}protocolVersion"
_CAPABILITIES = f"{_RESERVED}clientCapabilities"
_INFO = f"{_RESERVED}clientInfo"
_ENVELOPE = frozenset({_VERSION, _CAPABILITIES, _INFO})
_PROGRESS = "progressToken"

_MANY = 200
"""Brackets that a message may open and be surely not too deep for the SDK's parser of messages in sessions."""

_NONE: Mapping[str, Any] = MappingProxyType({})


class Head(msgspec.Struct, frozen=True):
    """The words of a request's headers. *version* is empty if they name none, and so are *method* and *name*;
    *session* is None for a request without one. *more* are the headers that calls use, by name."""

    version: str
    method: str
    name: str
    session: str | None
    more: Mapping[str, str]


class DirectRequest(msgspec.Struct):
    """Implements McpRequest for a request that is taken. *capabilities* are the client's. *name* and *arguments* are
    those of ``tools/call``, *cursor* that of ``tools/list``."""

    id: int | str
    method: Method
    params: Mapping[str, Any]
    protocol_version: str
    capabilities: Mapping[str, Any]
    request: Any
    name: str = ""
    arguments: Mapping[str, Any] | None = None
    cursor: str | None = None
    log_level: str = ""

    @property
    def meta(self) -> Mapping[str, Any] | None:
        return self.params.get("_meta")


class _Params(msgspec.Struct, forbid_unknown_fields=True):
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")
    name: str | None = None
    arguments: dict[str, Any] | None = None
    cursor: str | None = None


class _Message(msgspec.Struct, forbid_unknown_fields=True):
    jsonrpc: Literal["2.0"]
    id: int | str
    method: Method
    params: _Params = msgspec.field(default_factory=_Params)


class _Flag(msgspec.Struct):
    """A capability that says no more than that it is there."""


class _Elicitation(msgspec.Struct, omit_defaults=True):
    form: _Flag | None = None
    url: _Flag | None = None


class _Sampling(msgspec.Struct, omit_defaults=True):
    context: _Flag | None = None
    tools: _Flag | None = None


class _Roots(msgspec.Struct, omit_defaults=True):
    list_changed: bool | None = msgspec.field(default=None, name="listChanged")


class _TaskOfSampling(msgspec.Struct, omit_defaults=True):
    create: _Flag | None = msgspec.field(default=None, name="createMessage")


class _TaskOfElicitation(msgspec.Struct, omit_defaults=True):
    create: _Flag | None = None


class _TaskRequests(msgspec.Struct, omit_defaults=True):
    sampling: _TaskOfSampling | None = None
    elicitation: _TaskOfElicitation | None = None


class _Tasks(msgspec.Struct, omit_defaults=True):
    list: _Flag | None = None
    cancel: _Flag | None = None
    requests: _TaskRequests | None = None


class _Declared(msgspec.Struct, omit_defaults=True):
    """The capabilities of the protocol. What else a client declares is passed over, as by the SDK."""

    experimental: dict[str, dict[str, Any]] | None = None
    sampling: _Sampling | None = None
    elicitation: _Elicitation | None = None
    roots: _Roots | None = None
    extensions: dict[str, dict[str, Any]] | None = None
    tasks: _Tasks | None = None


class _Info(msgspec.Struct):
    """The words of a client about itself. One that shows a picture goes to the SDK, which reads that closely."""

    name: str
    version: str
    title: str | None = None
    description: str | None = None
    website: str | None = msgspec.field(default=None, name="websiteUrl")
    icons: None = None


_message = msgspec.json.Decoder(_Message).decode


def head_of(headers: Iterable[tuple[bytes, bytes]]) -> Head | None:
    """Returns the head of a POST that may be taken; None otherwise. Names of *headers* are in small letters."""
    read: dict[bytes, bytes] = {}
    for key, value in headers:
        if key in _READ:
            if key in read:
                return None
            read[key] = value
        elif key.startswith(_PARAM):
            return None
    given, accepted = read.get(b"content-type", b""), read.get(b"accept", b"")
    if (given, accepted) != _USUAL and not (_is_json(given) and _takes_both(accepted)):
        return None
    version, method, name, session = [read[key].strip().decode("latin-1") if key in read else "" for key in _ROUTING]
    more: dict[str, str] = {}
    for key in _TRACING:
        if key in read:
            more[key.decode()] = read[key].strip().decode("latin-1")
    if version == MODERN:
        return Head(version, method, name, None, more) if method else None
    if (version and version not in HANDSHAKE) or (not session and _SESSION in read):
        return None
    return Head(version, "", "", session or None, {**more, "mcp-session-id": session} if session else more)


def taken(head: Head, body: bytes, session: KeptSession | None, request: Any) -> DirectRequest | None:
    """Returns the request in *body* if it is taken; None if it goes to the SDK's server. *session* is the one that
    *head* names, None if it names none; *request* the HTTP side."""
    if session is None and head.version != MODERN:
        session = KeptSession("", "", head.version or UNNAMED, _NONE)
    try:
        message = _message(body)
        if session is not None and body.count(b"{") + body.count(b"[") > _MANY:
            pydantic_core.from_json(body)  # what is too deep for it goes to the SDK
        params = message.params
        capabilities = _of_envelope(head, message) if session is None else _of_session(session, params.meta)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    if capabilities is None or not _has_its_params(message.method, params):
        return None
    return DirectRequest(
        message.id,
        message.method,
        _params_of(message),
        head.version if session is None else session.version,
        capabilities,
        request,
        params.name or "",
        params.arguments,
        params.cursor,
        "" if session is None else session.log_level,
    )


def names_header(schema: object) -> bool:
    """True for the schema of a tool whose arguments may stand in headers too, which the SDK compares."""
    if isinstance(schema, Mapping):
        return "x-mcp-header" in schema or any(map(names_header, schema.values()))
    return isinstance(schema, list | tuple) and any(map(names_header, schema))


def _params_of(message: _Message) -> Mapping[str, Any]:
    """The params that calls use."""
    meta: Mapping[str, Any] = _NONE if message.params.meta is None else {"_meta": message.params.meta}
    if message.method != "tools/call":
        return meta
    return {"name": message.params.name, "arguments": message.params.arguments, **meta}


def _has_its_params(method: Method, params: _Params) -> bool:
    match method:
        case "tools/call":
            return params.name is not None and params.cursor is None
        case "tools/list":
            return params.name is None and params.arguments is None
        case _:
            return params.name is None and params.arguments is None and params.cursor is None


def _of_envelope(head: Head, message: _Message) -> Mapping[str, Any] | None:
    """The capabilities of a client of the newer era; None unless all of its envelope is known and fits the headers."""
    meta = message.params.meta
    if meta is None or head.method != message.method or message.method == "ping" or meta.get(_VERSION) != head.version:
        return None
    if message.method == "tools/call" and (
        not head.name or head.name != message.params.name or head.name.startswith(_ENCODED_NAME)
    ):
        return None
    for key in meta:
        if key not in _ENVELOPE and (key == _PROGRESS or key.startswith(_RESERVED)):
            return None
    if meta.get(_INFO) is not None:
        msgspec.convert(meta[_INFO], _Info)
    declared = meta.get(_CAPABILITIES)
    return _declared(declared) if isinstance(declared, dict) else None


def _of_session(session: KeptSession, meta: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    if meta and any(key == _PROGRESS or key.startswith(_RESERVED) for key in meta):
        return None
    declared = session.client.get("capabilities", _NONE)
    return _declared(declared) if isinstance(declared, Mapping) else None


def _declared(capabilities: Mapping[str, Any]) -> Mapping[str, Any]:
    """The *capabilities* that are known. Raises msgspec.ValidationError for those that are not well-formed."""
    if not capabilities:
        return _NONE
    known: Mapping[str, Any] = msgspec.to_builtins(msgspec.convert(capabilities, _Declared))
    return known


def _is_json(content_type: bytes) -> bool:
    return content_type.partition(b";")[0].strip() == b"application/json"


def _takes_both(accept: bytes) -> bool:
    """True if the answer may be JSON or a stream of events."""
    types = {each.partition(b";")[0].strip().lower() for each in accept.split(b",")}
    if b"*/*" in types:
        return True
    json = b"application/json" in types or b"application/*" in types
    return json and (b"text/event-stream" in types or b"text/*" in types)
