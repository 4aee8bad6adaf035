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
from wicketgate.engine.approval_desk import NotCallers, NotOwn, NotWaiting, TooLarge, VotedBefore
from wicketgate.errors import NotAdmitted
from wicketgate.gate import Gate
from wicketgate.ports import Door

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


class Word(BaseModel):
    """*at* is in seconds since the epoch."""

    actor: str
    decision: Literal["approve", "deny"]
    at: float


class AskedCall(BaseModel):
    """*id* is a handle of this list, good for nothing else. *args* are for the actor of the call and its approvers
    alone, and null also where they are too large to be read. *own*: the caller is that actor. *definition* is the
    digest of the tool's definition. *needs* says who has to approve, empty where that is the actor; *approver*: the
    caller is one of them; *votes* are their words so far. *server* is empty where the tool is not there any more,
    *source* the address of the client, *door* the one that the call came through: ``chat``, ``mcp``, ``stdio``,
    ``operations``, ``console``, empty if it came through none. Times are in seconds since the epoch."""

    id: str
    tool_id: str
    name: str
    server: str
    actor: str
    key_id: str
    source: str
    door: Door
    own: bool
    asked_at: float
    args: dict[str, Any] | None
    arg_names: list[str]
    definition: str
    needs: str
    approver: bool
    votes: list[Word]


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
    """*waiting* is oldest first, *decided* newest first, of all processes; *unreached*: so many did not answer, and
    what waits at them is missing."""

    waiting: list[CallThatWaits]
    decided: list[DecidedCall]
    unreached: int


class Decided(BaseModel):
    """*complete*: nobody else has to approve it."""

    id: str
    decision: Literal["approve", "deny"]
    complete: bool


def approvals_router(gate: Gate, feed: Feed | None) -> APIRouter:
    """Without *feed* no page is told of changes."""
    router = data_router()
    if feed is not None:
        follow_approvals(gate, feed)

    @router.get("/approvals", operation_id="console_approvals")
    async def approvals(request: Request) -> Approvals:
        """Calls that wait for approval, and the last decisions: with `ops:read` of all actors, otherwise one's own
        and those that a rule of access lets one approve."""
        return Approvals.model_validate(await approvals_of(gate, identity_of(request)))

    @router.post("/approvals/{id}", operation_id="console_decide", response_model=Decided, openapi_extra=_BODY)
    async def decide(request: Request) -> Response | Decided:
        """Decides on a call of one's own, or as an approver whom a rule of access names on that of another. An approval
        is good for the next same call of its actor, from whichever door, once."""
        decision = _decision(await read_short(request.receive, _MOST_BYTES))
        if decision is None:
            return refuse(400, "invalid_request", 'The body must be {"decision": "approve"} or {"decision": "deny"}')
        id, identity = request.path_params["id"], identity_of(request)
        try:
            complete = await gate.approvals.decide(id, decision, context_of(request))
        except TooLarge:
            return refuse(409, "too_large", "Its arguments are too large to be read here; decide in its own client")
        except VotedBefore:
            return refuse(409, "conflict", "You have approved it; it waits for another approver")
        except NotCallers:
            return refuse(403, "forbidden", "Its caller cannot approve it: a rule names others")
        except NotWaiting as error:
            # To others than those who may read the gate, a call of another actor does not exist.
            if isinstance(error, NotOwn) and identity.allows("ops:read"):
                return refuse(403, "forbidden", "Only its actor may decide, or the approvers that its rule names")
            return refuse(404, "not_found", "This call does not wait: it was decided, or its time is over")
        except NotAdmitted as away:
            return refuse(503, "unavailable", away.message)
        return Decided(id=id, decision=decision, complete=complete)

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
