"""Which operations a document offers, each as a tool in MCP wire JSON (DESIGN §2, S1, S4 §2).

A piece of the document that cannot be used costs its own operation and no other.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from wicketgate.catalog.selectable import OPERATION_KEY
from wicketgate.upstreams.openapi.bodies import Body
from wicketgate.upstreams.openapi.document import Document, Unusable
from wicketgate.upstreams.openapi.inputs import InputReader, Inputs
from wicketgate.upstreams.openapi.outputs import STREAMS, accept_header, answer_types, output_schema
from wicketgate.upstreams.openapi.parameters import Parameter
from wicketgate.upstreams.openapi.schemas import SchemaReader, ToolSchemas

MAX_OPERATIONS = 10_000
# In the sizes of ``schemas.py``: of one tool, and of all. What comes after is cut, or left out where it only helps.
_INPUT_SCHEMA = 3_000
_LEAST_INPUT = 200
_OUTPUT_SCHEMA = 500
_ALL_SCHEMAS = 1_000_000
_MAX_NAME = 64
_MAX_DESCRIPTION = 4_000
# OPTIONS and TRACE are about the connection; exports of API gateways are full of the former.
_METHODS = ("get", "put", "post", "delete", "patch", "head")
_READS = frozenset({"get", "head"})
_REPEATABLE = frozenset({"get", "head", "put", "delete"})
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
    reader = _Reader(document, own_servers, reserved_headers)
    found: list[Operation] = []
    skipped: list[str] = []
    for number, (method, path, shared, raw) in enumerate(_all(document)):
        where = f"{method.upper()} {path[:200]}"
        if number >= MAX_OPERATIONS:
            skipped.append(f"{where}: only the first {MAX_OPERATIONS:,} operations are read")
            break
        try:
            operation = reader.read(method, path, shared, raw)
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


class _Reader:
    """Reads the operations of one document, one after the other; together their schemas are bounded."""

    def __init__(self, document: Document, own_servers: bool, reserved_headers: frozenset[str]) -> None:
        self._document = document
        self._own_servers = own_servers
        self._reserved_headers = reserved_headers
        self._requests = SchemaReader(document, "request")
        self._responses = SchemaReader(document, "response")
        self._room = _ALL_SCHEMAS

    def read(self, method: str, path: str, shared: Mapping[str, Any], raw: object) -> Operation | None:
        """None for what its author keeps from such use. Raises Unusable."""
        if not isinstance(raw, Mapping):
            raise Unusable("it is not an object")
        if raw.get("x-internal") is True or raw.get("x-mcp") is False:
            return None
        _check_path(path)
        if self._own_servers and ("servers" in raw or "servers" in shared):
            raise Unusable("it has servers of its own; set base_url")
        schemas = ToolSchemas(self._requests, max(_LEAST_INPUT, min(_INPUT_SCHEMA, self._room)))
        inputs = InputReader(self._document, path, shared, raw, self._reserved_headers, schemas).read()
        self._room -= schemas.size
        media_types = answer_types(self._document, raw)
        streams = raw.get("x-streaming") is True or (bool(media_types) and media_types <= STREAMS)
        operation_id = raw.get("operationId")
        name = _legal(operation_id) if isinstance(operation_id, str) else ""
        return Operation(
            name=name or _path_name(method, path),
            method=method.upper(),
            template=path,
            parameters=inputs.parameters,
            body=inputs.body,
            accept=accept_header(media_types),
            streams=streams,
            tool=_tool(method, raw, inputs, None if streams else self._output(raw), streams),
        )

    def _output(self, raw: Mapping[str, Any]) -> dict[str, Any] | None:
        schemas = ToolSchemas(self._responses, min(_OUTPUT_SCHEMA, self._room))
        found = output_schema(self._document, raw, schemas)
        if found is not None:
            self._room -= schemas.size
        return found


def _check_path(path: str) -> None:
    if not path.startswith("/") or any(part in (".", "..") for part in path.split("/")):
        raise Unusable("its path is not absolute")
    if "?" in path or "#" in path or "\\" in path:
        raise Unusable("its path holds a query or a fragment")
    if not path.isprintable() or path.count("{") != path.count("}"):
        raise Unusable("its path is not well formed")


def _tool(
    method: str, raw: Mapping[str, Any], inputs: Inputs, output: Mapping[str, Any] | None, streams: bool
) -> dict[str, Any]:
    texts = [text.strip() for key in ("summary", "description") if isinstance(text := raw.get(key), str)]
    if len(texts) == 2 and texts[1].startswith(texts[0]):
        texts = texts[1:]
    if raw.get("deprecated") is True:
        texts.insert(0, "Deprecated.")
    tool: dict[str, Any] = {"description": "\n\n".join(filter(None, texts))[:_MAX_DESCRIPTION]}
    tool["inputSchema"] = inputs.schema
    if output is not None:
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
