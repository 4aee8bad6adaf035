"""Agreeing with a server on a version of MCP, and the additions to each request in that version's era (UP-7, UP-37).

Servers of 2026-07-28 answer ``server/discover``, and every request carries its version, client and capabilities in
``_meta``, and headers over HTTP; some arguments are mirrored in headers too (``x-mcp-header``). Older ones want the
handshake (``initialize``) first.
"""

import base64
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version as installed
from typing import Any, Literal

from pydantic import ValidationError

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
from wicketgate.upstreams.mcp.call import Gone, Malformed, Refused
from wicketgate.upstreams.mcp.introduction import Discovered, Initialized, ServerCapabilities
from wicketgate.upstreams.mcp.session import OutgoingRequest

VERSION_HEADER = "mcp-protocol-version"
METHOD_HEADER = "mcp-method"
NAME_HEADER = "mcp-name"
PARAM_HEADER = "Mcp-Param-"

Mode = Literal["auto", "legacy", "handshake", "modern"]
"""``auto``: 2026-07-28 first, then the handshake. ``legacy``: the handshake first. ``handshake``: nothing else.
``modern``: only 2026-07-28."""

_NAMED_BY = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""By method, the parameter that the name header repeats."""
_LOG_LEVEL = "info"
"""Servers of 2026-07-28 log only for requests that ask for it; messages below it are rarely worth a stream."""
_CLIENT = {"name": "wicketgate", "version": installed("wicketgate")}
_NO_HANDSHAKE = (METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION)
_NOT_MODERN = ("does not speak MCP 2026-07-28", "set era to auto or 2025-11-25")
_MAX_INSTRUCTIONS = 2_000
_MAX_SPELLING = 256

ANNOTATION = "x-mcp-header"
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TYPES = frozenset({"string", "integer", "boolean"})
# The keywords of JSON Schema whose values are schemas again. Data (default, const, enum) and references are left out.
_ONE_SCHEMA = frozenset(
    {
        "items",
        "contains",
        "unevaluatedItems",
        "additionalProperties",
        "propertyNames",
        "unevaluatedProperties",
        "not",
        "if",
        "then",
        "else",
        "contentSchema",
    }
)
_LIST_OF_SCHEMAS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_MAP_OF_SCHEMAS = frozenset({"patternProperties", "dependentSchemas", "$defs", "definitions"})

Mirrored = Mapping[tuple[str, ...], str]
"""The arguments of one tool that travel in headers too: by path, the name of the header."""


_PLAIN = re.compile(r"[\x20-\x7e]*")
_ENCODED = re.compile(r"=\?base64\?.*\?=")


@dataclass(frozen=True, slots=True)
class Agreement:
    """The agreement with a server: the version of MCP, and what the server can do."""

    version: str
    capabilities: ServerCapabilities
    instructions: str
    spellings: tuple[str, ...] = ()
    """The name and the title that the server gives itself."""

    @property
    def modern(self) -> bool:
        return self.version in MODERN_PROTOCOL_VERSIONS


class Negotiation:
    """Decides which request to send next until there is an *agreement*.

    Send ``request``, then give its outcome to ``answered`` or ``failed``. Everything but positive evidence of the newer
    era leads to the handshake, unless *mode* rules it out (UP-102). *forward*: capabilities of clients besides
    questions that the server may use.
    """

    def __init__(self, mode: Mode, forward: Collection[str] = ()) -> None:
        self.agreement: Agreement | None = None
        self._mode = mode
        self._own = own_capabilities(forward)
        self._may_repeat = True
        self.request = (
            self._initialize() if mode in ("legacy", "handshake") else self._discover(MODERN_PROTOCOL_VERSIONS[-1])
        )

    def answered(self, result: Mapping[str, Any]) -> None:
        """Raises Malformed for a server that speaks no MCP, or no version that is known here."""
        if self.request.method == "initialize":
            self.agreement = _initialized(result)
        elif (agreement := _discovered(result)) is not None:
            self.agreement = agreement
        elif self._mode == "modern":
            raise Malformed(*_NOT_MODERN)
        else:
            self.request = self._initialize()

    def failed(self, error: Refused | Malformed | Gone | TimeoutError) -> None:
        """Raises *error* where nothing more can be tried."""
        supported = _supported(error)
        mutual = [version for version in MODERN_PROTOCOL_VERSIONS if version in (supported or ())]
        # An "unsupported version" that names one of ours is evidence of the newer era, from either request.
        if mutual and self._may_repeat and self._mode != "handshake":
            self._may_repeat = False
            self.request = self._discover(mutual[-1])
            return
        never_sent = isinstance(error, Gone) and not error.carried
        other_era_only = supported is not None and not set(supported) & set(HANDSHAKE_PROTOCOL_VERSIONS)
        if self._mode == "handshake" and isinstance(error, Refused) and error.code in _NO_HANDSHAKE:
            raise Malformed("does not speak MCP 2025-11-25", "set era to auto or 2026-07-28")
        if self.request.method == "initialize" or never_sent or other_era_only:
            raise error
        if self._mode == "modern":
            # Only a server that answered can be told to be of the other era.
            raise Malformed(*_NOT_MODERN) if isinstance(error, Refused) else error
        self.request = self._initialize()

    def _discover(self, version: str) -> OutgoingRequest:
        headers = {VERSION_HEADER: version, METHOD_HEADER: "server/discover"}
        return OutgoingRequest("server/discover", {"_meta": _envelope(version, self._own)}, headers)

    def _initialize(self) -> OutgoingRequest:
        params = {"protocolVersion": LATEST_HANDSHAKE_VERSION, "capabilities": self._own, "clientInfo": _CLIENT}
        return OutgoingRequest("initialize", params)


class Stamp:
    """Puts into each request what the era of *agreement* wants in it."""

    def __init__(self, agreement: Agreement, forward: Collection[str] = ()) -> None:
        self._modern = agreement.modern
        self._envelope = _envelope(agreement.version, own_capabilities(forward)) if self._modern else {}
        self._version = {VERSION_HEADER: agreement.version}

    def meta(
        self, *, capabilities: Mapping[str, Any] | None = None, progress_token: str | None = None
    ) -> dict[str, Any]:
        """``_meta`` of a request. *capabilities* are those of its caller; those of the gate for its own requests.
        *progress_token*: its caller listens."""
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
        """*mirrored*: by path, the arguments of a tool that travel in headers too."""
        if not self._modern:
            return self._version
        headers = {**self._version, METHOD_HEADER: method}
        if (key := _NAMED_BY.get(method)) is not None and isinstance(name := params.get(key), str):
            headers[NAME_HEADER] = header_value(name)
        if mirrored:
            headers.update(_param_headers(mirrored, params["arguments"]))
        return headers


def header_value(text: str) -> str:
    """*text*, encoded if it would not survive as the value of a header."""
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
    """None for a server that does not speak the newer era after all."""
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
    """The names in *info*; a longer one than any namespace is cut."""
    given = (info.get("name"), info.get("title")) if isinstance(info, Mapping) else ()
    return tuple(dict.fromkeys(name[:_MAX_SPELLING] for name in given if isinstance(name, str) and name))


def _supported(error: Exception) -> list[str] | None:
    """The versions that an "unsupported version" names."""
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
    """None if an annotation of *schema* is not valid: it must stand on a string, integer or boolean that is reached by
    ``properties`` alone, and be a token of its own."""
    found: dict[tuple[str, ...], str] = {}
    for path, position in _positions(schema):
        if ANNOTATION not in position:
            continue
        header, kind = position[ANNOTATION], position.get("type")
        if not path or not isinstance(header, str) or not _TOKEN.fullmatch(header):
            return None
        if not isinstance(kind, str) or kind not in _TYPES:
            return None
        found[path] = header
    names = {header.lower() for header in found.values()}
    return found if len(names) == len(found) else None


def _positions(root: Any) -> Iterator[tuple[tuple[str, ...] | None, dict[str, Any]]]:
    """Every schema within *root*, with its path; the path is None where a keyword other than ``properties`` was passed.

    Works with a stack of its own, so that no depth of a schema is too much.
    """
    stack: list[tuple[tuple[str, ...] | None, Any]] = [((), root)]
    while stack:
        path, position = stack.pop()
        if not isinstance(position, dict):
            continue
        yield path, position
        for keyword, value in position.items():
            if keyword == "properties" and isinstance(value, dict):
                stack += [(None if path is None else (*path, key), member) for key, member in value.items()]
            elif keyword in _ONE_SCHEMA:
                stack.append((None, value))
            elif keyword in _LIST_OF_SCHEMAS and isinstance(value, list):
                stack += [(None, member) for member in value]
            elif keyword in _MAP_OF_SCHEMAS and isinstance(value, dict):
                stack += [(None, member) for member in value.values()]
