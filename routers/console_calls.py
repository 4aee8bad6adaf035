"""``/console/api/calls``: the audit as the caller may read it (OPS-246 to OPS-248)."""

import math
from functools import partial
from typing import Any, get_args

from fastapi import APIRouter, Request, Response

from app.console.calls import FILTERS, MAX_CHARS, MAX_LIMIT, BadCursor, Filters, list_calls, one_call
from app.console.live import may_read
from routers.console import data_router, identity_of
from routers.json_bodies import SurrogateJson, in_path, number_in, parameters, query
from routers.refusals import refuse
from wicketgate.gate import Gate
from wicketgate.gateway.audit import AuditedOperation, AuditOutcome
from wicketgate.storage.audit_read import ReadingsFull

_LIMIT = 50
_MAX_CURSOR_CHARS = 200
_LATEST = 253_402_300_000.0


_TEXT = {"type": "string", "maxLength": MAX_CHARS}
_OUTCOMES = [*get_args(AuditOutcome), "error"]
_SCHEMAS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(FILTERS, _TEXT),
    "outcome": {"type": "string", "enum": _OUTCOMES},
    "operation": {"type": "string", "enum": list(get_args(AuditedOperation))},
    "from": {"type": "number"},
    "to": {"type": "number"},
    "cursor": {"type": "string", "maxLength": _MAX_CURSOR_CHARS},
    "limit": {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": _LIMIT},
}
_LIST = parameters(*(query(name, schema) for name, schema in _SCHEMAS.items()))
_ONE = parameters(in_path("call_id"))


def console_calls_router(gate: Gate) -> APIRouter:
    router = data_router()

    @router.get("/calls", operation_id="console_calls", openapi_extra=_LIST)
    async def calls(request: Request) -> Response:
        """Records of calls and other operations, the newest first: those in memory, then those of the audit database,
        if there is one. With `ops:read` all, otherwise the caller's own. `tool` and `q` are parts of a text; `from` and
        `to` are in seconds since the epoch; the outcome `error` is that of calls whose tool answered with an error.

        A record says when the call came in (`at`), and which part of it failed: `transport`, `protocol` or `tool`;
        `arguments` is their digest. Further records are in memory, in the audit database (`sql`), nowhere (`none`), or
        could not be read now (`unread`), as `older` says.
        """
        wanted = request.query_params
        texts = {name: wanted[name] for name in FILTERS if wanted.get(name)}
        if any(len(text) > MAX_CHARS for text in texts.values()):
            return refuse(400, "invalid_request", f"A filter has at most {MAX_CHARS} characters")
        if any("\0" in text for text in texts.values()):
            return refuse(400, "invalid_request", "A filter has no character 0")
        for name in ("outcome", "operation"):
            if name in texts and texts[name] not in _SCHEMAS[name]["enum"]:
                return refuse(400, "invalid_request", f"{name} is one of {', '.join(_SCHEMAS[name]['enum'])}")
        limit, cursor = number_in(wanted.get("limit", str(_LIMIT))), wanted.get("cursor", "")
        if limit is None or not 1 <= limit <= MAX_LIMIT:
            return refuse(400, "invalid_request", f"limit is a number from 1 to {MAX_LIMIT}")
        try:
            since, until = _moment(wanted.get("from")), _moment(wanted.get("to"))
        except ValueError:
            return refuse(400, "invalid_request", "from and to are seconds since the epoch")
        filters = Filters(texts, since, until, _actor_only(request), partial(may_read, gate, identity_of(request)))
        try:
            return SurrogateJson(await list_calls(gate, filters, cursor[:_MAX_CURSOR_CHARS], limit, _actor(request)))
        except BadCursor:
            return refuse(400, "invalid_request", "The cursor is none that an answer gave")
        except ReadingsFull as full:
            return _refuse_reading(full)

    @router.get("/calls/{call_id}", operation_id="console_call", openapi_extra=_ONE)
    async def call(request: Request) -> Response:
        """One call: its records, the plugins that it passed, and where its time went, in milliseconds: at the server,
        in plugins, and in the gate itself, waiting included. `unread`: the audit database could not be read, so some
        records may be missing."""
        call_id = request.path_params["call_id"][:MAX_CHARS]
        try:
            found = await one_call(gate, call_id, partial(may_read, gate, identity_of(request)), _actor(request))
        except ReadingsFull as full:
            return _refuse_reading(full)
        if found is None:
            return refuse(404, "not_found", "There is no record of this call, or it is not yours")
        return SurrogateJson(found)

    return router


def _refuse_reading(full: ReadingsFull) -> Response:
    headers = {"retry-after": "1"}
    if full.scope == "actor":
        text = "Older records are being read for this actor, one request at a time"
        return refuse(429, "too_many_requests", text, headers)
    return refuse(503, "too_many_requests", "Older records are being read for too many actors at the moment", headers)


def _actor(request: Request) -> str:
    return identity_of(request).actor


def _actor_only(request: Request) -> str | None:
    identity = identity_of(request)
    return None if identity.allows("ops:read") else identity.actor


def _moment(text: str | None) -> float | None:
    """Raises ValueError."""
    if not text:
        return None
    moment = float(text)
    if not math.isfinite(moment) or not 0 <= moment <= _LATEST:
        raise ValueError(text)
    return moment
