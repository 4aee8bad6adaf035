"""Credentials of callers whose tokens are exchanged for tokens of a tool server, without a browser (UP-184 to UP-193).

The caller's token is sent only to the issuer that issued it, as the subject of an exchange. The result is cached in
this process, by actor and digest of the caller's token, until either token expires. The caller's token itself is not
stored: it ends with its request, so a result is renewed only during a later or current request.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol

from wicketgate.access.identity import CallersToken, Identity
from wicketgate.access.issuer import Issuer
from wicketgate.errors import ConnectRequired, Forbidden, StoreUnavailable
from wicketgate.errors import IssuerAway as CredentialAway
from wicketgate.login import token_endpoint
from wicketgate.login.discovery import issuer_of
from wicketgate.login.login_flow import ExchangeEvent, ExchangeOutcome, OnExchange
from wicketgate.login.oauth_http import Carrier
from wicketgate.login.steps import Declined, Distrusted, GrantInvalid, IssuerAway, LoginFailure, NeedsLogin, Refused
from wicketgate.login.token_endpoint import Client, Tokens
from wicketgate.login.user_credentials import GrantName

log = logging.getLogger("wicketgate.oauth")

MAX_KEPT = 4_096
FAILED_S = 10.0
"""After a failure the issuer is left alone for this time, for calls with the same token."""
_EARLY_S = 60.0
_SOON_S = 5.0
_NUMBER_DIGITS = 13  # of a hex digest: a number that JSON keeps whole

_NOTHING = "This server is called with the token that a caller has from its issuer, and this caller has none here."
_DENIED = "The caller's issuer gives no token for this server."
_NO_LOGIN = "This caller has to log in with a browser at its issuer first."
_AWAY = "The issuer of the callers' tokens does not answer."
_UNUSABLE = "The caller's token cannot be exchanged for one of this server at the moment."
_REFUSED = "This server refuses the token that the caller's issuer gave for it."
_OVER = "The token for this server has ended; try again."


Exchange = Callable[[str, str, str], Awaitable[Tokens]]
"""One way to a token for one tool server. Gets the URL of an issuer, an actor and the access token that the issuer gave
it, and returns a token for the actor. Raises LoginFailure; NeedsLogin where the caller has first to log in with a
browser."""


async def _at(client: Client, issuer: str, carrier: Carrier) -> Client:
    """The client at *issuer*; without a token endpoint at the one that the issuer's own metadata names. Raises
    LoginFailure."""
    endpoint = client.token_endpoint or (await carrier.run(issuer_of(issuer))).token_endpoint
    return replace(client, issuer=issuer, token_endpoint=endpoint)


@dataclass(frozen=True, slots=True)
class TokenExchange:
    """Implements Exchange. The caller's access token for one of the tool server's, at the issuer that gave it (RFC
    8693). Without *resource* and *audience* the issuer decides what the token is for. *carrier* makes what carries
    requests to the issuer with a URL. *now* is the time of day."""

    client: Client
    carrier: Callable[[str], Carrier]
    now: Callable[[], float]
    audience: str
    resource: str
    scopes: tuple[str, ...]

    async def __call__(self, issuer: str, actor: str, subject: str) -> Tokens:
        carrier = self.carrier(issuer)
        client = await _at(self.client, issuer, carrier)
        steps = token_endpoint.exchange(
            client, subject, audience=self.audience, scopes=self.scopes, resource=self.resource, now=self.now()
        )
        tokens = await carrier.run(steps)
        if tokens.access_token == subject:
            # An issuer that hands the same token back would make the gate pass it on.
            raise Distrusted("the issuer gave back the caller's own token in place of one for the tool server")
        return tokens


class IdTokens(Protocol):
    """The ID tokens that callers brought from a login with their browser at the gate's own client of their issuer."""

    async def id_token_of(self, actor: str) -> str | None:
        """Return an ID token of *actor* that is good still; None if there is none. Raises StoreUnavailable."""
        ...


@dataclass(frozen=True, slots=True)
class IdJagExchange:
    """Implements Exchange. An assertion about the caller from its own issuer, by an ID token that was issued to
    *client*; with it a token from *server_issuer*, the issuer of the tool server, where the gate is *server_client*.
    *carrier* makes what carries requests to the issuer with a URL. *now* is the time of day."""

    client: Client
    server_issuer: str
    server_client: Client
    id_tokens: IdTokens
    carrier: Callable[[str], Carrier]
    now: Callable[[], float]
    resource: str
    scopes: tuple[str, ...]

    async def __call__(self, issuer: str, actor: str, subject: str) -> Tokens:
        id_token = await self.id_tokens.id_token_of(actor)
        if id_token is None:
            raise NeedsLogin("the caller has not logged in with a browser, so there is no ID token to exchange")
        carrier = self.carrier(issuer)
        client = await _at(self.client, issuer, carrier)
        leg = token_endpoint.id_jag(
            client,
            id_token,
            audience=self.server_issuer,
            resource=self.resource,
            scopes=self.scopes,
            now=self.now(),
        )
        assertion = await carrier.run(leg)
        if assertion in (id_token, subject):
            raise Distrusted("the issuer gave back a token of the caller in place of an assertion")
        carrier = self.carrier(self.server_issuer)
        there = await _at(self.server_client, self.server_issuer, carrier)
        steps = token_endpoint.jwt_bearer(there, assertion, scopes=self.scopes, resource=self.resource, now=self.now())
        return await carrier.run(steps)


@dataclass(frozen=True, slots=True)
class _Failure:
    """The reason why a caller has no token. *denied*: it may not have one; otherwise it may later. *login*: it may
    after a login in a browser."""

    words: str
    denied: bool
    login: bool = False

    @property
    def outcome(self) -> ExchangeOutcome:
        return "needs_login" if self.login else "denied" if self.denied else "failed"


@dataclass(slots=True)
class _Kept:
    """The facts of one caller's token. *identity* is without it. *ends_at* is the end of *tokens* or that of the
    caller's token, whichever is first. *failure* holds until *quiet_until*."""

    identity: Identity
    issuer: Issuer
    token: CallersToken
    tokens: Tokens | None = field(default=None, repr=False)
    given_at: float = 0.0
    fresh_until: float = 0.0
    ends_at: float = 0.0
    failure: _Failure | None = None
    quiet_until: float = 0.0
    asking: "asyncio.Task[None] | None" = None
    timer: asyncio.TimerHandle | None = None

    def is_good(self, now: float) -> bool:
        return self.tokens is not None and now < self.ends_at


@dataclass(eq=False, repr=False)
class ExchangedCredentials:
    """Implements UserCredentials for the upstream *name*. *issuer* gives the issuer whose tokens are exchanged, as it
    is configured now. *now* is the time of day. *connect* offers the actor a login at its own issuer, if the exchange
    needs one. *report* gets the outcome of each exchange."""

    _name: str
    _exchange: Exchange
    _issuer: Callable[[], Issuer | None]
    _now: Callable[[], float]
    _connect: Callable[[str], Awaitable[ConnectRequired]] | None = None
    _report: OnExchange = lambda event: None

    def __post_init__(self) -> None:
        self._kept: OrderedDict[GrantName, _Kept] = OrderedDict()
        self._observers: list[Callable[[GrantName], None]] = []

    async def named(self, identity: Identity) -> GrantName:
        """As UserCredentials; raises Forbidden where there is no login to offer."""
        found = await self._found(identity)
        if isinstance(found, GrantName):
            return found
        if found.login and self._connect is not None:
            try:
                raise await self._connect(identity.actor)
            except StoreUnavailable:
                raise CredentialAway(_UNUSABLE) from None
        raise Forbidden(found.words, path=self._name)

    async def known(self, identity: Identity) -> GrantName | None:
        found = await self._found(identity)
        return found if isinstance(found, GrantName) else None

    async def lacks(self, grant: GrantName, scopes: frozenset[str]) -> None:
        """Scopes are the operator's to decide. Raises nothing: the server's answer counts."""
        kept = self._kept.get(grant)
        if kept is None:
            return
        if scopes:
            log.warning("%s: it wants more scopes than exchanged tokens have: %s", self._name, " ".join(sorted(scopes)))
            return
        self._end(grant)
        if self._now() - kept.given_at >= _SOON_S:
            # It is over, or was revoked, and no request was there to renew it: the next one has another.
            return
        kept.tokens = None
        self._keep(grant, kept)
        self._fail(kept, _Failure(_REFUSED, denied=True))

    def observe(self, ended: Callable[[GrantName], None], in_use: Callable[[], Iterable[GrantName]] = tuple) -> None:
        self._observers.append(ended)

    async def watch(self) -> None:
        """Does nothing: each token is forgotten by its timer."""

    async def token(self, grant: GrantName) -> str:
        kept = self._kept.get(grant)
        if kept is None or kept.tokens is None or not kept.is_good(self._now()) or kept.issuer != self._issuer():
            raise CredentialAway(_OVER)
        return kept.tokens.access_token

    async def renew(self, grant: GrantName, refused: str) -> bool:
        kept = self._kept.get(grant)
        if kept is None or kept.tokens is None:
            return False
        # Of calls that were refused together one is enough.
        if kept.tokens.access_token != refused or self._now() - kept.given_at < _SOON_S:
            return True
        if not (subject := kept.token.reveal()):
            return False
        kept.fresh_until = kept.ends_at = 0.0
        await self._ask(grant, kept, subject)
        return kept.is_good(self._now())

    async def _found(self, identity: Identity) -> GrantName | _Failure:
        """Raises CredentialAway."""
        issuer, now = self._issuer(), self._now()
        if issuer is None or identity.issuer != issuer.name:
            return _Failure(_NOTHING, denied=True)
        if identity.token is None or not (subject := identity.token.reveal()):
            return self._earlier(identity, issuer) or _Failure(_NOTHING, denied=True)
        if identity.expires_at is None or now >= identity.expires_at:
            return _Failure(_NOTHING, denied=True)
        name = GrantName(identity.actor, int(identity.token.digest[:_NUMBER_DIGITS], 16))
        kept = self._kept.get(name)
        if kept is None or kept.issuer != issuer:
            self._end(name)
            kept = _Kept(replace(identity, token=None), issuer, identity.token)
            self._keep(name, kept)
        else:
            self._kept.move_to_end(name)
            kept.token = identity.token
        if not (kept.is_good(now) and now < kept.fresh_until) and now >= kept.quiet_until:
            await self._ask(name, kept, subject)
        if kept.is_good(self._now()):
            return name
        failure = kept.failure or _Failure(_OVER, denied=False)
        if failure.denied:
            return failure
        raise CredentialAway(failure.words)

    def _earlier(self, identity: Identity, issuer: Issuer) -> GrantName | None:
        """The latest that was given to the same caller with the same claims, for what outlives its request."""
        now = self._now()
        for name, kept in reversed(self._kept.items()):
            same = kept.identity == identity and kept.identity.claims == identity.claims
            if same and kept.issuer == issuer and kept.is_good(now):
                return name
        return None

    async def _ask(self, name: GrantName, kept: _Kept, subject: str) -> None:
        """Exchange *subject* once, for all who wait. What came of it is in *kept*."""
        if kept.asking is None:
            kept.asking = asyncio.create_task(self._asked(name, kept, subject), name="exchange of a token")
        # A caller that leaves must not take the token from the others, so it waits beside the task.
        await asyncio.wait([kept.asking])

    async def _asked(self, name: GrantName, kept: _Kept, subject: str) -> None:
        failure: _Failure | None = None
        try:
            self._take(name, kept, await self._exchange(kept.issuer.url, kept.identity.actor, subject))
        except LoginFailure as error:
            is_usual = isinstance(error, NeedsLogin | GrantInvalid | Declined)
            level = logging.INFO if is_usual else logging.WARNING
            log.log(level, "%s: no token for %s: %s", self._name, kept.identity.actor, error.detail)
            failure = _failure_of(error)
        except StoreUnavailable:
            failure = _Failure(_UNUSABLE, denied=False)
        except Exception:
            log.exception("%s: a token was not exchanged", self._name)
            failure = _Failure(_UNUSABLE, denied=False)
        finally:
            kept.asking = None
        if failure is not None:
            self._fail(kept, failure)
        outcome = "ok" if failure is None else failure.outcome
        self._report(ExchangeEvent(self._name, kept.identity.actor, kept.issuer.url, outcome))

    def _take(self, name: GrantName, kept: _Kept, tokens: Tokens) -> None:
        now, end = self._now(), kept.identity.expires_at or 0.0
        kept.tokens, kept.given_at, kept.failure = tokens, now, None
        kept.ends_at = end if tokens.expires_at is None else min(end, tokens.expires_at)
        # Nothing can be renewed at the end of the caller's token, so nothing is tried before it.
        early = min(_EARLY_S, (kept.ends_at - now) / 10) if kept.ends_at < end else 0.0
        kept.fresh_until = kept.ends_at - early
        log.info("%s: a token of %s was exchanged at %s", self._name, kept.identity.actor, kept.issuer.name)
        if self._kept.get(name) is kept:
            self._watch(name, kept)

    def _fail(self, kept: _Kept, failure: _Failure) -> None:
        kept.failure = failure
        # No issuer was asked where a login is missing, and the call goes on right after it.
        kept.quiet_until = 0.0 if failure.login else self._now() + FAILED_S
        if failure.denied:
            kept.ends_at = 0.0

    def _keep(self, name: GrantName, kept: _Kept) -> None:
        self._kept[name] = kept
        self._watch(name, kept)
        if len(self._kept) > MAX_KEPT:
            self._end(next(iter(self._kept)))

    def _watch(self, name: GrantName, kept: _Kept) -> None:
        """Forget it when the caller's token ends: its session is closed then."""
        if kept.timer is not None:
            kept.timer.cancel()
        left_s = max(1.0, (kept.identity.expires_at or 0.0) - self._now())
        kept.timer = asyncio.get_running_loop().call_later(min(left_s, 3_600.0), self._look, name, kept)

    def _look(self, name: GrantName, kept: _Kept) -> None:
        if self._kept.get(name) is not kept:
            return
        if self._now() >= (kept.identity.expires_at or 0.0):
            self._end(name)
        else:
            self._watch(name, kept)

    def _end(self, name: GrantName) -> None:
        kept = self._kept.pop(name, None)
        if kept is None:
            return
        if kept.timer is not None:
            kept.timer.cancel()
        for observer in self._observers:
            observer(name)


def _failure_of(failure: LoginFailure) -> _Failure:
    match failure:
        case IssuerAway():
            return _Failure(_AWAY, denied=False)
        case NeedsLogin():
            return _Failure(_NO_LOGIN, denied=True, login=True)
        case GrantInvalid() | Declined() | Refused():
            return _Failure(_DENIED, denied=True)
    return _Failure(_UNUSABLE, denied=False)
