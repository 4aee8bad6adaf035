"""``/metrics``: counters for whoever watches the service; needs a credential like every path but health (DESIGN §2)."""

from collections.abc import Callable

from fastapi import APIRouter, Response


def metrics_router(render: Callable[[], bytes], content_type: str) -> APIRouter:
    router = APIRouter(include_in_schema=False)

    @router.get("/metrics")
    async def metrics() -> Response:
        return Response(render(), media_type=content_type)

    return router
