"""Negotiates the version of MCP with a server, and adds what each era requires to requests (UP-7, UP-37).

Servers of 2026-07-28 answer ``server/discover``. There every request has its version, client and capabilities in
``_meta``, and headers over HTTP; some arguments are also sent as headers (``x-mcp-header``). Older servers need the
handshake (``initialize``) first. The answers are read with a few models that accept what the SDK's types accept:
importing the SDK's hundreds would block the loop (OPS-376).
"""

import base64
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version as installed
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from wicketgate.mcp_names import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    HANDSHAKE_PROTOCOL_VERSIONS,
    LATEST_HANDSHAKE_VERSION,
    LOG_LEVEL_META_KEY,
    METHOD_NOT_FOUND,
    MODERN_PROTOCOL_VERSIONS,
    PROTOCOL_VERSION_META_KEY,
    SERVER_INFO_META_KEY,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from wicketgate.upstreams.mcp.asking import own_capabilities
from wicketgate.upstreams.mcp.call import Gone, Malformed, OutgoingRequest, Refused


class _Words(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class Offer(_Words):
    """A kind of thing that a server offers, and the changes of it that it announces."""

    list_changed: bool | None = None
    subscribe: bool | None = None


class ServerCapabilities(_Words):
    """None: the server has no such thing."""

    tools: Offer | None = None
    resources: Offer | None = None
    prompts: Offer | None = None
    completions: dict[str, Any] | None = None
    extensions: dict[str, dict[str, Any]] | None = None


class Initialized(_Words):
    """The result of ``initialize``."""

    protocol_version: str
    capabilities: ServerCapabilities
    instructions: str | None = None


class Discovered(_Words):
    """The result of ``server/discover``."""

    supported_versions: list[str]
    capabilities: ServerCapabilities
    instructions: str | None = None
    meta: dict[str, Any] | None = Field(alias="_meta", default=None)


VERSION_HEADER = "mcp-protocol-version"
METHOD_HEADER = "mcp-method"
NAME_HEADER = "mcp-name"
PARAM_HEADER = "Mcp-Param-"

Mode = Literal["auto", "handshake", "modern"]
"""``auto``: 2026-07-28 first, then the handshake; where both are spoken, a second session may be opened.
``handshake``: only the handshake. ``modern``: only 2026-07-28."""

_NAMED_BY = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""By method, the parameter that is also in the name header."""
_LOG_LEVEL = "info"
"""Servers of 2026-07-28 send log messages only if the request names a level; lower levels are rarely worth a stream."""
_CLIENT = {"name": "wicketgate", "version": installed("wicketgate")}
_NO_HANDSHAKE = (METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION)
_NOT_MODERN = ("does not speak MCP 2026-07-28", "set era to client or 2025-11-25")
_MAX_INSTRUCTIONS = 2_000
_MAX_SPELLING = 256

ANNOTATION = "x-mcp-header"
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TYPES = frozenset({"string", "integer", "boolean"})
# The keywords of JSON Schema whose values are data, and no schemas.
_DATA = frozenset({"const", "default", "enum", "examples"})

Mirrored = Mapping[tuple[str, ...], str]
"""The arguments of one tool that are also sent as headers: the header name by path."""


_PLAIN = re.compile(r"[\x20-\x7e]*")
_ENCODED = re.compile(r"=\?base64\?.*\?=")


@dataclass(frozen=True, slots=True)
class Agreement:
    """The negotiated version of MCP, and what the server supports."""

    version: str
    capabilities: ServerCapabilities
    instructions: str
    spellings: tuple[str, ...] = ()
    """The server's own name and title."""

    @property
    def modern(self) -> bool:
        return self.version in MODERN_PROTOCOL_VERSIONS


class Negotiation:
    """Decides which request to send next, until there is an *agreement*.

    Send ``request``, then pass its outcome to ``answered`` or ``failed``. Without positive evidence of the newer era
    the next request is the handshake, unless *mode* excludes it (UP-102). *forward*: client capabilities other than
    elicitation that the server may use.
    """

    def __init__(self, mode: Mode, forward: Collection[str] = ()) -> None:
        self.agreement: Agreement | None = None
        self._mode = mode
        self._own = own_capabilities(forward)
        self._may_repeat = True
        self.request = self._initialize() if mode == "handshake" else self._discover(MODERN_PROTOCOL_VERSIONS[-1])

    def answered(self, result: Mapping[str, Any]) -> None:
        """Raises Malformed for a server that does not speak MCP, or no version that the gate supports."""
        if self.request.method == "initialize":
            self.agreement = _initialized(result)
        elif (agreement := _discovered(result)) is not None:
            self.agreement = agreement
        elif self._mode == "modern":
            raise Malformed(*_NOT_MODERN)
        else:
            self.request = self._initialize()

    def failed(self, error: Refused | Malformed | Gone | TimeoutError) -> None:
        """Raises *error* if there is no other request to try."""
        supported = _supported(error)
        mutual = [version for version in MODERN_PROTOCOL_VERSIONS if version in (supported or ())]
        # An "unsupported version" error that lists one of our versions proves the newer era, after either request.
        if mutual and self._may_repeat and self._mode != "handshake":
            self._may_repeat = False
            self.request = self._discover(mutual[-1])
            return
        never_sent = isinstance(error, Gone) and not error.carried
        other_era_only = supported is not None and not set(supported) & set(HANDSHAKE_PROTOCOL_VERSIONS)
        if self._mode == "handshake" and isinstance(error, Refused) and error.code in _NO_HANDSHAKE:
            raise Malformed("does not speak MCP 2025-11-25", "set era to client or 2026-07-28")
        if self.request.method == "initialize" or never_sent or other_era_only:
            raise error
        if self._mode == "modern":
            # Only an answer shows that the server is of the other era.
            raise Malformed(*_NOT_MODERN) if isinstance(error, Refused) else error
        self.request = self._initialize()

    def _discover(self, version: str) -> OutgoingRequest:
        headers = {VERSION_HEADER: version, METHOD_HEADER: "server/discover"}
        return OutgoingRequest("server/discover", {"_meta": _envelope(version, self._own)}, headers)

    def _initialize(self) -> OutgoingRequest:
        params = {"protocolVersion": LATEST_HANDSHAKE_VERSION, "capabilities": self._own, "clientInfo": _CLIENT}
        return OutgoingRequest("initialize", params)


class Stamp:
    """Adds to each request what the era of *agreement* requires."""

    def __init__(self, agreement: Agreement, forward: Collection[str] = ()) -> None:
        self._modern = agreement.modern
        self._envelope = _envelope(agreement.version, own_capabilities(forward)) if self._modern else {}
        self._version = {VERSION_HEADER: agreement.version}

    def meta(
        self, *, capabilities: Mapping[str, Any] | None = None, progress_token: str | None = None
    ) -> dict[str, Any]:
        """Returns ``_meta`` of a request. *capabilities* are the caller's; None for the gate's own requests.
        *progress_token*: None if the caller takes no notifications."""
        meta = dict(self._envelope)
        if self._modern and capabilities is not None:
            meta[CLIENT_CAPABILITIES_META_KEY] = capabilities
        if progress_token is not None:
            meta["progressToken"] = progress_token
            if self._modern:
                meta[LOG_LEVEL_META_KEY] = _LOG_LEVEL
        return meta

    def headers(
        self, method: str, params: Mapping[str, Any], mirrored: Mapping[tuple[str, ...], str] | None = None
    ) -> Mapping[str, str]:
        """Returns the headers of a request. *mirrored*: arguments of a tool that are also sent as headers, by path."""
        if not self._modern:
            return self._version
        headers = {**self._version, METHOD_HEADER: method}
        if (key := _NAMED_BY.get(method)) is not None and isinstance(name := params.get(key), str):
            headers[NAME_HEADER] = header_value(name)
        if mirrored:
            headers.update(_param_headers(mirrored, params["arguments"]))
        return headers


def header_value(text: str) -> str:
    """Returns *text*, encoded if it is not valid as a header value."""
    if _PLAIN.fullmatch(text) and text == text.strip() and not _ENCODED.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode('ascii')}?="


def _envelope(version: str, capabilities: Mapping[str, Any]) -> dict[str, Any]:
    return {
        PROTOCOL_VERSION_META_KEY: version,
        CLIENT_INFO_META_KEY: _CLIENT,
        CLIENT_CAPABILITIES_META_KEY: capabilities,
    }


def _discovered(result: Mapping[str, Any]) -> Agreement | None:
    """Returns None if the server does not speak the newer era after all."""
    try:
        found = Discovered.model_validate(result)
    except ValidationError:
        return None
    mutual = [version for version in MODERN_PROTOCOL_VERSIONS if version in found.supported_versions]
    if not mutual:
        return None
    instructions = (found.instructions or "")[:_MAX_INSTRUCTIONS]
    return Agreement(
        mutual[-1], found.capabilities, instructions, _spellings((found.meta or {}).get(SERVER_INFO_META_KEY))
    )


def _initialized(result: Mapping[str, Any]) -> Agreement:
    try:
        found = Initialized.model_validate(result)
    except ValidationError:
        raise Malformed("does not speak MCP") from None
    if found.protocol_version not in HANDSHAKE_PROTOCOL_VERSIONS:
        raise Malformed("speaks no version of MCP that is known here")
    instructions = (found.instructions or "")[:_MAX_INSTRUCTIONS]
    return Agreement(found.protocol_version, found.capabilities, instructions, _spellings(result.get("serverInfo")))


def _spellings(info: object) -> tuple[str, ...]:
    """Returns the names in *info*, cut to the length of the longest namespace."""
    given = (info.get("name"), info.get("title")) if isinstance(info, Mapping) else ()
    return tuple(dict.fromkeys(name[:_MAX_SPELLING] for name in given if isinstance(name, str) and name))


def _supported(error: Exception) -> list[str] | None:
    """Returns the versions in an "unsupported version" error; None for other errors."""
    if isinstance(error, Refused) and error.code == UNSUPPORTED_PROTOCOL_VERSION:
        match error.data:
            case {"supported": list(versions)} if all(isinstance(version, str) for version in versions):
                return versions
    return None


def _param_headers(mirrored: Mapping[tuple[str, ...], str], arguments: Mapping[str, Any]) -> dict[str, str]:
    headers = {}
    for path, name in mirrored.items():
        value: Any = arguments
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(value, bool):
            value = "true" if value else "false"
        if isinstance(value, str | int | float):
            with suppress(ValueError):  # an integer of thousands of digits
                headers[PARAM_HEADER + name] = header_value(str(value))
    return headers


def mirrored_arguments(schema: Any) -> Mirrored | None:
    """Returns None if an annotation of *schema* is invalid. Valid ones are unique tokens on a string, integer or
    boolean that is reached through ``properties`` alone.

    Iterative, so that deeply nested schemas cannot overflow the stack.
    """
    found: dict[tuple[str, ...], str] = {}
    # Everything that may be a schema with its path; None below a keyword other than ``properties``.
    stack: list[tuple[tuple[str, ...] | None, Any]] = [((), schema)]
    while stack:
        path, position = stack.pop()
        if isinstance(position, list):
            stack += [(None, member) for member in position]
        if not isinstance(position, dict):
            continue
        if ANNOTATION in position:
            header, kind = position[ANNOTATION], position.get("type")
            if not path or not isinstance(header, str) or not _TOKEN.fullmatch(header):
                return None
            if not isinstance(kind, str) or kind not in _TYPES:
                return None
            found[path] = header
        for keyword, value in position.items():
            if keyword == "properties" and isinstance(value, dict):
                stack += [(None if path is None else (*path, key), member) for key, member in value.items()]
            elif keyword not in _DATA:
                stack.append((None, value))
    names = {header.lower() for header in found.values()}
    return found if len(names) == len(found) else None
