"""``/console/api``: the data of the console's pages, for callers with a key (OPS-220 and following).

A caller sees what the faces would show it. ``ops:read`` shows all of the gate, ``ops:write`` lets it be changed.
"""

from fastapi import APIRouter, Request
from pydantic import BaseModel

from wicketgate.access.identity import Identity
from wicketgate.gate import VERSION

PREFIX = "/console/api"


class May(BaseModel):
    """*read*: all of the gate (``ops:read``). *write*: change it (``ops:write``)."""

    read: bool
    write: bool


class Me(BaseModel):
    """The caller, as the gate knows it."""

    actor: str
    key_id: str
    permissions: list[str]
    version: str
    may: May


def console_router() -> APIRouter:
    router = APIRouter(prefix=PREFIX, tags=["console"])

    @router.get("/me", operation_id="console_me")
    async def me(request: Request) -> Me:
        """The caller, and what it may do here."""
        identity: Identity = request.scope["state"]["identity"]
        return Me(
            actor=identity.actor,
            key_id=identity.key_id,
            permissions=list(identity.permissions),
            version=VERSION,
            may=May(read=identity.allows("ops:read"), write=identity.allows("ops:write")),
        )

    return router
