"""``/console/api/approvals``: calls that wait, and the decisions of their actors (OPS-253 to OPS-258)."""

import json
from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from app.console.approvals import approvals_of, follow_approvals
from app.console.live import Feed
from app.json_body import read_short
from routers.console import context_of, data_router, identity_of
from routers.refusals import refuse
from wicketgate.engine.approvals import NotWaiting
from wicketgate.errors import NotAdmitted
from wicketgate.gate import Gate

_MOST_BYTES = 1_000
_BODY = {
    "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}],
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["decision"],
                    "properties": {"decision": {"enum": ["approve", "deny"]}},
                }
            }
        },
    },
}


class AskedCall(BaseModel):
    """*id* is a handle of this list, good for nothing else. *args* are for the actor of the call alone, and null also
    where they are too large to be read. *own*: the caller is that actor. Times are in seconds since the epoch."""

    id: str
    tool_id: str
    name: str
    actor: str
    own: bool
    asked_at: float
    args: dict[str, Any] | None
    arg_names: list[str]


class CallThatWaits(AskedCall):
    """*definition_changed*: the tool is not as it was when it was asked, so that an approval would run nothing."""

    expires_at: float
    may_decide: bool
    definition_changed: bool


class DecidedCall(AskedCall):
    """*used*: the approval has run a call."""

    decision: Literal["approve", "deny"]
    decided_at: float
    used: bool


class Approvals(BaseModel):
    """*waiting* is oldest first, *decided* newest first."""

    waiting: list[CallThatWaits]
    decided: list[DecidedCall]


class Decided(BaseModel):
    id: str
    decision: Literal["approve", "deny"]


def approvals_router(gate: Gate, feed: Feed) -> APIRouter:
    router = data_router()
    follow_approvals(gate, feed)

    @router.get("/approvals", operation_id="console_approvals")
    async def approvals(request: Request) -> Approvals:
        """Calls that wait for approval, and the last decisions: with `ops:read` of all actors, otherwise one's own."""
        return Approvals.model_validate(approvals_of(gate, identity_of(request)))

    @router.post("/approvals/{id}", operation_id="console_decide", response_model=Decided, openapi_extra=_BODY)
    async def decide(request: Request) -> Response | Decided:
        """Decides on a call of one's own. An approval is good for its next same call, from whichever door, once."""
        decision = _decision(await read_short(request.receive, _MOST_BYTES))
        if decision is None:
            return refuse(400, "invalid_request", 'The body must be {"decision": "approve"} or {"decision": "deny"}')
        id, identity = request.path_params["id"], identity_of(request)
        call = gate.approvals.waiting.find(id)
        if call is None or (call.actor != identity.actor and not identity.allows("ops:read")):
            return refuse(404, "not_found", "This call does not wait: it was decided, or its time is over")
        if call.actor != identity.actor:
            return refuse(403, "forbidden", "Only the actor whose call it is may decide")
        if call.args is None:
            return refuse(409, "too_large", "Its arguments are too large to be read here; decide in its own client")
        try:
            await gate.approvals.decide(id, decision, context_of(request))
        except NotWaiting:
            return refuse(404, "not_found", "This call does not wait: it was decided, or its time is over")
        except NotAdmitted as away:
            return refuse(503, "unavailable", away.message)
        return Decided(id=id, decision=decision)

    return router


def _decision(body: bytes | None) -> Literal["approve", "deny"] | None:
    try:
        given = json.loads(body or b"")
    except (ValueError, RecursionError):
        return None
    match given:
        case {"decision": "approve"}:
            return "approve"
        case {"decision": "deny"}:
            return "deny"
        case _:
            return None
