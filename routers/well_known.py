"""The metadata of this service as a protected resource (RFC 9728; ACCESS-130, ACCESS-131).

One document for each resource, and that of the main face at the root; none where no issuer is configured.
"""

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from routers.refusals import refuse
from wicketgate.access.issuers import Issuers
from wicketgate.access.resources import WELL_KNOWN, Resources

_CACHED = {"cache-control": "public, max-age=300"}


def well_known_router(issuers: Issuers, resources: Resources) -> APIRouter:
    router = APIRouter(include_in_schema=False)

    async def document(request: Request) -> Response:
        found = resources.document(request.url.path, issuers.all)
        if found is None:
            return refuse(404, "not_found", "There is no such document")
        return JSONResponse(found, headers=_CACHED)

    for path in (WELL_KNOWN, f"{WELL_KNOWN}/{{resource:path}}"):
        router.add_api_route(path, document, methods=["GET"])
    return router
