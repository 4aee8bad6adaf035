"""Opaque tokens: their issuer is asked what they are (RFC 7662; ACCESS-119)."""

import asyncio
import json
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote_plus, urlencode
from weakref import WeakValueDictionary

import httpx

from wicketgate.access.issuer import Issuer, TokenRefused
from wicketgate.access.key_sets import DEADLINE_S, MAX_BYTES, IssuerAway, discover, endpoint_of
from wicketgate.net import HttpClient, fetch
from wicketgate.net.addresses import network_of
from wicketgate.net.outgoing import TOO_SLOW, trouble_of

_MOST_AT_ONCE = 16
MOST_WAITING = 512
"""Tokens that wait for an answer, those asked about now among them. Anybody can make tokens up: one more is told at
once that nothing can be said."""


class Introspector:
    """Asks one issuer about a bounded number of tokens concurrently. Tokens from one network take at most half of the
    places and half of the queue (ACCESS-290)."""

    def __init__(self, issuer: Issuer, http: Callable[[], HttpClient]) -> None:
        assert issuer.introspection is not None
        self._issuer = issuer
        self._given = issuer.introspection
        self._url = issuer.introspection.url
        self._http = http
        self._places = asyncio.Semaphore(_MOST_AT_ONCE)
        self._shares = WeakValueDictionary[str, asyncio.Semaphore]()
        self._waiting = Counter[str]()
        self.trouble = ""
        """Why the last question has failed; empty if it has not."""

    async def claims(self, token: str, source: str) -> Mapping[str, Any]:
        """Returns what the issuer says of *token*, sent from the address *source*. Raises TokenRefused for one that is
        not good, and IssuerAway."""
        network = network_of(source)
        share = self._shares.setdefault(network, asyncio.Semaphore(_MOST_AT_ONCE // 2))
        self._waiting[network] += 1
        try:
            if self._waiting[network] > MOST_WAITING // 2 or self._waiting.total() > MOST_WAITING:
                raise IssuerAway("introspection: too many tokens wait for an answer")
            # The wait for a place counts too: otherwise each would have its whole time after those before it.
            async with asyncio.timeout(DEADLINE_S), share, self._places:
                claims = await self._ask(token)
        except (httpx.RequestError, TimeoutError) as error:
            trouble = trouble_of(error) if isinstance(error, httpx.RequestError) else TOO_SLOW
            self.trouble = trouble.told(self._url or self._issuer.url, "auth.issuers")
            raise IssuerAway(self.trouble) from None
        except IssuerAway as away:
            self.trouble = str(away)
            raise
        finally:
            self._waiting -= Counter((network,))
        self.trouble = ""
        if claims.get("active") is not True or claims.get("iss", self._issuer.url) != self._issuer.url:
            raise TokenRefused("unknown")
        return claims

    async def _ask(self, token: str) -> Mapping[str, Any]:
        if not self._url:
            document = await discover(self._http(), self._issuer.url)
            self._url = endpoint_of(document, "introspection_endpoint", self._issuer.url)
        pair = f"{quote_plus(self._given.client_id)}:{quote_plus(self._given.client_secret)}"
        headers = {
            "content-type": "application/x-www-form-urlencoded",
            "accept": "application/json",
            "authorization": "Basic " + b64encode(pair.encode()).decode(),
        }
        body = urlencode({"token": token, "token_type_hint": "access_token"}).encode()
        reply = await fetch(self._http(), "POST", self._url, headers, body, max_bytes=MAX_BYTES)
        if reply.status != 200 or reply.cut:
            # A 401 is about our own credential, so it says nothing of the token.
            raise IssuerAway(f"introspection: status {reply.status}" if not reply.cut else "introspection: too long")
        try:
            claims = json.loads(reply.body)
        except (ValueError, RecursionError):
            claims = None
        if not isinstance(claims, dict):
            raise IssuerAway("introspection: the answer is no JSON object")
        return claims
