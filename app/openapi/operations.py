"""Which operations a document offers, each as a tool in MCP wire JSON (DESIGN §2, S1, S4 §2).

A piece of the document that cannot be used costs its own operation and no other.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from app.catalog.selectable import OPERATION_KEY
from app.openapi.bodies import Body, base_type, is_json_type
from app.openapi.document import Document, Unusable
from app.openapi.inputs import InputReader, Inputs
from app.openapi.parameters import Parameter
from app.openapi.schemas import SchemaReader

MAX_OPERATIONS = 10_000
_MAX_NAME = 64
_MAX_DESCRIPTION = 4_000
_METHODS = ("get", "put", "post", "delete", "patch", "head", "options", "trace")
_READS = frozenset({"get", "head", "options"})
_REPEATABLE = frozenset({"get", "head", "options", "put", "delete"})
_STREAMS = frozenset(
    {
        "text/event-stream",
        "application/x-ndjson",
        "application/ndjson",
        "application/jsonl",
        "application/x-jsonlines",
        "application/json-seq",
        "multipart/x-mixed-replace",
    }
)

SUBSCRIPTION = {OPERATION_KEY: "subscription"}
"""In ``_meta`` of what answers with a stream: no request and response, so no model is shown it (S4 §2)."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation. *template* is its path with ``{names}``, *tool* its definition for MCP."""

    name: str
    method: str
    template: str
    parameters: tuple[Parameter, ...]
    body: Body | None
    accept: str
    streams: bool
    tool: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Reading:
    """*skipped* says for each operation that was left out why: ``GET /pets: ...``."""

    operations: Mapping[str, Operation]
    skipped: tuple[str, ...]


def read_operations(document: Document, *, own_servers: bool = False, reserved_headers: frozenset[str]) -> Reading:
    """All of them by name. Takes seconds for thousands, so call it in a thread.

    *own_servers*: calls go to the servers that the document names, so that an operation with servers of its own cannot
    be called. *reserved_headers* (in lower case) are ours to send, never an argument.
    """
    found: list[Operation] = []
    skipped: list[str] = []
    for method, path, shared, raw in _all(document):
        where = f"{method.upper()} {path[:200]}"
        if len(found) >= MAX_OPERATIONS:
            skipped.append(f"{where}: only the first {MAX_OPERATIONS:,} operations are read")
            break
        try:
            operation = _read(document, method, path, shared, raw, own_servers, reserved_headers)
        except (Unusable, RecursionError) as reason:
            skipped.append(f"{where}: {str(reason) or 'nested too deeply'}")
        else:
            if operation is not None:
                found.append(operation)
    return Reading({operation.name: operation for operation in _named_apart(found)}, tuple(skipped))


def _all(document: Document) -> Iterator[tuple[str, str, Mapping[str, Any], Any]]:
    for path, item in document.root.get("paths", {}).items():
        try:
            item = document.resolve(item)
        except Unusable:
            item = {"get": None}  # told as an operation that cannot be read
        for method in _METHODS:
            if method in item:
                yield method, path, item, item[method]


def _read(
    document: Document,
    method: str,
    path: str,
    shared: Mapping[str, Any],
    raw: object,
    own_servers: bool,
    reserved_headers: frozenset[str],
) -> Operation | None:
    """None for what its author keeps from such use. Raises Unusable."""
    if not isinstance(raw, Mapping):
        raise Unusable("it is not an object")
    if raw.get("x-internal") is True or raw.get("x-mcp") is False or method == "trace":
        return None
    _check_path(path)
    if own_servers and ("servers" in raw or "servers" in shared):
        raise Unusable("it has servers of its own; set base_url")
    inputs = InputReader(document, path, shared, raw, reserved_headers).read()
    media_types = _answer_types(document, raw)
    streams = raw.get("x-streaming") is True or (bool(media_types) and media_types <= _STREAMS)
    operation_id = raw.get("operationId")
    name = _legal(operation_id) if isinstance(operation_id, str) else ""
    return Operation(
        name=name or _path_name(method, path),
        method=method.upper(),
        template=path,
        parameters=inputs.parameters,
        body=inputs.body,
        accept=_accept(media_types),
        streams=streams,
        tool=_tool(document, method, raw, inputs, streams),
    )


def _check_path(path: str) -> None:
    if not path.startswith("/") or any(part in (".", "..") for part in path.split("/")):
        raise Unusable("its path is not absolute")
    if "?" in path or "#" in path or "\\" in path:
        raise Unusable("its path holds a query or a fragment")
    if not path.isprintable() or path.count("{") != path.count("}"):
        raise Unusable("its path is not well formed")


def _tool(document: Document, method: str, raw: Mapping[str, Any], inputs: Inputs, streams: bool) -> dict[str, Any]:
    texts = [text.strip() for key in ("summary", "description") if isinstance(text := raw.get(key), str)]
    if len(texts) == 2 and texts[1].startswith(texts[0]):
        texts = texts[1:]
    if raw.get("deprecated") is True:
        texts.insert(0, "Deprecated.")
    tool: dict[str, Any] = {"description": "\n\n".join(filter(None, texts))[:_MAX_DESCRIPTION]}
    tool["inputSchema"] = inputs.schema
    if not streams and (output := _output_schema(document, raw)) is not None:
        tool["outputSchema"] = output
    tool["annotations"] = {
        "readOnlyHint": method in _READS,
        "destructiveHint": method == "delete",
        "idempotentHint": method in _REPEATABLE,
    }
    if isinstance(summary := raw.get("summary"), str) and summary.strip():
        tool["annotations"]["title"] = summary.strip()[:200]
    if streams:
        tool["_meta"] = dict(SUBSCRIPTION)
    return tool


def _good_responses(document: Document, raw: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The ``content`` of every response that is a success, the lowest status first."""
    responses = raw.get("responses")
    if not isinstance(responses, Mapping):
        return
    statuses = sorted(status for status in responses if status[:1] == "2" and len(status) == 3)
    for status in statuses or (["default"] if "default" in responses else []):
        try:
            content = document.resolve(responses[status]).get("content")
        except Unusable:
            continue  # what an answer looks like is a help, and its lack no reason not to ask
        if isinstance(content, Mapping):
            yield content


def _answer_types(document: Document, raw: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(base_type(kind) for content in _good_responses(document, raw) for kind in content)


def _accept(media_types: frozenset[str]) -> str:
    """JSON first; never a stream, where the server leaves us the choice."""
    known = sorted(kind for kind in media_types - _STREAMS if re.fullmatch(r"[\w.+*-]+/[\w.+*-]+", kind, re.ASCII))
    wanted = sorted(known, key=lambda kind: not is_json_type(kind))[:10]
    return ", ".join([*(wanted or ["application/json"]), "*/*;q=0.1"])


def _output_schema(document: Document, raw: Mapping[str, Any]) -> dict[str, Any] | None:
    """Of a JSON answer that is always an object; structured content is nothing else (MCP)."""
    for content in _good_responses(document, raw):
        for media_type, media in content.items():
            if not is_json_type(media_type) or not isinstance(media, Mapping) or "schema" not in media:
                continue
            try:
                if document.resolve(media["schema"]).get("type") != "object":
                    return None
                reader = SchemaReader(document, "response")
                schema = reader.read(media["schema"])
                if definitions := reader.definitions():
                    schema["$defs"] = definitions
            except Unusable:
                return None
            # Tools declare the type at the root, also where it follows from a reference.
            return {"type": "object", **schema} if schema.get("type", "object") == "object" else None
    return None


def _legal(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_-")[:_MAX_NAME].rstrip("_-")


def _path_name(method: str, path: str) -> str:
    return _legal(re.sub(r"[^A-Za-z0-9-]+", "_", f"{method}_{path}"))


def _named_apart(operations: list[Operation]) -> Iterator[Operation]:
    """Names that two would share are given up by both, so that a name does not depend on what comes before it."""
    by_id = Counter(operation.name for operation in operations)
    renamed = [
        operation
        if by_id[operation.name] == 1
        else replace(operation, name=_path_name(operation.method.lower(), operation.template))
        for operation in operations
    ]
    by_path = Counter(operation.name for operation in renamed)
    for operation in renamed:
        name = operation.name
        if by_path[name] > 1:
            digest = hashlib.sha256(f"{operation.method} {operation.template}".encode("utf-8", "replace")).hexdigest()
            name = f"{name[: _MAX_NAME - 9]}_{digest[:8]}"
        yield replace(operation, name=name, tool={"name": name, **operation.tool})
