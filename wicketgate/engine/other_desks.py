"""The desks of the other processes: one list of what waits over all workers and replicas (OPS-290 to OPS-293).

A call stays at the process where it was made, its home, which alone decides on it and uses its approval up: so a
decision counts once, whatever is shared. The others ask. Arguments travel to the actor of a call and to its approvers
alone, and are kept nowhere else. A process that does not answer is as one without a list: its calls ask again.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, cast

from wicketgate.access.approvers import Needs, Persons, Vote, may_approve, needs_as_json, needs_of_json
from wicketgate.access.identity import Identity
from wicketgate.engine.waiting_calls import Change, Decision, Verdict, WaitingCall, WaitingCalls
from wicketgate.errors import NotAdmitted
from wicketgate.peers import NotReached, Payload, Peers, ask_others
from wicketgate.ports import Door

_TIMEOUT_S = 2.0
_MOST_NEWS = 1_000
_LIST, _COUNT, _LOOK, _SETTLE, _DECIDE, _DECIDED, _BROUGHT, _NEWS = (
    f"approvals_{name}" for name in ("list", "count", "look", "use", "decide", "decided", "brought", "news")
)
# A process of a version that knows no approvers answers "approvals_settle", whatever a call needs: it is not asked.

Outcome = Literal[
    "done", "one_of_several", "not_waiting", "not_own", "not_callers", "voted_before", "too_large", "away"
]
"""The end of a decision: *one_of_several*, others have to approve too; *not_callers*, others than the caller, who this
is, decide; *voted_before*, this approver has approved; *away*, nothing can be kept at the moment."""

Heard = Callable[[str, Change, str, Needs], None]
"""Takes a change of the list: the call's handle, the change, its actor, and those who have to approve."""


@dataclass(frozen=True, slots=True)
class By:
    """Somebody who decides, as rules judge it and the audit records it."""

    actor: str
    key_id: str
    source: str
    correlation_id: str
    door: Door
    permissions: Sequence[str] = ()
    roles: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Lists:
    """*unreached*: the number of processes whose lists are missing."""

    waiting: list[WaitingCall]
    decided: list[WaitingCall]
    unreached: int


Decide = Callable[[str, Decision, By], Awaitable[Outcome]]
Settle = Callable[[str, str, str, str, Needs], Awaitable[Verdict]]


class OtherDesks:
    """Asks the desks of other processes, and answers theirs by *decide* and *settle* of the own one."""

    def __init__(self, peers: Peers, waiting: WaitingCalls, decide: Decide, settle: Settle, persons: Persons) -> None:
        self._peers = peers
        self._persons = persons
        self._waiting = waiting
        self._decide = decide
        self._settle = settle
        self._listeners: list[Heard] = []
        self._news: list[Payload] = []
        self._telling: asyncio.Task[None] | None = None
        waiting.listen(self._changed)
        for operation, answer in (
            (_LIST, self._answer_list),
            (_COUNT, self._answer_count),
            (_LOOK, self._answer_look),
            (_SETTLE, self._answer_settle),
            (_DECIDE, self._answer_decide),
            (_DECIDED, self._answer_decided),
            (_BROUGHT, self._answer_brought),
            (_NEWS, self._answer_news),
        ):
            # A decision that has begun is made, whoever asked for it.
            peers.answer(operation, answer, outlives=operation in (_DECIDE, _BROUGHT))

    def handle(self, token: str) -> str:
        """The handle of a call of this process: it leads others here."""
        return f"{self._peers.own_id}.{token}"

    def listen(self, listener: Heard) -> None:
        """Calls *listener* with each change of the list, here and elsewhere. It must neither wait nor fail."""
        self._listeners.append(listener)

    async def aclose(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.gather(self._telling, return_exceptions=True)

    async def lists(self, viewer: Identity, *, everything: bool) -> Lists:
        """The calls of all processes: those of *viewer* and those that it may approve, or *everything*. Arguments come
        with the former alone."""
        wanted = {**_written_viewer(viewer), "everything": everything}
        answers = await ask_others(self._peers, _LIST, wanted, _TIMEOUT_S)
        waiting, decided = self._own_lists(viewer, everything)
        for answer in answers.given.values():
            waiting += [_read(each) for each in answer["waiting"]]
            decided += [_read(each) for each in answer["decided"]]
        waiting.sort(key=lambda each: each.asked_at)
        decided.sort(key=lambda each: -each.decided_at)
        return Lists(list(_once(waiting)), decided, answers.unreached)

    async def count(self, viewer: Identity, *, everything: bool) -> int:
        """The number of calls that wait, here and elsewhere, of those that ``lists`` gives."""
        wanted = {**_written_viewer(viewer), "everything": everything}
        answers = await ask_others(self._peers, _COUNT, wanted, _TIMEOUT_S)
        return self._own_count(viewer, everything) + sum(int(each["count"]) for each in answers.given.values())

    async def decide(self, id: str, decision: Decision, by: By) -> Outcome:
        """Lets the home of the call decide, if that is another process."""
        home = id.partition(".")[0]
        if home == self._peers.own_id or "." not in id:
            return "not_waiting"
        wanted = {"id": id, "decision": decision, "by": [getattr(by, each.name) for each in fields(By)]}
        try:
            return cast(Outcome, (await self._peers.ask(home, _DECIDE, wanted))["outcome"])
        except NotReached as error:
            return "not_waiting" if error.gone else "away"

    async def settle(
        self, actor: str, tool_id: str, definition: str, arguments: str, needs: Needs
    ) -> tuple[Verdict, str | None]:
        """Uses up a decision on such a call that stands elsewhere. Returns it, and the id of such a call that waits
        there; None if there is none."""
        wanted = {
            "actor": actor,
            "tool_id": tool_id,
            "definition": definition,
            "arguments": arguments,
            "needs": needs_as_json(needs),
        }
        answers = await ask_others(self._peers, _LOOK, wanted, _TIMEOUT_S)
        verdict: Verdict = ""
        # One after the other, since each uses up what it gives.
        for peer in (peer for peer, answer in answers.given.items() if answer["stands"]):
            try:
                verdict = cast(Verdict, (await self._peers.ask(peer, _SETTLE, wanted))["verdict"])
            except NotReached:
                continue
            if verdict:
                break
        waiting = (str(answer.get("id", "")) for answer in answers.given.values() if answer["waits"])
        return verdict, next(waiting, None)

    async def decided(self, actor: str, approvals: Iterable[str]) -> dict[str, tuple[Decision, Needs]]:
        """The decisions that stand elsewhere, by sealed ids, with those who had to decide."""
        wanted = {"actor": actor, "approvals": list(approvals)}
        if not wanted["approvals"]:
            return {}
        answers = await ask_others(self._peers, _DECIDED, wanted, _TIMEOUT_S)
        return {
            id: (decision, needs_of_json(answer.get("needs", {}).get(id, ())))
            for answer in answers.given.values()
            for id, decision in answer["decided"].items()
        }

    async def brought(self, actor: str, approval: str, decision: Decision, *, runs: bool) -> None:
        """Tells the others that a client has brought the decision on a call that may be on their lists."""
        wanted = {"actor": actor, "approval": approval, "decision": decision, "runs": runs}
        await ask_others(self._peers, _BROUGHT, wanted, _TIMEOUT_S)

    def _own_lists(self, viewer: Identity, everything: bool) -> tuple[list[WaitingCall], list[WaitingCall]]:
        waiting, decided = self._waiting.waiting(), self._waiting.decided()
        if not everything:
            waiting = [each for each in waiting if may_read(each, viewer, self._persons)]
            decided = [each for each in decided if may_read(each, viewer, self._persons)]
        return waiting, decided

    def _own_count(self, viewer: Identity, everything: bool) -> int:
        return sum(everything or may_read(each, viewer, self._persons) for each in self._waiting.waiting())

    def _changed(self, call: WaitingCall, change: Change) -> None:
        for listener in self._listeners:
            listener(call.id, change, call.actor, call.needs)
        twin = [call.tool_id, call.definition, call.arguments] if change == "decided" and not call.from_chat else []
        needs = needs_as_json(call.needs)
        self._news.append({"id": call.id, "change": change, "actor": call.actor, "needs": needs, "twin": twin})
        # Pages ask for the list anyway: what is left out is seen at the next news.
        del self._news[:-_MOST_NEWS]
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._tell(), name="news of calls that wait")

    async def _tell(self) -> None:
        while self._news:
            news, self._news = self._news, []
            await ask_others(self._peers, _NEWS, {"news": news}, _TIMEOUT_S)

    async def _answer_list(self, wanted: Payload) -> Payload:
        viewer = _read_viewer(wanted)
        waiting, decided = self._own_lists(viewer, wanted["everything"])
        return {
            "waiting": [_written(each, viewer, self._persons) for each in waiting],
            "decided": [_written(each, viewer, self._persons) for each in decided],
        }

    async def _answer_count(self, wanted: Payload) -> Payload:
        return {"count": self._own_count(_read_viewer(wanted), wanted.get("everything", False))}

    async def _answer_look(self, wanted: Payload) -> Payload:
        actor, tool_id, arguments = wanted["actor"], wanted["tool_id"], wanted["arguments"]
        needs = needs_of_json(wanted.get("needs", ()))
        id = self._waiting.waits(actor, tool_id, wanted["definition"], arguments, needs)
        return {"stands": self._waiting.stands(actor, tool_id, arguments), "waits": bool(id), "id": id}

    async def _answer_settle(self, wanted: Payload) -> Payload:
        actor, tool_id = wanted["actor"], wanted["tool_id"]
        needs = needs_of_json(wanted["needs"])
        try:
            return {"verdict": await self._settle(actor, tool_id, wanted["definition"], wanted["arguments"], needs)}
        except NotAdmitted:
            return {"verdict": ""}  # it stands until something can be kept again

    async def _answer_decide(self, wanted: Payload) -> Payload:
        return {"outcome": await self._decide(wanted["id"], wanted["decision"], By(*wanted["by"]))}

    async def _answer_decided(self, wanted: Payload) -> Payload:
        asked = {each: self._waiting.of_approval(wanted["actor"], each) for each in wanted["approvals"]}
        found = {id: call for id, call in asked.items() if call is not None and call.decision is not None}
        return {
            "decided": {id: call.decision for id, call in found.items()},
            "needs": {id: needs_as_json(call.needs) for id, call in found.items()},
        }

    async def _answer_brought(self, wanted: Payload) -> Payload:
        self._waiting.brought(wanted["actor"], wanted["approval"], wanted["decision"], runs=wanted["runs"])
        return {}

    async def _answer_news(self, wanted: Payload) -> Payload:
        for each in wanted["news"]:
            needs = needs_of_json(each.get("needs", ()))
            if each["twin"]:
                tool_id, definition, arguments = each["twin"]
                self._waiting.drop_twins(each["actor"], tool_id, definition, arguments, needs)
            for listener in self._listeners:
                listener(each["id"], each["change"], each["actor"], needs)
        return {}


def _once(waiting: Iterable[WaitingCall]) -> Iterable[WaitingCall]:
    """The very same call without a chat, made at two processes at once, is shown once."""
    seen = set[tuple[str, str, str, str, Needs]]()
    for each in waiting:
        if each.from_chat or each.same not in seen:
            yield each
        if not each.from_chat:
            seen.add(each.same)


def may_read(call: WaitingCall, viewer: Identity, persons: Persons) -> bool:
    """True if *viewer* sees *call* with its arguments: its own actor, and those whom a rule names to decide on it."""
    return viewer.actor == call.actor or may_approve(call.needs, viewer, call.actor, persons)


def _written_viewer(viewer: Identity) -> Payload:
    return {"actor": viewer.actor, "permissions": list(viewer.permissions), "roles": list(viewer.roles)}


def _read_viewer(wanted: Payload) -> Identity:
    return Identity(wanted["actor"], tuple(wanted.get("permissions", ())), roles=tuple(wanted.get("roles", ())))


def _written(call: WaitingCall, viewer: Identity, persons: Persons) -> Mapping[str, Any]:
    """*call* for a peer, with its arguments for those who may read them. What its approval is sealed as stays here."""
    names = (each.name for each in fields(WaitingCall) if each.name not in ("args", "approval"))
    plain = {name: getattr(call, name) for name in names}
    # As JSON, because MessagePack takes neither large numbers nor halves of pairs.
    args = None if call.args is None or not may_read(call, viewer, persons) else json.dumps(call.args)
    return {
        **plain,
        "arg_names": [name.encode("utf-8", "replace").decode() for name in call.arg_names],
        "args": args,
        "needs": needs_as_json(call.needs),
        "votes": [[vote.actor, vote.decision, list(vote.by), vote.at] for vote in call.votes],
    }


def _read(written: Mapping[str, Any]) -> WaitingCall:
    """Fields of other versions are passed over."""
    known = {each.name: written[each.name] for each in fields(WaitingCall) if each.name in written}
    args = None if known["args"] is None else json.loads(known["args"])
    read = {
        "arg_names": tuple(known["arg_names"]),
        "needs": needs_of_json(known.get("needs", ())),
        "votes": tuple(Vote(actor, decision, tuple(by), at) for actor, decision, by, at in known.get("votes", ())),
    }
    return WaitingCall(**{**known, **read, "approval": "", "args": args})
