"""``/console/api``: the data of the console's pages, for callers with a key (OPS-220 to OPS-227).

A caller sees what the faces would show it. ``ops:read`` shows all of the gate, ``ops:write`` lets it be changed.
"""

import json
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from functools import partial
from statistics import median
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute

from app.console.live import Feed, Page, Readable, TooManyPages, may_read
from app.console.map import Maps
from app.console.servers import NotPossible
from app.console.sign_in import SignIn
from routers.event_stream import EventStream
from routers.json_bodies import TEXT, json_body, parameters, query, short_object
from routers.refusals import Refused, refuse
from wicketgate.access.identity import Identity
from wicketgate.access.shares import RETRY_AFTER_S
from wicketgate.errors import NotAdmitted, PathInvalid, PathNotFound
from wicketgate.gate import VERSION, Gate
from wicketgate.gateway.audit import AuditRecord
from wicketgate.gateway.traffic import ToolTraffic, Traffic, was_refused
from wicketgate.log_text import correlation_id
from wicketgate.ports import CallContext, session_key, source_of

PREFIX = "/console/api"

_SESSION = "console"

SIGN_IN_PATH = f"{PREFIX}/sign-in"
_SIGN_IN_BYTES = 1_000
_SIGN_IN_BODY = {"security": [], **json_body({"code": TEXT}, "code")}

Figure = tuple[int, int, float | None]
"""Calls that ran, those of them that failed, and the median of the last durations in milliseconds."""


_PATH = parameters(query("path", {"type": "string", "default": "/"}))

_CODES = {400: "invalid_request", 403: "forbidden", 404: "not_found", 409: "conflict", 503: "unavailable"}


class _Data(APIRoute):
    """Turns the errors that all of the console's data can raise into refusals. Answers are ``no-store`` unless they say
    otherwise: each is for its caller, as of now (OPS-234)."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                response = await handle(request)
            except Refused as refused:
                response = refused.answer
            except NotPossible as error:
                response = refuse(error.status, _CODES[error.status], str(error))
            except NotAdmitted as away:
                response = refuse(503, "unavailable", away.message)
            response.headers.setdefault("cache-control", "no-store")
            response.headers.setdefault("x-content-type-options", "nosniff")
            return response

        return answer


def data_router(tag: str = "console", failures: Mapping[int | str, dict[str, Any]] | None = None) -> APIRouter:
    """A router for data of the console. *failures* are described where programs read the data too."""
    return APIRouter(prefix=PREFIX, tags=[tag], responses=dict(failures or {}), route_class=_Data)


def console_router(gate: Gate, feed: Feed, heartbeat_s: float) -> APIRouter:
    router = data_router()
    maps = Maps(gate)

    @router.get("/me", operation_id="console_me")
    async def me(request: Request) -> Response:
        """The caller, as the gate knows it. It may read all of the gate (`ops:read`), and change it (`ops:write`)."""
        identity = identity_of(request)
        return JSONResponse(
            {
                "actor": identity.actor,
                "key_id": identity.key_id,
                "permissions": identity.permissions,
                "version": VERSION,
                "may": {"read": identity.allows("ops:read"), "write": identity.allows("ops:write")},
            }
        )

    @router.get("/map", operation_id="console_map", openapi_extra=_PATH)
    async def gate_map(request: Request) -> Response:
        """The cards that a browse of `path` could give, with the tools behind each. It has an entity tag.

        `model` is what a model is shown: `tools` of so many `tokens`, in place of the tools `behind` them. Each of
        `rows` is a card, whose tools stand in the `columns` from `first` on; `upstream` is a place in `upstreams`, and
        `leaf` is true for a single tool. A tool `writes` (1) if it changes things by its own word. Only callers with
        `ops:read` get `held`, the number of quarantined tools, `suspicious` tools in use, and those `hidden` from the
        caller itself (500 at most, at `/`).
        """
        context, path = context_of(request), request.query_params.get("path", "/")
        try:
            body, etag = await maps.draw(path, context, everything=context.identity.allows("ops:read"))
        except PathInvalid as error:
            return refuse(400, "invalid_request", error.message)
        except PathNotFound as error:
            return refuse(404, "not_found", error.message)
        headers = {"etag": etag, "cache-control": "private, no-cache"}
        if request.headers.get("if-none-match") == etag:
            return Response(None, 304, headers)
        return Response(body, 200, headers, "application/json")

    @router.get("/traffic", operation_id="console_traffic")
    async def traffic(request: Request) -> Response:
        """The calls since the process began; for callers without `ops:read` by themselves, of late.

        `calls` were run, through whichever door, or tried; `failed` are those of them that failed. `refused` were
        turned down before anything ran, and are in none of the other numbers. `waiting` calls wait for an approval, at
        all processes. The caller sees the tools `behind`. Tokens are estimates, by four characters a token. `tools` has
        by id the calls that ran, those of them that failed, and the median in milliseconds, whose sums are the totals.
        `meta` has the calls of the three tools by models, refused ones included: what `calls` and `refused` have more
        than `tool_execute` came through other doors. A caller's own calls have no door: all are `tool_execute`.
        """
        context = context_of(request)
        identity, runtime = context.identity, gate.runtime
        await runtime.browsing.prepare(context)
        visible, tools = runtime.visible(context), runtime.catalog().tools
        whole = identity.allows("ops:read")
        found = (
            whole_traffic(gate.records.traffic)
            if whole
            else own_traffic(gate.records.traffic, partial(may_read, gate, identity))
        )
        found["totals"]["behind"] = len(tools) if visible is None else sum(map(visible, tools))
        found["totals"]["waiting"] = 0
        with suppress(NotAdmitted):  # the gate page says that the store is unavailable
            found["totals"]["waiting"] = await gate.approvals.count(identity, everything=whole)
        return JSONResponse(found)

    @router.get("/events", operation_id="console_events", response_class=Response)
    async def events(request: Request) -> Response:
        """A stream of server-sent events, as long as it is read: `call` (an operation has ended), `server` (the state
        of an upstream), `catalog` (other tools are in force), `tokens`, `approval`, and `gap` when this reader was too
        slow and has missed some."""
        try:
            page = feed.open(identity_of(request))
        except TooManyPages:
            headers = {"retry-after": str(RETRY_AFTER_S)}
            return refuse(429, "too_many_requests", "Too many pages follow the news already", headers)

        async def end() -> None:
            page.close()

        return EventStream(_pieces(page), heartbeat_s=heartbeat_s, on_leave=page.close, on_end=end)

    return router


def identity_of(request: Request) -> Identity:
    identity: Identity = request.scope["state"]["identity"]
    return identity


def context_of(request: Request) -> CallContext:
    """The context of what a page asks for: one browsing session for each actor's console."""
    identity = identity_of(request)
    session = session_key(_SESSION, identity.actor, "")
    return CallContext(identity, correlation_id.get(), session, source=source_of(request.scope), door="console")


async def _pieces(page: Page) -> AsyncGenerator[bytes, None]:
    while news := await page.next():
        lines = (f"event: {event}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n" for event, data in news)
        yield "".join(lines).encode("ascii")


def sign_in_router(sign_in: SignIn | None) -> APIRouter:
    """*sign_in* is None where no key was made at this start: then no code is right."""
    router = data_router()

    @router.post("/sign-in", operation_id="console_sign_in", openapi_extra=_SIGN_IN_BODY)
    async def exchange(request: Request) -> Response:
        """Exchanges the code of the link that was printed at the start for the key of that start, to be sent as
        `Authorization: Bearer`. Good once, for ten minutes. It needs no credential."""
        code = (await short_object(request, _SIGN_IN_BYTES)).get("code")
        if not isinstance(code, str):
            return refuse(400, "invalid_request", 'The body must be {"code": "..."}')
        key = sign_in.exchange(code) if sign_in is not None else None
        if key is None:
            return refuse(401, "unauthorized", "This code is unknown, was used, or is too old")
        return JSONResponse({"key": key})

    return router


def whole_traffic(traffic: Traffic) -> dict[str, Any]:
    """The traffic of all callers since the process began."""
    return {
        "since": traffic.since,
        "totals": {
            "calls": traffic.all.calls,
            "failed": traffic.all.failed,
            "refused": traffic.all.refused,
            "median_ms": traffic.all.median_ms,
            "given_tokens": traffic.cost.shown,
            "naive_tokens": traffic.cost.naive,
        },
        "meta": dict(traffic.meta),
        "tools": {tool_id: _figure(each) for tool_id, each in traffic.tools()},
    }


def own_traffic(traffic: Traffic, readable: Readable) -> dict[str, Any]:
    """Returns the recent traffic of one actor, from the *readable* records that are still kept. Omits tokens, which are
    counted only in total, and the door of a call: each counts as ``tool_execute``."""
    kept = (each.record for each in traffic.records())
    records = [each for each in kept if readable(each.actor, each.tool_id, each.server)]
    tools = dict[str, ToolTraffic]()
    executed = [record for record in records if record.operation == "execute"]
    for record in reversed(executed):
        tools.setdefault(record.tool_id, ToolTraffic()).add(record)
    counted = Counter(record.operation for record in records)
    return {
        "since": traffic.since,
        "totals": {
            "calls": sum(each.calls for each in tools.values()),
            "failed": sum(each.failed for each in tools.values()),
            "refused": sum(each.refused for each in tools.values()),
            "median_ms": _median(record for record in executed if not was_refused(record)),
            "given_tokens": 0,
            "naive_tokens": 0,
        },
        "meta": {"tool_browse": 0, "tool_execute": counted["execute"], "tool_view": counted["view"]},
        "tools": {tool_id: _figure(each) for tool_id, each in tools.items()},
    }


def _figure(traffic: ToolTraffic) -> Figure:
    return traffic.calls, traffic.failed, traffic.median_ms


def _median(records: Iterable[AuditRecord]) -> float | None:
    durations = [record.duration_ms for record in records]
    return round(median(durations), 3) if durations else None
