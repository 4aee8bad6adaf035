"""Operations: tools under ``/namespace/name``, with search, schema, call and batch over the runtime (FACE-23, FACE-25,
FACE-27, FACE-47 to FACE-50).

The registry face and its HTTP twin share this module, so that they cannot disagree.
"""

import asyncio
import base64
import binascii
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from wicketgate.access.identity import ROLE_PREFIX
from wicketgate.access.policy import NeedsApproval
from wicketgate.catalog.card import short_description
from wicketgate.catalog.catalog import Catalog
from wicketgate.catalog.selectable import SelectableItem
from wicketgate.catalog.tool_id import Visible, parse_tool_id
from wicketgate.errors import (
    ApprovalRequired,
    ArgsInvalid,
    ConnectRequired,
    Forbidden,
    GatewayError,
    HydrateFailed,
    RateLimited,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from wicketgate.faces.meta_tool import CONNECTING, for_client, rest_of_definition
from wicketgate.faces.surface import Refusal
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.ports import SILENT, CallContext
from wicketgate.tokens import TokenCounter

# A batch with more calls is refused before any of them runs (FACE-31).
MAX_BATCH = 50
BATCH_AT_ONCE = 8
MAX_LIMIT = 200
DEFAULT_LIMIT = 50
# Of each description in the answer of a search (FACE-47).
DESCRIPTION_TOKENS = 30

_SEARCH_FIELDS = frozenset({"query", "namespace", "limit", "cursor"})
_CALL_FIELDS = frozenset({"operation", "input"})

# A catalog with more tools is indexed and searched in a thread.
_LARGE = 2_000

# Every code that an operation can end with: its HTTP status and its meaning.
ERRORS: Mapping[str, tuple[int, str]] = {
    "NOT_FOUND": (404, "There is no such operation for this caller."),
    "INVALID_INPUT": (422, "The input does not fit the input schema; details.errors says where. Nothing ran."),
    "FORBIDDEN": (403, "This call is not allowed. Nothing ran."),
    "APPROVAL_REQUIRED": (403, "A person has to agree to this call first. Nothing ran."),
    "CONNECT_REQUIRED": (403, "Connect your own account at details.url first, then call again. Nothing ran."),
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
    ConnectRequired: "CONNECT_REQUIRED",
    RateLimited: "RATE_LIMITED",
    UpstreamUnavailable: "UNAVAILABLE",
    UpstreamTimeout: "TIMEOUT",
}


class OperationError(Exception):
    """A failed operation, in the shape ``{code, message, retryable, details?}``."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        retryable: bool = False,
        details: Mapping[str, Any] | None = None,
        refused: Refusal | None = None,
    ) -> None:
        """*refused* as in SurfaceResult."""
        super().__init__(message)
        self.code = code
        self.message = message
        self.retryable = retryable
        self.details = details
        self.refused = refused

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
    """A tool as an operation: under *name* for this caller."""

    name: str
    item: SelectableItem


class OperationIndex:
    """The operations of one catalog, in the order of their names.

    A name holds version and hash only for a caller that sees several tools of the name without them, so that no name
    depends on a tool that the caller may not see (FACE-49).
    """

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        items = catalog.tools
        self._plain = {tool_id: f"/{item.namespace}/{item.name}" for tool_id, item in items.items()}
        self._ids = sorted(items, key=lambda tool_id: (self._plain[tool_id], tool_id))
        self._versions: dict[str, Sequence[str]] = {
            name: together
            for name, group in groupby(self._ids, self._plain.__getitem__)
            if len(together := [*group]) > 1
        }
        # Name and description, without regard to case: what a search looks through.
        self._texts = {each: f"{self._plain[each]} {item.description}".casefold() for each, item in items.items()}
        self._short: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def of(self, tool_id: str, visible: Visible | None) -> NamedTool:
        """The tool as an operation, as this caller sees it."""
        name = self._plain[tool_id]
        versions = self._versions.get(name, ())
        several = len(versions) > 1 and (visible is None or sum(map(visible, versions)) > 1)
        return NamedTool(name + _suffix(tool_id) if several else name, self.catalog.tools[tool_id])

    def find(self, name: str, visible: Visible | None) -> tuple[NamedTool | None, bool]:
        """The operation of this name, if it is the name of one that the caller may see: with or without the leading
        slash (FACE-25), and version and hash (FACE-49). And true if it names only such as the caller may not see."""
        namespace, _, rest = name.removeprefix("/").partition("/")
        wanted = f"{namespace}:{rest}"
        named = self.catalog.named(wanted)
        seen = [each for each in named if visible is None or visible(each)]
        tool_id = wanted if wanted in seen else seen[0] if len(seen) == 1 else None
        return None if tool_id is None else self.of(tool_id, visible), bool(named) and not seen

    def search(self, words: str, namespace: str | None, ranked: Sequence[str], visible: Visible | None) -> list[str]:
        """The ids of what is found: all by name without *words*, otherwise those *ranked* first, then those that only
        contain the words."""
        items = self.catalog.tools
        shown = dict.fromkeys(
            each
            for each in self._ids
            if (visible is None or visible(each)) and namespace in (None, items[each].namespace)
        )
        if not words:
            return list(shown)
        wanted = words.casefold()
        found = dict.fromkeys(each for each in ranked if each in shown)
        return list(found | dict.fromkeys(each for each in shown if wanted in self._texts[each]))

    async def short(self, items: Sequence[SelectableItem], tokens: TokenCounter) -> list[str]:
        """Their descriptions, cut for a list (FACE-47): each once, and off the event loop, because a page can hold
        hundreds."""
        new = [item for item in items if item.id not in self._short]
        if new:
            self._short |= await asyncio.to_thread(_shortened, new, tokens)
        return [self._short[item.id] for item in items]


class Operations:
    """*started* is false until the first tools are there. Until then no operation is reported as unknown."""

    def __init__(self, runtime: ProxyRuntime, *, started: Callable[[], bool] = lambda: True) -> None:
        self._runtime = runtime
        self._started = started
        self._indexed: OperationIndex | None = None

    async def prepare(self, context: CallContext) -> None:
        """Work out beside the event loop what this caller may see (BROWSE-59)."""
        await self._runtime.browsing.prepare(context)

    async def search(self, arguments: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
        """``{operations: [{name, description, namespace, type}], total, connect_first?, next_cursor?}``.

        Without *query* it gives all operations by name. With one it gives those that fit, best first, then those that
        only contain the text. *arguments* are ``query``, ``namespace``, ``limit`` and ``cursor``, all optional.
        *connect_first* names the servers of which nothing is known before an account is connected: call anything there.
        """
        check_fields(arguments, "search", _SEARCH_FIELDS)
        query, namespace = _optional_text(arguments, "query"), _optional_text(arguments, "namespace")
        limit = DEFAULT_LIMIT if arguments.get("limit") is None else arguments["limit"]
        if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MAX_LIMIT:
            raise OperationError("INVALID_INPUT", f"limit must be an integer from 1 to {MAX_LIMIT}")
        skip = _skip(arguments.get("cursor"), query, namespace)
        await self.prepare(context)
        index = await self._index()
        visible = self._runtime.visible(context)
        # A long search must not block the event loop.
        if len(index) > _LARGE:
            found = await asyncio.to_thread(self._found, index, query, namespace, context)
        else:
            found = self._found(index, query, namespace, context)
        page = [index.of(tool_id, visible) for tool_id in found[skip : skip + limit]]
        short = await index.short([operation.item for operation in page], self._runtime.tokens)
        body: dict[str, Any] = {"operations": list(map(_entry, page, short)), "total": len(found)}
        # Nothing of these is known before an account is connected there.
        if waiting := self._runtime.first_logins.shown_to(context.identity):
            body["connect_first"] = [f"/{name}" for name in waiting]
        if skip + limit < len(found):
            body["next_cursor"] = _cursor(skip + limit, query, namespace)
        return body

    async def schema(self, name: object, context: CallContext) -> dict[str, Any]:
        """The full specification of one operation (FACE-25)."""
        operation = await self._find(name, context)
        try:
            hydrated = await self._runtime.hydrate(operation.item.id, context)
        except GatewayError as error:
            raise _translated(error, operation.name) from None
        item = operation.item
        return {
            **_entry(operation, item.description),
            "visibility": "external",
            "input_schema": dict(hydrated.args_schema) or {"type": "object"},
            "output_schema": hydrated.output_schema,
            "examples": list(hydrated.examples),
            "error_schemas": [
                {"code": code, "description": meaning, "http_status": status}
                for code, (status, meaning) in ERRORS.items()
            ],
            "access_control": self._access_control(item, context),
            **rest_of_definition(item),
        }

    async def call(self, arguments: Mapping[str, Any], context: CallContext) -> Output:
        """Run ``{operation, input?}``; a missing or null input is ``{}`` (FACE-27). Raises OperationError.

        A call that names no operation is also in the audit record.
        """
        arguments = naming(arguments, "operation")
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
            own = context.having(correlation_id=request_id, caller=SILENT, answers=None)
            async with slots:
                try:
                    return BatchOutcome(request_id, await self.call(call if isinstance(call, Mapping) else {}, own))
                except OperationError as error:
                    return BatchOutcome(request_id, error)

        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(one(number, call)) for number, call in enumerate(calls, 1)]
        return [task.result() for task in running]

    async def _find(self, name: object, context: CallContext) -> NamedTool:
        await self.prepare(context)
        index, wanted = await self._index(), _required_text(name, "name")
        operation, _ = index.find(wanted, self._runtime.visible(context))
        if operation is None:
            raise _not_found(wanted)
        return operation

    async def _find_for_call(self, arguments: Mapping[str, Any], context: CallContext) -> NamedTool:
        """The operation that a call names. A call without one is audited before it is refused."""
        await self.prepare(context)
        index, name = await self._index(), arguments.get("operation")
        operation, hidden = None, False
        if isinstance(name, str):
            operation, hidden = index.find(name, self._runtime.visible(context))
            if operation is None and not hidden and await self._offer_login(name, context):
                operation, hidden = (await self._index()).find(name, self._runtime.visible(context))
        try:
            check_fields(arguments, "call", _CALL_FIELDS)
            _required_text(name, "operation")
            if operation is None:
                raise _not_found(str(name))
        except OperationError:
            try:
                await self._runtime.audit_unknown(name if isinstance(name, str) else "", context, hidden=hidden)
            except GatewayError as error:
                raise _translated(error, str(name)) from None
            raise
        return operation

    async def _offer_login(self, name: str, context: CallContext) -> bool:
        """True if there are other operations now, because the caller's account is the first of a server."""
        try:
            return bool(await self._runtime.offer_login(name, context))
        except GatewayError as error:
            raise _translated(error, name) from None

    async def _index(self) -> OperationIndex:
        if not self._started():
            raise OperationError("UNAVAILABLE", CONNECTING, retryable=True)
        catalog = self._runtime.catalog()
        before = self._indexed
        if before is not None and before.catalog is catalog:
            return before
        large = len(catalog.tools) > _LARGE
        made = await asyncio.to_thread(OperationIndex, catalog) if large else OperationIndex(catalog)
        self._indexed = made
        return made

    def _access_control(self, item: SelectableItem, context: CallContext) -> dict[str, Any]:
        """The scopes that this operation requires, and whether calls of it need an approval."""
        steps = self._runtime.access.steps(context.identity, item.names)
        scopes = [f"tools:{namespace}:{own[0]}" for namespace, own in item.names]
        body: dict[str, Any] = {}
        for rule in (step.source for step in steps if not step.when):
            resource = next((name for name in rule.require if _is_of_resource(name)), None)
            if resource is not None:
                body["resource_type"], _, body["resource_action"] = resource.partition(":")
            scopes += [name for name in rule.require if name != resource]
            if rule.require_any:
                body["required_scopes_any"] = list(rule.require_any)
        # By the names of the tool: one under which every rule asks is enough, because the strictest counts.
        asking: dict[str, list[bool]] = {}
        for step in steps:
            asking.setdefault(step.name, []).append(isinstance(step.outcome, NeedsApproval))
        always, sometimes = any(map(all, asking.values())), any(map(any, asking.values()))
        approval = "always" if always else "sometimes" if sometimes else "never"
        asked = (step.outcome.needs for step in steps if isinstance(step.outcome, NeedsApproval))
        if by := list(dict.fromkeys(str(need) for needs in asked for need in needs)):
            body["approval_by"] = by
        return {"required_scopes": list(dict.fromkeys(scopes)), **body, "approval": approval}

    def _found(
        self, index: OperationIndex, query: str | None, namespace: str | None, context: CallContext
    ) -> list[str]:
        ranked = [tool_id for tool_id, _ in self._runtime.browsing.rank(query, len(index), context)] if query else []
        return index.search(query or "", namespace, ranked, self._runtime.visible(context))


def _is_of_resource(permission: str) -> bool:
    """Returns true for ``<resource>:<action>``, which is neither a role nor a permission for tools."""
    return permission.count(":") == 1 and not permission.startswith(ROLE_PREFIX)


def _shortened(items: Sequence[SelectableItem], tokens: TokenCounter) -> dict[str, str]:
    return {item.id: short_description(item.description, DESCRIPTION_TOKENS, tokens) for item in items}


def _entry(operation: NamedTool, description: str) -> dict[str, Any]:
    item = operation.item
    return {
        "name": operation.name,
        "description": description,
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
    refused = for_client(error)
    details = error.connect if isinstance(error, ConnectRequired) else error.details
    return OperationError(code, error.message, retryable=error.retryable, details=details, refused=refused)


def _not_found(name: str) -> OperationError:
    return OperationError("NOT_FOUND", f"operation not found: {name[:256]}")


def naming(arguments: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """*arguments* with the operation under *key*; ``name`` and ``operation`` say the same (FACE-191)."""
    other = "operation" if key == "name" else "name"
    if key in arguments or other not in arguments:
        return arguments
    return {key: arguments[other], **{each: value for each, value in arguments.items() if each != other}}


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


def _suffix(tool_id: str) -> str:
    parts = parse_tool_id(tool_id)
    version = f"@{parts.version}" if parts.version else ""
    return version + (f"#{parts.hash8}" if parts.hash8 else "")
