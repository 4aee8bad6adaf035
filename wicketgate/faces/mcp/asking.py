"""Approval by a client that can be asked while its call runs: elicitation, DESIGN §3 "Approval"."""

import json
import unicodedata

from wicketgate.errors import Forbidden
from wicketgate.ports import Caller, CannotAsk, PendingCall, approval_required

_MAX_SHOWN_CHARS = 4_000
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


class AskingApprover:
    """Implements Approver. Whoever cannot be asked, or does not answer, gets ApprovalRequired."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def approve(self, call: PendingCall) -> None:
        shown = _shown(call)
        # What is agreed to must have been seen whole.
        if self._caller.answers != "now" or len(shown) > _MAX_SHOWN_CHARS:
            raise approval_required(call)
        question = {
            "message": f"May {call.tool_id} be run with these arguments?\n{shown}",
            "requestedSchema": {"type": "object", "properties": {}},
        }
        try:
            answer = await self._caller.ask("elicitation/create", question)
        except CannotAsk:
            raise approval_required(call) from None
        match answer.get("action"):
            case "accept":
                return
            case "decline":
                raise Forbidden("Denied by the owner. It was not run.", path=call.tool_id)
            case _:
                raise approval_required(call)


def _shown(call: PendingCall) -> str:
    """The arguments as JSON, in which nothing hides or turns the line around."""
    text = json.dumps(dict(call.args), ensure_ascii=False)
    return "".join(f"\\u{ord(c):04x}" if unicodedata.category(c) in _HIDDEN else c for c in text)
