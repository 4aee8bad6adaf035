"""``/mcp``: the second door, the same runtime for any MCP client (S1 "Runtime modes")."""

from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp


def mcp_routes(endpoint: ASGIApp, face: str) -> list[BaseRoute]:
    """The configured face at ``/mcp`` and under its own name.

    Routes of an ASGI object, not mounts: a mount answers ``POST /mcp`` with a redirect.
    """
    return [Route(path, endpoint=endpoint, include_in_schema=False) for path in ("/mcp", f"/mcp/{face}")]
