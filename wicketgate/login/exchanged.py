"""The credentials of callers whose tokens are exchanged for tokens of a tool server (UP-187 to UP-193).

What an exchange gave is kept in this process, by the actor and the digest of the caller's token, until it ends or the
caller's token does. The caller's token itself is not kept: it ends with its request, so what was given is renewed by
the next request, or while one is under way.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from wicketgate.access.identity import CallersToken, Identity
from wicketgate.access.issuer import Issuer
from wicketgate.errors import ConnectRequired, Forbidden, UpstreamUnavailable
from wicketgate.login.counts import ExchangeEvent, ExchangeOutcome, OnExchange, outcome_of
from wicketgate.login.exchange import Exchange
from wicketgate.login.failures import Declined, GrantInvalid, IssuerAway, LoginFailure, NeedsLogin, Refused
from wicketgate.login.rows import LoginsAway
from wicketgate.login.tokens import Tokens
from wicketgate.login.user_credentials import GrantName, UserCredentials
from wicketgate.net import Credentials, Refusal

log = logging.getLogger("wicketgate.oauth")

MAX_KEPT = 4_096
FAILED_S = 10.0
"""After a failure the issuer is left alone for so long, for calls with the same token."""
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


@dataclass(frozen=True, slots=True)
class _Failure:
    """The reason why a caller has no token. *denied*: it may not have one; otherwise it may later. *login*: it may
    after a login in a browser."""

    words: str
    denied: bool
    login: bool = False


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


class ExchangedCredentials:
    """Implements UserCredentials for the upstream *name*. *issuer* gives the issuer whose tokens are exchanged, as it
    is configured now. *now* is the time of day. *login* has the accounts of those who have no token, or whose token is
    not exchanged. Without it, *connect* offers the actor a login at its own issuer, where the exchange needs one.
    *report* gets the outcome of each exchange."""

    def __init__(
        self,
        name: str,
        exchange: Exchange,
        issuer: Callable[[], Issuer | None],
        now: Callable[[], float],
        login: UserCredentials | None = None,
        connect: Callable[[str], Awaitable[ConnectRequired]] | None = None,
        report: OnExchange = lambda event: None,
    ) -> None:
        self._name = name
        self._exchange = exchange
        self._issuer = issuer
        self._now = now
        self._login = login
        self._connect = connect
        self._report = report
        self._kept: OrderedDict[GrantName, _Kept] = OrderedDict()
        self._observers: list[Callable[[GrantName], None]] = []

    async def named(self, identity: Identity) -> GrantName:
        """As UserCredentials; raises Forbidden where there is no login to offer."""
        found = await self._found(identity)
        if isinstance(found, GrantName):
            return found
        if self._login is not None:
            return await self._login.named(identity)
        if found.login and self._connect is not None:
            try:
                raise await self._connect(identity.actor)
            except LoginsAway:
                raise UpstreamUnavailable(_UNUSABLE, path=self._name) from None
        raise Forbidden(found.words, path=self._name)

    async def known(self, identity: Identity) -> GrantName | None:
        found = await self._found(identity)
        if isinstance(found, GrantName):
            return found
        return None if self._login is None else await self._login.known(identity)

    def of(self, grant: GrantName) -> Credentials:
        if grant not in self._kept and self._login is not None:
            return self._login.of(grant)
        return _ExchangedToken(self, grant)

    async def lacks(self, grant: GrantName, scopes: frozenset[str]) -> None:
        """Scopes are the operator's to decide. Raises nothing where there is no login to offer: then the server's
        answer counts."""
        kept = self._kept.get(grant)
        if kept is None:
            if self._login is not None:
                await self._login.lacks(grant, scopes)
            return
        if scopes and self._login is None:
            log.warning("%s: it wants more scopes than exchanged tokens have: %s", self._name, " ".join(sorted(scopes)))
            return
        self._end(grant)
        if not scopes and self._now() - kept.given_at >= _SOON_S:
            # It is over, or was revoked, and no request was there to renew it: the next one has another.
            return
        kept.tokens = None
        self._keep(grant, kept)
        self._fail(kept, _Failure(_REFUSED, denied=True))
        if self._login is not None:
            # From here on the caller's own login counts, for as long as its token is good.
            kept.quiet_until = kept.identity.expires_at or 0.0
            await self._login.named(kept.identity)
            raise UpstreamUnavailable(_OVER, path=self._name)

    def observe(self, ended: Callable[[GrantName], None]) -> None:
        self._observers.append(ended)
        if self._login is not None:
            self._login.observe(ended)

    def token_of(self, grant: GrantName) -> Tokens:
        """Return what was given for *grant*. Raises UpstreamUnavailable once it has ended."""
        kept = self._kept.get(grant)
        if kept is None or kept.tokens is None or not kept.is_good(self._now()) or kept.issuer != self._issuer():
            raise UpstreamUnavailable(_OVER, path=self._name)
        return kept.tokens

    async def renew(self, grant: GrantName, refused: str) -> bool:
        """Have another token than *refused*. False if there is none to be had without a new request."""
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
        """Raises UpstreamUnavailable."""
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
        raise UpstreamUnavailable(failure.words, path=self._name)

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
        try:
            tokens = await self._exchange(kept.issuer.url, kept.identity.actor, subject)
        except LoginFailure as failure:
            log.log(
                logging.INFO if isinstance(failure, NeedsLogin | GrantInvalid | Declined) else logging.WARNING,
                "%s: no token for %s: %s",
                self._name,
                kept.identity.actor,
                failure.detail,
            )
            self._fail(kept, _failure_of(failure))
            self._tell(kept, outcome_of(failure))
        except LoginsAway:
            self._fail(kept, _Failure(_UNUSABLE, denied=False))
            self._tell(kept, "failed")
        except Exception:
            log.exception("%s: a token was not exchanged", self._name)
            self._fail(kept, _Failure(_UNUSABLE, denied=False))
            self._tell(kept, "failed")
        else:
            self._take(name, kept, tokens)
            self._tell(kept, "ok")
        finally:
            kept.asking = None

    def _tell(self, kept: _Kept, outcome: ExchangeOutcome) -> None:
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


class _ExchangedToken:
    """Implements Credentials for the sessions of one grant."""

    def __init__(self, credentials: ExchangedCredentials, grant: GrantName) -> None:
        self._credentials = credentials
        self._grant = grant
        self._last = ""

    async def authorization(self) -> str:
        self._last = self._credentials.token_of(self._grant).access_token
        return f"Bearer {self._last}"

    async def renew(self, refusal: Refusal) -> bool:
        """False for a refusal that another exchange does not mend."""
        return refusal.status == 401 and await self._credentials.renew(self._grant, self._last)

    async def aclose(self) -> None:
        """Does nothing: an exchange that is under way has others who wait for it."""


def _failure_of(failure: LoginFailure) -> _Failure:
    match failure:
        case IssuerAway():
            return _Failure(_AWAY, denied=False)
        case NeedsLogin():
            return _Failure(_NO_LOGIN, denied=True, login=True)
        case GrantInvalid() | Declined() | Refused():
            return _Failure(_DENIED, denied=True)
    return _Failure(_UNUSABLE, denied=False)
