"""The requests that are answered without the SDK's server: one table of what is taken (FACE-135).

Taken is a request that is known whole, in its head and its body. Everything else goes to the SDK's server as it came:
other methods and header values, second attempts, what wants to hear of progress, and every message that is malformed in
any way. So nothing is refused here.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from wicketgate.faces.mcp.fit import ICON
from wicketgate.faces.mcp.session_tokens import McpSession
from wicketgate.mcp_names import LATEST_HANDSHAKE_VERSION

MODERN = "2026-07-28"
HANDSHAKE = frozenset({"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"})
UNNAMED = "2025-03-26"
"""The version of a request that names none, and belongs to no session."""

_MODERN = frozenset({"tools/call", "tools/list"})
"""The methods of the newer era."""

Method = Literal["tools/call", "tools/list", "ping", "initialize", "notifications/initialized"]

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
    those of ``tools/call``, *cursor* that of ``tools/list``. *id* is None for ``notifications/initialized``.
    *protocol_version* is the one agreed on, by ``initialize`` too."""

    id: int | str | None
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


def _part(**members: Any) -> Any:
    """The type of an object, of which each member may be missing. Others are passed over, as by the SDK."""
    return msgspec.defstruct("Part", [(name, kind | None, None) for name, kind in members.items()], omit_defaults=True)


_FLAG = msgspec.defstruct("Flag", [])
"""A capability that says no more than that it is there."""
_BY_NAME = dict[str, dict[str, Any]]
_TASKS = _part(sampling=_part(createMessage=_FLAG), elicitation=_part(create=_FLAG))
_DECLARED = _part(
    experimental=_BY_NAME,
    sampling=_part(context=_FLAG, tools=_FLAG),
    elicitation=_part(form=_FLAG, url=_FLAG),
    roots=_part(listChanged=bool),
    extensions=_BY_NAME,
    tasks=_part(list=_FLAG, cancel=_FLAG, requests=_TASKS),
)
"""The capabilities of the protocol."""


class _Info(msgspec.Struct):
    """The words of a client about itself."""

    name: str
    version: str
    title: str | None = None
    description: str | None = None
    website: str | None = msgspec.field(default=None, name="websiteUrl")
    icons: list[ICON] | None = None  # type: ignore[valid-type]


class _Params(msgspec.Struct, forbid_unknown_fields=True):
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class _CallParams(_Params, kw_only=True):
    name: str
    arguments: dict[str, Any] | None = None


class _ListParams(_Params):
    cursor: str | None = None


class _OpeningParams(_Params, kw_only=True, rename="camel"):
    protocol_version: str
    capabilities: dict[str, Any]
    client_info: _Info


class _Message(msgspec.Struct, forbid_unknown_fields=True, tag_field="method", kw_only=True):
    jsonrpc: Literal["2.0"]
    params: _Params = msgspec.field(default_factory=_Params)


class _Opened(_Message, tag="notifications/initialized"):
    """It has no id."""


class _Ping(_Message, tag="ping", kw_only=True):
    id: int | str


class _Call(_Ping, tag="tools/call", kw_only=True):
    params: _CallParams


class _List(_Ping, tag="tools/list", kw_only=True):
    params: _ListParams = msgspec.field(default_factory=_ListParams)


class _Opening(_Ping, tag="initialize", kw_only=True):
    params: _OpeningParams


_message = msgspec.json.Decoder(_Call | _List | _Ping | _Opening | _Opened).decode


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
    if (given, accepted) != _USUAL and not (is_json(given) and accepted_types(accepted) == (True, True)):
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


def taken(head: Head, body: bytes, session: McpSession | None, request: Any) -> DirectRequest | None:
    """Returns the request in *body* if it is taken; None if it goes to the SDK's server. *session* is the one that
    *head* names, None if it names none; *request* the HTTP side."""
    if session is None and head.version != MODERN:
        session = McpSession("", head.version or UNNAMED, _NONE)
    try:
        message = _message(body)
        method: Any = message.__struct_config__.tag
        capabilities = _of_envelope(head, method, message) if session is None else _of_session(head, session, message)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    if capabilities is None:
        return None
    meta: Mapping[str, Any] = _NONE if message.params.meta is None else {"_meta": message.params.meta}
    version, log_level = (head.version, "") if session is None else (session.version, session.log_level)
    id = getattr(message, "id", None)
    asked = DirectRequest(id, method, meta, version, capabilities, request, log_level=log_level)
    match message:
        case _Call(params=call):
            asked.name, asked.arguments = call.name, call.arguments
            asked.params = {"name": call.name, "arguments": call.arguments, **meta}
        case _List(params=listing):
            asked.cursor = listing.cursor
        case _Opening(params=opening):
            client = {"name": opening.client_info.name, "version": opening.client_info.version}
            asked.params = {"capabilities": capabilities, "clientInfo": client, **meta}
            known = opening.protocol_version in HANDSHAKE
            asked.protocol_version = opening.protocol_version if known else LATEST_HANDSHAKE_VERSION
    return asked


def names_header(schema: object) -> bool:
    """True for the schema of a tool whose arguments may stand in headers too, which the SDK compares."""
    if isinstance(schema, Mapping):
        return "x-mcp-header" in schema or any(map(names_header, schema.values()))
    return isinstance(schema, list | tuple) and any(map(names_header, schema))


def _of_envelope(head: Head, method: str, message: _Message) -> Mapping[str, Any] | None:
    """The capabilities of a client of the newer era; None unless all of its envelope is known and fits the headers."""
    meta = message.params.meta
    if meta is None or meta.get(_VERSION) != head.version or not head.method == method in _MODERN:
        return None
    if isinstance(message, _Call) and (
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


def _of_session(head: Head, session: McpSession, message: _Message) -> Mapping[str, Any] | None:
    meta = message.params.meta
    if meta and any(key == _PROGRESS or key.startswith(_RESERVED) for key in meta):
        return None
    match message:
        case _Opening(params=opening):
            # A session begins once.
            return None if head.session else _declared(opening.capabilities)
        case _Opened() if not head.session:
            return None
    declared = session.client.get("capabilities", _NONE)
    return _declared(declared) if isinstance(declared, Mapping) else None


def _declared(capabilities: Mapping[str, Any]) -> Mapping[str, Any]:
    """The *capabilities* that are known. Raises msgspec.ValidationError for those that are not well-formed."""
    if not capabilities:
        return _NONE
    known: Mapping[str, Any] = msgspec.to_builtins(msgspec.convert(capabilities, _DECLARED))
    return known


def is_json(content_type: bytes) -> bool:
    return content_type.partition(b";")[0].strip() == b"application/json"


def accepted_types(accept: bytes) -> tuple[bool, bool]:
    """Returns whether the answer may be JSON, and whether it may be a stream of events."""
    types = {each.partition(b";")[0].strip().lower() for each in accept.split(b",")}
    json, events = (b"application/json", b"application/*", b"*/*"), (b"text/event-stream", b"text/*", b"*/*")
    return not types.isdisjoint(json), not types.isdisjoint(events)
