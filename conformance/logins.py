"""Logins of the connector in the suite's scenarios of authorization: the person's browser is one GET, whose redirect is
the answer. The context of a scenario says which client the suite has registered."""

import asyncio
import secrets
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from wicketgate.login.assertion import assertion_signer, read_private_key
from wicketgate.login.client import Login, LoginClient, LoginPlan
from wicketgate.login.discovery import Issuer, discover
from wicketgate.login.issued import IssuedCredentials, MachinePlan, MachineSource, TokenSource
from wicketgate.login.oauth_http import Carrier
from wicketgate.login.registrar import GivenClient
from wicketgate.login.steps import LoginFailure
from wicketgate.login.token_endpoint import Client, Tokens, id_jag, jwt_bearer
from wicketgate.net import Credentials, HttpClient, Outgoing, Refusal, fetch

OF_LOGINS = "auth/"
REDIRECT = "http://127.0.0.1:33333/callback"
"""Nothing listens there: the browser is not sent on."""
DOCUMENT = "https://conformance-test.local/client-metadata.json"
"""The client's document that the suite expects."""


def credentials_for(scenario: str, url: str, given: Mapping[str, Any], failed: asyncio.Event) -> Credentials | None:
    """None for a scenario without authorization. A login that fails sets *failed*: no call is of use any more."""
    if not scenario.startswith(OF_LOGINS):
        return None
    carrier = Carrier(Outgoing(), [url])
    source = _source(scenario, url, given, carrier)
    return _Person(url, given, carrier, failed) if source is None else _Unasked(source)


def _source(scenario: str, url: str, given: Mapping[str, Any], carrier: Carrier) -> TokenSource | None:
    """None where a person logs in."""
    if "idp_id_token" in given:
        return Managed(url, given, carrier)
    if "client-credentials" in scenario:
        client_id, pem = given["client_id"], given.get("private_key_pem")
        if pem is None:
            basic = MachinePlan(client_id, "client_secret_basic", given["client_secret"], server_url=url)
            return MachineSource(basic, carrier, time.time)
        sign = assertion_signer(read_private_key(pem), client_id, "", time.time, secrets.token_hex)
        return MachineSource(MachinePlan(client_id, "private_key_jwt", server_url=url), carrier, time.time, sign)
    return None


class _Trusting(LoginClient):
    """As if the operator had named each issuer of the suite: few of them promise ``iss``."""

    def _is_named(self, issuer: Issuer) -> bool:
        return True


class _Unasked(IssuedCredentials):
    """The first request has no token: the suite wants to refuse it."""

    def __init__(self, source: TokenSource) -> None:
        super().__init__("conformance", source, time.time)
        self._refused = False

    async def authorization(self) -> str:
        return await super().authorization() if self._refused else ""

    async def renew(self, refusal: Refusal) -> bool:
        self._refused = True
        return await super().renew(refusal)


class _Person:
    """Implements Credentials. A person logs in whenever the server refuses, with more scopes if it wants some; the same
    ones are asked for once, and what asks for them again ends the scenario."""

    def __init__(self, url: str, given: Mapping[str, Any], carrier: Carrier, failed: asyncio.Event) -> None:
        client = None
        if "client_id" in given:
            client = GivenClient(given["issuer"], given["client_id"], given.get("client_secret", ""))
        self._own = _Trusting(LoginPlan(url, given=client, document_url=DOCUMENT), carrier, time.time)
        self._failed = failed
        self._login: Login | None = None
        self._asked_for = frozenset[str]()

    async def authorization(self) -> str:
        return "" if self._login is None else f"Bearer {self._login.tokens.access_token}"

    async def renew(self, refusal: Refusal) -> bool:
        before, granted = self._login, frozenset[str]()
        if before is not None and refusal.lacks_scopes:
            granted = before.tokens.scopes
            if refusal.named_scopes <= self._asked_for | granted:
                self._failed.set()
                return False
        known = before.registration if before is not None else None
        try:
            self._login = await self._own.log_in(REDIRECT, browse, refusal, known=known, granted=granted)
        except LoginFailure:
            self._failed.set()
            raise
        self._asked_for |= frozenset(refusal.scopes or ()) | self._login.tokens.scopes
        return True

    async def aclose(self) -> None:
        return


async def browse(url: str) -> Mapping[str, str]:
    """One GET; the query of the address that it is sent on to."""
    async with HttpClient(Outgoing()) as http:
        reply = await fetch(http, "GET", url, {}, max_bytes=65_536)
    return dict(parse_qsl(urlsplit(reply.headers.get("location", "")).query))


class Managed:
    """Implements TokenSource: by the assertion of an enterprise's identity provider, for which it has an ID token."""

    def __init__(self, url: str, given: Mapping[str, Any], carrier: Carrier) -> None:
        self._url = url
        self._given = given
        self._carrier = carrier

    async def get(self, refusal: Refusal | None) -> Tokens:
        given, now = self._given, time.time()
        found = await self._carrier.run(discover(self._url, refusal))
        issuer, resource = found.issuer, found.resource
        provider = Client(given["idp_issuer"], given["idp_token_endpoint"], given["idp_client_id"], "none")
        jag = id_jag(provider, given["idp_id_token"], audience=issuer.issuer, resource=resource.resource, now=now)
        own = Client(
            issuer.issuer, issuer.token_endpoint, given["client_id"], "client_secret_basic", given["client_secret"]
        )
        assertion = await self._carrier.run(jag)
        return await self._carrier.run(jwt_bearer(own, assertion, resource=resource.resource, now=now))

    async def other(self) -> Tokens | None:
        return None
