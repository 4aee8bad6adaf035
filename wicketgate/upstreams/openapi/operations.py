"""Reads the operations of a document, each as a tool in MCP wire JSON (CARD-18).

A piece of the document that cannot be used costs its own operation and no other.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from wicketgate.catalog.selectable import OPERATION_KEY
from wicketgate.upstreams.openapi.bodies import STREAMS, RequestBody, base_type, is_json_type
from wicketgate.upstreams.openapi.document import Document, Unusable
from wicketgate.upstreams.openapi.inputs import InputReader, Inputs
from wicketgate.upstreams.openapi.parameters import Parameter
from wicketgate.upstreams.openapi.schemas import SchemaReader, ToolSchemas
from wicketgate.upstreams.openapi.security import Configured, SecurityReader

MAX_OPERATIONS = 10_000
# Sizes as ``schemas.py`` counts them: of one tool, and of all. Beyond them an input schema is cut, and an output schema
# is left out.
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
"""The ``_meta`` of an operation that answers with a stream. No model is shown it (CARD-18)."""


@dataclass(frozen=True, slots=True)
class OpenApiOperation:
    """One operation. *template* is its path with ``{names}``, perhaps with a fixed query, *tool* its definition for
    MCP. *missing* names the credentials that it asks for and that are not configured."""

    name: str
    method: str
    template: str
    parameters: tuple[Parameter, ...]
    body: RequestBody | None
    accept: str
    streams: bool
    tool: Mapping[str, Any]
    missing: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """The operations by name. *skipped* has the reason for each one that was left out: ``GET /pets: ...``."""

    operations: Mapping[str, OpenApiOperation]
    skipped: tuple[str, ...]


def read_operations(
    document: Document,
    configured: Configured,
    *,
    own_servers: bool = False,
) -> Reading:
    """Read all operations. Takes seconds for thousands, so call it in a thread.

    *own_servers*: calls go to the document's server, so an operation with servers of its own cannot be called.
    """
    reader = _OperationReader(document, configured, own_servers)
    found: list[OpenApiOperation] = []
    skipped: list[str] = []
    for number, (method, path, shared, raw) in enumerate(_all(document)):
        where = f"{method.upper()} {path[:200]}".strip()
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
    """Yields method, path, path item and operation; the reason in its place if the path item cannot be followed."""
    for path, item in document.root.get("paths", {}).items():
        if path.startswith("x-"):
            continue
        try:
            item = document.resolve(item)
        except Unusable as reason:
            yield "", path, {}, reason
            continue
        for method in _METHODS:
            if method in item:
                yield method, path, item, item[method]


class _OperationReader:
    """Reads the operations of one document one by one. The size of all their schemas together is bounded."""

    def __init__(self, document: Document, configured: Configured, own_servers: bool) -> None:
        self._document = document
        self._configured = configured
        self._own_servers = own_servers
        self._security = SecurityReader(document, configured)
        self._requests = SchemaReader(document, "request")
        self._responses = SchemaReader(document, "response")
        self._room = _ALL_SCHEMAS

    def read(self, method: str, path: str, shared: Mapping[str, Any], raw: object) -> OpenApiOperation | None:
        """Returns None for an operation that its author keeps from gateways. Raises Unusable."""
        if isinstance(raw, Unusable):
            raise raw
        if not isinstance(raw, Mapping):
            raise Unusable("it is not an object")
        raw = self._document.resolve(raw)
        if raw.get("x-internal") is True or raw.get("x-mcp") is False:
            return None
        _check_path(path)
        if self._own_servers and ("servers" in raw or "servers" in shared):
            raise Unusable("it has servers of its own; set base_url")
        # The arguments, then the answer, then the name.
        schemas = ToolSchemas(self._requests, max(_LEAST_INPUT, min(_INPUT_SCHEMA, self._room)))
        inputs = InputReader(self._document, path, shared, raw, self._configured, schemas).read()
        self._room -= schemas.size
        media_types = frozenset(base_type(kind) for content in _successes(self._document, raw) for kind in content)
        streams = raw.get("x-streaming") is True or (bool(media_types) and media_types <= STREAMS)
        operation_id = raw.get("operationId")
        name = _legal(operation_id) if isinstance(operation_id, str) else ""
        return OpenApiOperation(
            name=name or _path_name(method, path),
            method=method.upper(),
            template=path,
            parameters=inputs.parameters,
            body=inputs.body,
            accept=_accept_header(media_types),
            streams=streams,
            tool=_tool(method, path, raw, inputs, None if streams else self._output(raw), streams),
            missing=self._security.missing(raw),
        )

    def _output(self, raw: Mapping[str, Any]) -> dict[str, Any] | None:
        schemas = ToolSchemas(self._responses, min(_OUTPUT_SCHEMA, self._room))
        found = _output_schema(self._document, raw, schemas)
        if found is not None:
            self._room -= schemas.size
        return found


def _check_path(path: str) -> None:
    """A fixed query (``/messages?beta=true``) may stand behind it (UP-116). Raises Unusable."""
    path, _, query = path.partition("?")
    if not path.startswith("/") or any(part in (".", "..") for part in path.split("/")):
        raise Unusable("its path is not absolute")
    if "#" in path or "#" in query:
        raise Unusable("its path holds a fragment")
    if "{" in query or "}" in query:
        raise Unusable("its path holds a query that is not fixed")
    if "\\" in path + query or not (path + query).isprintable() or path.count("{") != path.count("}"):
        raise Unusable("its path is not well formed")


def _tool(
    method: str, path: str, raw: Mapping[str, Any], inputs: Inputs, output: Mapping[str, Any] | None, streams: bool
) -> dict[str, Any]:
    # Summary and description, unless the summary repeats the other, or the name: FastAPI makes both of the function's.
    texts = [text.strip() for key in ("summary", "description") if isinstance(text := raw.get(key), str)]
    made = _letters(f"{raw.get('summary')}{path}{method}") == _letters(f"{raw.get('operationId')}")
    if len(texts) == 2 and texts[1] and (made or texts[1].startswith(texts[0])):
        texts = texts[1:]
    if raw.get("deprecated") is True:
        texts.insert(0, "Deprecated.")
    tool: dict[str, Any] = {"description": "\n\n".join(filter(None, texts))[:_MAX_DESCRIPTION]}
    tool["inputSchema"] = inputs.schema
    if output is not None:
        tool["outputSchema"] = output
    # Hints by the method's meaning in HTTP; they never decide access.
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


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))


def _accept_header(media_types: frozenset[str]) -> str:
    """Prefers JSON. Streams are left out, so that a server with a choice sends none."""
    known = sorted(kind for kind in media_types - STREAMS if re.fullmatch(r"[\w.+*-]+/[\w.+*-]+", kind, re.ASCII))
    wanted = sorted(known, key=lambda kind: not is_json_type(kind))[:10]
    return ", ".join([*(wanted or ["application/json"]), "*/*;q=0.1"])


def _output_schema(document: Document, raw: Mapping[str, Any], schemas: ToolSchemas) -> dict[str, Any] | None:
    """Returns the schema of a JSON answer that is always an object, because structured content is nothing else (MCP).
    Returns None if it would be large: it is only a help."""
    for content in _successes(document, raw):
        for media_type, media in content.items():
            if is_json_type(media_type) and isinstance(media, Mapping) and ("schema" in media or "$ref" in media):
                try:
                    declared = document.resolve(media).get("schema", {})
                    if document.resolve(declared).get("type") != "object":
                        return None
                    schema = schemas.read(declared)
                    if definitions := schemas.definitions():
                        schema["$defs"] = definitions
                except Unusable:
                    return None
                if not schemas.whole or schema.get("type", "object") != "object":
                    return None
                # Tools declare the type at the root, also if it follows from a reference.
                return {"type": "object", **schema}
    return None


def _successes(document: Document, raw: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yields the ``content`` of every response that is a success, the lowest status first."""
    try:
        responses = document.follow(raw.get("responses"))
    except Unusable:
        return
    if not isinstance(responses, Mapping):
        return
    statuses = sorted(status for status in responses if status[:1] == "2" and len(status) == 3)
    for status in statuses or (["default"] if "default" in responses else []):
        try:
            content = document.follow(document.resolve(responses[status]).get("content"))
        except Unusable:
            continue  # the form of the answer is only a help: the operation can be called without
        if isinstance(content, Mapping):
            yield content


def _legal(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_-")[:_MAX_NAME].rstrip("_-")


def _path_name(method: str, path: str) -> str:
    return _legal(re.sub(r"[^A-Za-z0-9-]+", "_", f"{method}_{path}"))


def _named_apart(operations: list[OpenApiOperation]) -> Iterator[OpenApiOperation]:
    """Gives each operation a name of its own. All that share one lose it, so that no name depends on the order."""
    by_id = Counter(operation.name for operation in operations)
    renamed = [
        operation
        if by_id[operation.name] == 1
        else replace(operation, name=_path_name(operation.method.lower(), operation.template))
        for operation in operations
    ]
    # Paths that differ only in their punctuation still share a name: a digest is added.
    by_path = Counter(operation.name for operation in renamed)
    for operation in renamed:
        name = operation.name
        if by_path[name] > 1:
            digest = hashlib.sha256(f"{operation.method} {operation.template}".encode("utf-8", "replace")).hexdigest()
            name = f"{name[: _MAX_NAME - 9]}_{digest[:8]}"
        yield replace(operation, name=name, tool={"name": name, **operation.tool})
