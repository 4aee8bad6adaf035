"""Operations: tools under ``/namespace/name``, with search, schema, call and batch over the runtime (FACE-23, FACE-25,
FACE-27).

The registry face and its HTTP twin share this module, so that they cannot disagree.
"""

import asyncio
import base64
import binascii
import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from wicketgate.access.policy import NeedsApproval
from wicketgate.catalog.catalog import Catalog
from wicketgate.catalog.selectable import SelectableItem
from wicketgate.catalog.tool_id import parse_tool_id
from wicketgate.errors import (
    ApprovalRequired,
    ArgsInvalid,
    Forbidden,
    GatewayError,
    HydrateFailed,
    RateLimited,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from wicketgate.faces.meta_tool import CONNECTING
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.ports import SILENT, CallContext

# A batch with more calls is refused before any of them runs (FACE-31).
MAX_BATCH = 50
BATCH_AT_ONCE = 8
MAX_LIMIT = 200
DEFAULT_LIMIT = 50

_SEARCH_FIELDS = frozenset({"query", "namespace", "limit", "cursor"})
_CALL_FIELDS = frozenset({"operation", "input"})

# A catalog with more tools is indexed and searched in a thread.
_LARGE = 2_000

# Every code that an operation can end with: its HTTP status and its meaning.
ERRORS: Mapping[str, tuple[int, str]] = {
    "NOT_FOUND": (404, "There is no such operation for this caller."),
    "INVALID_INPUT": (422, "The input does not fit the input schema; details.errors says where. Nothing ran."),
    "FORBIDDEN": (403, "This call is not allowed. Nothing ran."),
    "APPROVAL_REQUIRED": (403, "Somebody has to agree to this call first. Nothing ran."),
    "RATE_LIMITED": (429, "Too many calls; details.retry_after_s says when to try again."),
    "UNAVAILABLE": (503, "The tool server cannot be reached. Nothing ran."),
    "TIMEOUT": (504, "The tool server did not answer in time."),
    "MCP_TOOL_ERROR": (500, "The tool ran and failed; details.content is what it said."),
    "INTERNAL": (500, "The tool server or the gateway failed."),
}

_CODES: Mapping[type[GatewayError], str] = {
    HydrateFailed: "NOT_FOUND",
    ArgsInvalid: "INVALID_INPUT",
    Forbidden: "FORBIDDEN",
    ApprovalRequired: "APPROVAL_REQUIRED",
    RateLimited: "RATE_LIMITED",
    UpstreamUnavailable: "UNAVAILABLE",
    UpstreamTimeout: "TIMEOUT",
}


class OperationError(Exception):
    """A failed operation, in the shape ``{code, message, retryable, details?}``."""

    def __init__(
        self, code: str, message: str, *, retryable: bool = False, details: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retryable = retryable
        self.details = details

    @property
    def http_status(self) -> int:
        return ERRORS[self.code][0]

    def as_dict(self) -> dict[str, Any]:
        body: dict[str, Any] = {"code": self.code, "message": self.message, "retryable": self.retryable}
        if self.details is not None:
            body["details"] = dict(self.details)
        return body


@dataclass(frozen=True, slots=True)
class Output:
    """The output of an operation. *value* is JSON: the structured content, otherwise the text, otherwise the content
    blocks. *content* holds the unchanged blocks."""

    value: Any
    content: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """One call of a batch: its output or its error."""

    request_id: str
    outcome: Output | OperationError


@dataclass(frozen=True, slots=True)
class NamedTool:
    """A tool as an operation. *text* is searched: name and description, without regard to case."""

    name: str
    item: SelectableItem
    text: str


class OperationIndex:
    """The operations of one catalog. *by_name* is in the order of names."""

    def __init__(self, items: Mapping[str, SelectableItem]) -> None:
        names = _names(items)
        self.by_name = {
            name: NamedTool(name, items[tool_id], f"{name} {items[tool_id].description}".casefold())
            for tool_id, name in sorted(names.items(), key=lambda pair: pair[1])
        }
        self.name_of = names

    def get(self, name: str) -> NamedTool | None:
        """Accepts a name with or without the leading slash (FACE-25, FACE-27)."""
        return self.by_name.get(name if name.startswith("/") else f"/{name}")


class Operations:
    """*started* is false until the first tools are there. Until then no operation is reported as unknown."""

    def __init__(self, runtime: ProxyRuntime, *, started: Callable[[], bool] = lambda: True) -> None:
        self._runtime = runtime
        self._started = started
        self._indexed: tuple[Catalog, OperationIndex] | None = None

    async def search(self, arguments: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
        """``{operations: [{name, description, namespace, type}], total, next_cursor?}``.

        Without *query* it gives all operations by name. With one it gives those that fit, best first, then those that
        only contain the text. *arguments* are ``query``, ``namespace``, ``limit`` and ``cursor``, all optional.
        """
        check_fields(arguments, "search", _SEARCH_FIELDS)
        query, namespace = _optional_text(arguments, "query"), _optional_text(arguments, "namespace")
        limit = arguments.get("limit", DEFAULT_LIMIT)
        if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MAX_LIMIT:
            raise OperationError("INVALID_INPUT", f"limit must be an integer from 1 to {MAX_LIMIT}")
        skip = _skip(arguments.get("cursor"), query, namespace)
        index = await self._index()
        # A long search must not block the event loop.
        if len(index.by_name) > _LARGE:
            found = await asyncio.to_thread(self._found, index, query, namespace, context)
        else:
            found = self._found(index, query, namespace, context)
        body: dict[str, Any] = {
            "operations": [_entry(operation) for operation in found[skip : skip + limit]],
            "total": len(found),
        }
        if skip + limit < len(found):
            body["next_cursor"] = _cursor(skip + limit, query, namespace)
        return body

    async def schema(self, name: object, context: CallContext) -> dict[str, Any]:
        """The full specification of one operation (FACE-25)."""
        operation = await self._find(name, context)
        try:
            hydrated = self._runtime.hydrate(operation.item.id, context)
        except GatewayError as error:
            raise _translated(error, operation.name) from None
        item = operation.item
        return {
            **_entry(operation),
            "visibility": "external",
            "input_schema": dict(hydrated.args_schema) or {"type": "object"},
            "output_schema": hydrated.output_schema,
            "examples": list(hydrated.examples),
            "error_schemas": [
                {"code": code, "description": meaning, "http_status": status}
                for code, (status, meaning) in ERRORS.items()
            ],
            "access_control": self._access_control(item, context),
        }

    async def call(self, arguments: Mapping[str, Any], context: CallContext) -> Output:
        """Run ``{operation, input?}``; a missing or null input is ``{}`` (FACE-27). Raises OperationError.

        A call that names no operation is also in the audit record.
        """
        operation = await self._find_for_call(arguments, context)
        given = arguments.get("input")
        try:
            result = await self._runtime.call(operation.item.id, {} if given is None else given, context)
        except GatewayError as error:
            raise _translated(error, operation.name) from None
        if result.get("isError"):
            raise OperationError(
                "MCP_TOOL_ERROR",
                f"{operation.name} reported an error.",
                details={"content": result.get("content") or []},
            )
        return _output(result)

    async def batch(self, calls: object, context: CallContext) -> list[BatchOutcome]:
        """Run independent calls, some at a time, and return their outcomes in the order of the calls.

        Each has a request id of its own, the caller's with its number, which is also in its audit record (FACE-30).
        Questions of tool servers are refused, because a batch cannot pause. Raises OperationError before anything ran.
        """
        if not isinstance(calls, Sequence) or isinstance(calls, str | bytes):
            raise OperationError("INVALID_INPUT", "missing required field: calls")
        if len(calls) > MAX_BATCH:
            raise OperationError("INVALID_INPUT", f"a batch takes at most {MAX_BATCH} calls; this one has {len(calls)}")
        slots = asyncio.Semaphore(BATCH_AT_ONCE)

        async def one(number: int, call: object) -> BatchOutcome:
            request_id = f"{context.correlation_id}.{number}"
            own = replace(context, correlation_id=request_id, caller=SILENT, answers=None)
            async with slots:
                try:
                    return BatchOutcome(request_id, await self.call(call if isinstance(call, Mapping) else {}, own))
                except OperationError as error:
                    return BatchOutcome(request_id, error)

        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(one(number, call)) for number, call in enumerate(calls, 1)]
        return [task.result() for task in running]

    async def _find(self, name: object, context: CallContext) -> NamedTool:
        operation = (await self._index()).get(_required_text(name, "name"))
        if operation is None or not self._runtime.may_see(operation.item, context):
            raise _not_found(str(name))
        return operation

    async def _find_for_call(self, arguments: Mapping[str, Any], context: CallContext) -> NamedTool:
        """The operation that a call names. A call without one is audited before it is refused."""
        index, name = await self._index(), arguments.get("operation")
        operation = index.get(name) if isinstance(name, str) else None
        hidden = operation is not None and not self._runtime.may_see(operation.item, context)
        try:
            check_fields(arguments, "call", _CALL_FIELDS)
            _required_text(name, "operation")
            if operation is None or hidden:
                raise _not_found(str(name))
        except OperationError:
            try:
                await self._runtime.audit_unknown(name if isinstance(name, str) else "", context, hidden=hidden)
            except GatewayError as error:
                raise _translated(error, str(name)) from None
            raise
        return operation

    async def _index(self) -> OperationIndex:
        if not self._started():
            raise OperationError("UNAVAILABLE", CONNECTING, retryable=True)
        catalog = self._runtime.catalog()
        if self._indexed is None or self._indexed[0] is not catalog:
            large = len(catalog.items) > _LARGE
            index = await asyncio.to_thread(OperationIndex, catalog.items) if large else OperationIndex(catalog.items)
            self._indexed = catalog, index
        return self._indexed[1]

    def _access_control(self, item: SelectableItem, context: CallContext) -> dict[str, Any]:
        """The scopes that this operation requires, and whether calls of it need an approval."""
        steps = self._runtime.access.steps(context.identity, item.namespace, item.name)
        body: dict[str, Any] = {"required_scopes": [f"tools:{item.namespace}:{item.name}"]}
        for rule in (step.source for step in steps if not step.when):
            body["required_scopes"] += rule.require
            if rule.require_any:
                body["required_scopes_any"] = list(rule.require_any)
            if rule.resource:
                body |= {"resource_type": rule.resource, "resource_action": rule.action}
        asking = [isinstance(step.outcome, NeedsApproval) for step in steps]
        body["approval"] = "always" if asking and all(asking) else "sometimes" if any(asking) else "never"
        return body

    def _found(
        self, index: OperationIndex, query: str | None, namespace: str | None, context: CallContext
    ) -> list[NamedTool]:
        visible = self._runtime.visible(context)
        shown = {
            name: operation
            for name, operation in index.by_name.items()
            if (visible is None or visible(operation.item.id)) and namespace in (None, operation.item.namespace)
        }
        if not query:
            return list(shown.values())
        wanted = query.casefold()
        # Ranked results first, then those that only contain the words.
        ranked = (
            index.name_of.get(tool_id, "") for tool_id, _ in self._runtime.rank(query, len(index.by_name), context)
        )
        names = dict.fromkeys(name for name in ranked if name in shown)
        names |= dict.fromkeys(name for name, operation in shown.items() if wanted in operation.text)
        return [shown[name] for name in names]


def _entry(operation: NamedTool) -> dict[str, Any]:
    item = operation.item
    return {
        "name": operation.name,
        "description": item.description,
        "namespace": item.namespace,
        "type": item.operation,
    }


def _output(result: Mapping[str, Any]) -> Output:
    content = result.get("content")
    blocks = [block for block in content if isinstance(block, Mapping)] if isinstance(content, list) else []
    if result.get("structuredContent") is not None:
        return Output(result["structuredContent"], blocks)
    if all(block.get("type") == "text" for block in blocks):
        return Output("\n".join(str(block.get("text", "")) for block in blocks), blocks)
    return Output(blocks, blocks)


def _translated(error: GatewayError, name: str) -> OperationError:
    code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), "INTERNAL")
    if code == "NOT_FOUND":
        return _not_found(name)
    return OperationError(code, error.message, retryable=error.retryable, details=error.details)


def _not_found(name: str) -> OperationError:
    return OperationError("NOT_FOUND", f"operation not found: {name[:256]}")


def check_fields(arguments: object, tool: str, known: Collection[str]) -> None:
    """Raises OperationError for an unknown field, which would otherwise be dropped silently."""
    if not isinstance(arguments, Mapping):
        raise OperationError("INVALID_INPUT", f"the arguments of {tool} must be an object")
    unknown = next((str(key) for key in arguments if key not in known), None)
    if unknown is not None:
        raise OperationError(
            "INVALID_INPUT", f"{tool} has no field {unknown[:64]!r}; it takes {', '.join(sorted(known))}"
        )


def _required_text(value: object, field: str) -> str:
    if not isinstance(value, str) or not value:
        raise OperationError("INVALID_INPUT", f"missing required field: {field}")
    return value


def _optional_text(arguments: Mapping[str, Any], key: str) -> str | None:
    value = arguments.get(key)
    if value is not None and not isinstance(value, str):
        raise OperationError("INVALID_INPUT", f"{key} must be a string")
    return value


def _cursor(skip: int, query: str | None, namespace: str | None) -> str:
    return base64.urlsafe_b64encode(json.dumps([skip, query, namespace]).encode()).decode("ascii")


def _skip(cursor: object, query: str | None, namespace: str | None) -> int:
    """The number of results to skip. A cursor is valid only for the search that gave it."""
    if cursor is None:
        return 0
    try:
        skip, *asked = json.loads(base64.urlsafe_b64decode(cursor)) if isinstance(cursor, str) else (None,)
    except (binascii.Error, ValueError, TypeError, RecursionError):
        skip, asked = None, []
    if not isinstance(skip, int) or isinstance(skip, bool) or skip < 0 or asked != [query, namespace]:
        raise OperationError("INVALID_INPUT", "cursor must be the next_cursor of the same search")
    return skip


def _names(items: Mapping[str, SelectableItem]) -> dict[str, str]:
    """Names by tool id. Several versions of one tool keep their version or hash, so that each stays reachable."""
    plain = {tool_id: f"/{item.namespace}/{item.name}" for tool_id, item in items.items()}
    count = Counter(plain.values())
    return {tool_id: name if count[name] == 1 else name + _suffix(tool_id) for tool_id, name in plain.items()}


def _suffix(tool_id: str) -> str:
    parts = parse_tool_id(tool_id)
    version = f"@{parts.version}" if parts.version else ""
    return version + (f"#{parts.hash8}" if parts.hash8 else "")
