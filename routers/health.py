"""``/healthz``: the process lives. ``/readyz``: it can serve. ``/metrics``: counters.

``/healthz`` and ``/readyz`` answer without a credential, so that a load balancer needs none. The details of readiness
and the metrics name upstreams and tools that callers may not see, so they need the permission ``ops:read``.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import islice
from typing import Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from routers.refusals import refuse_permission
from wicketgate.access.identity import Identity
from wicketgate.access.issuers import IssuerState
from wicketgate.catalog.definition_change import Impact
from wicketgate.catalog.pins import HeldFor, Screened
from wicketgate.fleet.breaker import BreakerState
from wicketgate.fleet.member import MultiplexUpstream
from wicketgate.gateway.catalog_keeper import tools_left_out
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.ports import UpstreamPhase
from wicketgate.storage.fail_modes import FailMode, StateKind
from wicketgate.storage.measures import StorageState

_MAX_NAMED = 50
_MAX_LINES = 20


class Alive(BaseModel):
    status: str = "ok"


class UpstreamHealth(BaseModel):
    """*error* is empty without a failure. *stale*: the tools are those of the last listing. *last_error*: why the
    session before the present one ended. *connected_s*: the age of the newest session; null if there is none.
    *breaker*: for all callers; *held_off*: the number of actors whom their own failures keep away.
    """

    state: UpstreamPhase
    error: str
    tools: int
    stale: bool
    last_error: str
    connected_s: float | None
    connections: int
    breaker: BreakerState
    held_off: int
    in_flight: int
    queued: int


class QuarantinedTool(BaseModel):
    """*impact* and *diff* describe the difference from the accepted definition."""

    reason: HeldFor
    message: str
    impact: Impact | None
    diff: list[str]


class CatalogHealth(BaseModel):
    """At most fifty tools of each kind are named."""

    version: str
    tools: int
    left_out: dict[str, str]
    """Definitions that give no tool, by their place in the list of their upstream, with the reason; and tools that are
    called but not browsed, by their id, because no card can hold them."""
    quarantined: dict[str, QuarantinedTool]
    """By ``upstream:tool``: hidden from callers until they are accepted (``wicketgate lock``)."""
    suspicious: dict[str, list[str]]
    """Tools in use with hidden text or instructions to the model in their definitions, with the signs."""
    missing: list[str]
    """Pinned tools that their upstream no longer has."""
    unmatched: list[str]
    """Rules, quotas and other patterns of the configuration that match no tool, with their places."""


class StorageHealth(BaseModel):
    """The store of ``storage.url``. *away*: why a shared store is not there; empty while it is. *shortfalls*: what it
    does not promise, each with the setting that mends it. *degraded*: the kinds of state that do without it at the
    moment, with what `storage.fail` says of them."""

    kind: Literal["memory", "sqlite", "redis"]
    away: str
    shortfalls: list[str]
    degraded: dict[StateKind, FailMode]


class IssuerHealth(BaseModel):
    """*keys*: the number of keys; null before they were fetched. *away*: why the last request to the issuer has failed;
    empty if it has not."""

    issuer: str
    keys: int | None
    away: str


class Readiness(BaseModel):
    ready: bool


class ReadinessDetails(Readiness):
    """For callers with the permission ``ops:read``."""

    catalog: CatalogHealth
    storage: StorageHealth
    issuers: dict[str, IssuerHealth]
    upstreams: dict[str, UpstreamHealth]


def health_router(
    runtime: ProxyRuntime,
    fleet: MultiplexUpstream,
    ready: Callable[[], bool],
    records: Callable[[], Awaitable[bool]],
    storage: Callable[[], StorageState],
    issuers: Callable[[], Sequence[IssuerState]],
) -> APIRouter:
    router = APIRouter(tags=["health"])

    @router.get("/healthz", operation_id="healthz")
    async def healthz() -> Alive:
        """200 as long as the process lives, while it starts and drains too."""
        return Alive()

    either = ReadinessDetails | Readiness

    @router.get("/readyz", operation_id="readyz", response_model=either, responses={503: {"model": either}})
    async def readyz(request: Request) -> JSONResponse:
        """200 when requests are taken, else 503; the same body with both. A credential with the permission `ops:read`
        gets the details; without one, or with one that is not valid, the answer is `ready` alone."""
        identity: Identity | None = request.scope.get("state", {}).get("identity")
        is_ready = ready() and await records()
        body = details(is_ready) if identity is not None and identity.allows("ops:read") else Readiness(ready=is_ready)
        return JSONResponse(body.model_dump(), 200 if body.ready else 503)

    def details(is_ready: bool) -> ReadinessDetails:
        catalog = runtime.catalog()
        troubles = runtime.troubles()
        screened = runtime.screened()
        tools = Counter(item.server for item in catalog.tools.values())
        store = storage()
        return ReadinessDetails(
            ready=is_ready,
            catalog=CatalogHealth(
                version=catalog.version,
                tools=len(catalog.tools),
                left_out=dict(islice(tools_left_out(catalog).items(), _MAX_NAMED)),
                quarantined=_quarantined(screened),
                suspicious=_suspicious(screened),
                missing=[f"{server}:{name}" for server, each in screened.items() for name in each.gone][:_MAX_NAMED],
                unmatched=list(runtime.changes.unmatched()[:_MAX_NAMED]),
            ),
            storage=StorageHealth(
                kind=store.kind, away=store.away, shortfalls=list(store.shortfalls), degraded=dict(store.degraded)
            ),
            issuers={
                each.name: IssuerHealth(issuer=each.issuer, keys=each.keys, away=each.trouble) for each in issuers()
            },
            upstreams={
                name: UpstreamHealth(
                    state=state.status.phase,
                    error=state.status.report or troubles.get(name, ""),
                    tools=tools[name],
                    stale=name in troubles or state.status.phase == "down",
                    last_error=state.status.last_error,
                    connected_s=None if state.connected_s is None else round(state.connected_s, 1),
                    connections=state.connections,
                    breaker=state.breaker,
                    held_off=state.held_off,
                    in_flight=state.in_flight,
                    queued=state.queued,
                )
                for name, state in fleet.states().items()
            },
        )

    return router


def _quarantined(screened: Mapping[str, Screened]) -> dict[str, QuarantinedTool]:
    held = ((f"{server}:{name}", tool) for server, each in screened.items() for name, tool in each.held.items())
    return {
        name: QuarantinedTool(
            reason=tool.reason,
            message=tool.explanation,
            impact=tool.change.impact if tool.change else None,
            diff=list(tool.change.lines[:_MAX_LINES]) if tool.change else [],
        )
        for name, tool in islice(held, _MAX_NAMED)
    }


def _suspicious(screened: Mapping[str, Screened]) -> dict[str, list[str]]:
    flagged = (
        (f"{server}:{name}", list(signs))
        for server, each in screened.items()
        for name, signs in each.flagged.items()
        if name not in each.held
    )
    return dict(islice(flagged, _MAX_NAMED))


def metrics_router(read: Callable[[], Awaitable[bytes]], content_type: str) -> APIRouter:
    router = APIRouter(include_in_schema=False)

    @router.get("/metrics")
    async def metrics(request: Request) -> Response:
        identity: Identity = request.scope["state"]["identity"]
        if not identity.allows("ops:read"):
            message = "The metrics name every upstream: they need the permission ops:read"
            return refuse_permission(request, "ops:read", message)
        return Response(await read(), media_type=content_type)

    return router
