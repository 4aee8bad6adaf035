"""The envelope of a tool result, and its making from an MCP result (EXEC-18 to EXEC-24).

An MCP result comes from a foreign server and can have any shape. A part that cannot be read is kept as JSON under a
``malformed`` handle and named in ``provenance["problems"]``. The status is then ``partial``, or ``error`` if there is
no result at all.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

from wicketgate.results.bulk import base64_bytes, json_bytes, outweighs, utf8

ResultStatus = Literal["ok", "partial", "error"]

SUMMARY_CHARS = 500


@dataclass(frozen=True, slots=True)
class ArtifactRef:
    """A reference to bytes that ``tool_view`` can read."""

    handle: str
    media_type: str
    label: str
    size_bytes: int

    def as_dict(self) -> dict[str, Any]:
        # Not ``asdict``, which takes ten times as long: this is a part of every call.
        return {
            "handle": self.handle,
            "media_type": self.media_type,
            "label": self.label,
            "size_bytes": self.size_bytes,
        }


@dataclass(frozen=True, slots=True)
class ResultEnvelope:
    """*summary* has at most 500 characters. *status* is partial when some of the result could not be read as MCP.
    *structured_content* is that of a result that is shown whole; otherwise it is an artifact (EXEC-97)."""

    status: ResultStatus
    summary: str
    facts: tuple[str, ...] = ()
    artifacts: tuple[ArtifactRef, ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)
    structured_content: Any = None

    def as_dict(self) -> dict[str, Any]:
        """Returns ``{status, summary, facts, artifacts, provenance, structured_content?}`` in new containers."""
        body = {
            "status": self.status,
            "summary": self.summary,
            "facts": list(self.facts),
            "artifacts": [ref.as_dict() for ref in self.artifacts],
            "provenance": dict(self.provenance),
        }
        return body if self.structured_content is None else {**body, "structured_content": self.structured_content}


def shorten(text: str, limit_chars: int) -> str:
    """Cuts *text* to *limit_chars* characters, with ``…`` at the end of a cut; the result can be encoded as UTF-8."""
    if len(text) > limit_chars:
        text = text[: max(limit_chars - 1, 0)] + "…"[:limit_chars]
    return text.encode("utf-8", "replace").decode()


Binary = tuple[bytes, str, str]
"""``(bytes, media type, label)``."""

NO_CONTENT = "(no content)"

MAX_FACTS = 20
# Structured content of up to so many characters is given whole; of a larger one, each fact is short.
WHOLE_FACTS_CHARS = 2_000
FACT_CHARS = 120
_LIKE_CHARS = 80
_NAME_CHARS = 200
_NOT_THE_ANSWER = ("isError", "structuredContent", "resultType", "_meta")


def mcp_result_to_envelope(result: object, tool_name: str) -> tuple[ResultEnvelope, dict[str, Binary], str]:
    """Read a ``tools/call`` result in wire JSON; never raises.

    Returns the envelope, the binaries by handle (``mcp:<tool>:image:0``; the number is the index of the part), and the
    complete text: text parts and resource texts, joined by newlines.
    """
    reading = _Reading(f"mcp:{tool_name}:")
    structured: object = None
    # Gather the parts and the structured content.
    if isinstance(result, Mapping):
        for index, part in enumerate(_parts(result, reading)):
            reading.add_part(index, part)
        structured = result.get("structuredContent")
        if structured is not None:
            reading.add_structured(structured)
        elif "content" not in result and (rest := {key: result[key] for key in result if key not in _NOT_THE_ANSWER}):
            reading.add_malformed("result", rest, "the answer has no content")
    else:
        reading.add_malformed("result", result, "the answer is not a result object")

    # Then say what they are: text, status, origin, problems.
    text = "\n".join(reading.texts)
    status = _status(result, reading)
    provenance: dict[str, Any] = {"tool": tool_name, "protocol": "mcp"}
    if reading.annotations:
        provenance["content_annotations"] = reading.annotations
    if reading.problems:
        provenance["problems"] = reading.problems
    envelope = ResultEnvelope(
        status=status,
        summary=shorten(text, SUMMARY_CHARS) if text else _without_text(reading.binaries),
        facts=facts(structured, whole=reading.structured_chars <= WHOLE_FACTS_CHARS),
        artifacts=tuple(
            ArtifactRef(handle, media_type, label, len(data))
            for handle, (data, media_type, label) in reading.binaries.items()
        ),
        provenance=provenance,
    )
    return envelope, reading.binaries, text


class _Reading:
    """Gathers texts, binaries, annotations and problems from the parts of a result."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.texts: list[str] = []
        self.binaries: dict[str, Binary] = {}
        self.annotations: list[dict[str, Any]] = []
        self.problems: list[str] = []
        self.structured_chars = 0

    def add_part(self, index: int, part: object) -> None:
        if not isinstance(part, Mapping):
            self.add_malformed(str(index), part, f"content[{index}] is not an object")
            return
        # The kinds that MCP knows. Any other part is kept as it came.
        self._annotate(index, part.get("annotations"))
        match part:
            case {"type": "text", "text": str(text)}:
                self.texts.append(text)
            case {"type": "image" | "audio" as kind, "data": str(data)}:
                self._keep(f"{kind}:{index}", self._decoded(index, data), part.get("mimeType"), kind)
            case {"type": "resource", "resource": {"text": str(text), **rest}} if "blob" not in rest:
                self.texts.append(text)
                self._keep(f"resource:{index}", utf8(text), rest.get("mimeType") or "text/plain", _label(rest, "uri"))
            case {"type": "resource", "resource": {"blob": str(blob), **rest}} if "text" not in rest:
                self._keep(f"resource:{index}", self._decoded(index, blob), rest.get("mimeType"), _label(rest, "uri"))
            case {"type": "resource_link", "uri": str(uri)}:
                self._keep(f"resource_link:{index}", utf8(uri), "text/uri-list", _label(part, "name", "uri"))
            case {"type": str(kind)}:
                self.add_malformed(str(index), part, f"content[{index}] cannot be read as {shorten(kind, 40)!r}")
            case _:
                self.add_malformed(str(index), part, f"content[{index}] has no type")

    def add_structured(self, value: object) -> None:
        data = json_bytes(value)
        if data is None:
            self.problems.append("structuredContent: not JSON, so it could not be kept")
            return
        # The number of bytes is near enough to that of characters for a budget.
        self.structured_chars = len(data)
        self._keep("structured_content", data, "application/json", "structured content")

    def add_malformed(self, where: str, value: object, problem: str) -> None:
        self.problems.append(problem)
        data = json_bytes(value)
        if data is None:
            self.problems.append(f"{where}: not JSON, so it could not be kept")
        elif value is not None:
            self._keep(f"malformed:{where}", data, "application/json", "unreadable part, as it came")

    def _keep(self, handle: str, data: bytes, media_type: object, label: str) -> None:
        # A server's media type goes into headers later, so only a plain one is believed.
        known = isinstance(media_type, str) and media_type.isascii() and media_type.isprintable()
        known = known and 0 < len(str(media_type)) <= 100
        self.binaries[self._prefix + handle] = (
            data,
            str(media_type) if known else "application/octet-stream",
            shorten(label, _NAME_CHARS),
        )

    def _decoded(self, index: int, text: str) -> bytes:
        """Decodes base64; keeps the characters of any other text (nothing is lost)."""
        data = base64_bytes(text)
        if data is None:
            self.problems.append(f"content[{index}] is not base64; its characters are kept")
            return utf8(text)
        return data

    def _annotate(self, index: int, annotations: object) -> None:
        if not isinstance(annotations, Mapping):
            return
        kept: dict[str, Any] = {}
        audience, priority = annotations.get("audience"), annotations.get("priority")
        if isinstance(audience, list) and all(isinstance(each, str) for each in audience):
            kept["audience"] = [shorten(each, 40) for each in audience[:10]]
        if isinstance(priority, int | float) and not isinstance(priority, bool) and math.isfinite(priority):
            kept["priority"] = priority
        if isinstance(modified := annotations.get("lastModified"), str):
            kept["lastModified"] = shorten(modified, 40)
        if kept:
            self.annotations.append({"part_index": index, **kept})


def _parts(result: Mapping[Any, Any], reading: _Reading) -> list[Any]:
    content = result.get("content", [])
    match content:
        case list() | tuple():
            return list(content)
        case Mapping():
            reading.problems.append("content is one part instead of a list")
            return [content]
        case str():
            reading.problems.append("content is a string instead of a list")
            return [{"type": "text", "text": content}]
        case _:
            reading.add_malformed("content", content, "content is not a list")
            return []


def _status(result: object, reading: _Reading) -> ResultStatus:
    if not isinstance(result, Mapping):
        return "error"
    # A flag of the wrong type is taken as an error, so that no failure passes as a result.
    flag = result.get("isError")
    if flag is not None and not isinstance(flag, bool):
        reading.problems.append("isError is not true or false")
        return "error"
    if flag:
        return "error"
    return "partial" if reading.problems else "ok"


def _without_text(binaries: Mapping[str, Binary]) -> str:
    if not binaries:
        return NO_CONTENT
    media_types = sorted({media_type for _, media_type, _ in binaries.values()})
    return shorten(f"(no text; {len(binaries)} artifacts: {', '.join(media_types)})", SUMMARY_CHARS)


def facts(structured: object, *, whole: bool) -> tuple[str, ...]:
    """Returns ``key: value`` for each member of an object, ``value: ...`` for any other JSON.

    Unless *whole*, there are at most 20, and a value longer than 120 characters is given as its type, size and shape.
    """
    if structured is None:
        return ()
    # JSON other than an object is one fact.
    limit = WHOLE_FACTS_CHARS if whole else FACT_CHARS
    if not isinstance(structured, Mapping):
        return (f"value: {_value(structured, limit)}",)
    shown = len(structured) if whole else MAX_FACTS
    given = [f"{shorten(str(key), 80)}: {_value(structured[key], limit)}" for key in islice(structured, shown)]
    if len(structured) > shown:
        given.append(f"({len(structured) - shown} more keys)")
    return tuple(given)


def _value(value: object, limit: int) -> str:
    match value:
        case str():
            return shorten(value, limit) if len(value) <= limit else f"text of {len(value):,} characters"
        case Mapping() | list() | tuple():
            # A value of more members than characters allowed cannot fit, so it is not written at all.
            data = None if outweighs(value, limit) else json_bytes(value)
            if data is not None and len(data) <= limit:
                return data.decode("utf-8", "replace")
            return _shape(value)
        case _:
            return shorten((json_bytes(value) or b"?").decode("utf-8", "replace"), limit)


def _shape(value: Mapping[Any, Any] | list[Any] | tuple[Any, ...]) -> str:
    """Describes the size of a value, and its keys or first element if that is short."""
    if isinstance(value, Mapping):
        keys = ", ".join(shorten(str(key), 20) for key in islice(value, 6))
        return f"object of {len(value):,} keys: {keys}{', …' if len(value) > 6 else ''}"
    first = None if outweighs(value[0], _LIKE_CHARS) else json_bytes(value[0])
    if first is None or len(first) > _LIKE_CHARS:
        return f"list of {len(value):,}"
    return f"list of {len(value):,}, the first: {first.decode('utf-8', 'replace')}"


def _label(fields: Mapping[Any, Any], *keys: str) -> str:
    return next((value for key in keys if isinstance(value := fields.get(key), str) and value), "resource")
