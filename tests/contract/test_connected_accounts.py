"""Callers connect their own accounts at a hosted server: pages, lists and grants, through real HTTP."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import ECKey

from tests.contract.test_audited_service import audited
from tests.support.hosted_server import HostedServer
from tests.support.ports import free_port
from tests.support.process import program
from tests.support.requirement import requirement
from tests.support.service import BOUND_S, KEY, OPERATOR_KEY, OTHER_KEY, RunningService, running_service
from tests.support.wire_client import WireClient
from wicketgate.access.identity import hash_key
from wicketgate.errors import RateLimited
from wicketgate.login import user_grants
from wicketgate.login.registrar import mark_of
from wicketgate.models.provider import Provider

TOOL = "accounts__whoami"
_PEOPLE: list[httpx.AsyncClient] = []


class Person:
    """A browser without scripts: it keeps cookies, follows links and sends forms. *mounts*: ways to some
    hosts."""

    def __init__(
        self, *, keep_alive: bool = True, mounts: Mapping[str, httpx.AsyncBaseTransport] | None = None
    ) -> None:
        limits = httpx.Limits(max_keepalive_connections=None if keep_alive else 0)
        self.http = httpx.AsyncClient(
            timeout=BOUND_S, trust_env=False, follow_redirects=True, limits=limits, mounts=mounts
        )
        _PEOPLE.append(self.http)
        self.page: httpx.Response

    async def open(self, url: str) -> httpx.Response:
        self.page = await self.http.get(url)
        return self.page

    async def send(self, form: int = 0, **values: str) -> httpx.Response:
        """Send a form of the page, with *values* besides its hidden ones."""
        action, hidden = forms(self.page.text)[form]
        self.page = await self.http.post(action, data={**hidden, **values}, headers={"origin": origin_of(action)})
        return self.page

    async def go_on(self) -> httpx.Response:
        """Follow the page's own refresh."""
        found = re.search(r'http-equiv="refresh" content="0;url=([^"]+)"', self.page.text)
        assert found is not None, self.page.text
        return await self.open(unescape(found[1]))

    async def sign_in(self, link: str, key: str = KEY) -> httpx.Response:
        await self.open(link)
        return await self.send(key=key)

    async def choose(self, account: str) -> httpx.Response:
        """Log in at the issuer, as *account*."""
        return await self.open(self.link_of(account))

    def link_of(self, account: str) -> str:
        found = re.search(rf'id="{account}" href="([^"]+)"', self.page.text)
        assert found is not None, self.page.text
        return str(self.page.url.join(unescape(found[1])))

    async def connect(self, link: str, account: str, key: str = KEY) -> httpx.Response:
        await self.sign_in(link, key)
        await self.send(a="connect")
        await self.go_on()
        return await self.choose(account)


async def close_browsers() -> None:
    """Those of all persons, in the loop in which they were opened."""
    while _PEOPLE:
        await _PEOPLE.pop().aclose()


async def plain_get(url: str, cookies: Mapping[str, str] | None = None) -> httpx.Response:
    async with httpx.AsyncClient(cookies=dict(cookies or {}), trust_env=False) as http:
        return await http.get(url)


def origin_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def forms(text: str) -> list[tuple[str, dict[str, str]]]:
    found = []
    for action, inside in re.findall(r'<form method="post" action="([^"]+)">(.*?)</form>', text, re.S):
        hidden = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', inside)
        found.append((unescape(action), {name: unescape(value) for name, value in hidden}))
    return found


@asynccontextmanager
async def hosted(
    more: Mapping[str, Any] | None = None, provider: Provider | None = None, **upstream: Any
) -> AsyncIterator[tuple[RunningService, HostedServer]]:
    server = HostedServer()
    async with server.running():
        own = {"name": "accounts", "url": server.url, "credentials": "user", **upstream}
        settings = {"upstreams": [own], **(more or {})}
        async with running_service(provider, None, settings=settings, public=True) as service:
            try:
                yield service, server
            finally:
                await close_browsers()


async def link_of(service: RunningService, key: str = KEY) -> str:
    """The link that a client without elicitation is given."""
    answer = await WireClient(service).call(TOOL, {}, headers={"Authorization": f"Bearer {key}"})
    place = answer["result"]["structuredContent"]["connect_required"]
    link: str = place["url"]
    assert link.startswith(f"{service.url}/connect/accounts?f=")
    return link


def callback_of(server: HostedServer) -> str:
    """The path to which browsers come back from the issuer of *server*."""
    [client] = server.issuer.clients.values()
    assert client.redirect_uris
    path = urlsplit(str(client.redirect_uris[0])).path
    assert path.startswith("/connect/callback/r")
    return path


async def who(service: RunningService, key: str = KEY) -> Any:
    answer = await WireClient(service).call(TOOL, {}, headers={"Authorization": f"Bearer {key}"})
    return answer["result"]["content"][0]["text"]


@requirement("ACCESS-180", "ACCESS-181", "ACCESS-183", "ACCESS-185")
async def test_two_callers_connect_two_accounts_and_see_two() -> None:
    async with hosted() as (service, server):
        for key, account in ((KEY, "ann"), (OTHER_KEY, "ben")):
            done = await Person().connect(await link_of(service, key), account, key)
            assert done.status_code == 200
            assert "is connected" in done.text
        assert (await who(service), await who(service, OTHER_KEY)) == ("ann", "ben")
        # One client at the issuer for all, and a token for nobody else.
        assert len(server.issuer.clients) == 1
        assert set(server.tokens.values()) == {"ann", "ben"}
        assert not any(KEY in seen or OTHER_KEY in seen for seen in server.seen)


@requirement("ACCESS-182")
async def test_the_page_says_what_is_asked_and_of_whom() -> None:
    async with hosted({}, oauth={"authorize_params": {"prompt": "consent"}}) as (service, server):
        person, link = Person(), await link_of(service)
        who_page = await person.open(link)
        assert "Who are you" in who_page.text
        assert "owner_1" not in who_page.text
        consent = await person.send(key=KEY)
        assert str(consent.url) == link
        for said in ("Connect your account at accounts?", urlsplit(server.url).netloc, "read", "owner_1"):
            assert said in consent.text
        for page in (who_page, consent):
            policy = page.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "form-action 'self'" in policy
            assert "script" not in policy
            assert "<script" not in page.text
            assert page.headers["x-frame-options"] == "DENY"
            assert page.headers["cache-control"] == "no-store"
            assert page.headers["referrer-policy"] == "same-origin"
            assert page.headers["x-content-type-options"] == "nosniff"
        # Nothing of the way to the issuer is there before the person has agreed.
        assert not any("state" in cookie.name for cookie in person.http.cookies.jar)
        onward = await person.send(a="connect")
        assert onward.headers["referrer-policy"] == "no-referrer"
        [state] = [cookie for cookie in person.http.cookies.jar if "state" in cookie.name]
        assert state.has_nonstandard_attr("HttpOnly")
        assert state.get_nonstandard_attr("SameSite") == "lax"
        login = await person.go_on()
        query = parse_qs(urlsplit(str(login.history[0].url)).query)
        assert (query["state"], query["prompt"], query["resource"]) == ([state.value], ["consent"], [server.url])
        assert query["redirect_uri"] == [f"{service.url}{callback_of(server)}"]
        await person.choose("ann")
        assert not any("state" in cookie.name for cookie in person.http.cookies.jar)


@requirement("ACCESS-184")
async def test_a_link_of_another_caller_is_refused_at_every_step() -> None:
    """Confused deputy and phished link: who opens, agrees or comes back must be who asked."""
    async with hosted() as (service, server):
        link = await link_of(service, OTHER_KEY)  # mallory's, sent to ann
        ann = Person()
        opened = await ann.sign_in(link, KEY)
        assert opened.status_code == 403
        assert "someone else" in opened.text
        assert "owner_2" not in opened.text
        # By a form as mallory's own page has it.
        mallory = Person()
        await mallory.sign_in(link, OTHER_KEY)
        action, hidden = forms(mallory.page.text)[0]
        refused = await ann.http.post(action, data={**hidden, "a": "connect"}, headers={"origin": service.url})
        assert refused.status_code == 403
        # With mallory's way back, before she has taken it.
        await mallory.send(a="connect")
        server.issuer.redirect = f"{service.url}/elsewhere"
        await mallory.go_on()
        way_back = str((await mallory.choose("ben")).url)
        back = way_back.replace("/elsewhere", callback_of(server))
        assert (await ann.open(back)).status_code == 403
        # Another browser of mallory's own, which did not go there.
        other = Person()
        await other.open(link)
        await other.send(key=OTHER_KEY, f="")
        assert (await other.open(back)).status_code in (403, 409)
        assert server.tokens == {}
        # Her own comes to its end, for herself alone.
        assert "is connected" in (await mallory.open(back)).text
        assert await who(service, OTHER_KEY) == "ben"
        assert (await link_of(service, KEY)).startswith(service.url)


@requirement("ACCESS-186")
@pytest.mark.parametrize("iss", ["https://evil.example", "{origin}"])
async def test_an_answer_of_another_issuer_ends_the_login(iss: str) -> None:
    """Mix-up: not even its error is shown."""
    async with hosted() as (service, server):
        server.issuer.adds = {"iss": iss.format(origin=server.origin), "error": "evil words"}
        failed = await Person().connect(await link_of(service), "ann")
        assert failed.status_code == 400
        assert "evil" not in failed.text
        assert server.tokens == {}
        need = (await WireClient(service).call(TOOL, {}))["result"]["structuredContent"]
        assert need["error"] == "CONNECT_REQUIRED"


@requirement("ACCESS-187")
async def test_a_login_that_is_declined_there_or_here_ends_so() -> None:
    async with hosted() as (service, server):
        there = await Person().connect(await link_of(service), "nobody")
        assert there.status_code == 200
        assert "declined" in there.text
        person = Person()
        await person.sign_in(await link_of(service))
        here = await person.send(a="no")
        assert here.status_code == 200
        assert "Not connected" in here.text
        assert (await person.open(str(here.url))).status_code in (404, 405, 410)
        assert server.tokens == {}


@requirement("ACCESS-183")
async def test_a_form_from_elsewhere_is_refused() -> None:
    """Login CSRF and forged consent."""
    async with hosted() as (service, server):
        person, link = Person(), await link_of(service)
        await person.open(link)
        action, hidden = forms(person.page.text)[-1]
        guessed = await person.http.post(action, data={**hidden, "t": "guessed", "key": OTHER_KEY})
        assert guessed.status_code == 403
        assert not any("browser" in cookie.name for cookie in person.http.cookies.jar)
        # A key in the address is none.
        assert "Who are you" in (await person.open(f"{link}&key={KEY}")).text
        await person.send(key=KEY)
        for wrong in ({"t": "guessed"}, {"t": ""}):
            action, hidden = forms(person.page.text)[0]
            refused = await person.http.post(action, data={**hidden, "a": "connect", **wrong})
            assert refused.status_code == 403
        assert server.issuer.clients == {}


@requirement("ACCESS-183")
async def test_a_planted_session_ends_when_somebody_signs_in() -> None:
    async with hosted() as (service, _):
        link = await link_of(service)
        person = Person()
        await person.sign_in(link)
        [planted] = [cookie for cookie in person.http.cookies.jar if "browser" in cookie.name]
        value = planted.value
        await person.open(await link_of(service, OTHER_KEY))
        await person.send()  # sign in as somebody else
        await person.open(link)
        await person.send(key=KEY)
        [now] = [cookie for cookie in person.http.cookies.jar if "browser" in cookie.name]
        assert now.value != value
        old = await plain_get(link, {planted.name: value or ""})
        assert "Who are you" in old.text


@requirement("ACCESS-189")
async def test_addresses_come_from_the_configuration_alone() -> None:
    """Open redirects: whatever a request says, nobody is led elsewhere."""
    async with hosted() as (service, _):
        person, link = Person(), await link_of(service)
        host = {"host": "127.0.0.1:1", "x-forwarded-host": "evil.example", "x-forwarded-proto": "https"}
        page = await person.http.get(link, headers=host)
        assert "evil" not in page.text
        assert all(action.startswith(service.url) for action, _ in forms(page.text))
        await person.open(link)
        action, hidden = forms(person.page.text)[-1]
        odd = [("u", "//evil.example"), ("u", "accounts/../../evil"), ("f", "x&next=https://evil.example#")]
        for name, value in odd:
            answer = await person.http.post(action, data={**hidden, name: value, "key": KEY}, follow_redirects=False)
            where = answer.headers.get("location", service.url)
            assert where.startswith(service.url)
            assert "&next" not in where
            await person.open(link)
            if not forms(person.page.text)[-1][0].endswith("/login/key"):
                person = Person()
                await person.open(link)
            action, hidden = forms(person.page.text)[-1]


@requirement("ACCESS-182", "ACCESS-227")
async def test_what_a_server_says_of_itself_is_text() -> None:
    async with hosted() as (service, server):
        odd = ["<script>alert(1)</script>", "r\u0435ad", "x" * 190, "\u202eevil"]
        # A server that asks for much may sort what matters behind what does not.
        many = [*(f"a{n:02}.read" for n in range(40)), "z.delete_everything"]
        server.metadata = {"scopes_supported": [*odd, *many]}
        consent = await Person().sign_in(await link_of(service))
        assert consent.status_code == 200
        assert "<script" not in consent.text
        assert "&lt;script&gt;" in consent.text
        assert "\u0435" not in consent.text
        assert not [scope for scope in ("x" * 190, *many) if scope not in consent.text]


@requirement("ACCESS-190")
async def test_few_logins_of_a_caller_are_under_way_at_once() -> None:
    async with hosted() as (service, _):
        links = {await link_of(service) for _ in range(8)}
        assert len(links) == 1
        assert (await service.http.post("/connections/accounts")).json()["url"] in links
        logins = service.app.state.gate.logins.accounts
        for number in range(4):
            await logins.offer("accounts", "owner_1", frozenset({f"s{number}"}))
        with pytest.raises(RateLimited):
            await logins.offer("accounts", "owner_1", frozenset({"one more"}))
        # Those of others are not counted with them.
        assert await link_of(service, OTHER_KEY)


@requirement("ACCESS-191", "ACCESS-201")
async def test_a_revoked_grant_is_felt_at_once_and_told_to_its_issuer() -> None:
    async with hosted() as (service, server):
        await Person().connect(await link_of(service), "ann")
        assert await who(service) == "ann"
        [before] = (await service.http.get("/connections")).json()["connections"]
        assert {name: before[name] for name in ("upstream", "actor", "state", "scopes", "renewed")} == {
            "upstream": "accounts", "actor": "owner_1", "state": "active", "scopes": ["read"], "renewed": True
        }  # fmt: skip
        assert "token" not in str(before).replace("token_ends", "")
        ended = await service.http.delete("/connections/accounts")
        assert ended.json() == {"ended": 1}
        assert len(server.issuer.revoked) == 1
        assert (await service.http.get("/connections")).json() == {"connections": [], "open": ["accounts"]}
        need = (await WireClient(service).call(TOOL, {}))["result"]["structuredContent"]
        assert need["error"] == "CONNECT_REQUIRED"
        assert (await service.http.delete("/connections/accounts")).json() == {"ended": 0}


@requirement("ACCESS-191")
async def test_an_expired_token_is_renewed_and_one_that_was_ended_there_asks_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(user_grants, "_SOON_S", 0.0)  # tokens that were just given are not renewed otherwise
    async with hosted() as (service, server):
        await Person().connect(await link_of(service), "ann")
        assert await who(service) == "ann"
        server.issuer.expire("ann")
        assert await who(service) == "ann"
        assert server.issuer.refreshes == 1
        server.issuer.end("ann")
        need = (await WireClient(service).call(TOOL, {}))["result"]["structuredContent"]
        assert need["error"] == "CONNECT_REQUIRED"
        [left] = (await service.http.get("/connections")).json()["connections"]
        assert left["state"] == "reconnect"
        await Person().connect(await link_of(service), "ben")
        assert await who(service) == "ben"


@requirement("ACCESS-194", "ACCESS-195")
async def test_operators_see_and_end_what_others_have_connected() -> None:
    async with hosted() as (service, _):
        await Person().connect(await link_of(service), "ann")
        reader = {"Authorization": f"Bearer {OPERATOR_KEY}"}
        for query in ("actor=owner_1", "actor=*"):
            [one] = (await service.http.get(f"/connections?{query}", headers=reader)).json()["connections"]
            assert one["actor"] == "owner_1"
        other = {"Authorization": f"Bearer {OTHER_KEY}"}
        assert (await service.http.get("/connections?actor=owner_1", headers=other)).status_code == 403
        for headers in (reader, other):
            refused = await service.http.delete("/connections/accounts?actor=owner_1", headers=headers)
            assert refused.status_code == 403
        assert (await service.http.get("/connections", headers=other)).json()["connections"] == []
        assert (await service.http.get("/connections", headers={"Authorization": ""})).status_code == 401
        assert await who(service) == "ann"


@requirement("ACCESS-180", "ACCESS-250", "ACCESS-253")
async def test_the_gate_has_a_document_as_a_client_for_each_issuer() -> None:
    async with hosted() as (service, _):
        for way, method in (("d", "none"), ("k", "private_key_jwt")):
            mark = mark_of("https://id.example.com", "key" if way == "k" else "document")
            url = f"{service.url}/oauth/client/{mark}.json"
            document = (await plain_get(url)).json()
            assert (document["client_id"], document["token_endpoint_auth_method"]) == (url, method)
            assert document["redirect_uris"] == [f"{service.url}/connect/callback/{mark}"]
        [public] = document["jwks"]["keys"]
        signed = service.app.state.gate.logins.accounts.sign_as(url)("https://id.example.com")
        token = jwt.decode(signed, ECKey.import_key(public), algorithms=["ES256"])
        assert (token.claims["iss"], token.claims["aud"]) == (url, "https://id.example.com")
        assert token.header["kid"] == public["kid"] and "d" not in public
        for mark in ("", "d", f"r{'0' * 24}", f"D{'0' * 24}", f"d{'0' * 23}G", f"d{'0' * 24}\n", "d" + "0" * 5_000):
            assert (await plain_get(f"{service.url}/oauth/client/{quote(mark)}.json")).status_code == 404


@requirement("ACCESS-193")
async def test_nothing_of_it_is_there_without_accounts_of_users() -> None:
    async with running_service(None) as service:
        for path in ("/connect/accounts?f=x", f"/oauth/client/d{'0' * 24}.json", "/login/callback"):
            assert (await plain_get(f"{service.url}{path}")).status_code == 401
        assert (await service.http.get("/connections")).json() == {"connections": [], "open": []}


@requirement("ACCESS-196", "ACCESS-184")
async def test_the_audit_log_says_who_connected_and_ended_what(tmp_path: Path) -> None:
    async with hosted(audited(tmp_path)) as (service, _):
        link = await link_of(service)
        await Person().sign_in(link, OTHER_KEY)
        await Person().connect(link, "ann")
        await service.http.delete("/connections/accounts")
        await Person().connect(await link_of(service), "nobody")
    read = map(json.loads, (tmp_path / "audit.jsonl").read_text().splitlines())
    found = [(each["outcome"], each["actor"], each["detail"]) for each in read if each["operation"] == "connection"]
    assert [(outcome, actor, detail.partition(" at ")[0]) for outcome, actor, detail in found] == [
        ("denied", "owner_2", "refused: the link of another caller"),
        ("allowed", "owner_1", "granted: owner_1"),
        ("allowed", "owner_1", "revoked: owner_1"),
        ("denied", "owner_1", "declined:"),
    ]
    assert "access-" not in (tmp_path / "audit.jsonl").read_text()


@requirement("ACCESS-185")
async def test_what_was_agreed_to_is_what_the_page_has_shown() -> None:
    async with hosted() as (service, server):
        person = Person()
        await person.sign_in(await link_of(service))
        logins = service.app.state.gate.logins.accounts
        logins.server("accounts")._place._asking = None
        server.metadata = {"scopes_supported": ["admin", "read"]}
        server.issuer.clients.clear()
        assert (await person.send(a="connect")).status_code == 403
        assert "admin" in (await person.open(str(await link_of(service)))).text
        await person.send(a="connect")
        await person.go_on()
        assert "is connected" in (await person.choose("ann")).text


@requirement("ACCESS-180", "ACCESS-164")
async def test_each_step_may_come_to_another_worker(tmp_path: Path) -> None:
    server = HostedServer()
    async with server.running():
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        key = {"id": "one", "sha256": hash_key(KEY), "actor": "owner_1"}
        settings = {
            "server": {"public_url": url, "port": port},
            "storage": {"url": f"sqlite:///{tmp_path}/store.db"},
            "auth": {"seal_keys": ["0123456789abcdef" * 2], "keys": [key]},
            "model": {"provider": "scripted"},
            "upstreams": [{"name": "accounts", "url": server.url, "credentials": "user"}],
        }
        file = tmp_path / "wicketgate.yaml"
        file.write_text(json.dumps(settings))
        async with (
            program("app", "serve", "--workers", "2", "--config", str(file)) as running,
            httpx.AsyncClient(
                base_url=url,
                headers={"Authorization": f"Bearer {KEY}"},
                limits=httpx.Limits(max_keepalive_connections=0),
                timeout=BOUND_S,
                trust_env=False,
            ) as http,
        ):
            await running.wait_for("ready on")
            for account in ("ann", "ben"):
                offered = (await http.post("/connections/accounts")).json()
                waiting = asyncio.create_task(
                    http.get("/connections/accounts/login", params={"f": offered["flow"], "wait_s": 20})
                )
                person = Person(keep_alive=False)
                done = await person.connect(offered["url"], account)
                assert "is connected" in done.text
                assert (await waiting).json() == {"outcome": "granted"}
                for _ in range(4):
                    said = (await http.post("/operations/call", json={"operation": "/accounts/whoami"})).text
                    while account not in said:  # a former account for a second, or anew
                        assert "CONNECT_REQUIRED" not in said
                        said = (await http.post("/operations/call", json={"operation": "/accounts/whoami"})).text
            while _PEOPLE:
                await _PEOPLE.pop().aclose()
