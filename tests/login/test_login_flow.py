"""A login from the refusal of a server to its renewals, against an issuer that checks what it is sent."""

import asyncio
import json
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey

from tests.login.test_attacks import BACK, UNAUTHORIZED, browse, client_of
from tests.support.clock import Clock
from tests.support.http_service import Reply
from tests.support.locked_server import Issuer, query_of
from tests.support.requirement import requirement
from wicketgate.errors import LoginNeeded, UpstreamUnavailable
from wicketgate.login.assertion import assertion_signer, derived_key, public_key
from wicketgate.login.client import Login, LoginClient, LoginPlan
from wicketgate.login.discovery import resource_urls
from wicketgate.login.issued import IssuedCredentials
from wicketgate.login.kept_login import LoginFile, LoginSource
from wicketgate.login.oauth_http import Carrier
from wicketgate.login.registrar import GivenClient, client_document
from wicketgate.login.steps import Declined, GrantInvalid, Refused
from wicketgate.net import Outgoing, Refusal

HOW = "wicketgate login locked"


@requirement("UP-140")
def test_metadata_is_looked_for_in_the_order_of_the_specification() -> None:
    assert resource_urls("https://m.example/a/mcp", "https://x.example/odd") == [
        "https://x.example/odd",
        "https://m.example/.well-known/oauth-protected-resource/a/mcp",
        "https://m.example/.well-known/oauth-protected-resource",
    ]
    assert resource_urls("https://m.example") == ["https://m.example/.well-known/oauth-protected-resource"]


@requirement("UP-141")
@requirement("UP-143")
async def test_a_login_registers_a_client_and_redeems_its_code_with_pkce_and_resource() -> None:
    async with Issuer() as on:
        login = await client_of(on).log_in(BACK, browse, Refusal(401, {"scope": "read"}))
        assert login.tokens.access_token in on.good_access
        assert (login.tokens.issuer, login.tokens.resource, login.tokens.scopes) == (
            on.issuer,
            on.server_url,
            frozenset({"read"}),
        )
        assert login.tokens.expires_at == 4_600
        registered, asked, form = on.registered[0], on.authorized[0], on.forms[0]
        assert (registered["redirect_uris"], registered["application_type"]) == ([asked["redirect_uri"]], "native")
        assert asked["redirect_uri"].startswith(f"{BACK}/r")
        assert (asked["code_challenge_method"], asked["resource"]) == ("S256", on.server_url)
        assert (form["resource"], len(form["code_verifier"])) == (on.server_url, 43)
        assert "access-" not in repr(login)
        assert "refresh-" not in repr(login)


@requirement("UP-144")
@pytest.mark.parametrize(
    ("challenged", "supported", "configured", "granted", "asked"),
    [
        ("b a", ["c"], (), (), "b a"),
        (None, ["c", "d"], (), (), "c d"),
        (None, None, (), (), None),
        ("b", ["c"], ("x",), (), "x b"),
        ("b", ["c"], (), ("a",), "a b"),
        ("", ["c"], (), (), None),
    ],
)
async def test_scopes_are_those_of_the_challenge_or_the_server_and_granted_ones_stay(
    challenged: str | None, supported: Any, configured: Any, granted: Any, asked: str | None
) -> None:
    async with Issuer() as on:
        on.resource["scopes_supported"] = supported
        refusal = Refusal(401, {} if challenged is None else {"scope": challenged})
        pending = await client_of(on, scopes=configured).begin(BACK, refusal, granted=granted)
        assert query_of(pending.url).get("scope") == asked


@requirement("UP-144")
async def test_a_refresh_token_is_asked_for_where_the_issuer_has_a_scope_for_it() -> None:
    async with Issuer() as on:
        on.metadata["scopes_supported"] = ["a", "offline_access"]
        assert (await client_of(on).begin(BACK, Refusal(401, {"scope": "a"}))).scopes == ("a", "offline_access")


@requirement("UP-141")
@pytest.mark.parametrize(
    ("resource", "sent"), [("auto", "{url}/mcp"), ("omit", None), ("https://api.x/", "https://api.x/")]
)
async def test_the_operator_may_leave_the_resource_out_and_add_parameters(resource: str, sent: str | None) -> None:
    async with Issuer() as on:
        more = {"access_type": "offline", "state": "mine", "code_challenge_method": "plain"}
        pending = await client_of(on, resource=resource, authorize_params=more).begin(BACK, UNAUTHORIZED)
        query = query_of(pending.url)
        assert query.get("resource") == (sent and sent.format(url=on.url))
        assert (query["access_type"], query["code_challenge_method"], query["state"]) == (
            "offline",
            "S256",
            pending.state,
        )


@requirement("UP-143")
@pytest.mark.parametrize(
    ("methods", "given", "method"),
    [
        (None, GivenClient("", "id", "s"), "client_secret_basic"),
        (["client_secret_post"], GivenClient("", "id", "s"), "client_secret_post"),
        (None, GivenClient("", "id"), "none"),
        (None, GivenClient("", "id", has_key=True), "private_key_jwt"),
        (["client_secret_basic"], GivenClient("", "id", "s", auth_method="client_secret_post"), "client_secret_post"),
    ],
)
async def test_a_client_of_the_operator_shows_who_it_is_as_the_issuer_wants(
    methods: Any, given: GivenClient, method: str
) -> None:
    async with Issuer() as on:
        on.metadata["token_endpoint_auth_methods_supported"] = methods
        mine = GivenClient(on.issuer, given.client_id, given.client_secret, given.has_key, given.auth_method)
        pending = await client_of(on, given=mine).begin(BACK, UNAUTHORIZED)
        assert (pending.registration.auth_method, pending.registration.client_id) == (method, "id")
        assert not on.registered


@requirement("UP-143", "ACCESS-250", "ACCESS-253")
@pytest.mark.parametrize(
    ("takes", "names_itself", "methods", "algorithms", "is_named", "mark", "method"),
    [
        (None, True, ["none", "private_key_jwt"], None, False, "r", "none"),
        (True, True, ["none"], None, False, "d", "none"),
        (True, False, ["none", "private_key_jwt"], None, True, "k", "private_key_jwt"),
        (True, True, ["none", "private_key_jwt"], ["RS256"], False, "d", "none"),
        (True, False, ["none"], None, True, "d", "none"),
    ],
)
async def test_a_document_of_the_gate_is_its_id_where_no_other_issuer_can_be_shown_it(
    takes: Any, names_itself: Any, methods: Any, algorithms: Any, is_named: bool, mark: str, method: str
) -> None:
    key, url = derived_key(b"secret"), "https://gw.example.com/oauth/client/{mark}.json"

    def sign_as(client_id: str) -> Callable[[str], str]:
        return assertion_signer(key, client_id, "k1", lambda: 1_000.0, lambda: "id")

    async with Issuer() as on:
        on.metadata["client_id_metadata_document_supported"] = takes
        on.metadata["authorization_response_iss_parameter_supported"] = names_itself
        on.metadata["token_endpoint_auth_methods_supported"] = methods
        on.metadata["token_endpoint_auth_signing_alg_values_supported"] = algorithms
        plan = LoginPlan(on.server_url, on.issuer if is_named else "", document_url=url)
        client = LoginClient(plan, Carrier(Outgoing(), [on.server_url]), lambda: 1_000.0, sign_as=sign_as)
        own = (await client.log_in(BACK, browse, UNAUTHORIZED)).registration
        where = f"{mark}{sha256(on.issuer.encode()).hexdigest()[:24]}"
        assert (own.redirect_uri, own.auth_method) == (f"{BACK}/{where}", method)
        if mark == "r":
            assert own.client_id == "client-1"
        else:
            assert own.client_id == url.replace("{mark}", where)
            document = client_document(url, BACK, where, [public_key(key)])
            assert document is not None
            assert (document["client_id"], document["redirect_uris"]) == (own.client_id, [own.redirect_uri])
            assert document["token_endpoint_auth_method"] == method
        if method == "private_key_jwt":
            # Worth nothing at another issuer.
            sent = jwt.decode(on.forms[0]["client_assertion"], ECKey.import_key({**public_key(key)}))
            assert sent.claims["aud"] == on.issuer


@requirement("UP-143")
async def test_a_client_that_its_issuer_forgot_is_registered_once_more() -> None:
    async with Issuer() as on:
        client = client_of(on)
        known = (await client.log_in(BACK, browse, UNAUTHORIZED)).registration
        on.token_answer = Reply(b'{"error": "invalid_client"}', 401)

        async def browsed(url: str) -> Mapping[str, str]:
            came = await browse(url)
            if len(on.registered) > 1:
                on.token_answer = None
            return came

        login = await client.log_in(BACK, browsed, UNAUTHORIZED, known=known)
        assert (login.registration.client_id, len(on.registered)) == ("client-2", 2)


@requirement("UP-145")
@pytest.mark.parametrize(("error", "failure"), [("access_denied", Declined), ("invalid_scope", Refused)])
async def test_what_the_issuer_refuses_is_told_apart(error: str, failure: type[Exception]) -> None:
    async with Issuer() as on:
        on.comes_back = {"error": error, "error_description": "<b>words</b>"}
        with pytest.raises(failure) as refused:
            await client_of(on).log_in(BACK, browse, UNAUTHORIZED)
        assert error in str(refused.value)
        assert "words" not in str(refused.value)


class Kept:
    """A login in a folder, with the credentials that a gate has of it."""

    def __init__(self, on: Issuer, folder: Path, clock: Clock) -> None:
        self.file = LoginFile(folder, "locked", on.server_url)
        self.client = LoginClient(LoginPlan(on.server_url), Carrier(Outgoing(), [on.server_url]), clock)
        self.clock = clock

    async def log_in(self) -> Login:
        login = await self.client.log_in(BACK, browse, UNAUTHORIZED)
        await self.file.write(login)
        return login

    def credentials(self) -> IssuedCredentials:
        return IssuedCredentials("locked", LoginSource(self.file, self.client, self.clock, HOW), self.clock)


@requirement("UP-146")
async def test_a_server_without_a_login_is_unavailable_until_somebody_makes_it(tmp_path: Path) -> None:
    async with Issuer() as on:
        kept = Kept(on, tmp_path, Clock())
        credentials = kept.credentials()
        with pytest.raises(LoginNeeded) as needed:
            await credentials.authorization()
        assert (needed.value.code, needed.value.mend) == ("UPSTREAM_UNAVAILABLE", HOW)
        assert on.url not in needed.value.message
        login = await kept.log_in()
        kept.clock.now += 5
        assert await credentials.authorization() == f"Bearer {login.tokens.access_token}"


@requirement("UP-147")
async def test_a_login_is_renewed_before_its_end_by_one_process_of_many(tmp_path: Path) -> None:
    async with Issuer() as on:
        kept = Kept(on, tmp_path, Clock())
        await kept.log_in()
        processes = [kept.credentials() for _ in range(5)]
        kept.clock.now += 3_595
        assert {await each.authorization() for each in processes} == {"Bearer access-2"}
        kept.clock.now += 4_000
        given = await asyncio.gather(*(each.authorization() for each in processes for _ in range(4)))
        assert set(given) == {"Bearer access-3"}
        assert [form["grant_type"] for form in on.forms] == ["authorization_code", "refresh_token", "refresh_token"]
        assert {form["resource"] for form in on.forms} == {on.server_url}


@requirement("UP-147")
async def test_an_issuer_that_is_away_ends_no_login(tmp_path: Path) -> None:
    async with Issuer() as on:
        kept = Kept(on, tmp_path, Clock())
        await kept.log_in()
        credentials = kept.credentials()
        await credentials.authorization()
        on.token_answer = Reply(b"out of order", 503)
        kept.clock.now += 3_595
        assert await credentials.authorization() == "Bearer access-1"
        kept.clock.now += 10
        with pytest.raises(UpstreamUnavailable) as away:
            await credentials.authorization()
        assert not isinstance(away.value, LoginNeeded)
        on.token_answer = None
        kept.clock.now += 400
        assert (await credentials.authorization()).startswith("Bearer access-")


@requirement("UP-147")
async def test_a_login_that_its_issuer_ended_is_forgotten_and_another_one_needed(tmp_path: Path) -> None:
    async with Issuer() as on:
        kept = Kept(on, tmp_path, Clock())
        await kept.log_in()
        on.good_refresh.clear()
        kept.clock.now += 4_000
        with pytest.raises(LoginNeeded):
            await kept.credentials().authorization()
        assert await kept.file.read() is None


@requirement("UP-148")
async def test_a_login_is_shown_to_no_issuer_that_the_server_names_later(tmp_path: Path) -> None:
    async with Issuer() as on, Issuer() as other:
        kept = Kept(on, tmp_path, Clock())
        await kept.log_in()
        credentials = kept.credentials()
        await credentials.authorization()
        on.resource["authorization_servers"] = [other.issuer]
        with pytest.raises(LoginNeeded):
            await credentials.renew(UNAUTHORIZED)
        assert not other.forms
        assert not any(b"refresh-1" in seen.body for seen in other.service.seen)


@requirement("UP-149")
async def test_a_login_lies_sealed_in_a_file_of_its_owner_and_opens_for_its_server_only(tmp_path: Path) -> None:
    async with Issuer() as on:
        folder = tmp_path / "logins"
        kept = Kept(on, folder, Clock())
        login = await kept.log_in()
        assert await kept.file.read() == login
        files = list(folder.iterdir())
        assert {file.stat().st_mode & 0o077 for file in (*files, folder)} == {0}
        assert not any(b"access-1" in file.read_bytes() or b"refresh-1" in file.read_bytes() for file in files)
        # The same name with another URL is another server.
        elsewhere = LoginFile(folder, "locked", "https://evil.example/mcp")
        assert await elsewhere.read() is None
        sealed = next(file for file in files if file.suffix == ".login")
        sealed.rename(next(iter([elsewhere._path])))
        assert await elsewhere.read() is None


@requirement("UP-149")
@pytest.mark.parametrize("damage", ["login", "key"])
async def test_a_login_that_cannot_be_opened_is_as_none(damage: str, tmp_path: Path) -> None:
    async with Issuer() as on:
        kept = Kept(on, tmp_path, Clock())
        await kept.log_in()
        file = next(file for file in tmp_path.iterdir() if file.suffix == ".login" or file.name == damage == "key")
        if damage == "key":
            (tmp_path / "key").write_bytes(bytes(32))
        else:
            file.write_bytes(file.read_bytes()[:-1] + b"x")
        assert await kept.file.read() is None


async def test_invalid_grant_is_told_apart() -> None:
    async with Issuer() as on:
        client: LoginClient = client_of(on)
        login = await client.log_in(BACK, browse, UNAUTHORIZED)
        on.good_refresh.clear()
        with pytest.raises(GrantInvalid):
            await client.refresh(login)
        assert await client.revoke(login)
        assert on.revoked == ["refresh-1"]
        assert json.dumps(on.forms[-1]["refresh_token"]) == '"refresh-1"'
