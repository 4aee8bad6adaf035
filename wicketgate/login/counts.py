"""Counts of logins at tool servers, of refreshed tokens and of exchanges, for the metrics (OPS-380)."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from wicketgate.login.failures import (
    ClientInvalid,
    Declined,
    Distrusted,
    GrantInvalid,
    IssuerAway,
    IssuerUnnamed,
    LoginFailure,
    NeedsLogin,
    NotOffered,
    Refused,
)
from wicketgate.login.login_flow import DECLINED_BY_OWNER, DECLINED_THERE, OTHER_ISSUER, SERVER_GONE, Login

RefreshOutcome = Literal["ok", "ended", "failed"]
"""*ended*: the issuer takes the refresh token no more. *failed*: it gave no answer that settles anything."""
ExchangeOutcome = Literal["ok", "denied", "needs_login", "failed"]
"""*needs_login*: the caller has first to log in at its issuer."""

_REASONS: Mapping[str, str] = {
    IssuerAway.why: "issuer_away",
    GrantInvalid.why: "grant_invalid",
    ClientInvalid.why: "client_invalid",
    Declined.why: "issuer",
    NotOffered.why: "not_offered",
    Distrusted.why: "distrusted",
    IssuerUnnamed.why: "distrusted",
    Refused.why: "refused",
    DECLINED_BY_OWNER: "owner",
    DECLINED_THERE: "issuer",
    OTHER_ISSUER: "other_issuer",
    SERVER_GONE: "server_gone",
}


@dataclass(frozen=True, slots=True)
class ExchangeEvent:
    """The outcome of an exchange of the token of *actor* at *issuer*."""

    upstream: str
    actor: str
    issuer: str
    outcome: ExchangeOutcome


OnExchange = Callable[[ExchangeEvent], None]
"""Must neither wait nor fail."""


@dataclass(slots=True)
class LoginCounts:
    """*logins* by upstream, outcome (``begun``, ``granted``, ``declined``, ``failed``) and reason; *refreshes* and
    *exchanges* by upstream and outcome. All labels are of closed sets."""

    logins: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    refreshes: Counter[tuple[str, RefreshOutcome]] = field(default_factory=Counter)
    exchanges: Counter[tuple[str, ExchangeOutcome]] = field(default_factory=Counter)

    def of_login(self, login: Login) -> None:
        """Count what *login* has come to just now."""
        if login.state == "agreed":
            self.logins[login.upstream, "begun", ""] += 1
        elif login.has_ended:
            reason = _REASONS.get(login.why, "other") if login.why else ""
            self.logins[login.upstream, login.state, reason] += 1

    def not_begun(self, upstream: str, failure: LoginFailure) -> None:
        """Count a login that its page could not begin."""
        self.logins[upstream, "failed", _REASONS.get(failure.why, "other")] += 1


def outcome_of(failure: LoginFailure) -> ExchangeOutcome:
    """Returns what became of an exchange that raised *failure*."""
    match failure:
        case NeedsLogin():
            return "needs_login"
        case GrantInvalid() | Declined() | Refused():
            return "denied"
    return "failed"
