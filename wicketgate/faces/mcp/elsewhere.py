"""Held calls and tasks whose home is another process, and those of this one for the others (FACE-105 to FACE-110).

A second attempt and what is asked of a task go to the home of the call, which the client's state or id names. Once that
has ended, what it kept of the call answers; without that, its fate is unknown.
"""

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal

from mcp import types as t
from mcp.shared.exceptions import MCPError
from mcp_types.methods import serialize_server_result
from pydantic import ValidationError

from wicketgate.access.identity import Identity
from wicketgate.errors import GatewayError, InputRequired
from wicketgate.faces.mcp.caller import HeldAnswers, LentClient, McpCaller
from wicketgate.faces.mcp.held import Asked, HeldCall, HeldCalls, NotHeld
from wicketgate.faces.surface import Refusal
from wicketgate.gateway.carried_errors import pack_error, unpack_error
from wicketgate.gateway.kept_calls import KeptCalls, Row, lost
from wicketgate.gateway.peer_json import as_payload, from_payload
from wicketgate.gateway.running_calls import RunningCall
from wicketgate.log_text import correlation_id
from wicketgate.peers import Payload

log = logging.getLogger("wicketgate.mcp")

_ASK_S = 5.0
_LONGEST_S = 86_400.0
"""A second attempt waits as long as its call takes; a home that ends is missed before."""

Wish = Literal["get", "update", "cancel"]


@dataclass(frozen=True, slots=True)
class TaskState:
    """A task as its client is shown it. *more* belongs to *status*."""

    id: str
    status: str
    created: str
    changed: str
    kept_s: float | None = None
    message: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)


class Elsewhere:
    """The held calls of the door *face* in all processes. *kept* is None where there is no other."""

    def __init__(self, face: str, kept: KeptCalls | None) -> None:
        self._face = face
        self._kept = kept
        self._held: HeldCalls

    def attach(self, held: HeldCalls) -> None:
        """Answer for *held* from now on."""
        self._held = held
        if self._kept is not None:
            self._kept.answer(f"held {self._face}", self._resumed, outlives=True)
            self._kept.answer(f"task {self._face}", self._asked_of_task)

    async def keep(self, call: HeldCall[Any]) -> None:
        """Keep what another process has to know of a call whose id goes out."""
        if self._kept is None:
            return

        def row(running: RunningCall[Any]) -> Row:
            return {"outcome": _packed(call), **_of(call)}

        head = {"face": self._face, "label": call.running.label, "permissions": call.identity.permissions}
        await self._kept.keep(call.running, {**head, **_of(call)}, row)

    async def resume(
        self, caller: McpCaller, identity: Identity, given: HeldAnswers, after_s: float | None
    ) -> Any | Asked | HeldCall[Any] | TaskState:
        """As ``HeldCalls.resume``, for a call of any process. Raises UpstreamUnavailable and UpstreamLost besides."""
        home = self._home_of(given.id)
        if home is None or self._kept is None:
            return await self._held.resume(caller, identity, given.id, given.responses, after_s=after_s)
        with self._kept.callers.lending(caller) as lent:
            wanted = {**_who(identity), "id": given.id, "responses": given.responses, "after_s": after_s}
            wanted["caller"] = lent
            answer = await self._kept.ask(home, f"held {self._face}", wanted, _LONGEST_S, (identity.actor, given.id))
        if answer is None:
            answer = await self._left_behind(identity, given.id)
        return _unpacked(answer)

    async def task(
        self, identity: Identity, id: str, wish: Wish, responses: Mapping[str, Any], version: str
    ) -> TaskState | None:
        """The state of the task *id* after *wish*; None for one that is not there. Raises UpstreamUnavailable."""
        home = self._home_of(id)
        if home is None or self._kept is None:
            return self._task(identity, id, wish, responses, version)
        wanted = {**_who(identity), "id": id, "wish": wish, "responses": responses, "version": version}
        answer = await self._kept.ask(home, f"task {self._face}", wanted, _ASK_S, (identity.actor, id))
        if answer is not None:
            return TaskState(**answer["task"]) if answer["task"] else None
        row = await self._row(identity, id)
        if row is None:
            return None
        status, more = _ended(bool(row.get("cancelled")), _outcome(row), version)
        return TaskState(id, status, row["created"], row["changed"], row.get("kept_s"), more=more)

    def _home_of(self, id: str) -> str | None:
        return None if self._kept is None else self._kept.home_of(id)

    async def _left_behind(self, identity: Identity, id: str) -> Mapping[str, Any]:
        """The outcome of a held call whose home has ended; a row that the store has lost too is no outcome. Raises
        NotHeld for the call of another."""
        assert self._kept is not None
        if await self._kept.row(identity.actor, id) is None:
            return _packed_error(lost(""))
        if (row := await self._row(identity, id)) is None:
            raise NotHeld
        return _outcome(row)

    async def _row(self, identity: Identity, id: str) -> Row | None:
        """The row of a call of this very identity, which may still use its tools."""
        assert self._kept is not None
        row = await self._kept.row(identity.actor, id)
        if row is None or row.get("face") != self._face or tuple(row["permissions"]) != identity.permissions:
            return None
        return row if self._held.may_use_all(row["tools"], identity) else None

    def _task(
        self, identity: Identity, id: str, wish: Wish, responses: Mapping[str, Any], version: str
    ) -> TaskState | None:
        call = self._held.task(identity, id)
        if call is None:
            return None
        match wish:
            case "get":
                status, more = _state(call, version)
                self._held.shown(call)
                return state_of(call, status, more)
            case "update":
                call.caller.take(responses)
            case _:
                self._held.cancel(call)
        return state_of(call)

    async def _resumed(self, payload: Payload) -> Payload:
        wanted = from_payload(payload)
        assert self._kept is not None
        client = LentClient(self._kept.peers, wanted["caller"])
        try:
            answer = await self._held.resume(
                client, _identity(wanted), wanted["id"], wanted["responses"], after_s=wanted["after_s"]
            )
            match answer:
                case Asked():
                    return await as_payload({"asked": [answer.id, dict(answer.requests)]})
                case HeldCall():
                    return await as_payload({"task": asdict(state_of(answer))})
            return await as_payload({"value": answer})
        except NotHeld:
            return await as_payload({"not_held": True})
        except Exception as error:
            return await as_payload(_packed_error(error))
        finally:
            await client.finish()

    async def _asked_of_task(self, payload: Payload) -> Payload:
        wanted = from_payload(payload)
        state = self._task(_identity(wanted), wanted["id"], wanted["wish"], wanted["responses"], wanted["version"])
        return await as_payload({"task": None if state is None else asdict(state)})


def not_now(error: GatewayError) -> MCPError:
    """The answer while the home of a call cannot be reached: the same request is of use later."""
    return MCPError(t.INTERNAL_ERROR, error.message, {"reason": "not_reached", "retryable": True})


def state_of(call: HeldCall[Any], status: str = "working", more: Mapping[str, Any] | None = None) -> TaskState:
    message = call.caller.message if status == "working" else ""
    return TaskState(
        call.id, status, _iso(call.created), _iso(call.caller.changed), call.kept_s, message, dict(more or {})
    )


def _who(identity: Identity) -> dict[str, Any]:
    return {
        "identity": identity.row(),
        "correlation_id": correlation_id.get(),
    }


def _identity(wanted: Mapping[str, Any]) -> Identity:
    return Identity.of_row(wanted["identity"])


def _of(call: HeldCall[Any]) -> dict[str, Any]:
    return {
        "tools": sorted(call.caller.tools),
        "created": _iso(call.created),
        "changed": _iso(call.caller.changed),
        "kept_s": call.kept_s,
        "cancelled": call.ended and call.cancelled,
    }


def _packed(call: HeldCall[Any]) -> dict[str, Any]:
    try:
        return {"value": call.outcome()}
    except Exception as error:
        return _packed_error(error)


def _packed_error(error: Exception) -> dict[str, Any]:
    match error:
        case MCPError():
            return {"mcp": [error.error.code, error.error.message, error.error.data]}
        case Refusal():
            return {"refusal": [error.code, error.message, error.data, error.theirs]}
    if not isinstance(error, GatewayError | InputRequired):
        log.error("a held call failed", exc_info=error)
    return {"error": pack_error(error)}


def _outcome(row: Row) -> Mapping[str, Any]:
    outcome: Mapping[str, Any] = row.get("outcome") or _packed_error(lost(row["label"]))
    return outcome


def _unpacked(answer: Mapping[str, Any]) -> Any | Asked | TaskState:
    """Raises what the call has raised, or NotHeld."""
    if "value" in answer:
        return answer["value"]
    if "asked" in answer:
        return Asked(*answer["asked"])
    if "task" in answer:
        return TaskState(**answer["task"])
    if "mcp" in answer:
        raise MCPError(*answer["mcp"])
    if "refusal" in answer:
        code, message, data, theirs = answer["refusal"]
        raise Refusal(code, message, data, theirs=theirs)
    if "error" in answer:
        raise unpack_error(answer["error"])
    raise NotHeld


def _state(call: HeldCall[Any], version: str) -> tuple[str, dict[str, Any]]:
    """The status, and what belongs to it."""
    if not call.ended:
        requests = call.caller.open()
        return ("input_required", {"inputRequests": requests}) if requests else ("working", {})
    return _ended(call.cancelled, _packed(call), version)


def _ended(cancelled: bool, outcome: Mapping[str, Any], version: str) -> tuple[str, dict[str, Any]]:
    """As ``_state``, of an ended call. A result is what the call would have been answered with."""
    if cancelled:
        return "cancelled", {}
    if "value" in outcome:
        try:
            return "completed", {"result": serialize_server_result("tools/call", version, outcome["value"])}
        except ValidationError:
            log.exception("the result of a task is not valid")
            failure = t.ErrorData(code=t.INTERNAL_ERROR, message="Handler returned an invalid result")
    elif "mcp" in outcome:
        code, message, data = outcome["mcp"]
        failure = t.ErrorData(code=code, message=message, data=data)
    else:
        message = outcome.get("error", {}).get("message") or "The call failed inside the gateway."
        failure = t.ErrorData(code=t.INTERNAL_ERROR, message=message)
    return "failed", {
        "error": failure.model_dump(by_alias=True, mode="json", exclude_none=True),
        "statusMessage": failure.message,
    }


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
