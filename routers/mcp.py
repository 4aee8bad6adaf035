"""``/mcp``: the second door, the same runtime for any MCP client (S1 "Runtime modes")."""

from collections.abc import Mapping

from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp


def mcp_routes(endpoints: Mapping[str, ASGIApp], face: str) -> list[BaseRoute]:
    """Every face under its own name, and the configured one at ``/mcp``.

    Routes of an ASGI object, not mounts: a mount answers ``POST /mcp`` with a redirect.
    """
    paths = {"/mcp": endpoints[face], **{f"/mcp/{name}": endpoint for name, endpoint in endpoints.items()}}
    return [Route(path, endpoint=endpoint, include_in_schema=False) for path, endpoint in paths.items()]
