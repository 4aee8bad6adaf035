"""``/operations``: the four tools of the registry face over plain HTTP (FACE-22 to FACE-34)."""

import math
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel

from routers.json_bodies import (
    OBJECT,
    REFUSAL,
    TEXT,
    SurrogateJson,
    json_body,
    json_object,
    number_in,
    parameters,
    query,
)
from wicketgate.access.identity import Identity
from wicketgate.access.shares import RETRY_AFTER_S, Scope, ShareRefused, Shares, too_many_text
from wicketgate.catalog.selectable import OperationKind
from wicketgate.faces.operations import (
    DEFAULT_LIMIT,
    MAX_BATCH,
    MAX_LIMIT,
    BatchOutcome,
    OperationError,
    Operations,
    check_fields,
    naming,
)
from wicketgate.heavy_work import run_queued
from wicketgate.log_text import correlation_id
from wicketgate.ports import CallContext, session_key, source_of
from wicketgate.results.firewall import is_very_bulky
from wicketgate.travelling_meta import travelling


class OperationEntry(BaseModel):
    """*name* is ``/namespace/name``, with version and hash where the caller may use several of that name. In the answer
    of a search *description* is one line of at most 30 tokens; in a specification it is whole."""

    name: str
    description: str
    namespace: str
    type: OperationKind


class FoundOperations(BaseModel):
    """*connect_first*: paths of servers whose operations are known when someone has connected an account there."""

    operations: list[OperationEntry]
    total: int
    connect_first: list[str] | None = None
    next_cursor: str | None = None


class ErrorMeaning(BaseModel):
    code: str
    description: str
    http_status: int


class OperationSpec(OperationEntry):
    """*definition* has the other fields of the server's own definition, such as title, annotations and ``_meta``."""

    visibility: Literal["external"]
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    examples: list[Any]
    error_schemas: list[ErrorMeaning]
    access_control: dict[str, Any]
    definition: dict[str, Any] | None = None


class OperationFailure(BaseModel):
    code: str
    message: str
    retryable: bool
    details: dict[str, Any] | None = None


class BatchItem(BaseModel):
    """*output* with ``ok``, *error* with ``error``."""

    request_id: str
    result: Literal["ok", "error"]
    output: Any = None
    error: OperationFailure | None = None


class BatchResults(BaseModel):
    results: list[BatchItem]


_FAILURES: dict[int | str, dict[str, Any]] = {
    400: {"description": "No JSON object, or bad headers", "content": REFUSAL},
    401: {"description": "No valid credential", "content": REFUSAL},
    403: {"description": "Not allowed, or an approval is missing", "model": OperationFailure},
    404: {"description": "No such operation for this caller", "model": OperationFailure},
    422: {"description": "The input does not fit", "model": OperationFailure},
    429: {"description": "Too many calls", "model": OperationFailure},
    500: {"description": "The tool or its server failed", "model": OperationFailure},
    503: {
        "description": "The tool server cannot be reached, or too many calls are under way",
        "model": OperationFailure,
    },
    504: {"description": "The tool server did not answer in time", "model": OperationFailure},
}


_NAME = {"type": "string", "minLength": 1}
_SEARCH = parameters(
    query("query"),
    query("namespace"),
    query("cursor", _NAME),
    query("limit", {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT}),
)
_ONE_NAME = parameters(query("name", _NAME, required=True))
_CALL_BODY = json_body({"operation": _NAME, "input": OBJECT}, "operation")
_BATCH_ITEM = {
    "type": "object",
    "description": "As for a call. One without an operation is answered in its place, with an error.",
    "properties": {"operation": TEXT, "input": OBJECT},
}
_BATCH_BODY = json_body({"calls": {"type": "array", "maxItems": MAX_BATCH, "items": _BATCH_ITEM}}, "calls")


def operations_router(operations: Operations, calls: Shares) -> APIRouter:
    """Every request takes a place among the *calls* under way before its body is read."""
    counted = _counted_route(calls)
    router = APIRouter(prefix="/operations", tags=["operations"], responses=_FAILURES, route_class=counted)

    @router.get("", operation_id="searchOperations", response_model=FoundOperations, openapi_extra=_SEARCH)
    async def search(request: Request) -> JSONResponse:
        """Operations that fit the words, best first; all of them by name without any."""
        wanted: dict[str, object] = {name: request.query_params.get(name) for name in ("query", "namespace", "cursor")}
        if (limit := request.query_params.get("limit")) is not None:
            number = number_in(limit)
            wanted["limit"] = limit if number is None else number  # a text is refused in the shape of operations
        return SurrogateJson(await operations.search(wanted, _context(request)))

    @router.get("/schema", operation_id="operationSchema", response_model=OperationSpec, openapi_extra=_ONE_NAME)
    async def schema(request: Request) -> JSONResponse:
        """The full specification of one operation."""
        name = naming(request.query_params, "name").get("name", "")
        return SurrogateJson(await operations.schema(name, _context(request)))

    @router.post("/call", operation_id="callOperation", openapi_extra=_CALL_BODY, response_model=Any)
    async def call(request: Request) -> JSONResponse:
        """Run one operation; the answer is its output."""
        context = _context(request)
        output = await operations.call(await json_object(request), context)
        return await _written(output.value, context.identity.actor)

    @router.post(
        "/batch",
        operation_id="batchOperations",
        openapi_extra=_BATCH_BODY,
        response_model=BatchResults,
        description=f"Run at most {MAX_BATCH} independent operations; results in the order of the calls.",
    )
    async def batch(request: Request) -> JSONResponse:
        body = await json_object(request)
        check_fields(body, "batch", ("calls",))
        context = _context(request)
        ended = await operations.batch(body.get("calls"), context)
        return await _written({"results": [_item(one) for one in ended]}, context.identity.actor)

    return router


def _counted_route(calls: Shares) -> type[APIRoute]:
    class CountedRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            run = super().get_route_handler()

            async def counted(request: Request) -> Response:
                identity: Identity = request.scope["state"]["identity"]
                try:
                    lease = await calls.take(identity.actor)
                except ShareRefused as refused:
                    return _failed(_too_many(refused.scope))
                try:
                    return await run(request)
                except OperationError as error:
                    return _failed(error)
                finally:
                    calls.give_back(lease)

            return counted

    return CountedRoute


def _too_many(scope: Scope) -> OperationError:
    return OperationError(
        "RATE_LIMITED" if scope == "actor" else "UNAVAILABLE",
        too_many_text("calls under way", scope),
        retryable=True,
        details={"scope": scope, "retry_after_s": RETRY_AFTER_S},
    )


def _context(request: Request) -> CallContext:
    identity: Identity = request.scope["state"]["identity"]
    session = session_key("named", identity.actor, "")
    source, meta = source_of(request.scope), travelling(None, request.headers)
    return CallContext(identity, correlation_id.get(), session, source=source, door="operations", meta=meta)


def _failed(error: OperationError) -> JSONResponse:
    headers = {}
    if error.retryable and error.http_status in (429, 503):
        wait_s = (error.details or {}).get("retry_after_s", RETRY_AFTER_S)
        headers["Retry-After"] = str(max(1, math.ceil(wait_s)))
    return SurrogateJson(error.as_dict(), error.http_status, headers)


async def _written(content: object, actor: str) -> JSONResponse:
    """Returns the answer with *content*, which is encoded in a thread if it is large (EXEC-27)."""
    write = partial(SurrogateJson, content)
    return await run_queued(write, actor) if is_very_bulky(content) else write()


def _item(ended: BatchOutcome) -> dict[str, Any]:
    if isinstance(ended.outcome, OperationError):
        return {"request_id": ended.request_id, "result": "error", "error": ended.outcome.as_dict()}
    return {"request_id": ended.request_id, "result": "ok", "output": ended.outcome.value}
