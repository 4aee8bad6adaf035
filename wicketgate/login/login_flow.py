"""One login, from offer to outcome, as steps that each return the next state or refuse (ACCESS-162, ACCESS-163).

Only the actor that was asked can continue it, in that actor's own browser session at the gate; any other request leaves
it unchanged. Also: the protocol for waiting for a login, and the counts of logins, refreshes and exchanges for the
metrics (OPS-380).
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from hmac import compare_digest
from typing import Literal, Protocol

from wicketgate.login.steps import (
    ClientInvalid,
    Declined,
    Distrusted,
    GrantInvalid,
    IssuerAway,
    IssuerUnnamed,
    LoginFailure,
    NotOffered,
    Refused,
)

LoginState = Literal["offered", "opened", "agreed", "returned", "granted", "declined", "failed"]

ENDS: frozenset[LoginState] = frozenset({"granted", "declined", "failed"})
_OPEN: frozenset[LoginState] = frozenset({"offered", "opened", "agreed"})

DECLINED_BY_OWNER = "its owner declined"
DECLINED_THERE = "it was declined there"
OTHER_ISSUER = "the answer was not of the issuer that was asked"
SERVER_GONE = "the server is gone"

RefusalReason = Literal["gone", "other_actor", "other_browser", "forged", "other_issuer", "over"]
"""*gone*: there is no such login, or its time is over. *forged*: a token or a state that was not given out. *over*: the
login has gone further, or has an outcome."""


class LoginRefused(Exception):
    """A step that was refused. Nothing has changed, but by *other_issuer*: that ends the login."""

    def __init__(self, reason: RefusalReason) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """A browser that has logged in at the gate. *key* is the hash of its cookie, *expires_at* in seconds since the
    epoch. It did so with the key *key_id*, or at *issuer*, by its name."""

    key: str
    actor: str
    expires_at: float
    key_id: str = ""
    issuer: str = ""


@dataclass(frozen=True, slots=True)
class Agreement:
    """The terms that are fixed at consent: only this issuer's answer is accepted, and its tokens are valid only at the
    tool server with the URL *server*. *issuer_names_itself*: it says that answers carry ``iss``. *verifier* and *state*
    are the secrets of one way to the issuer and back. *scopes* are all that are asked for."""

    server: str
    issuer: str
    issuer_names_itself: bool
    client_id: str
    redirect_uri: str
    resource: str
    verifier: str = field(repr=False)
    state: str = field(repr=False)
    scopes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Login:
    """*flow* is its id, which stands in its link. Times are in seconds since the epoch. *browser* is the key of the
    browser session that opened it, *csrf* the token of its form. *agreement* is there from the consent to the outcome.
    *number* is that of the grant, *why* a fixed phrase for a login that was declined or failed."""

    flow: str
    actor: str
    upstream: str
    scopes: frozenset[str]
    offered_at: float
    expires_at: float
    state: LoginState = "offered"
    browser: str = ""
    csrf: str = field(default="", repr=False)
    agreement: Agreement | None = None
    number: int = 0
    why: str = ""
    version: int = 1

    @property
    def is_open(self) -> bool:
        return self.state in _OPEN

    @property
    def has_ended(self) -> bool:
        return self.state in ENDS


def opened(login: Login, session: BrowserSession, csrf: str) -> Login:
    """The page was opened. The form gets a new *csrf* in another browser of the actor; one that was agreed to stays so
    until it is agreed to again. Raises LoginRefused."""
    _of_actor(login, session)
    if not login.is_open:
        raise LoginRefused("over")
    if login.browser == session.key:
        return login
    return replace(login, state="opened", browser=session.key, csrf=csrf, agreement=None)


def agreed(login: Login, session: BrowserSession, csrf: str, agreement: Agreement, expires_at: float) -> Login:
    """The form was sent: the browser goes to the issuer now. An earlier way to it counts no more.

    Raises LoginRefused.
    """
    _by_form(login, session, csrf)
    scopes = login.scopes | agreement.scopes
    return replace(login, state="agreed", agreement=agreement, scopes=scopes, expires_at=expires_at)


def declined_by_form(login: Login, session: BrowserSession, csrf: str) -> Login:
    """The form was sent with a no. Raises LoginRefused."""
    _by_form(login, session, csrf)
    return ended(login, "declined", DECLINED_BY_OWNER)


def returned(login: Login, session: BrowserSession, state: str, issuer: str | None, redirect_uri: str) -> Login:
    """The browser came back to *redirect_uri* with *state*, which is used up, and *issuer*, if the answer names one.
    The verifier stays for the exchange. With another issuer than was asked, or at the address of
    another, the login fails. Raises LoginRefused."""
    _of_browser(login, session)
    agreement = login.agreement
    if login.state != "agreed" or agreement is None:
        raise LoginRefused("over")
    if not is_same_secret(agreement.state, state):
        raise LoginRefused("forged")
    back = replace(login, state="returned", agreement=replace(agreement, state=""))
    is_other = issuer != agreement.issuer if issuer is not None else agreement.issuer_names_itself
    if is_other or redirect_uri != agreement.redirect_uri:
        # Nothing of the answer is used or shown: it may be of an issuer that attacks another (mix-up).
        return ended(back, "failed", OTHER_ISSUER)
    return back


def logged_in(login: Login, session: BrowserSession) -> Login:
    """The actor has logged in at its own issuer, where nothing else is needed. Raises LoginRefused."""
    _of_actor(login, session)
    if not login.is_open:
        raise LoginRefused("over")
    return replace(login, state="granted", agreement=None, csrf="")


def ended(login: Login, state: Literal["granted", "declined", "failed"], why: str = "", *, number: int = 0) -> Login:
    """The outcome; its agreement is dropped. Only of one that has come back may be *granted*. Raises LoginRefused."""
    if login.has_ended or (state == "granted" and login.state != "returned"):
        raise LoginRefused("over")
    return replace(login, state=state, why=why, number=number, agreement=None, csrf="")


def _by_form(login: Login, session: BrowserSession, csrf: str) -> None:
    _of_browser(login, session)
    if login.state not in ("opened", "agreed"):
        raise LoginRefused("over")
    if not is_same_secret(login.csrf, csrf):
        raise LoginRefused("forged")


def _of_actor(login: Login, session: BrowserSession) -> None:
    if login.actor != session.actor:
        raise LoginRefused("other_actor")


def _of_browser(login: Login, session: BrowserSession) -> None:
    _of_actor(login, session)
    if login.browser != session.key:
        raise LoginRefused("other_browser")


def is_same_secret(ours: str, theirs: str) -> bool:
    """Returns false if *ours* is empty. Takes the same time for every text of that length."""
    return bool(ours) and compare_digest(ours.encode(), theirs.encode("utf-8", "surrogatepass"))


LoginOutcome = Literal["granted", "declined", "failed", "waiting"]
"""``granted``: the account is connected; ``declined``: its person did not want to; ``failed``: it ended otherwise, by
its time too; ``waiting``: it has not ended."""


class Waiting(Protocol):
    """Logins under way, at whichever process their pages are served."""

    async def outcome(self, flow: str, within_s: float) -> LoginOutcome:
        """Return what has become of the login *flow*, as soon as it has ended, or after *within_s*. A login that is
        not known is ``failed``. Never raises: where that cannot be known now it is ``waiting``."""
        ...


class NoWaiting:
    """Implements Waiting where no login is waited for."""

    async def outcome(self, flow: str, within_s: float) -> LoginOutcome:
        return "failed"


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
