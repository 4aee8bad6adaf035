"""Tokens of issuers, against a real one on loopback (ACCESS-110 to ACCESS-121)."""

import asyncio
import hashlib
import hmac
import json
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

from tests.support.clock import Clock
from tests.support.issuer import EC, OTHER_RSA, RSA, Issuer, signed
from tests.support.requirement import requirement
from tests.support.until import settle, until
from wicketgate.access import issuer as access
from wicketgate.access import issuer as issuer_module
from wicketgate.access.authenticator import Authenticator, RefusedCredential
from wicketgate.access.identity import ACTOR_PATTERN, HashedKey, Identity, KeyRing, hash_key
from wicketgate.access.issuer import BrowserClient, Grant, Introspection, TokenRefused, actor_of, actor_of_id_token
from wicketgate.access.issuers import MAX_KEPT, Issuers
from wicketgate.access.key_sets import IssuerAway, endpoint_of, metadata_urls
from wicketgate.access.resources import Resources
from wicketgate.net import HttpClient, Outgoing

RS256 = JWSRegistry.algorithms["RS256"]
GATE = "https://gate.example"
NOW = 1_800_000_000.0
INTROSPECTION = Introspection("", "gate", "p%ss word")


class Door:
    """An authenticator with issuers, and a clock that the test moves; *reasons* are those of refusals."""

    def __init__(self, *issuers: access.Issuer) -> None:
        self.clock = Clock(NOW)
        self.issuers = Issuers(lambda: HttpClient(Outgoing()), self.clock, self.clock)
        self.issuers.replace(issuers)
        keys = KeyRing([HashedKey("k", hash_key("wg_k"), Identity("ada", ("tools:*",)))], self.clock)
        resources = Resources(GATE, ("gateway", "registry"), "gateway")
        self.authenticator = Authenticator(keys, self.issuers, resources)
        self.reasons: list[str] = []
        self.authenticator.observe(lambda reason, key_id, source: self.reasons.append(reason))

    async def knock(self, token: str, path: str = "/mcp", source: str = "10.0.0.1") -> Identity | str:
        """The identity, or the reason of the refusal."""
        outcome = self.authenticator.authenticate(token, source, path)
        if outcome is None:
            outcome = await self.authenticator.verify(token, source, path)
        return outcome.reason if isinstance(outcome, RefusedCredential) else outcome


@asynccontextmanager
async def house(issuer: Issuer | None = None, **settings: Any) -> AsyncIterator[tuple[Issuer, Door]]:
    async with issuer or Issuer() as running:
        door = Door(access.Issuer("corp", running.url, **settings))
        running.clock = door.clock
        try:
            yield running, door
        finally:
            await door.issuers.aclose()


def part(value: object) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


@requirement("ACCESS-110")
async def test_a_token_of_a_configured_issuer_is_an_identity_beside_keys() -> None:
    async with house() as (issuer, door):
        found = await door.knock(issuer.token(roles=["x"], department="finance", jti="1"))
        assert isinstance(found, Identity)
        assert (found.actor, found.permissions, found.issuer) == ("corp:ann", ("tools:*",), "corp")
        assert (found.key_id, found.expires_at) == ("issuer:corp", NOW + 300)
        assert found.claim_values()["department"] == "finance"
        assert "jti" not in found.claim_values() and "exp" not in found.claim_values()
        assert await door.knock("wg_k") == Identity("ada", ("tools:*",))
        assert await door.knock("wg_other") == "unknown"


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [
        (RSA, "RS256"),
        (RSAKey.generate_key(2048, {"kid": "ps"}), "PS256"),
        (EC, "ES256"),
        (ECKey.generate_key("P-384", {"kid": "ec384"}), "ES384"),
        (OKPKey.generate_key("Ed25519", {"kid": "ed"}), "EdDSA"),
        (OKPKey.generate_key("Ed25519", {"kid": "ed"}), "Ed25519"),
    ],
)
@requirement("ACCESS-110")
async def test_each_algorithm_verifies_where_it_is_pinned_and_nowhere_else(key: Any, algorithm: str) -> None:
    async with house(Issuer("", key), algorithms=(algorithm,)) as (issuer, door):
        token = issuer.token(key, {"alg": algorithm})
        assert isinstance(await door.knock(token), Identity)
        door.issuers.replace([access.Issuer("corp", issuer.url, algorithms=("RS512",))])
        assert await door.knock(token) == "token_refused"


@requirement("ACCESS-114")
async def test_a_public_key_is_no_secret_of_an_hmac_and_no_signature_is_none() -> None:
    async with house(algorithms=("RS256", "ES256")) as (issuer, door):
        claims = issuer.claims()
        pem = RSA.as_pem(private=False)
        # The library would refuse to sign with a public key, so by hand.
        head = f"{part({'alg': 'HS256', 'kid': 'rsa-1', 'typ': 'at+jwt'})}.{part(claims)}"
        mac = urlsafe_b64encode(hmac.new(pem, head.encode(), hashlib.sha256).digest()).decode().rstrip("=")
        none = f"{part({'alg': 'none'})}.{part(claims)}."
        swapped = signed(claims, EC, alg="ES256", kid="rsa-1")
        as_ec = signed(claims, RSA, alg="RS256", kid="ec-1")
        for token in (f"{head}.{mac}", none, none + "e30", f"{part({'alg': 'None'})}.{part(claims)}.", swapped, as_ec):
            assert await door.knock(token) == "token_refused", token
        assert set(door.reasons) == {"token_refused"}


@requirement("ACCESS-114")
async def test_a_symmetric_key_that_an_issuer_publishes_is_not_taken() -> None:
    secret = OctKey.generate_key(256, {"kid": "oct"})
    async with house() as (issuer, door):
        keys = [{**secret.as_dict(private=True)}, {**RSA.as_dict(private=False), "use": "enc"}]
        issuer.body = json.dumps({"keys": [*keys, "odd", {"kty": "RSA"}, {"kty": ["RSA"]}, 7]}).encode()
        assert await door.knock(issuer.token(secret, {"alg": "HS256"})) == "token_refused"
        assert await door.knock(issuer.token()) == "token_refused"
        assert door.issuers.states()[0].keys == 0


@pytest.mark.parametrize(
    "header",
    [
        {"jwk": OTHER_RSA.as_dict(private=False)},
        {"jku": "http://127.0.0.1:1/keys"},
        {"x5u": "http://127.0.0.1:1/keys"},
        {"kid": None, "jwk": OTHER_RSA.as_dict(private=False)},
    ],
)
@requirement("ACCESS-114")
async def test_keys_that_a_token_brings_along_are_not_looked_at(header: dict[str, Any]) -> None:
    async with house() as (issuer, door):
        token = signed(issuer.claims(), OTHER_RSA, **{"kid": "rsa-1", **header})
        assert await door.knock(token) == "token_refused"
        assert isinstance(await door.knock(issuer.token(header={**header, "kid": "rsa-1"})), Identity)
        assert all(path.startswith(("/.well-known/", "/keys")) for path in issuer.seen)


@pytest.mark.parametrize(
    "header",
    [{"crit": ["exp"], "exp": 1}, {"b64": False}, {"typ": "id+jwt"}, {"typ": "dpop+jwt"}, {"typ": 5}, {"kid": 7}],
)
@requirement("ACCESS-114")
async def test_a_header_that_asks_for_more_is_refused(header: dict[str, Any]) -> None:
    async with house() as (issuer, door):
        whole = {"alg": "RS256", "kid": "rsa-1", **header}
        text = f"{part(whole)}.{part(issuer.claims())}"
        signature = RS256.sign(text.encode(), RSA)
        token = f"{text}.{urlsafe_b64encode(signature).decode().rstrip('=')}"
        assert await door.knock(token) == "token_refused"


@requirement("ACCESS-115")
async def test_the_issuer_chooses_the_keys_before_the_key_id_does() -> None:
    """A second issuer with the first one's key id cannot speak for the first, nor for its callers."""
    theirs = RSAKey.generate_key(2048, {"kid": "rsa-1"})
    async with house() as (issuer, door), Issuer("", theirs) as other:
        door.issuers.replace(
            [access.Issuer("corp", issuer.url), access.Issuer("guests", other.url, grants=(Grant(("tools:a:*",)),))]
        )
        assert await door.knock(issuer.token(theirs)) == "token_refused"
        assert await door.knock(issuer.token(RSA, iss=other.url)) == "token_refused"
        assert await door.knock(issuer.token(RSA, iss="https://nobody.example")) == "token_refused"
        assert await door.knock(issuer.token(RSA, iss=None)) == "token_refused"
        guest = await door.knock(issuer.token(theirs, iss=other.url))
        assert isinstance(guest, Identity)
        assert (guest.actor, guest.permissions) == ("guests:ann", ("tools:a:*",))


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": None}, "token_refused"),
        ({"exp": "2099"}, "token_refused"),
        ({"exp": True}, "token_refused"),
        ({"exp": float("nan")}, "token_refused"),
        ({"exp": 10**400}, "token_refused"),
        ({"exp": NOW - 30}, "expired"),
        ({"nbf": NOW + 31}, "not_yet_valid"),
        ({"iat": NOW + 31}, "not_yet_valid"),
        ({"nbf": "soon"}, "token_refused"),
        ({"aud": None}, "wrong_audience"),
        ({"aud": []}, "wrong_audience"),
        ({"aud": 7}, "wrong_audience"),
        ({"aud": [7, f"{GATE}/mcp"]}, "wrong_audience"),
        ({"aud": f"{GATE}/mcp/"}, "wrong_audience"),
        ({"aud": GATE}, "wrong_audience"),
        ({"aud": f"{GATE}/MCP"}, "wrong_audience"),
        ({"aud": "https://gate.example.evil/mcp"}, "wrong_audience"),
        ({"sub": 7}, "token_refused"),
        ({"sub": ""}, "token_refused"),
        ({"sub": None}, "token_refused"),
        ({"sub": ["ann"]}, "token_refused"),
        ({"nonce": "n"}, "token_refused"),
        ({"at_hash": "h"}, "token_refused"),
        ({"cnf": {"jkt": "x"}}, "token_refused"),
        ({"cnf": {"x5t#S256": "x"}}, "token_refused"),
        ({"token_type": "DPoP"}, "token_refused"),
        ({"s_hash": "h"}, "token_refused"),
        ({"typ": "ID"}, "token_refused"),
        ({"typ": "Refresh"}, "token_refused"),
        ({"token_use": "id"}, "token_refused"),
        ({"events": {}}, "token_refused"),
    ],
)
@requirement("ACCESS-116", "ACCESS-254")
async def test_a_token_that_is_not_an_access_token_for_us_now_is_refused(claims: dict[str, Any], reason: str) -> None:
    async with house() as (issuer, door):
        assert await door.knock(issuer.token(**claims)) == reason


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": NOW - 29},
        {"nbf": NOW + 30, "iat": NOW + 30},
        {"iat": None},
        {"aud": ["https://else.example", f"{GATE}/mcp"]},
        {"typ": "Bearer"},
    ],
)
@requirement("ACCESS-116")
async def test_clocks_may_differ_by_half_a_minute(claims: dict[str, Any]) -> None:
    async with house() as (issuer, door):
        for typ in ("at+jwt", "application/at+jwt", "JWT", None):
            found = await door.knock(issuer.token(header={"typ": typ}, **claims))
            assert isinstance(found, Identity), typ
            assert found.expires_at is not None and found.expires_at > NOW


@requirement("ACCESS-117")
async def test_a_token_for_one_face_opens_no_other() -> None:
    async with house() as (issuer, door):
        paths = ("/mcp", "/mcp/gateway", "/mcp/registry", "/engine/chat", "/operations", "/operations/x", "/metrics")
        opened = {
            aud: [
                path for path in paths if isinstance(await door.knock(issuer.token(aud=f"{GATE}{aud}"), path), Identity)
            ]
            for aud in ("/mcp", "/mcp/registry", "/engine/chat", "/operations", "/console")
        }
        assert opened == {
            "/mcp": ["/mcp", "/mcp/gateway"],
            "/mcp/registry": ["/mcp/registry"],
            "/engine/chat": ["/engine/chat"],
            "/operations": ["/operations", "/operations/x"],
            "/console": ["/metrics"],
        }
        door.issuers.replace([access.Issuer("corp", issuer.url, audience=("client-id-1",))])
        assert isinstance(await door.knock(issuer.token(aud="client-id-1"), "/mcp/registry"), Identity)
        assert await door.knock(issuer.token(aud=f"{GATE}/mcp"), "/mcp") == "wrong_audience"


ENTRA = {"aud": "6f1c0000-1111-2222-3333-444455556666", "ver": "2.0", "tid": "t", "oid": "o"}
"""Access tokens and ID tokens of one issuer, told apart where an audience is a client."""


@pytest.mark.parametrize(
    "claims",
    [
        {},
        # As Entra, Okta and Keycloak write them for a client that sends no nonce, with the code flow.
        {"name": "Ann", "preferred_username": "ann@x.example", "amr": ["pwd"], "acr": "1", "email_verified": True},
        {"azp": ENTRA["aud"], "auth_time": 1_799_999_000, "email": "ann@example.com"},
        # App roles of a person stand in its ID token too, and so does the client that asked for it.
        {"roles": ["admin"]},
        {"azp": "another-client"},
        {"scp": "", "scope": []},
        {"scp": {"a": 1}, "client_id": 7, "azpacr": None},
        {"scp": "use", "nonce": "n"},
        {"aud": [ENTRA["aud"], f"{GATE}/mcp"]},
    ],
)
@requirement("ACCESS-206")
async def test_an_id_token_for_a_client_that_is_an_audience_opens_nothing(claims: dict[str, Any]) -> None:
    async with house(audience=("{resource}", ENTRA["aud"])) as (issuer, door):
        for typ in ("JWT", None):
            assert await door.knock(issuer.token(header={"typ": typ}, **{**ENTRA, **claims})) == "token_refused", typ


@pytest.mark.parametrize(
    ("header", "claims"),
    [
        ({"typ": "at+jwt"}, {}),
        ({"typ": "application/AT+JWT"}, {}),
        ({}, {"scp": "use"}),
        ({}, {"scope": ["use"]}),
        ({}, {"client_id": "another-client"}),
        ({}, {"azpacr": "1", "roles": ["app"]}),
        ({}, {"appidacr": "0"}),
        ({}, {"typ": "Bearer"}),
        ({}, {"token_use": "access"}),
    ],
)
@requirement("ACCESS-206")
async def test_a_token_that_shows_that_it_is_an_access_token_opens_by_a_client_as_audience(
    header: dict[str, Any], claims: dict[str, Any]
) -> None:
    async with house(audience=(ENTRA["aud"],)) as (issuer, door):
        found = await door.knock(issuer.token(header={"typ": "JWT", **header}, **{**ENTRA, **claims}))
        assert isinstance(found, Identity)


@requirement("ACCESS-206")
async def test_an_audience_that_is_a_url_is_no_client_and_an_issuer_that_was_asked_has_said_it() -> None:
    async with house(audience=("api://6f1c", "6f1c"), introspection=INTROSPECTION) as (issuer, door):
        assert isinstance(await door.knock(issuer.token(header={"typ": "JWT"}, aud="api://6f1c")), Identity)
        issuer.opaque["t"] = {"sub": "bob", "aud": "6f1c", "exp": NOW + 300}
        assert isinstance(await door.knock("t"), Identity)


@requirement("ACCESS-111")
async def test_five_hundred_requests_that_need_the_keys_fetch_them_once() -> None:
    async with house() as (issuer, door):
        issuer.gate.clear()
        waiting = [asyncio.create_task(door.knock(issuer.token(sub=f"s{number}"))) for number in range(500)]
        await until(lambda: issuer.seen)
        waiting[0].cancel()  # whoever leaves takes nothing from the others
        issuer.gate.set()
        found = await asyncio.gather(*waiting[1:])
        assert all(isinstance(each, Identity) for each in found)
        assert issuer.seen == ["/.well-known/oauth-authorization-server", "/keys"]


@requirement("ACCESS-111", "ACCESS-113")
async def test_a_request_that_comes_while_the_keys_are_fetched_waits_for_them() -> None:
    async with house() as (issuer, door):
        issuer.gate.clear()
        first = asyncio.create_task(door.knock(issuer.token()))
        await until(lambda: issuer.seen)
        later = asyncio.create_task(door.knock(issuer.token(sub="bob")))
        await settle()
        issuer.gate.set()
        assert [isinstance(each, Identity) for each in await asyncio.gather(first, later)] == [True, True]
        # The same for a new key that is being looked for.
        issuer.keys.append(OTHER_RSA)
        door.clock.now += 10
        issuer.gate.clear()
        first = asyncio.create_task(door.knock(issuer.token(OTHER_RSA)))
        await until(lambda: len(issuer.seen) == 3)
        later = asyncio.create_task(door.knock(issuer.token(OTHER_RSA, sub="bob")))
        await settle()
        issuer.gate.set()
        assert [isinstance(each, Identity) for each in await asyncio.gather(first, later)] == [True, True]
        assert issuer.seen == ["/.well-known/oauth-authorization-server", "/keys", "/keys"]


@requirement("ACCESS-111")
async def test_unknown_key_ids_fetch_nothing_more_until_ten_seconds_have_passed() -> None:
    async with house() as (issuer, door):
        assert isinstance(await door.knock(issuer.token()), Identity)
        before = len(issuer.seen)
        forged = [signed(issuer.claims(), OTHER_RSA, kid=f"made-up-{number}") for number in range(500)]
        assert set(await asyncio.gather(*map(door.knock, forged))) == {"token_refused"}
        assert len(issuer.seen) == before
        # The issuer has a new key: found after ten seconds, with one request for all who wait.
        issuer.keys.append(OTHER_RSA)
        door.clock.now += 10
        tokens = [issuer.token(OTHER_RSA, sub=f"s{number}") for number in range(50)]
        assert all(isinstance(each, Identity) for each in await asyncio.gather(*map(door.knock, tokens)))
        assert issuer.seen[before:] == ["/keys"]


@requirement("ACCESS-112")
async def test_old_keys_serve_for_a_day_while_the_issuer_is_away() -> None:
    async with house() as (issuer, door):
        assert isinstance(await door.knock(issuer.token()), Identity)
        issuer.away = True
        door.clock.now += 601
        assert isinstance(await door.knock(issuer.token(sub="a")), Identity)
        asked = len(issuer.seen)
        assert isinstance(await door.knock(issuer.token(sub="b")), Identity)
        assert len(issuer.seen) == asked, "not asked again at once"
        assert "503" in door.issuers.states()[0].trouble
        assert await door.knock(issuer.token(OTHER_RSA)) == "issuer_away", "it may be a new key"
        door.clock.now += 86_400
        assert await door.knock(issuer.token(sub="c")) == "issuer_away"
        issuer.away = False
        door.clock.now += 10
        assert isinstance(await door.knock(issuer.token(sub="d")), Identity)
        assert door.issuers.states()[0].trouble == ""


@requirement("ACCESS-112")
async def test_a_key_that_its_issuer_has_taken_back_ends_within_ten_minutes() -> None:
    async with house() as (issuer, door):
        assert isinstance(await door.knock(issuer.token()), Identity)
        issuer.keys = [EC]
        door.clock.now += 601
        assert await door.knock(issuer.token(sub="late")) == "token_refused"


@pytest.mark.parametrize("fault", ["away", "nothing", "html", "list", "long", "no keys", "other issuer", "file"])
@requirement("ACCESS-113")
async def test_an_issuer_that_was_never_reached_is_no_reason_to_log_in_anew(fault: str) -> None:
    async with house() as (issuer, door):
        match fault:
            case "away":
                issuer.away = True
            case "nothing":
                issuer.documents = set()
            case "html":
                issuer.body = b"<html>"
            case "list":
                issuer.body = b"[]"
            case "long":
                issuer.body = b"[" * 300_000
            case "no keys":
                issuer.body = b'{"keys": 5}'
            case "other issuer":
                issuer.metadata = {"issuer": issuer.url + "/"}
            case "file":
                issuer.metadata = {"jwks_uri": "file:///etc/passwd"}
        assert await door.knock(issuer.token()) == "issuer_away"
        assert await door.knock(issuer.token(OTHER_RSA)) == "issuer_away"
        issuer.away, issuer.body, issuer.metadata = False, None, {}
        issuer.documents = {"/.well-known/openid-configuration"}
        door.clock.now += 2
        assert isinstance(await door.knock(issuer.token()), Identity)


@pytest.mark.parametrize(
    "url", ["http://id.example/keys", "file:///etc/passwd", "//id.example", "https://", "https://[x", 7, "https://h:0/"]
)
@requirement("ACCESS-136")
def test_an_address_in_the_document_of_an_issuer_is_as_secure_as_the_issuer(url: object) -> None:
    with pytest.raises(IssuerAway):
        endpoint_of({"jwks_uri": url}, "jwks_uri", "https://id.example")
    assert endpoint_of({"jwks_uri": "https://k.example/x"}, "jwks_uri", "https://id.example") == "https://k.example/x"


@pytest.mark.parametrize("path", ["", "/t1"])
@requirement("ACCESS-113", "UP-140")
async def test_the_document_is_found_at_each_of_its_places(path: str) -> None:
    for place in ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"):
        async with house(Issuer(path)) as (issuer, door):
            issuer.documents = {place}
            assert isinstance(await door.knock(issuer.token()), Identity)
    assert metadata_urls("https://as/t1") == (
        "https://as/.well-known/oauth-authorization-server/t1",
        "https://as/.well-known/openid-configuration/t1",
        "https://as/t1/.well-known/openid-configuration",
    )
    assert metadata_urls("https://as/") == (
        "https://as/.well-known/oauth-authorization-server",
        "https://as/.well-known/openid-configuration",
    )


@requirement("ACCESS-118")
async def test_a_verified_token_is_looked_up_until_it_ends_and_a_minute_at_most() -> None:
    async with house() as (issuer, door):
        token, short = issuer.token(), issuer.token(exp=NOW + 5)
        assert door.authenticator.authenticate(token, "", "/mcp") is None
        await door.knock(token)
        await door.knock(short)
        assert isinstance(door.authenticator.authenticate(token, "", "/mcp"), Identity)
        door.clock.now += 5
        assert door.authenticator.authenticate(short, "", "/mcp") is None
        late = await door.knock(short)
        assert isinstance(late, Identity) and late.expires_at == NOW + 35
        door.clock.now += 55
        assert door.authenticator.authenticate(token, "", "/mcp") is None
        # A token of another face is known too, and refused all the same.
        await door.knock(token)
        assert isinstance(door.authenticator.authenticate(token, "", "/mcp/registry"), RefusedCredential)
        # No more than so many are kept.
        kept = door.issuers._verified._by_digest
        for number in range(MAX_KEPT + 10):
            door.issuers._verified.put(str(number), None, NOW * 2)  # type: ignore[arg-type]
        assert len(kept) == MAX_KEPT


@requirement("ACCESS-118")
async def test_what_a_configuration_no_longer_accepts_is_not_looked_up() -> None:
    async with house() as (issuer, door):
        token = issuer.token()
        found = await door.knock(token)
        assert isinstance(found, Identity) and door.authenticator.stands(found)
        door.issuers.replace([access.Issuer("corp", issuer.url)])
        assert door.issuers.lapsed() == [] and isinstance(await door.knock(token), Identity)
        door.issuers.replace([access.Issuer("corp", issuer.url, grants=(Grant(("tools:a:*",)),))])
        assert [lapse.key_id for lapse in door.issuers.lapsed()] == ["issuer:corp"]
        narrower = await door.knock(token)
        assert isinstance(narrower, Identity) and narrower.permissions == ("tools:a:*",)
        door.issuers.replace([])
        assert await door.knock(token) == "unknown"
        assert not door.authenticator.stands(found)


@requirement("ACCESS-118")
async def test_a_token_that_is_verified_during_a_reload_does_not_count_by_the_former_configuration() -> None:
    async with house() as (issuer, door):
        issuer.gate.clear()
        knocking = asyncio.create_task(door.knock(issuer.token()))
        await until(lambda: issuer.seen)
        door.issuers.replace([access.Issuer("corp", issuer.url, grants=(Grant(("tools:a:*",)),))])
        issuer.gate.set()
        assert await knocking == "token_refused"
        narrower = await door.knock(issuer.token())
        assert isinstance(narrower, Identity) and narrower.permissions == ("tools:a:*",)


@requirement("ACCESS-119")
async def test_an_opaque_token_is_asked_about_once() -> None:
    async with house(introspection=INTROSPECTION) as (issuer, door):
        good = {"sub": "bob", "aud": [f"{GATE}/mcp"], "exp": NOW + 300, "scope": "a b"}
        issuer.opaque["tok/+=1"] = good
        found = await asyncio.gather(*(door.knock("tok/+=1") for _ in range(100)))
        assert {each.actor for each in found if isinstance(each, Identity)} == {"corp:bob"} and len(found) == 100
        assert issuer.seen.count("/introspect") == 1
        assert issuer.requests[-1].headers["authorization"] == "Basic Z2F0ZTpwJTI1c3Mrd29yZA=="
        # Those that are not good are remembered for a moment.
        for _ in range(3):
            assert await door.knock("made-up") == "unknown"
        assert issuer.seen.count("/introspect") == 2
        # The same judgement as that of a JWT.
        bad_claims: list[dict[str, Any]] = [
            {"aud": "x"},
            {"exp": NOW - 60},
            {"exp": None},
            {"iss": "https://x"},
            {"sub": 5},
        ]
        for number, bad in enumerate(bad_claims):
            issuer.opaque[f"bad{number}"] = {name: v for name, v in {**good, **bad}.items() if v is not None}
            assert isinstance(await door.knock(f"bad{number}"), str), bad
        # Taken back: felt within a minute.
        del issuer.opaque["tok/+=1"]
        door.clock.now += 60
        assert await door.knock("tok/+=1") == "unknown"


@requirement("ACCESS-119")
async def test_an_issuer_that_cannot_be_asked_is_no_reason_to_log_in_anew() -> None:
    async with house(introspection=INTROSPECTION) as (issuer, door):
        issuer.opaque["t"] = {"sub": "bob", "aud": f"{GATE}/mcp", "exp": NOW + 3_000}
        issuer.away = True
        assert await door.knock("t") == "issuer_away"
        issuer.away = False
        assert isinstance(await door.knock("t"), Identity)
        issuer.away = True
        assert isinstance(await door.knock("t"), Identity), "what was verified serves"
        door.clock.now += 60
        assert await door.knock("t") == "issuer_away"
        assert "503" in door.issuers.states()[0].trouble
    async with house() as (issuer, door):
        assert await door.knock("opaque") == "unknown"
        assert issuer.seen == []


@requirement("ACCESS-120")
def test_two_subjects_never_have_one_actor_and_each_is_one() -> None:
    subjects = [
        "ann",
        "auth0|ann",
        "auth0/7cann",
        "a/b",
        "a b",
        "ä",
        "a:b",
        "x" * 124,
        "x" * 123,
        "x" * 300,
        "%",
        "/h",
        "\ud800",
    ]
    subjects += ["/" * 50, "ann\n", "Ann", "y" * 4_000]
    actors = [actor_of(name, subject) for name in ("corp", "corp2", "a" * 32) for subject in subjects]
    assert len(set(actors)) == len(actors)
    assert all(ACTOR_PATTERN.fullmatch(actor) for actor in actors)
    assert actor_of("corp", "auth0|ann") == "corp:auth0/7cann"


@requirement("ACCESS-121")
async def test_scopes_roles_groups_and_claims_give_permissions() -> None:
    grants = (
        Grant(("base:use",)),
        Grant(("tools:a:*",), "scope", "a.read"),
        Grant(("tools:*",), "scope", "a.all"),
        Grant(("ops:read", "tools:a:*"), "roles", "admin"),
        Grant(("tools:g:*",), "groups", "sre"),
        Grant(("tools:f:*",), "org.unit", "finance"),
    )
    async with house(grants=grants, roles="realm_access.roles", implied={"a.all": ("a.read",)}) as (issuer, door):

        async def permissions(**claims: Any) -> tuple[str, ...]:
            found = await door.knock(issuer.token(**claims))
            assert isinstance(found, Identity)
            return found.permissions

        assert await permissions() == ("base:use",)
        assert await permissions(scope="x a.read") == ("base:use", "tools:a:*")
        assert await permissions(scp=["a.read"]) == ("base:use", "tools:a:*")
        assert await permissions(scope="a.all") == ("base:use", "tools:a:*", "tools:*")
        assert await permissions(roles=["admin"]) == ("base:use",), "another claim"
        assert await permissions(realm_access={"roles": ["admin", 7]}) == ("base:use", "ops:read", "tools:a:*")
        assert await permissions(groups=["sre"], org={"unit": "finance"}) == ("base:use", "tools:g:*", "tools:f:*")
        assert await permissions(org={"unit": ["finance"]}) == ("base:use", "tools:f:*")
        assert await permissions(org="finance", scope=7, groups="sr") == ("base:use",)
        found = await door.knock(issuer.token(realm_access={"roles": ["b", "a", "b"]}))
        assert isinstance(found, Identity) and found.roles == ("a", "b")


@requirement("ACCESS-121")
async def test_a_token_without_a_needed_scope_is_told_all_of_them() -> None:
    async with house(scopes=("mcp", "tools"), implied={"all": ("mcp", "tools")}) as (issuer, door):
        assert await door.knock(issuer.token(scope="mcp")) == "insufficient_scope"
        assert isinstance(await door.knock(issuer.token(scope="tools mcp")), Identity)
        assert isinstance(await door.knock(issuer.token(scope="all")), Identity)


@requirement("ACCESS-118")
async def test_identities_travel_whole_and_two_tokens_of_a_caller_are_one_identity() -> None:
    async with house() as (issuer, door):
        one = await door.knock(issuer.token(jti="1", roles=["a"]))
        two = await door.knock(issuer.token(jti="2", exp=NOW + 900, iat=NOW - 1, roles=["a"]))
        assert isinstance(one, Identity) and isinstance(two, Identity)
        assert one == two and one.claims == two.claims
        back = Identity.of_row(json.loads(json.dumps(one.row())))
        assert back == one and back.claims == one.claims and back.expires_at == one.expires_at
        key = Identity("ada", ("tools:*",), "k")
        assert Identity.of_row(key.row()) == key and len(key.row()) == 3
        assert replace(one, issuer="other") != two


@requirement("ACCESS-192")
@pytest.mark.parametrize(
    ("claims", "is_good"),
    [
        ({"aud": "gate"}, True),
        ({"aud": ["gate"]}, True),
        ({"aud": ["gate", "other"], "azp": "gate"}, True),
        ({"aud": ["gate", "other"]}, False),
        ({"aud": ["gate", "other"], "azp": "other"}, False),
        ({"aud": "gate", "azp": "other"}, False),
    ],
)
def test_an_id_token_for_several_audiences_names_its_client(claims: dict[str, Any], is_good: bool) -> None:
    issuer = issuer_module.Issuer("corp", "https://id.example.com", login=BrowserClient("gate"))
    given = {"sub": "ann", "nonce": "n", "iat": 0, "exp": 60, **claims}
    if is_good:
        assert actor_of_id_token(issuer, given, "n", 1.0) == "corp:ann"
        return
    with pytest.raises(TokenRefused):
        actor_of_id_token(issuer, given, "n", 1.0)
