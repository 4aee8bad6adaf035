"""Tokens that are exchanged for callers: whose they are, how long they are used, and the way over an assertion."""

import asyncio
import copy
import pickle
from collections.abc import Mapping
from dataclasses import replace
from time import time
from typing import Any

import pytest
from joserfc.jwk import RSAKey

from tests.login.stores import credentials_for
from tests.support.exchange_issuer import CLIENT, SECRET, ExchangeIssuer, TokensFor, id_token
from tests.support.issuer import OTHER_RSA, RSA
from tests.support.requirement import requirement
from wicketgate.access.identity import CallersToken, Identity, hash_key
from wicketgate.access.issuer import Issuer
from wicketgate.access.issuers import Issuers
from wicketgate.config.settings import UpstreamSettings
from wicketgate.config.upstream_logins import exchanged_credentials
from wicketgate.errors import ConfigError, Forbidden, UpstreamUnavailable
from wicketgate.login import exchanged
from wicketgate.login.exchanged import IdTokens
from wicketgate.login.user_credentials import GrantName, UserCredentials
from wicketgate.net import HttpClient, Outgoing, Refusal

SERVER = "http://127.0.0.1:9/mcp"
WAY = {"client_id": CLIENT, "client_secret": SECRET}


def issuers_of(issuer: ExchangeIssuer) -> Issuers:
    issuers = Issuers(lambda: HttpClient(Outgoing()), time, time)
    issuers.replace([Issuer("corp", issuer.url)])
    return issuers


def credentials_of(
    corp: ExchangeIssuer,
    *,
    issuers: Issuers | None = None,
    id_tokens: IdTokens | None = None,
    exchange: Mapping[str, Any] = WAY,
    **oauth: Any,
) -> UserCredentials:
    entry = {"name": "accounts", "url": SERVER, "credentials": "exchange", "oauth": {"exchange": exchange, **oauth}}
    settings = UpstreamSettings.model_validate(entry)
    return exchanged_credentials(settings, issuers or issuers_of(corp), Outgoing(), time, id_tokens)


def caller(issuer: ExchangeIssuer, person: str = "ann", *, claims: str = "{}", life_s: float = 300) -> Identity:
    """The identity of a request with a token."""
    end = time() + life_s
    token = issuer.token(sub=person, exp=end, jti=str(len(issuer.forms)))
    held = CallersToken(token, hash_key(token))
    return Identity(f"corp:{person}", ("tools:*",), "issuer:corp", (), claims, "corp", end, held)


@requirement("UP-187")
def test_the_token_of_a_caller_leaves_no_trace_of_its_identity() -> None:
    held = CallersToken("secret-token", "d" * 64)
    identity = Identity("corp:ann", (), issuer="corp", token=held)
    assert "secret-token" not in f"{identity!r} {held!r} {held} {identity.row()}"
    assert identity == replace(identity, token=None)
    assert hash(identity) == hash(replace(identity, token=None))
    assert Identity.of_row(identity.row()).token is None
    for copied in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            copied(identity)


@requirement("UP-187")
async def test_a_caller_without_its_request_has_what_the_same_caller_was_given_before() -> None:
    async with ExchangeIssuer() as issuer:
        users = credentials_of(issuer)
        ann = caller(issuer)
        elsewhere = replace(ann, token=None)
        with pytest.raises(Forbidden):
            await users.named(elsewhere)
        assert await users.known(elsewhere) is None
        name = await users.named(ann)
        assert await users.named(elsewhere) == name
        for other in (replace(elsewhere, claims='{"scope":"less"}'), replace(elsewhere, actor="corp:ben")):
            with pytest.raises(Forbidden):
                await users.named(other)
        assert len(issuer.forms) == 1


@requirement("UP-187")
async def test_the_token_of_a_caller_is_gone_with_its_request() -> None:
    async with ExchangeIssuer() as issuer:
        users = credentials_of(issuer)
        ann = caller(issuer)
        credentials = credentials_for(users, await users.named(ann))
        await credentials.authorization()
        assert isinstance(users, exchanged.ExchangedCredentials)
        [kept] = users._kept.values()
        assert kept.token is ann.token
        kept.given_at -= 60
        assert await credentials.renew(Refusal(401))
        assert ann.token is not None
        ann.token.forget()
        await credentials.authorization()
        kept.given_at -= 60
        assert not await credentials.renew(Refusal(401))
        assert len(issuer.forms) == 2


@requirement("UP-189")
async def test_sessions_end_with_the_callers_token() -> None:
    async with ExchangeIssuer() as issuer:
        users, ended = credentials_of(issuer), asyncio.Queue[GrantName]()
        users.observe(ended.put_nowait)
        name = await users.named(caller(issuer, life_s=1.2))
        async with asyncio.timeout(30):
            assert await ended.get() == name
        with pytest.raises(UpstreamUnavailable):
            await credentials_for(users, name).authorization()


@requirement("UP-189")
async def test_what_an_issuer_gave_ends_with_its_place_in_the_configuration() -> None:
    async with ExchangeIssuer() as issuer:
        issuers = issuers_of(issuer)
        users = credentials_of(issuer, issuers=issuers)
        ann = caller(issuer)
        credentials = credentials_for(users, await users.named(ann))
        issuers.replace([Issuer("corp", "https://id.example")])
        with pytest.raises(UpstreamUnavailable):
            await credentials.authorization()
        issuers.replace([])
        with pytest.raises(Forbidden):
            await users.named(ann)


@requirement("UP-188")
async def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchanged, "MAX_KEPT", 2)
    async with ExchangeIssuer() as issuer:
        users = credentials_of(issuer)
        ended: list[GrantName] = []
        users.observe(ended.append)
        names = [await users.named(caller(issuer)) for _ in range(3)]
        assert ended == names[:1]


@requirement("UP-192")
async def test_a_grant_that_lacks_scopes_gets_no_broader_ones() -> None:
    async with ExchangeIssuer() as issuer:
        users = credentials_of(issuer)
        name = await users.named(caller(issuer))
        await users.lacks(name, frozenset({"admin"}))
        assert not await credentials_for(users, name).renew(
            Refusal(403, {"error": "insufficient_scope", "scope": "admin"})
        )
        assert len(issuer.forms) == 1


@requirement("UP-184")
async def test_the_gate_signs_for_itself_where_it_has_a_key() -> None:
    async with ExchangeIssuer() as issuer:
        key = RSAKey.generate_key(2048)
        pem = key.as_pem(private=True).decode()
        issuer.clients = {CLIENT: key}
        way = {"client_id": CLIENT, "private_key": pem, "auth_method": "private_key_jwt"}
        users = credentials_of(issuer, exchange=way)
        assert await users.known(caller(issuer)) is not None
        issuer.clients = {CLIENT: OTHER_RSA}
        with pytest.raises(UpstreamUnavailable):
            await users.known(caller(issuer))


class Brought:
    """Implements IdTokens."""

    def __init__(self) -> None:
        self.tokens: dict[str, str] = {}

    async def id_token_of(self, actor: str) -> str | None:
        return self.tokens.get(actor)


@requirement("UP-185", "UP-186")
async def test_an_id_token_leads_over_an_assertion_to_a_token_of_the_servers_own_issuer() -> None:
    async with ExchangeIssuer(RSA) as corp, ExchangeIssuer(OTHER_RSA) as theirs:
        theirs.clients = {"gate-there": "secret-there"}
        theirs.trusted = {corp.url: RSA}
        brought = Brought()
        there: dict[str, Any] = {
            "issuer": theirs.url,
            "client_id": "gate-there",
            "client_secret": "secret-there",
            "scope": "read",
        }
        users = credentials_of(corp, id_tokens=brought, exchange={**WAY, "by": "id_jag"}, **there)
        ann = caller(corp)
        with pytest.raises(Forbidden):
            await users.named(ann)
        assert not corp.forms
        brought.tokens = {f"corp:{person}": id_token(corp, person) for person in ("ben", "cat")}
        accounts = TokensFor(theirs, SERVER, OTHER_RSA)
        for person in ("ben", "cat"):
            identity = caller(corp, person)
            header = await credentials_for(users, await users.named(identity)).authorization()
            assert accounts.get(header.removeprefix("Bearer ")) == person
            first, second = corp.forms[-1], theirs.forms[-1]
            assert (first["audience"], first["resource"], first["scope"]) == (theirs.url, SERVER, "read")
            assert first["subject_token"] == brought.tokens[identity.actor]
            assert second["assertion"] == corp.given[-1]
            # No token of the caller goes to the server's issuer.
            assert identity.token is not None
            assert not {identity.token.reveal(), first["subject_token"]} & set(second.values())
        # An ID token for another client, and an issuer that is not trusted there.
        brought.tokens["corp:ann"] = id_token(corp, "ann", client="another")
        with pytest.raises(Forbidden):
            await users.named(caller(corp))
        theirs.trusted = {}
        with pytest.raises(Forbidden):
            await users.named(caller(corp, "cat"))


@requirement("UP-186")
async def test_without_id_tokens_the_configuration_is_refused() -> None:
    async with ExchangeIssuer() as issuer:
        there: dict[str, Any] = {"issuer": "https://as.example", "client_id": "gate", "client_secret": "s"}
        with pytest.raises(ConfigError, match="id_jag"):
            credentials_of(issuer, exchange={**WAY, "by": "id_jag"}, **there)
