"""What a tool is called, ``namespace:name[@version][#hash8]``, and how an upstream's name becomes that (S0 §1)."""

import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NewType

from wicketgate.errors import CatalogError

ToolId = NewType("ToolId", str)

MAX_TOOL_ID_CHARS = 240
FALLBACK_NAMESPACE = "mcp"

NAMESPACE = re.compile(r"[a-z][a-z0-9_-]{0,63}")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}")
VERSION = re.compile(r"[A-Za-z0-9._-]{1,32}")
HASH8 = re.compile(r"[0-9a-f]{8}")

# A name that has to be mapped anyway is cut to the length of a card's display name (S0 §2.1), so that its card fits.
_MAPPED_NAME_CHARS = 64


@dataclass(frozen=True, slots=True)
class ToolIdParts:
    """The four fields of S0 §1.1. Either *version* or *hash8* is there, or both."""

    namespace: str
    name: str
    version: str | None = None
    hash8: str | None = None


def parse_tool_id(text: object) -> ToolIdParts:
    """The parts of a canonical id (S0 §1.6). Raises CatalogError on anything else, a trailing newline included."""
    if not isinstance(text, str):
        raise CatalogError("a tool id must be a string")
    if len(text) > MAX_TOOL_ID_CHARS:
        raise CatalogError(f"a tool id has at most {MAX_TOOL_ID_CHARS} characters")
    namespace, colon, rest = text.partition(":")
    if not colon:
        raise CatalogError(f"no ':' separator in the tool id {text!r}")
    rest, hash_mark, hash_part = rest.partition("#")
    name, version_mark, version = rest.partition("@")
    parts = ToolIdParts(namespace, name, version if version_mark else None, hash_part if hash_mark else None)
    _check(parts)
    return parts


def format_tool_id(parts: ToolIdParts) -> ToolId:
    """Inverse of ``parse_tool_id``. Raises CatalogError that names the part outside the grammar."""
    _check(parts)
    version = "" if parts.version is None else f"@{parts.version}"
    hash_part = "" if parts.hash8 is None else f"#{parts.hash8}"
    # The longest parts together are 235 characters, so the bound of 240 cannot be passed here.
    return ToolId(f"{parts.namespace}:{parts.name}{version}{hash_part}")


def hash8(upstream_name: str, input_schema: object) -> str:
    """Eight hex digits over the upstream's own name and the schema's shape (S0 §1.3).

    The shape is the top-level property names and ``required``; what is not of its JSON type counts as absent.
    """
    schema = input_schema if isinstance(input_schema, Mapping) else {}
    properties, required = schema.get("properties"), schema.get("required")
    shape = {
        "properties": sorted(key for key in properties if isinstance(key, str))
        if isinstance(properties, Mapping)
        else [],
        "required": sorted(key for key in required if isinstance(key, str)) if isinstance(required, list) else [],
    }
    canonical = f"{upstream_name}\n{json.dumps(shape, sort_keys=True, separators=(',', ':'))}"
    # A lone surrogate can arrive through JSON; it must not make the tool unnameable.
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def infer_namespace(tool_name: str) -> str:
    """The namespace that a tool's own name tells, always within the grammar (S1 table, S0 §1.4).

    What stands before the first dot or slash; else the first of three or more segments parted by underscores; else
    ``mcp``.
    """
    prefix, _ = _inferred_prefix(tool_name)
    return _legal_namespace(prefix)


def derive_tool_id(upstream_name: str, input_schema: object, version: str | None, server: str | None) -> ToolId:
    """The canonical id of an upstream's tool (S0 §1.2, §1.4; DESIGN §3 "Ids").

    *server* is the namespace, and ``<server>.`` or ``<server>/`` is dropped from the name; None infers the namespace
    by the S1 table. A name or version outside the grammar is mapped into it, and such an id always carries a hash
    over the original, so that two names never become one.
    """
    if server is None:
        wanted_namespace, own_name = _inferred_prefix(upstream_name)
    else:
        wanted_namespace, own_name = server, _without_prefix(upstream_name, server)
    namespace, name = _legal_namespace(wanted_namespace), _legal_name(own_name)
    legal_version = None if version is None else _legal_version(version)
    mapped = (namespace, name, legal_version) != (wanted_namespace, own_name, version)
    hash_part = hash8(upstream_name, input_schema) if mapped or version is None else None
    return format_tool_id(ToolIdParts(namespace, name, legal_version, hash_part))


def shorten_tool_id(tool_id: ToolId, upstream_name: str, input_schema: object) -> ToolId:
    """The id with its name cut to 64 characters, as a mapped name is, and a hash over the original, also beside a
    version: for a name within the grammar that is too long for its card. An id with a shorter name is left as it is.
    """
    parts = parse_tool_id(tool_id)
    if len(parts.name) <= _MAPPED_NAME_CHARS:
        return tool_id
    cut = replace(parts, name=parts.name[:_MAPPED_NAME_CHARS], hash8=hash8(upstream_name, input_schema))
    return format_tool_id(cut)


def _check(parts: ToolIdParts) -> None:
    if not NAMESPACE.fullmatch(parts.namespace):
        raise CatalogError(f"not a namespace: {parts.namespace!r}")
    if not NAME.fullmatch(parts.name):
        raise CatalogError(f"not a tool name: {parts.name!r}")
    if parts.version is not None and not VERSION.fullmatch(parts.version):
        raise CatalogError(f"not a version: {parts.version!r}")
    if parts.hash8 is not None and not HASH8.fullmatch(parts.hash8):
        raise CatalogError(f"not a hash8: {parts.hash8!r}")
    if parts.version is None and parts.hash8 is None:
        raise CatalogError("a tool id without a version needs a hash8")


def _inferred_prefix(tool_name: str) -> tuple[str, str]:
    """The namespace as written, and the name that stays: without a prefix that a dot or slash parts off."""
    separator = re.search(r"[./]", tool_name)
    if separator:
        prefix, rest = tool_name[: separator.start()], tool_name[separator.end() :]
        return (prefix, rest) if prefix and rest else (FALLBACK_NAMESPACE, tool_name)
    segments = tool_name.split("_")
    return (segments[0] if len(segments) >= 3 and segments[0] else FALLBACK_NAMESPACE), tool_name


def _without_prefix(tool_name: str, server: str) -> str:
    for separator in "./":
        if tool_name.startswith(server + separator) and len(tool_name) > len(server) + 1:
            return tool_name[len(server) + 1 :]
    return tool_name


def _legal_namespace(text: str) -> str:
    if NAMESPACE.fullmatch(text):
        return text
    mapped = re.sub(r"[^a-z0-9_-]+", "-", _ascii(text).lower()).strip("-_")[:_MAPPED_NAME_CHARS].strip("-_")
    if not mapped:
        return FALLBACK_NAMESPACE
    return mapped if mapped[0].isalpha() else f"n{mapped}"[:_MAPPED_NAME_CHARS]


def _legal_name(text: str) -> str:
    if NAME.fullmatch(text):
        return text
    mapped = re.sub(r"[^A-Za-z0-9_.-]+", "_", _ascii(text))
    if not mapped.strip("_.-"):
        return "tool"
    if not NAME.match(mapped):
        mapped = f"_{mapped}"
    return mapped[:_MAPPED_NAME_CHARS]


def _legal_version(text: str) -> str | None:
    if VERSION.fullmatch(text):
        return text
    return re.sub(r"[^A-Za-z0-9._-]+", "-", _ascii(text)).strip("-")[:32] or None


def _ascii(text: str) -> str:
    """Latin letters without their accents; the rest stays and is replaced by the caller."""
    return "".join(char for char in unicodedata.normalize("NFKD", text) if not unicodedata.combining(char))
