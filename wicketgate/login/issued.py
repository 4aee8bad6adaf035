"""Credentials of tokens that an issuer gives: kept while fresh, renewed shortly before their end, once for all calls.

A token server that refuses is asked again ever more rarely, however many calls wait (UP-24).
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from wicketgate.errors import LoginNeeded, ScopesNeeded, UpstreamUnavailable
from wicketgate.login.discovery import discover
from wicketgate.login.oauth_http import Carrier
from wicketgate.login.registrar import AuthMethod
from wicketgate.login.steps import IssuerAway, LoginFailure, NeedsLogin
from wicketgate.login.token_endpoint import Client, Tokens, client_credentials, refresh
from wicketgate.net.challenge import Refusal

log = logging.getLogger("wicketgate.oauth")

EARLY_S = 60.0
_COOLDOWN_S = 5.0
_MAX_COOLDOWN_S = 300.0


class TokenSource(Protocol):
    """The tokens of one upstream, which IssuedCredentials asks for one at a time."""

    async def get(self, refusal: Refusal | None) -> Tokens:
        """Return new tokens, because the current ones expire or because of *refusal*. Raises LoginFailure."""
        ...

    async def other(self) -> Tokens | None:
        """Return the tokens of a login that was made since; None if there was none. Raises LoginFailure."""
        ...


@dataclass(frozen=True, slots=True)
class MachinePlan:
    """Tokens of the gate's own, without a person: by *refresh_token* if there is one, otherwise by client credentials.
    Without *token_url* the issuer of the server at *server_url* is asked, which has to be *issuer*."""

    client_id: str
    auth_method: AuthMethod
    client_secret: str = field(default="", repr=False)
    token_url: str = ""
    server_url: str = ""
    issuer: str = ""
    scopes: tuple[str, ...] = ()
    audience: str = ""
    resource: str = "auto"
    refresh_token: str = field(default="", repr=False)


@dataclass(eq=False, repr=False)
class MachineSource:
    """Implements TokenSource."""

    _plan: MachinePlan
    _carrier: Carrier
    _now: Callable[[], float]
    _assertion: Callable[[str], str] | None = None

    def __post_init__(self) -> None:
        self._refresh_token = self._plan.refresh_token

    async def get(self, refusal: Refusal | None) -> Tokens:
        plan = self._plan
        issuer, endpoint, scopes = plan.issuer, plan.token_url, plan.scopes
        resource = plan.resource if plan.resource not in ("auto", "omit") else ""
        if not endpoint:
            found = await self._carrier.run(discover(plan.server_url, refusal, plan.issuer))
            issuer, endpoint = found.issuer.issuer, found.issuer.token_endpoint
            scopes = scopes or (refusal.scopes if refusal is not None else None) or found.resource.scopes or ()
            resource = found.resource.resource if plan.resource == "auto" else resource
        client = Client(issuer, endpoint, plan.client_id, plan.auth_method, plan.client_secret, self._assertion)
        more = {"audience": plan.audience} if plan.audience else {}
        if not self._refresh_token:
            return await self._carrier.run(client_credentials(client, scopes, resource, self._now(), more))
        if scopes:
            more["scope"] = " ".join(scopes)
        before = Tokens("", self._refresh_token, frozenset(scopes), resource=resource)
        tokens = await self._carrier.run(refresh(client, before, self._now(), more))
        self._refresh_token = tokens.refresh_token
        return tokens

    async def other(self) -> Tokens | None:
        return None


@dataclass(eq=False, repr=False)
class IssuedCredentials:
    """Implements Credentials. *now* is the clock of the tokens' ends. *learn* gets each token before it is used.
    *scopes_mend* is what the operator does for more scopes."""

    _name: str
    _source: TokenSource
    _now: Callable[[], float]
    _learn: Callable[[str], None] = lambda token: None
    scopes_mend: str = ""

    def __post_init__(self) -> None:
        self._header = ""
        self._fresh_until = 0.0
        self._good_until = 0.0
        self._asking: asyncio.Task[None] | None = None
        self._failures = 0
        self._failure: LoginFailure | None = None
        self._quiet_until = float("-inf")
        self._renewed_until = float("-inf")

    async def authorization(self) -> str:
        if not self._header or self._now() >= self._fresh_until:
            try:
                await self._get(None)
            except UpstreamUnavailable:
                # The issuer is out of order, and the old token is good for a moment still.
                if not self._header or self._now() >= self._good_until:
                    raise
        return self._header

    async def renew(self, refusal: Refusal) -> bool:
        """Soon after another it gives what that one gave: calls that were refused together renew once. Raises
        ScopesNeeded: the operator decides about scopes, and may have logged in for more of them."""
        if refusal.lacks_scopes:
            tokens = None
            with suppress(LoginFailure):
                tokens = await self._source.other()
            if tokens is None:
                raise ScopesNeeded(self._name, refusal.named_scopes, self.scopes_mend)
            self._take(tokens)
            return True
        if self._now() >= self._renewed_until:
            await self._get(refusal)
            self._renewed_until = self._now() + _COOLDOWN_S
        return True

    async def aclose(self) -> None:
        """Ends a request that is under way; its callers get UpstreamUnavailable. A later call may ask again."""
        asking = self._asking
        if asking is not None:
            asking.cancel()
            await asyncio.wait([asking])

    async def _get(self, refusal: Refusal | None) -> None:
        """Have another token, together with all who wait for one. Raises UpstreamUnavailable."""
        if self._asking is None:
            if self._now() < self._quiet_until:
                raise self._unavailable()
            self._asking = asyncio.create_task(self._ask(refusal))
            self._asking.add_done_callback(self._asked)
        # A caller that leaves must not take the token from the others, so it waits beside the task.
        asking = self._asking
        await asyncio.wait([asking])
        if asking.cancelled() or self._failures:
            raise self._unavailable()

    def _asked(self, task: "asyncio.Task[None]") -> None:
        self._asking = None

    async def _ask(self, refusal: Refusal | None) -> None:
        """Never raises: what came of it is in the state."""
        try:
            tokens = await self._source.get(refusal)
        except LoginFailure as failure:
            if not self._failures or type(failure) is not type(self._failure):
                log.warning("%s: no token: %s", self._name, failure.detail)
            self._failure = failure
            if not isinstance(failure, IssuerAway):
                self._header = ""  # it was refused, so the one before is not good either
            # A login that someone makes in the meantime is found soon, and looking for it costs nothing.
            doublings = 0 if isinstance(failure, NeedsLogin) else min(self._failures, 10)
            self._quiet_until = self._now() + min(_COOLDOWN_S * 2.0**doublings, _MAX_COOLDOWN_S)
            self._failures += 1
            return
        self._failures, self._failure = 0, None
        self._take(tokens)

    def _take(self, tokens: Tokens) -> None:
        for secret in (tokens.access_token, tokens.refresh_token, tokens.id_token):
            if secret:
                self._learn(secret)
        self._header = f"Bearer {tokens.access_token}"
        self._good_until = float("inf") if tokens.expires_at is None else tokens.expires_at
        lifetime_s = self._good_until - self._now()
        self._fresh_until = self._good_until - min(EARLY_S, lifetime_s / 10)

    def _unavailable(self) -> UpstreamUnavailable:
        if isinstance(self._failure, NeedsLogin):
            return LoginNeeded(f"{self._name} cannot be called: {self._failure.why}.", self._failure.detail)
        why = self._failure.why if self._failure is not None else "no credential for it could be had"
        return UpstreamUnavailable(f"{self._name} cannot be called: {why}.")
