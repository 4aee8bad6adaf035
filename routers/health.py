"""``/healthz``: the process lives. ``/readyz``: it can serve, and how each upstream is (DESIGN §2 "Paths")."""

from collections import Counter
from collections.abc import Callable

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from app.gateway.breaker import BreakerState
from app.gateway.catalog_keeper import tools_left_out
from app.gateway.fleet import MultiplexUpstream
from app.gateway.ports import UpstreamPhase
from app.gateway.runtime import ProxyRuntime


class Alive(BaseModel):
    status: str = "ok"


class UpstreamHealth(BaseModel):
    """*error* is empty while all is well. *stale*: its *tools* are as it last gave them. *last_error*: why the session
    before the present one ended. *connected_s*: how long ago the newest session began; null where there is none.
    """

    state: UpstreamPhase
    error: str
    tools: int
    stale: bool
    last_error: str
    connected_s: float | None
    connections: int
    breaker: BreakerState
    in_flight: int
    queued: int


class CatalogHealth(BaseModel):
    version: str
    tools: int
    left_out: dict[str, str]
    """Tools that cannot be shown, and why."""


class Readiness(BaseModel):
    ready: bool
    catalog: CatalogHealth
    upstreams: dict[str, UpstreamHealth]


def health_router(runtime: ProxyRuntime, fleet: MultiplexUpstream, ready: Callable[[], bool]) -> APIRouter:
    router = APIRouter()

    @router.get("/healthz", operation_id="healthz")
    async def healthz() -> Alive:
        return Alive()

    @router.get("/readyz", operation_id="readyz", response_model=Readiness, responses={503: {"model": Readiness}})
    async def readyz() -> JSONResponse:
        """200 when requests are taken, else 503; the same body with both."""
        catalog = runtime.catalog()
        troubles = runtime.troubles()
        tools = Counter(item.server for item in catalog.items.values())
        body = Readiness(
            ready=ready(),
            catalog=CatalogHealth(version=catalog.version, tools=len(catalog.items), left_out=tools_left_out(catalog)),
            upstreams={
                name: UpstreamHealth(
                    state=state.status.phase,
                    error=state.status.error or troubles.get(name, ""),
                    tools=tools[name],
                    stale=name in troubles or state.status.phase == "down",
                    last_error=state.status.last_error,
                    connected_s=None if state.connected_s is None else round(state.connected_s, 1),
                    connections=state.connections,
                    breaker=state.breaker,
                    in_flight=state.in_flight,
                    queued=state.queued,
                )
                for name, state in fleet.states().items()
            },
        )
        return JSONResponse(body.model_dump(), 200 if body.ready else 503)

    return router
