"""The calls that wait for an approval, as the caller may see them (OPS-253, OPS-257)."""

from typing import Any

from app.console.live import Feed, name_of
from wicketgate.access.approvers import Needs, described, has_voted, may_approve
from wicketgate.access.identity import Identity
from wicketgate.engine.other_desks import may_read
from wicketgate.engine.waiting_calls import MOST_DECIDED, Change, WaitingCall
from wicketgate.gate import Gate


def follow_approvals(gate: Gate, feed: Feed) -> None:
    """Tell open pages of each change of the list, at whichever process. Only handles are told, which show nothing to
    others."""

    def tell(id: str, change: Change, actor: str, needs: Needs) -> None:
        persons = gate.approvals.persons
        told = {"id": id, "change": change}
        feed.tell("approval", told, actor, lambda viewer: may_approve(needs, viewer, actor, persons))

    gate.approvals.listen(tell)


async def approvals_of(gate: Gate, identity: Identity) -> dict[str, Any]:
    """Calls that wait, and the last decided, at all processes: of all actors with ``ops:read``, otherwise the caller's
    own and those that it may approve. Arguments are for the actor of a call and its approvers alone."""
    found = await gate.approvals.lists(identity, everything=identity.allows("ops:read"))
    return {
        "waiting": [_waiting(gate, call, identity) for call in found.waiting],
        "decided": [_decided(gate, call, identity) for call in found.decided[:MOST_DECIDED]],
        "unreached": found.unreached,
    }


def _waiting(gate: Gate, call: WaitingCall, identity: Identity) -> dict[str, Any]:
    now = gate.runtime.catalog().items.get(call.tool_id)
    if call.needs:
        persons = gate.approvals.persons
        voted = has_voted(call.votes, identity.actor, persons)
        decides = may_approve(call.needs, identity, call.actor, persons) and not voted
    else:
        decides = call.actor == identity.actor
    return {
        **_common(gate, call, identity),
        "expires_at": call.expires_at,
        "may_decide": decides and call.args is not None,
        "definition_changed": now is None or now.digest != call.definition,
    }


def _decided(gate: Gate, call: WaitingCall, identity: Identity) -> dict[str, Any]:
    return {
        **_common(gate, call, identity),
        "decision": call.decision,
        "decided_at": call.decided_at,
        "used": call.used,
    }


def _common(gate: Gate, call: WaitingCall, identity: Identity) -> dict[str, Any]:
    own, persons = call.actor == identity.actor, gate.approvals.persons
    item = gate.runtime.catalog().items.get(call.tool_id)
    return {
        "id": call.id,
        "tool_id": call.tool_id,
        "name": name_of(call.tool_id),
        "server": "" if item is None else item.server,
        "actor": call.actor,
        "key_id": call.key_id,
        "source": call.source,
        "door": call.door,
        "own": own,
        "asked_at": call.asked_at,
        "definition": call.definition,
        "args": call.args if may_read(call, identity, persons) else None,
        "arg_names": call.arg_names,
        "needs": described(call.needs),
        "approver": may_approve(call.needs, identity, call.actor, persons),
        "votes": [{"actor": vote.actor, "decision": vote.decision, "at": vote.at} for vote in call.votes],
    }
