"""Credentials that a token server gives: client credentials or a refresh token (RFC 6749 §4.4 and §6; UP-24).

oauthlib writes the requests and reads the answers, and does no I/O. A token server that refuses is asked again ever
more rarely, however many calls wait.
"""

import asyncio
import logging
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import quote_plus

import httpx
from oauthlib.oauth2 import OAuth2Error
from oauthlib.oauth2.rfc6749.parameters import parse_token_response, prepare_token_request

from wicketgate.errors import UpstreamUnavailable
from wicketgate.net.client import fetch, make_http_client
from wicketgate.net.outgoing import SPEAKS_TLS, TOO_SLOW, Outgoing, shown_origin, told, trouble_of, wants_tls

log = logging.getLogger("wicketgate.oauth")

_DEADLINE_S = 10.0
_MAX_BYTES = 256 * 1024
_MAX_TOKEN = 16_000
"""Longer headers are refused by servers, and a token is searched for in all answers."""
_EARLY_S = 60.0
_COOLDOWN_S = 5.0
_MAX_COOLDOWN_S = 300.0


class TokenRefused(Exception):
    """No token, for a reason that is a fixed phrase."""


@dataclass(frozen=True, slots=True)
class TokenGrant:
    """The request for an access token: by *refresh_token* if there is one, otherwise by client credentials."""

    token_url: str
    client_id: str
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    audience: str = ""
    refresh_token: str = field(default="", repr=False)
    in_form: bool = False
    """True if the client's secret is sent in the form instead of a Basic header."""


class OAuthCredentials:
    """Implements Credentials. *now* is a monotonic clock in seconds. *learn* gets each token before it is used."""

    def __init__(
        self,
        name: str,
        grant: TokenGrant,
        outgoing: Outgoing,
        now: Callable[[], float],
        learn: Callable[[str], None] = lambda token: None,
    ) -> None:
        self._learn = learn
        self._name = name
        self._grant = grant
        self._outgoing = outgoing
        self._now = now
        self._refresh_token = grant.refresh_token
        self._header = ""
        self._fresh_until = 0.0
        self._good_until = 0.0
        self._asking: asyncio.Task[None] | None = None
        self._failures = 0
        self._quiet_until = float("-inf")
        self._renewed_until = float("-inf")

    async def authorization(self) -> str:
        if not self._header or self._now() >= self._fresh_until:
            try:
                await self._get()
            except UpstreamUnavailable:
                # The token server is out of order, and the old token is good for a moment still.
                if not self._header or self._now() >= self._good_until:
                    raise
        return self._header

    async def renew(self) -> None:
        """Soon after another it gives what that one gave: calls that were refused together renew once."""
        if self._now() >= self._renewed_until:
            await self._get()
            self._renewed_until = self._now() + _COOLDOWN_S

    async def aclose(self) -> None:
        """Ends a request that is under way; its callers get UpstreamUnavailable. A later call may ask anew."""
        asking = self._asking
        if asking is not None:
            asking.cancel()
            await asyncio.wait([asking])

    async def _get(self) -> None:
        """Have another token, together with all who wait for one. Raises UpstreamUnavailable."""
        if self._asking is None:
            if self._now() < self._quiet_until:
                raise self._unavailable()
            self._asking = asyncio.create_task(self._ask())
            self._asking.add_done_callback(self._asked)
        # A caller that leaves must not take the token from the others, so it waits beside the task.
        asking = self._asking
        await asyncio.wait([asking])
        if asking.cancelled() or self._failures:
            raise self._unavailable()

    def _asked(self, task: "asyncio.Task[None]") -> None:
        self._asking = None

    async def _ask(self) -> None:
        """Never raises: what came of it is in the state."""
        asked_at = self._now()
        try:
            async with asyncio.timeout(_DEADLINE_S):
                lifetime_s = await self._exchange()
        except (TokenRefused, httpx.RequestError, TimeoutError) as error:
            reason = str(error) if isinstance(error, TokenRefused) else self._not_reached(error)
            if not self._failures:
                log.warning("%s: no token: %s", self._name, reason)
            self._quiet_until = self._now() + min(_COOLDOWN_S * 2.0 ** min(self._failures, 10), _MAX_COOLDOWN_S)
            self._failures += 1
            return
        self._failures = 0
        self._good_until = asked_at + lifetime_s
        self._fresh_until = asked_at + lifetime_s - min(_EARLY_S, lifetime_s / 10)

    def _not_reached(self, error: httpx.RequestError | TimeoutError) -> str:
        """The whole for the operator."""
        trouble = trouble_of(error) if isinstance(error, httpx.RequestError) else TOO_SLOW
        return f"the token server cannot be reached: {trouble.told(self._grant.token_url, 'oauth.token_url')}"

    async def _exchange(self) -> float:
        """Ask, and keep what came. The lifetime in seconds; endless if the server does not say. Raises TokenRefused."""
        # The form: the grant, and the client's secret there or in a Basic header.
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        grant = self._grant
        fields: dict[str, str] = {}
        if grant.scope:
            fields["scope"] = grant.scope
        if grant.audience:
            fields["audience"] = grant.audience
        if self._refresh_token:
            fields["refresh_token"] = self._refresh_token
        if grant.client_secret and not grant.in_form:
            pair = f"{quote_plus(grant.client_id)}:{quote_plus(grant.client_secret)}"
            headers["Authorization"] = "Basic " + b64encode(pair.encode()).decode()
        else:
            fields["client_id"] = grant.client_id
            if grant.client_secret:
                fields["client_secret"] = grant.client_secret
        kind = "refresh_token" if self._refresh_token else "client_credentials"
        body = prepare_token_request(kind, include_client_id="client_id" in fields, **fields)
        # One request over a connection of its own, because hours lie between two tokens.
        async with make_http_client(self._outgoing) as http:
            answer = await fetch(http, "POST", grant.token_url, headers, body.encode(), max_bytes=_MAX_BYTES)
        # The answer: oauthlib reads it, and raises what it says of an error.
        if answer.cut:
            raise TokenRefused("its answer is too large")
        if answer.status >= 500:
            raise TokenRefused(f"the token server answered {answer.status}")
        if wants_tls(answer.status, answer.body):
            raise TokenRefused(
                f"the token server cannot be asked: {SPEAKS_TLS.told(grant.token_url, 'oauth.token_url')}"
            )
        if answer.status in (404, 405) or answer.body.lstrip()[:1] == b"<":
            why = f"there is no token server at this path (HTTP status {answer.status})"
            raise TokenRefused(told(why, shown_origin(grant.token_url), "correct oauth.token_url"))
        try:
            token = parse_token_response(answer.body.decode())
        except OAuth2Error as error:
            raise TokenRefused(f"the token server refused with {_code(error)}") from None
        except (ValueError, TypeError, AttributeError, RecursionError):
            raise TokenRefused("the token server's answer cannot be read") from None
        return self._keep(token, answer.status)

    def _keep(self, token: "dict[str, object]", status: int) -> float:
        access, kind, refresh = token.get("access_token"), token.get("token_type", "Bearer"), token.get("refresh_token")
        if (
            status != 200
            or not isinstance(access, str)
            or not 0 < len(access) <= _MAX_TOKEN
            or not (access.isascii() and access.isprintable())
        ):
            raise TokenRefused("the token server's answer holds no usable token")
        if not isinstance(kind, str) or kind.lower() != "bearer":
            raise TokenRefused("the token is not a bearer token")
        lifetime = token.get("expires_in")
        self._learn(access)
        self._header = f"Bearer {access}"
        if self._refresh_token and isinstance(refresh, str) and refresh:
            self._learn(refresh)
            self._refresh_token = refresh
        return float(lifetime) if isinstance(lifetime, int) and 0 < lifetime < 10**9 else float("inf")

    def _unavailable(self) -> UpstreamUnavailable:
        return UpstreamUnavailable(f"{self._name} cannot be called: no credential for it could be had.")


def _code(error: OAuth2Error) -> str:
    """The error code of the specification, if it is one: a word of the server's, so bounded."""
    text = str(error.error or "")
    return text if text.isascii() and text.replace("_", "").isalpha() and len(text) <= 40 else "an error"
