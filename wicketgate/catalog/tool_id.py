"""Tool ids, ``namespace:name[@version][#hash8]``: made from an upstream's name (CARD-1 to CARD-9), read and written,
and found again where a caller has one slightly wrong.

Models drop the hash, the version or the namespace, write another gateway's separator, or mistype a name.
"""

import difflib
import hashlib
import json
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import NewType

from wicketgate.errors import CatalogError

ToolId = NewType("ToolId", str)

Visible = Callable[[str], bool]
"""Returns true for the id of a tool that the caller may see."""

ToolNames = tuple[tuple[str, tuple[str, ...]], ...]
"""The names of one tool, which rules go by (ACCESS-47): each namespace with the tool's names, the id's name first; the
id's namespace comes first, and then that of the upstream, if it is another. No pair comes twice."""

MAX_TOOL_ID_CHARS = 240
FALLBACK_NAMESPACE = "mcp"

NAMESPACE = re.compile(r"[a-z][a-z0-9_-]{0,63}")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}")
VERSION = re.compile(r"[A-Za-z0-9._-]{1,32}")
HASH8 = re.compile(r"[0-9a-f]{8}")

# A name that has to be mapped anyway is cut to the length of a card's display name (CARD-20), so that its card fits.
_MAPPED_NAME_CHARS = 64

MAX_NEAR = 3
_MAX_WANTED_CHARS = 240
# Comparing two names letter by letter takes some 30 µs.
_MAX_COMPARED = 30
_LIKENESS = 0.8
_SEPARATOR = re.compile(r"__|[/.]")


@dataclass(frozen=True, slots=True)
class ToolIdParts:
    """The four fields of CARD-1. Either *version* or *hash8* is there, or both."""

    namespace: str
    name: str
    version: str | None = None
    hash8: str | None = None


def parse_tool_id(text: object) -> ToolIdParts:
    """Returns the parts of a canonical id (CARD-2). Raises CatalogError for any other text."""
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


_shape_json = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


def hash8(upstream_name: str, input_schema: object) -> str:
    """Returns eight hex digits over the upstream's own name and the schema's shape (CARD-5).

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
    canonical = f"{upstream_name}\n{_shape_json(shape)}"
    # A lone surrogate can arrive through JSON; it must not make the tool unnameable.
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def infer_namespace(tool_name: str) -> str:
    """Returns the namespace that a tool's own name gives, always within the grammar (CARD-6, CARD-7).

    That is the text before the first dot or slash; otherwise the first of three or more segments that underscores part;
    otherwise ``mcp``.
    """
    return namespace_of(_split_name(tool_name)[0])


def tool_names(namespace: str, *names: str, home: str = "") -> ToolNames:
    """Puts the names of a tool together; *home* is the namespace of its upstream. Empty names are left out."""
    known = tuple(dict.fromkeys(name for name in names if name))
    return tuple((each, known) for each in dict.fromkeys((namespace, home or namespace)))


def derive_tool_id(upstream_name: str, input_schema: object, version: str | None, server: str | None) -> ToolId:
    """Makes the canonical id of an upstream's tool (CARD-4, CARD-7).

    *server* is the namespace, and ``<server>.`` or ``<server>/`` is dropped from the name; None infers the namespace
    by the table of CARD-6. A name or version outside the grammar is mapped into it, and such an id always carries a
    hash over the original, so that two names never become one.
    """
    if server is None:
        namespace = infer_namespace(upstream_name)
        wanted_namespace, own_name = _split_name(upstream_name)
    else:
        namespace = namespace_of(server)
        wanted_namespace, own_name = server, _without_prefix(upstream_name, server)
    name = _legal_name(own_name)
    legal_version = None if version is None else _legal_version(version)
    mapped = (namespace, name, legal_version) != (wanted_namespace, own_name, version)
    hash_part = hash8(upstream_name, input_schema) if mapped or version is None else None
    return format_tool_id(ToolIdParts(namespace, name, legal_version, hash_part))


def shorter_tool_ids(tool_id: ToolId, upstream_name: str, input_schema: object) -> Iterator[ToolId]:
    """Yields the id with its name cut to 64, 32 and 16 characters, and a hash over the original, also beside a version:
    for a name that is too long for its card. Yields nothing for an id with a shorter name."""
    parts = parse_tool_id(tool_id)
    for most_chars in (_MAPPED_NAME_CHARS, 32, 16):
        if len(parts.name) > most_chars:
            yield format_tool_id(replace(parts, name=parts.name[:most_chars], hash8=hash8(upstream_name, input_schema)))


def ids_named(wanted: str, ids: Sequence[ToolId]) -> list[ToolId]:
    """Returns those of *ids*, which are in ascending order, that *wanted* names (CARD-34).

    What *wanted* gives has to be the same: namespace and name always, version and hash where it has them. A few dozen
    comparisons, however many ids there are.
    """
    if len(wanted) > MAX_TOOL_ID_CHARS:
        return []
    bare, version, hash_part = _id_parts(wanted)
    named: list[ToolId] = []
    for mark in "#@":
        prefix = bare + mark
        for position in range(bisect_left(ids, prefix), len(ids)):
            tool_id = ids[position]
            if not tool_id.startswith(prefix):
                break
            _, own_version, own_hash = _id_parts(tool_id)
            if version in (None, own_version) and hash_part in (None, own_hash):
                named.append(tool_id)
    return named


def near_ids(wanted: str, ids: Collection[str], visible: Visible | None = None) -> list[str]:
    """Returns at most three of *ids* that come near to *wanted*, the nearest first.

    First come those of the same name, in any namespace, version or hash; if there are none, those with similar names.
    Only *visible* ids count, so the answer is the same for a tool that is hidden and one that is not there. About a
    millisecond for 10,000 ids.
    """
    if not 2 <= len(wanted) <= _MAX_WANTED_CHARS:
        return []
    namespace, names = _read(wanted)
    if not names[-1]:
        return []
    near = [each for name in names for each in _named(name, ids) if visible is None or visible(each)]
    if not near:
        alike = (each for each in _alike(names[-1], ids) if visible is None or visible(each))
        likeness = _likenesses(names[-1], islice(alike, _MAX_COMPARED))
        return sorted(likeness, key=lambda each: (_parts(each)[0] != namespace, -likeness[each], each))[:MAX_NEAR]
    return sorted(set(near), key=lambda each: (_parts(each)[0] != namespace, each))[:MAX_NEAR]


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


def _split_name(tool_name: str) -> tuple[str, str]:
    """The namespace as the name spells it, and the name that stays: less a prefix before a dot or slash."""
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


def namespace_of(text: str) -> str:
    if NAMESPACE.fullmatch(text):
        return text
    mapped = re.sub(r"[^a-z0-9_-]+", "-", without_accents(text).lower()).strip("-_")[:_MAPPED_NAME_CHARS].strip("-_")
    if not mapped:
        return FALLBACK_NAMESPACE
    return mapped if mapped[0].isalpha() else f"n{mapped}"[:_MAPPED_NAME_CHARS]


def _legal_name(text: str) -> str:
    if NAME.fullmatch(text):
        return text
    mapped = re.sub(r"[^A-Za-z0-9_.-]+", "_", without_accents(text))
    if not mapped.strip("_.-"):
        return "tool"
    if not NAME.match(mapped):
        mapped = f"_{mapped}"
    return mapped[:_MAPPED_NAME_CHARS]


def _legal_version(text: str) -> str | None:
    if VERSION.fullmatch(text):
        return text
    return re.sub(r"[^A-Za-z0-9._-]+", "-", without_accents(text)).strip("-")[:32] or None


def without_accents(text: str) -> str:
    """Removes the accents of Latin letters; the rest stays and is replaced by the caller."""
    return "".join(char for char in unicodedata.normalize("NFKD", text) if not unicodedata.combining(char))


def _id_parts(text: str) -> tuple[str, str | None, str | None]:
    """Returns ``namespace:name``, version and hash of a text that looks like an id; None for what it leaves out."""
    rest, hash_mark, hash_part = text.partition("#")
    bare, version_mark, version = rest.partition("@")
    return bare, version if version_mark else None, hash_part if hash_mark else None


def _parts(tool_id: str) -> tuple[str, str]:
    """Returns namespace and name of a text that looks like an id."""
    plain = tool_id.partition("#")[0].partition("@")[0].strip()
    namespace, colon, name = plain.partition(":")
    return (namespace, name) if colon else ("", plain)


def _read(wanted: str) -> tuple[str, list[str]]:
    """Returns the namespace and the names that *wanted* can mean: ``github.create_issue`` is also a name of github,
    and so is ``/github/issues/create_issue``."""
    if wanted.startswith("/"):
        namespace, _, below = wanted[1:].partition("/")
        return namespace, [_parts(below.rpartition("/")[2])[1] or namespace]
    namespace, name = _parts(wanted)
    before, *after = _SEPARATOR.split(name, maxsplit=1)
    if namespace or not after or not after[0]:
        return namespace, [name]
    return before, [name, after[0]]


def _named(name: str, ids: Collection[str]) -> Iterator[str]:
    key = f":{name}"
    # The first test is cheap, and few pass it.
    return (each for each in ids if key in each and _parts(each)[1] == name)


def _alike(name: str, ids: Collection[str]) -> Iterator[str]:
    """Yields ids whose names begin or end like *name* and are about as long; a typing error leaves one of the two."""
    part = max(len(name) * 2 // 5, 3)
    head, tail = f":{name[:part]}", name[-part:]
    return (each for each in ids if (head in each or tail in each) and abs(len(_parts(each)[1]) - len(name)) <= 3)


def _likenesses(name: str, ids: Iterable[str]) -> dict[str, float]:
    """Returns the likeness, from 0.8 to 1, of those *ids* whose names are so much alike."""
    likeness = {}
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(name.lower())
    for each in ids:
        matcher.set_seq1(_parts(each)[1].lower())
        # The second is an upper bound of the third, and a fifth of its cost.
        if matcher.real_quick_ratio() >= _LIKENESS and matcher.quick_ratio() >= _LIKENESS:
            ratio = matcher.ratio()
            if ratio >= _LIKENESS:
                likeness[each] = ratio
    return likeness
