"""``/operations``: the four tools of the registry face over plain HTTP (FACE-22 to FACE-34)."""

import math
from collections.abc import Callable, Coroutine
from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel

from routers.json_bodies import SurrogateJson, json_object
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
from wicketgate.log_text import correlation_id
from wicketgate.ports import CallContext, session_key, source_of
from wicketgate.travelling_meta import travelling


class OperationEntry(BaseModel):
    """*name* is ``/namespace/name``, with version and hash where the caller may use several of that name. In the answer
    of a search *description* is one line of at most 30 tokens; in a specification it is whole."""

    name: str
    description: str
    namespace: str
    type: OperationKind


class FoundOperations(BaseModel):
    """*connect_first*: paths of servers whose operations are known when somebody has connected an account there."""

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


_REFUSAL = {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}}

_FAILURES: dict[int | str, dict[str, Any]] = {
    400: {"description": "No JSON object, or bad headers", "content": _REFUSAL},
    401: {"description": "No valid credential", "content": _REFUSAL},
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


# Bodies and parameters are checked by hand, so that refusals have our shape; these are their schemas (OPS-153).
def _parameter(name: str, schema: dict[str, Any], *, required: bool = False) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": required, "schema": schema}


_TEXT = {"type": "string"}
_NAME = {"type": "string", "minLength": 1}
_SEARCH = {
    "parameters": [
        _parameter("query", _TEXT),
        _parameter("namespace", _TEXT),
        _parameter("cursor", _NAME),
        _parameter("limit", {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT}),
    ]
}
_ONE_NAME = {"parameters": [_parameter("name", _NAME, required=True)]}
# Some generators close an object that does not declare itself open.
_INPUT = {"type": "object", "additionalProperties": True}
_CALL = {"type": "object", "properties": {"operation": _NAME, "input": _INPUT}, "required": ["operation"]}
_BATCH_ITEM = {
    "type": "object",
    "description": "As for a call. One without an operation is answered in its place, with an error.",
    "properties": {"operation": _TEXT, "input": _INPUT},
}
_BATCH = {
    "type": "object",
    "properties": {"calls": {"type": "array", "maxItems": MAX_BATCH, "items": _BATCH_ITEM}},
    "required": ["calls"],
}
_CALL_BODY = {"requestBody": {"required": True, "content": {"application/json": {"schema": _CALL}}}}
_BATCH_BODY = {"requestBody": {"required": True, "content": {"application/json": {"schema": _BATCH}}}}


def operations_router(operations: Operations, calls: Shares, max_values: int) -> APIRouter:
    """Every request takes a place among the *calls* under way before its body is read, which has at most *max_values*
    values."""
    counted = _counted_route(calls)
    router = APIRouter(prefix="/operations", tags=["operations"], responses=_FAILURES, route_class=counted)

    @router.get("", operation_id="searchOperations", response_model=FoundOperations, openapi_extra=_SEARCH)
    async def search(request: Request) -> JSONResponse:
        """Operations that fit the words, best first; all of them by name without any."""
        wanted: dict[str, object] = {name: request.query_params.get(name) for name in ("query", "namespace", "cursor")}
        if (limit := request.query_params.get("limit")) is not None:
            wanted["limit"] = _number(limit)
        try:
            return SurrogateJson(await operations.search(wanted, _context(request)))
        except OperationError as error:
            return _failed(error)

    @router.get("/schema", operation_id="operationSchema", response_model=OperationSpec, openapi_extra=_ONE_NAME)
    async def schema(request: Request) -> JSONResponse:
        """The full specification of one operation."""
        try:
            return SurrogateJson(
                await operations.schema(naming(request.query_params, "name").get("name", ""), _context(request))
            )
        except OperationError as error:
            return _failed(error)

    @router.post("/call", operation_id="callOperation", openapi_extra=_CALL_BODY, response_model=Any)
    async def call(request: Request) -> JSONResponse:
        """Run one operation; the answer is its output."""
        body = await json_object(request, max_values)
        if not isinstance(body, dict):
            return body
        try:
            return SurrogateJson((await operations.call(body, _context(request))).value)
        except OperationError as error:
            return _failed(error)

    @router.post(
        "/batch",
        operation_id="batchOperations",
        openapi_extra=_BATCH_BODY,
        response_model=BatchResults,
        description=f"Run at most {MAX_BATCH} independent operations; results in the order of the calls.",
    )
    async def batch(request: Request) -> JSONResponse:
        body = await json_object(request, max_values)
        if not isinstance(body, dict):
            return body
        try:
            check_fields(body, "batch", ("calls",))
            ended = await operations.batch(body.get("calls"), _context(request))
        except OperationError as error:
            return _failed(error)
        return SurrogateJson({"results": [_item(one) for one in ended]})

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


def _number(text: str) -> object:
    """Returns the integer, or the text itself, which the operations refuse in their shape."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else text


def _failed(error: OperationError) -> JSONResponse:
    headers = {}
    if error.retryable and error.http_status in (429, 503):
        wait_s = (error.details or {}).get("retry_after_s", RETRY_AFTER_S)
        headers["Retry-After"] = str(max(1, math.ceil(wait_s)))
    return SurrogateJson(error.as_dict(), error.http_status, headers)


def _item(ended: BatchOutcome) -> dict[str, Any]:
    if isinstance(ended.outcome, OperationError):
        return {"request_id": ended.request_id, "result": "error", "error": ended.outcome.as_dict()}
    return {"request_id": ended.request_id, "result": "ok", "output": ended.outcome.value}
