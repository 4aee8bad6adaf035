"""A call that needs an account, and a real browser in which its person connects one: through every door."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp import types as t
from playwright.async_api import Browser, Page

from tests.console.browser import chromium, violations
from tests.contract.test_connected_accounts import TOOL, Person, hosted, link_of, who
from tests.support.hosted_server import SdkIssuer
from tests.support.issuer import OTHER_RSA
from tests.support.mcp_client import ERAS, mcp_client
from tests.support.person_issuer import CLIENT, SECRET, PersonIssuer
from tests.support.process import program
from tests.support.requirement import requirement
from tests.support.script import ScriptModel, calls, says
from tests.support.service import BOUND_S, KEY, OTHER_KEY, chat_body
from tests.support.wire_client import WireClient
from wicketgate.access.identity import hash_key
from wicketgate.models.provider import ToolCall


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as opened:
        yield opened


@asynccontextmanager
async def page_of(browser: Browser, **options: Any) -> AsyncIterator[Page]:
    """A page in a browser of one person; what its policy forbids, or fails, fails the test."""
    context = await browser.new_context(viewport={"width": 360, "height": 740}, **options)
    context.set_default_timeout(BOUND_S * 1_000)
    faults: list[str] = []
    try:
        page = await context.new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
        yield page
    finally:
        await context.close()
    assert faults == []


async def connect(page: Page, link: str, account: str, key: str = KEY) -> None:
    await page.goto(link)
    if await page.locator("input[name=key]").count():
        await page.fill("input[name=key]", key)
        await page.get_by_role("button", name="Go on").click()
    await page.get_by_role("button", name="Connect").click()
    await page.locator(f"#{account}").click()
    await page.get_by_role("heading", name="Connected").wait_for()


@requirement("ACCESS-180", "ACCESS-185", "FACE-130", "FACE-131")
@ERAS
async def test_a_call_goes_on_when_its_person_has_connected_an_account(browser: Browser, mode: str) -> None:
    async with hosted() as (service, server), page_of(browser) as one, page_of(browser) as two:
        asked: list[str] = []

        async def calling(key: str, account: str, page: Page) -> str:
            browsing: list[asyncio.Task[None]] = []

            async def answer(context: Any, params: t.ElicitRequestURLParams) -> t.ElicitResult:
                asked.append(params.url)
                if not browsing:
                    browsing.append(asyncio.create_task(connect(page, params.url, account, key)))
                return t.ElicitResult(action="accept")

            async with mcp_client(
                service, mode, key, "/mcp/gateway", client={"elicitation_callback": answer}
            ) as client:
                result = await client.call_tool("tool_execute", {"tool_id": "accounts:whoami"})
            await asyncio.gather(*browsing)
            return str(result.content)

        assert "ann" in await calling(KEY, "ann", one)
        assert "ben" in await calling(OTHER_KEY, "ben", two)
        assert "ann" in str(await who(service))
        assert len(set(asked)) == 2
        assert {of for _, of in server.tokens.items()} == {"ann", "ben"}


@requirement("ACCESS-210", "ACCESS-209")
@ERAS
async def test_a_call_that_needs_more_scopes_asks_once_for_all_of_them(
    browser: Browser, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SdkIssuer, "scopes", ["read", "admin"])
    async with hosted() as (service, _), page_of(browser) as page:
        asked: list[str] = []
        shown: list[str] = []
        browsing: dict[str, asyncio.Task[None]] = {}

        async def agree(url: str) -> None:
            await page.goto(url)
            if await page.locator("input[name=key]").count():
                await page.fill("input[name=key]", KEY)
                await page.get_by_role("button", name="Go on").click()
            await page.get_by_role("button", name="Connect").wait_for()
            shown.append(await page.locator("dl").inner_text())
            await page.get_by_role("button", name="Connect").click()
            await page.locator("#ann").click()
            await page.get_by_role("heading", name="Connected").wait_for()

        async def answer(context: Any, params: t.ElicitRequestURLParams) -> t.ElicitResult:
            if params.url not in browsing:
                asked.append(params.url)
                browsing[params.url] = asyncio.create_task(agree(params.url))
            return t.ElicitResult(action="accept")

        async with mcp_client(service, mode, KEY, "/mcp/gateway", client={"elicitation_callback": answer}) as client:
            first = await client.call_tool("tool_execute", {"tool_id": "accounts:whoami"})
            assert "ann" in str(first.content)
            more = await client.call_tool("tool_execute", {"tool_id": "accounts:admin"})
            assert "ann" in str(more.content), more
            assert "ann" in str((await client.call_tool("tool_execute", {"tool_id": "accounts:admin"})).content)
        await asyncio.gather(*browsing.values())
        assert len(asked) == 2
        assert ("admin" in shown[0], "admin" in shown[1], "read" in shown[1]) == (False, True, True)
        [kept] = (await service.http.get("/connections")).json()["connections"]
        assert kept["scopes"] == ["admin", "read"]


@requirement("ACCESS-180", "FACE-134")
async def test_the_chat_offers_the_page_and_goes_on_with_the_next_message(browser: Browser) -> None:
    asked = '{"tool_id":"accounts:whoami"}'
    called = [ToolCall(f"call_{n}", "tool_execute", {"tool_id": "accounts:whoami"}, asked) for n in (1, 2)]
    model = ScriptModel(calls(called[0]), calls(called[1]), says("it is you"))
    async with hosted(provider=model) as (service, _), page_of(browser) as page:
        events = await service.chat()
        assert events[-1][1]["finish_reason"] == "connect_required"
        await connect(page, json.loads(events[1][1]["error"])["connect_required"]["url"], "ann")
        events = await service.chat(chat_body("again"))
        assert "ann" in events[1][1]["output"]
        assert events[-1][1]["finish_reason"] == "stop"


@requirement("ACCESS-182")
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_pages_can_be_read_by_everybody_on_a_small_screen(browser: Browser, scheme: Any) -> None:
    async with hosted() as (service, server):
        server.metadata = {"scopes_supported": ["read", "x" * 190, *(f"scope-{n}" for n in range(60))]}
        # Axe is put into the page by the test, which the pages' policy would not let anybody else do.
        async with page_of(browser, color_scheme=scheme, bypass_csp=True) as page:
            await page.goto(await link_of(service))
            for heading in ("Who are you?", "Connect your account at accounts?", "Not connected"):
                await page.get_by_role("heading", name=heading).wait_for()
                assert await violations(page) == []
                assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
                match heading:
                    case "Who are you?":
                        await page.fill("input[name=key]", KEY)
                        await page.get_by_role("button", name="Go on").click()
                    case "Connect your account at accounts?":
                        await page.get_by_role("button", name="No").click()


@requirement("ACCESS-189")
async def test_no_other_page_can_frame_the_consent(browser: Browser) -> None:
    async with hosted() as (service, _):
        context = await browser.new_context()
        try:
            page = await context.new_page()
            link = await link_of(service)
            await page.goto(link)
            await page.fill("input[name=key]", KEY)
            await page.get_by_role("button", name="Go on").click()
            await page.get_by_role("button", name="Connect").wait_for()
            blank = await context.new_page()
            await blank.set_content(f'<iframe src="{link}"></iframe>')
            await blank.wait_for_timeout(500)
            assert await blank.frames[-1].locator("button").count() == 0
        finally:
            await context.close()


@asynccontextmanager
async def with_issuer(*people: str) -> AsyncIterator[tuple[Any, Any, PersonIssuer]]:
    issuer = PersonIssuer(*people)
    async with issuer:
        entry = {
            "name": "corp",
            "issuer": issuer.url,
            "audience": ["gate"],
            "login": {"client_id": CLIENT, "client_secret": SECRET},
        }
        async with hosted({"auth": {"issuers": [entry]}}) as (service, server):
            yield service, server, issuer


@requirement("ACCESS-192")
async def test_callers_with_tokens_say_at_their_issuer_who_they_are(browser: Browser) -> None:
    async with with_issuer("ann@corp", "ben@corp") as (service, _, issuer):
        token = issuer.token(aud="gate", sub="ann@corp")
        link = await link_of(service, token)
        async with page_of(browser) as page:
            await page.goto(link)
            await page.get_by_role("button", name="Log in at 127.0.0.1").click()
            await page.locator('[id="ann@corp"]').click()
            assert "corp:ann@corp" in await page.content()
            await connect(page, link, "ben")
        assert await who(service, token) == "ben"
        # Another person of the same issuer, with her link.
        person = Person()
        await person.open(await link_of(service, issuer.token(aud="gate", sub="eve@corp")))
        await person.send(0)
        await person.go_on()
        refused = await person.choose("ben@corp")
        assert refused.status_code == 403
        assert "corp:ben@corp" in refused.text
        assert "eve@" not in refused.text  # the page's form holds random words, which "eve" alone may be part of


@requirement("ACCESS-192")
@pytest.mark.parametrize(
    "changes",
    [
        {"nonce": "another"},
        {"nonce": None},
        {"aud": "another"},
        {"aud": [CLIENT, "x"]},
        {"exp": 1},
        {"iss": "https://x"},
    ],
)
async def test_an_id_token_that_does_not_hold_signs_nobody_in(changes: dict[str, Any]) -> None:
    async with with_issuer("ann") as (service, _, issuer):
        issuer.changes = changes
        person = Person()
        await person.open(await link_of(service, issuer.token(aud="gate")))
        await person.send(0)
        await person.go_on()
        refused = await person.choose("ann")
        assert refused.status_code == 502
        assert not any("browser" in cookie.name for cookie in person.http.cookies.jar)


@requirement("ACCESS-192")
@pytest.mark.parametrize(
    ("methods", "place"),
    [
        ([], "header"),
        (["client_secret_post"], "form"),
        (["client_secret_post", "client_secret_basic"], "header"),
    ],
)
async def test_the_secret_goes_to_the_issuer_as_its_metadata_asks(methods: list[str], place: str) -> None:
    async with with_issuer("ann") as (service, _, issuer):
        issuer.metadata |= {"token_endpoint_auth_methods_supported": methods} if methods else {}
        person = Person()
        await person.open(await link_of(service, issuer.token(aud="gate")))
        await person.send(0)
        await person.go_on()
        assert (await person.choose("ann")).status_code == 200
        assert issuer.secret_in == place


@requirement("ACCESS-192")
async def test_an_answer_that_this_browser_did_not_ask_for_signs_nobody_in() -> None:
    """Login CSRF: mallory's answer in ann's browser."""
    async with with_issuer("ann", "mallory") as (service, _, issuer):
        link = await link_of(service, issuer.token(aud="gate"))
        mallory, ann = Person(), Person()
        await mallory.open(link)
        await mallory.send(0)
        await mallory.go_on()
        back = mallory.link_of("mallory")
        await ann.open(link)
        await ann.send(0)
        refused = await ann.open(back)
        assert refused.status_code == 502
        assert not any("browser" in cookie.name for cookie in ann.http.cookies.jar)
        # Keys of another issuer prove nothing.
        issuer.key = OTHER_RSA
        await ann.open(link)
        await ann.send(0)
        await ann.go_on()
        assert (await ann.choose("ann")).status_code == 502


@requirement("ACCESS-198")
async def test_the_command_line_connects_an_account_at_a_gate_that_runs(browser: Browser) -> None:
    async with hosted() as (service, server), page_of(browser) as page:
        at = ("--url", service.url, "--key", KEY)
        async with program("app", "login", "accounts", "--no-browser", *at) as running:
            link = (await running.wait_for(r"(?m)^(http://\S+/connect/accounts\?f=\S+)$"))[1]
            await connect(page, link, "ann")
            assert await running.ended() == 0, running.stderr
            assert "accounts: connected" in running.stdout
        assert await who(service) == "ann"
        for words, shown in (
            (("connections",), "accounts: connected at 127.0.0.1"),
            (("logout", "accounts"), "accounts: disconnected"),
            (("connections",), "accounts: no account"),
        ):
            async with program("app", *words, *at) as running:
                assert await running.ended() == 0, running.stderr
                assert shown in running.stdout
        assert server.tokens == {}
        for wrong, why in (((*at[:3], "wg_wrong"), "HTTP 401"), (("--url", "nonsense"), "is no URL")):
            async with program("app", "login", "accounts", "--no-browser", *wrong) as running:
                assert await running.ended() == 1
                assert why in running.stderr
        async with program("app", "login", "elsewhere", "--no-browser", *at) as running:
            assert await running.ended() == 1
            assert "HTTP 404" in running.stderr


@requirement("OPS-360")
async def test_an_operator_sees_connected_accounts_in_the_console_and_disconnects_one(browser: Browser) -> None:
    chief = {"id": "chief", "sha256": hash_key("wg_chief"), "actor": "chief", "permissions": ["ops:*"]}
    more = {"auth": {"keys": [chief]}}
    async with hosted(more) as (service, _), page_of(browser) as person, page_of(browser) as page:
        await connect(person, await link_of(service), "ann")
        await page.goto(f"{service.url}/console/keys")
        await page.get_by_label("Key").fill("wg_chief")
        await page.get_by_role("button", name="Sign in").click()
        accounts = page.get_by_role("region", name="Connected accounts")
        await accounts.get_by_text("owner_1").wait_for()
        await accounts.get_by_role("button", name="Disconnect").click()
        await accounts.wait_for(state="detached")
        assert "connect_required" in str(await WireClient(service).call(TOOL, {}))
