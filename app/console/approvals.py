"""The calls that wait for an approval, as the caller may see them (OPS-253, OPS-257)."""

from typing import Any

from app.console.live import Feed, name_of
from wicketgate.access.identity import Identity
from wicketgate.engine.waiting_calls import Change, WaitingCall
from wicketgate.gate import Gate


def follow_approvals(gate: Gate, feed: Feed) -> None:
    """Tell open pages of each change of the list. Only handles are told, which show nothing to others."""

    def tell(call: WaitingCall, change: Change) -> None:
        feed.tell("approval", {"id": call.id, "change": change}, call.actor)

    gate.approvals.waiting.listen(tell)


def approvals_of(gate: Gate, identity: Identity) -> dict[str, Any]:
    """Calls that wait, and the last decided: of all actors with ``ops:read``, otherwise the caller's own. Arguments are
    for the actor of a call alone.

    Other replicas have lists of their own; asking them through ``gate.peers`` is to be added here.
    """
    everything = identity.allows("ops:read")
    waiting = gate.approvals.waiting
    return {
        "waiting": [
            _waiting(gate, call, identity) for call in waiting.waiting() if everything or call.actor == identity.actor
        ],
        "decided": [
            _decided(call, identity) for call in waiting.decided() if everything or call.actor == identity.actor
        ],
    }


def _waiting(gate: Gate, call: WaitingCall, identity: Identity) -> dict[str, Any]:
    now = gate.runtime.catalog().items.get(call.tool_id)
    own = call.actor == identity.actor
    return {
        **_common(call, identity),
        "expires_at": call.expires_at,
        "may_decide": own and call.args is not None,
        "definition_changed": now is None or now.digest != call.definition,
    }


def _decided(call: WaitingCall, identity: Identity) -> dict[str, Any]:
    return {
        **_common(call, identity),
        "decision": call.decision,
        "decided_at": call.decided_at,
        "used": call.used,
    }


def _common(call: WaitingCall, identity: Identity) -> dict[str, Any]:
    own = call.actor == identity.actor
    return {
        "id": call.id,
        "tool_id": call.tool_id,
        "name": name_of(call.tool_id),
        "actor": call.actor,
        "own": own,
        "asked_at": call.asked_at,
        "args": call.args if own else None,
        "arg_names": call.arg_names,
    }
