"""``/console/api/approvals``: calls that wait, and the decisions of their actors (OPS-253 to OPS-258)."""

import json
from contextlib import aclosing
from functools import partial
from typing import Any, Literal, get_args

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from app.console.live import Feed, name_of
from routers.console import context_of, data_router, identity_of
from routers.json_bodies import REFUSAL, TEXT, in_path, json_body, parameters, short_object
from routers.refusals import refuse
from wicketgate.access.approvers import described, has_voted, may_approve
from wicketgate.access.identity import Identity
from wicketgate.engine.approval_desk import NotCallers, NotOwn, NotWaiting, TooLarge, VotedBefore, may_read
from wicketgate.engine.waiting_calls import WaitingCall
from wicketgate.gate import Gate
from wicketgate.gateway.kept_calls import CallUnreadable
from wicketgate.gateway.programs import KeptProgram
from wicketgate.ports import Door

Decision = Literal["approve", "deny"]

_MOST_BYTES = 1_000
_MOST_PROGRAMS = 100
_DECISIONS: tuple[Decision, ...] = get_args(Decision)
_FOR_CONVERSATION = "approve_for_conversation"
"""An approval, and its destinations are fine for the rest of the conversation."""
_WORDS = (*_DECISIONS, _FOR_CONVERSATION)
_BODY = {**parameters(in_path("id")), **json_body({"decision": {**TEXT, "enum": list(_WORDS)}}, "decision")}
_FAILURES: dict[int | str, dict[str, Any]] = {
    401: {"description": "No valid credential", "content": REFUSAL},
    503: {"description": "The store of approvals cannot be reached", "content": REFUSAL},
}
_UNDECIDED: dict[int | str, dict[str, Any]] = {
    400: {"description": "Not a decision", "content": REFUSAL},
    403: {"description": "The caller may not decide on it", "content": REFUSAL},
    404: {"description": "This call does not wait", "content": REFUSAL},
    409: {"description": "Approved by the caller before, or too large to be read here", "content": REFUSAL},
}


_AS_KEPT = (
    "id",
    "tool_id",
    "actor",
    "key_id",
    "source",
    "door",
    "asked_at",
    "definition",
    "arg_names",
    "requests",
    "program",
)
"""Fields of a call that every reader of the list may see."""


class Word(BaseModel):
    """*at* is in seconds since the epoch."""

    actor: str
    decision: Decision
    at: float


class AskedCall(BaseModel):
    """*id* is a handle of this list, good for nothing else. *args* are for the actor of the call and its approvers
    alone, and null also where they are too large to be read. *own*: the caller is that actor. *definition* is the
    digest of the tool's definition. *needs* says who has to approve, empty where that is the actor; *approver*: the
    caller is one of them; *votes* are their words so far. *why* is the reason of a flow rule, empty for callers who may
    not read the arguments. *strange* is true if the call has destinations that can be accepted. *requests* are the
    requests in which those destinations were read. *program* is the id of the program that makes the call.
    *server* is empty if the tool was removed. *source* is the address
    of the client, *door* the one that the call came through: ``chat``, ``mcp``, ``stdio``, ``operations``, ``console``,
    empty if it came through none. Times are in seconds since the epoch."""

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
    why: str
    strange: bool
    requests: list[str]
    program: str


class CallThatWaits(AskedCall):
    """*definition_changed*: the tool is not as it was when it was asked, so that an approval would run nothing."""

    expires_at: float
    may_decide: bool
    definition_changed: bool


class DecidedCall(AskedCall):
    """*used*: the approval has run a call."""

    decision: Decision
    decided_at: float
    used: bool


class Approvals(BaseModel):
    """*waiting* is oldest first, *decided* newest first, of all processes."""

    waiting: list[CallThatWaits]
    decided: list[DecidedCall]


class Decided(BaseModel):
    """*complete*: nobody else has to approve it."""

    id: str
    decision: Decision
    complete: bool


class ProgramShown(BaseModel):
    """*text* is the program, *ran* the calls that it has made by tool, *waits* the call that waits for a person, empty
    if none does. *began* is in seconds since the epoch. *text* and *waits* are for the actor of the program alone."""

    id: str
    actor: str
    status: str
    began: float
    calls: int
    ran: dict[str, int]
    text: str
    waits: str


class ProgramsShown(BaseModel):
    """*programs* are those that outlived their requests and are kept, newest first; *on* is false without code mode."""

    on: bool
    programs: list[ProgramShown]


def _program(program: KeptProgram, *, own: bool) -> ProgramShown:
    need = program.need or {"tool_id": "", "args": {}}
    arguments = f" {json.dumps(need['args'], ensure_ascii=False)}" if own and program.need else ""
    return ProgramShown(
        id=program.id,
        actor=program.actor,
        status=program.status,
        began=program.began,
        calls=program.calls,
        ran=program.ran,
        text=program.code if own else "",
        waits=f"{need['tool_id']}{arguments}",
    )


def approvals_router(gate: Gate, feed: Feed | None) -> APIRouter:
    """Without *feed* no page is notified of changes."""
    router = data_router("approvals", _FAILURES)
    if feed is not None:
        follow_approvals(gate, feed)

    @router.get("/approvals", operation_id="listApprovals", response_model=Approvals)
    async def approvals(request: Request) -> Approvals:
        """Calls that wait for approval, and the last decisions: with `ops:read` of all actors, otherwise one's own
        and those that a rule of access lets one approve."""
        identity = identity_of(request)
        waiting, decided = await gate.approvals.lists(identity, everything=identity.allows("ops:read"))
        return Approvals(
            waiting=[_waiting(gate, call, identity) for call in waiting],
            decided=[_decided(gate, call, identity) for call in decided],
        )

    @router.get("/programs", operation_id="listPrograms", response_model=ProgramsShown)
    async def programs(request: Request) -> Response | ProgramsShown:
        """Programs of models that outlived their requests: with `ops:read` of all actors, otherwise one's own."""
        identity = identity_of(request)
        if gate.programs is None:
            return ProgramsShown(on=False, programs=[])
        try:
            found = await gate.programs.of_actor(None if identity.allows("ops:read") else identity.actor)
        except CallUnreadable:
            return refuse(503, "unavailable", "The store of programs cannot be reached")
        shown = [_program(each, own=each.actor == identity.actor) for each in found[:_MOST_PROGRAMS]]
        return ProgramsShown(on=True, programs=shown)

    @router.post(
        "/approvals/{id}",
        operation_id="decideApproval",
        response_model=Decided,
        responses=_UNDECIDED,
        openapi_extra=_BODY,
    )
    async def decide(request: Request) -> Response | Decided:
        """Decides on a call of one's own, or as an approver whom a rule of access names on that of another. An approval
        is good for the next same call of its actor, from whichever door, once. `approve_for_conversation` also accepts
        the destinations of the call for the rest of its conversation."""
        given = (await short_object(request, _MOST_BYTES)).get("decision")
        for_conversation = given == _FOR_CONVERSATION
        decision = next((each for each in _DECISIONS if each == ("approve" if for_conversation else given)), None)
        if decision is None:
            return refuse(400, "invalid_request", f'The body must be {{"decision": one of {", ".join(_WORDS)}}}')
        id, identity = request.path_params["id"], identity_of(request)
        try:
            complete = await gate.approvals.decide(id, decision, context_of(request), for_conversation=for_conversation)
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
        return Decided(id=id, decision=decision, complete=complete)

    return router


def follow_approvals(gate: Gate, feed: Feed) -> None:
    """Sends open pages each change of the list by any process. They get handles only, which show nothing to others."""

    async def follow() -> None:
        async with aclosing(gate.approvals.changes()) as changes:
            async for call, change in changes:
                feed.tell("approval", {"id": call.id, "change": change}, call.actor, partial(_may_approve, gate, call))

    feed.while_open(follow)


def _may_approve(gate: Gate, call: WaitingCall, viewer: Identity) -> bool:
    return may_approve(call.needs, viewer, call.actor, gate.approvals.persons)


def _waiting(gate: Gate, call: WaitingCall, identity: Identity) -> CallThatWaits:
    now = gate.runtime.catalog().items.get(call.tool_id)
    if call.needs:
        voted = has_voted(call.votes, identity.actor, gate.approvals.persons)
        decides = _may_approve(gate, call, identity) and not voted
    else:
        decides = call.actor == identity.actor
    return CallThatWaits(
        **_common(gate, call, identity),
        expires_at=call.expires_at,
        may_decide=decides and call.args is not None,
        definition_changed=now is None or now.digest != call.definition,
    )


def _decided(gate: Gate, call: WaitingCall, identity: Identity) -> DecidedCall:
    assert call.decision is not None
    return DecidedCall(
        **_common(gate, call, identity), decision=call.decision, decided_at=call.decided_at, used=call.used
    )


def _common(gate: Gate, call: WaitingCall, identity: Identity) -> dict[str, Any]:
    """What both kinds of call show. Arguments are for the actor of a call and its approvers alone."""
    reads = may_read(call, identity, gate.approvals.persons)
    item = gate.runtime.catalog().items.get(call.tool_id)
    return {
        **{name: getattr(call, name) for name in _AS_KEPT},
        "name": name_of(call.tool_id),
        "server": "" if item is None else item.server,
        "own": call.actor == identity.actor,
        "args": call.args if reads else None,
        "why": call.why if reads else "",
        "strange": bool(call.strange),
        "needs": described(call.needs),
        "approver": _may_approve(gate, call, identity),
        "votes": [Word(actor=vote.actor, decision=vote.decision, at=vote.at) for vote in call.votes],
    }
