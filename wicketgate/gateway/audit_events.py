"""Audit records of what is no call: failed logins, decisions on approvals, reloads, and what operators do in the
console (ACCESS-64 to ACCESS-66, OPS-245).

Nothing waits for them. A flood of failed logins fills no disk: so many a minute are recorded, and the others counted.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wicketgate.gateway.audit import AuditedOperation, Auditor, AuditOutcome, AuditRecord, Watch, approval_mark
from wicketgate.log_text import correlation_id
from wicketgate.login.login_flow import ExchangeEvent, ExchangeOutcome
from wicketgate.ports import CallContext
from wicketgate.random_ids import random_id

if TYPE_CHECKING:
    from wicketgate.login.grants import GrantEvent, GrantEventKind

WINDOW_S = 60.0
PER_SOURCE = 10
"""Failed logins of one address, or with one known key, that are recorded within a window."""
IN_ALL = 300
"""Those without a known key that are recorded within a window."""
_MAX_DETAIL = 500
_MAX_NAME = 300
_OF_GRANTS: Mapping["GrantEventKind", tuple[str, AuditOutcome]] = {
    "granted": ("granted", "allowed"),
    "refused": ("refused", "allowed"),
    "revoked": ("revoked", "allowed"),
    "left": ("not ended at its issuer", "failed"),
}
_OF_EXCHANGES: Mapping[ExchangeOutcome, AuditOutcome] = {"ok": "allowed", "denied": "denied", "failed": "failed"}
_WATCHED = ("approval", "reload", "server", "accept", "key")


@dataclass(frozen=True, slots=True)
class DecidedCall:
    """The call that someone decided on: its actor, the digest of the tool's definition, its arguments, and who has to
    approve it, empty for the caller. *by*: those of them that the decider was. *complete*: nobody else has to.
    *accepted*: its destinations are known for the rest of its session."""

    actor: str
    definition: str
    args: Mapping[str, Any]
    needs: str
    by: tuple[str, ...]
    complete: bool
    accepted: bool = False

    @property
    def told(self) -> str:
        told = f"of a call by {self.actor}, definition {self.definition}"
        if self.needs:
            told += f", decided as {', '.join(self.by) or 'its caller'}, needs {self.needs}"
        if self.accepted:
            told += ", its destinations are fine for its conversation"
        return told if self.complete else f"{told}, others have to approve too"


class AuditEvents:
    """Gives *auditor* the records of events, if there is one, and *watch* those of decisions, reloads and operators."""

    def __init__(self, auditor: Auditor | None, watch: Watch | None = None) -> None:
        self._auditor = auditor
        self._watch = watch
        self._by_source: Counter[str] = Counter()
        self._by_key: Counter[str] = Counter()
        self._left_out = 0
        self._window: asyncio.TimerHandle | None = None

    def login_failed(self, reason: str, key_id: str, source: str) -> None:
        """A credential was refused, or there was none. *key_id* is that of a known key."""
        if self._auditor is None:
            return
        if self._window is None:
            self._window = asyncio.get_running_loop().call_later(WINDOW_S, self.end_window)
        # Who has a known key is worth a record, whatever strangers do. Their number is that of the keys.
        recorded, counted = (self._by_key, key_id) if key_id else (self._by_source, source)
        if recorded[counted] >= PER_SOURCE or (not key_id and recorded.total() >= IN_ALL):
            self._left_out += 1
            return
        recorded[counted] += 1
        self._record("login", "denied", source=source, key_id=key_id, detail=reason)

    def end_window(self) -> None:
        """Records how many failed logins were only counted, and records single ones again."""
        if self._window is not None:
            self._window.cancel()
        self._window = None
        self._by_source.clear()
        self._by_key.clear()
        if self._left_out:
            self._record("login", "denied", detail=f"{self._left_out} more failed logins, not recorded singly")
        self._left_out = 0

    def approval_decided(
        self, context: CallContext, approval_id: str, tool_id: str, refusal: str, on: DecidedCall | None = None, /
    ) -> None:
        """A decision came with a request, or *on* a call of the desk. *refusal* says why nothing runs by it, empty if
        the decider agreed."""
        digest = self._auditor.digest(on.args) if self._auditor is not None and on is not None else ""
        self._record(
            "approval",
            "allowed" if not refusal else "denied",
            **_caller_in(context),
            tool_id=tool_id,
            approval=approval_mark(approval_id),
            arguments=digest,
            detail="; ".join(filter(None, (refusal, on.told if on is not None else ""))),
        )

    def of_grant(self, event: "GrantEvent") -> None:
        """An account was connected or disconnected, or its issuer took its login no more."""
        what, outcome = _OF_GRANTS[event.kind]
        self.connection(event.by, event.upstream, f"{what}: {event.actor or 'the gate'} at {event.issuer}", outcome)

    def of_exchange(self, event: ExchangeEvent) -> None:
        """A caller's token was exchanged for one of a server, or was not. Where the caller has first to log in, its
        issuer was not asked."""
        if event.outcome != "needs_login":
            what = "exchanged" if event.outcome == "ok" else "not exchanged"
            self.connection(event.actor, event.upstream, f"{what}: at {event.issuer}", _OF_EXCHANGES[event.outcome])

    def connection(self, actor: str, upstream: str, detail: str, outcome: AuditOutcome = "allowed") -> None:
        """*actor* did something to an account at *upstream*; *detail* says it in words of this program."""
        self._record("connection", outcome, actor=actor, server=upstream[:_MAX_NAME], detail=detail)

    def reloaded(self, sections: Sequence[str], waiting: Sequence[str]) -> None:
        """A configuration was put in force. Names of sections and settings only, never a value."""
        parts = [", ".join(sections) or "nothing"]
        if waiting:
            parts.append(f"after a restart: {', '.join(waiting)}")
        self._record("reload", "allowed", detail="; ".join(parts))

    def reload_failed(self) -> None:
        """A configuration was refused, and the one in force stays. The log says why."""
        self._record("reload", "failed", detail="not applied")

    def operated(
        self,
        operation: AuditedOperation,
        context: CallContext,
        server: str,
        detail: str,
        outcome: AuditOutcome = "allowed",
        tool_id: str = "",
    ) -> None:
        """An operator did something to *server*; *detail* says it in words of this program."""
        self._record(
            operation,
            outcome,
            **_caller_in(context),
            server=server[:_MAX_NAME],
            tool_id=tool_id[:_MAX_NAME],
            detail=detail,
        )

    def _record(self, operation: AuditedOperation, outcome: AuditOutcome, **fields: Any) -> None:
        clock = self._auditor or self._watch
        if clock is None:
            return
        fields = {"actor": "", "correlation_id": correlation_id.get(), **fields}
        fields["detail"] = fields["detail"][:_MAX_DETAIL]
        if operation in _WATCHED:
            fields["call_id"] = random_id()  # by which the console finds it
        record = AuditRecord(clock.now(), operation, outcome=outcome, **fields)
        if self._auditor is not None:
            self._auditor.record_soon(record)
        if self._watch is not None and operation in _WATCHED:
            self._watch.note(record)


def _caller_in(context: CallContext) -> dict[str, str]:
    identity, trace = context.identity, context.correlation_id
    return {"actor": identity.actor, "key_id": identity.key_id, "source": context.source, "correlation_id": trace}
