"""One login, from its offer to its outcome, as steps that each give the next state or refuse (ACCESS-162, ACCESS-163).

Only the actor that was asked takes it further, in the browser session that it has at the gate: what anybody else does
leaves it as it is.
"""

from dataclasses import dataclass, field, replace
from hmac import compare_digest
from typing import Any, Literal

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
class Secrets:
    """The secrets of one way to the issuer and back: those of PKCE, of the answer, and of the ID token."""

    verifier: str = field(default="", repr=False)
    state: str = field(default="", repr=False)
    nonce: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Login:
    """*flow* is its id, which stands in its link. Times are in seconds since the epoch. *browser* is the key of the
    browser session that opened it, *csrf* the token of its form. *server* (its URL), *issuer*, *issuer_names_itself*
    (it says that answers carry ``iss``), *client_id*, *redirect_uri* and *resource* are those at the time of the
    agreement. *number* is that of the grant, *why* a fixed phrase for a login that was declined or failed."""

    flow: str
    actor: str
    upstream: str
    scopes: frozenset[str]
    offered_at: float
    expires_at: float
    state: LoginState = "offered"
    browser: str = ""
    csrf: str = field(default="", repr=False)
    secrets: Secrets = field(default_factory=Secrets, repr=False)
    server: str = ""
    issuer: str = ""
    issuer_names_itself: bool = False
    client_id: str = ""
    redirect_uri: str = ""
    resource: str = ""
    number: int = 0
    why: str = ""
    version: int = 1

    @property
    def is_open(self) -> bool:
        return self.state in _OPEN

    @property
    def has_ended(self) -> bool:
        return self.state in ENDS


@dataclass(frozen=True, slots=True)
class Agreement:
    """The record from the agreement on. The answer is good for this issuer alone, and what it gives for the
    tool server with the URL *server*. *scopes* are all that are asked for."""

    server: str
    issuer: str
    issuer_names_itself: bool
    client_id: str
    redirect_uri: str
    resource: str
    secrets: Secrets
    scopes: frozenset[str] = frozenset()


def opened(login: Login, session: BrowserSession, csrf: str) -> Login:
    """The page was opened. The form gets a new *csrf* in another browser of the actor; one that was agreed to stays so
    until it is agreed to again. Raises LoginRefused."""
    _of_actor(login, session)
    if not login.is_open:
        raise LoginRefused("over")
    if login.browser == session.key:
        return login
    return replace(login, state="opened", browser=session.key, csrf=csrf, secrets=Secrets())


def agreed(login: Login, session: BrowserSession, csrf: str, agreement: Agreement, expires_at: float) -> Login:
    """The form was sent: the browser goes to the issuer now. An earlier way to it counts no more.

    Raises LoginRefused.
    """
    _by_form(login, session, csrf)
    return replace(
        login,
        state="agreed",
        server=agreement.server,
        issuer=agreement.issuer,
        issuer_names_itself=agreement.issuer_names_itself,
        client_id=agreement.client_id,
        redirect_uri=agreement.redirect_uri,
        resource=agreement.resource,
        secrets=agreement.secrets,
        scopes=login.scopes | agreement.scopes,
        expires_at=expires_at,
    )


def declined_by_form(login: Login, session: BrowserSession, csrf: str) -> Login:
    """The form was sent with a no. Raises LoginRefused."""
    _by_form(login, session, csrf)
    return ended(login, "declined", DECLINED_BY_OWNER)


def returned(login: Login, session: BrowserSession, state: str, issuer: str | None, redirect_uri: str) -> Login:
    """The browser came back to *redirect_uri* with *state*, which is used up, and *issuer*, if the answer names one.
    The secrets stay for the exchange, but for the state. With another issuer than was asked, or at the address of
    another, the login fails. Raises LoginRefused."""
    _of_actor(login, session)
    _of_browser(login, session)
    if login.state != "agreed":
        raise LoginRefused("over")
    if not _equal(login.secrets.state, state):
        raise LoginRefused("forged")
    back = replace(login, state="returned", secrets=replace(login.secrets, state=""))
    is_other = issuer != login.issuer if issuer is not None else login.issuer_names_itself
    if is_other or redirect_uri != login.redirect_uri:
        # Nothing of the answer is used or shown: it may be of an issuer that attacks another (mix-up).
        return ended(back, "failed", OTHER_ISSUER)
    return back


def logged_in(login: Login, session: BrowserSession) -> Login:
    """The actor has logged in at its own issuer, where nothing else is needed. Raises LoginRefused."""
    _of_actor(login, session)
    if not login.is_open:
        raise LoginRefused("over")
    return replace(login, state="granted", secrets=Secrets(), csrf="")


def ended(login: Login, state: Literal["granted", "declined", "failed"], why: str = "", *, number: int = 0) -> Login:
    """The outcome; its secrets are dropped. Only of one that has come back may be *granted*. Raises LoginRefused."""
    if login.has_ended or (state == "granted" and login.state != "returned"):
        raise LoginRefused("over")
    return replace(login, state=state, why=why, number=number, secrets=Secrets(), csrf="")


def _by_form(login: Login, session: BrowserSession, csrf: str) -> None:
    _of_actor(login, session)
    _of_browser(login, session)
    if login.state not in ("opened", "agreed"):
        raise LoginRefused("over")
    if not _equal(login.csrf, csrf):
        raise LoginRefused("forged")


def _of_actor(login: Login, session: BrowserSession) -> None:
    if login.actor != session.actor:
        raise LoginRefused("other_actor")


def _of_browser(login: Login, session: BrowserSession) -> None:
    if login.browser != session.key:
        raise LoginRefused("other_browser")


def _equal(ours: str, theirs: str) -> bool:
    """False where there is none of ours."""
    return bool(ours) and compare_digest(ours.encode(), theirs.encode("utf-8", "surrogatepass"))


def login_value(login: Login) -> dict[str, Any]:
    """Return a value for JSON, from which ``login_of`` makes an equal login."""
    value = {name: getattr(login, name) for name in _TEXTS}
    return value | {
        "scopes": sorted(login.scopes),
        "secrets": [login.secrets.verifier, login.secrets.state, login.secrets.nonce],
    }


_TEXTS = (
    *("flow", "actor", "upstream", "offered_at", "expires_at", "state", "browser", "csrf", "issuer"),
    *("server", "issuer_names_itself", "client_id", "redirect_uri", "resource", "number", "why"),
)


def login_of(value: Any, version: int) -> Login:
    """Raises ValueError for what another release has written."""
    try:
        given = {name: value[name] for name in _TEXTS}
        return Login(scopes=frozenset(value["scopes"]), secrets=Secrets(*value["secrets"]), version=version, **given)
    except (KeyError, TypeError):
        raise ValueError("not a login") from None
