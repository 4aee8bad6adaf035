"""Two callers connect their accounts at a hosted server whose issuer is a real one, in Chromium, and stay two."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from joserfc import jwt
from joserfc.errors import JoseError
from playwright.async_api import Browser, Route
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from conformance.issuer import Issuer, issuer
from conformance.judge import Check
from tests.console.browser import chromium
from tests.support.account_server import AccountServer
from tests.support.service import BOUND_S, KEY, OTHER_KEY, RunningService, running_service
from tests.support.wire_client import WireClient

_WELL_KNOWN = "/.well-known/oauth-protected-resource/mcp"
_PEOPLE = {"ann": KEY, "ben": OTHER_KEY}
_AT_ONCE = 20
_SETTLED_S = 6.0


class Hosted(AccountServer):
    """Takes the tokens of *issuer* that are for it. *dead* are tokens that are good no more."""

    def __init__(self, issuer: Issuer) -> None:
        super().__init__()
        self._issuer = issuer
        self.dead: set[str] = set()

    def door(self, app: ASGIApp) -> ASGIApp:
        guarded = super().door(app)

        async def either(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http" and scope["path"] == _WELL_KNOWN:
                document = {"resource": self.url, "authorization_servers": [self._issuer.url]}
                await JSONResponse({**document, "scopes_supported": ["read"]})(scope, receive, send)
            elif scope["type"] == "http" and scope["path"] != "/mcp":
                await Response(status_code=404)(scope, receive, send)
            else:
                if scope["type"] == "http":
                    self._learn(Request(scope).headers.get("authorization", "").removeprefix("Bearer "))
                await guarded(scope, receive, send)

        return either

    def expire(self) -> None:
        self.dead |= set(self.tokens)
        self.tokens.clear()

    def _learn(self, token: str) -> None:
        try:
            claims = jwt.decode(token, self._issuer.key, algorithms=["RS256"]).claims
        except (JoseError, ValueError):
            return
        if token not in self.dead and claims["aud"] == self.url:
            self.tokens[token] = claims["sub"]


async def accounts(folder: Path) -> list[Check]:
    found: list[Check] = []
    async with chromium() as browser, issuer(folder, ["read"]) as given:
        server = Hosted(given)
        async with server.running():
            own = {"name": "accounts", "url": server.url, "credentials": "user"}
            async with running_service(None, None, settings={"upstreams": [own]}, public=True) as service:
                async for name, good, message in _steps(browser, given, server, service):
                    found.append(Check(name, "SUCCESS" if good else "FAILURE", str(message)))
    return found


async def _steps(browser: Browser, given: Issuer, server: Hosted, service: RunningService) -> Any:
    for person, key in _PEOPLE.items():
        asked = await _call(service, key)
        link = asked["structuredContent"]["connect_required"]["url"]
        await _connect(browser, link, key, person)
    seen = [await _who(service, key) for key in _PEOPLE.values()]
    yield "two-accounts", seen == list(_PEOPLE), seen
    kinds = Counter(deed["did"] for deed in given.deeds())
    yield "one-registration", kinds == {"registered": 1, "authorization_code": 2}, given.deeds()
    # Reuse of a refresh token would end the grant.
    for round_ in (1, 2):
        # A server that refuses a token as soon as it was issued is asked no second time.
        await asyncio.sleep(_SETTLED_S)
        server.expire()
        keys = [key for key in _PEOPLE.values() for _ in range(_AT_ONCE)]
        answers = Counter(await asyncio.gather(*(_who(service, key) for key in keys)))
        yield f"calls-go-on-{round_}", answers == dict.fromkeys(_PEOPLE, _AT_ONCE), answers
        kinds = Counter(deed["did"] for deed in given.deeds())
        yield f"one-refresh-{round_}", (kinds["refresh_token"], kinds["refused"]) == (2 * round_, 0), given.deeds()
    gone = await service.http.delete("/connections/accounts", headers={"Authorization": f"Bearer {KEY}"})
    asked = await _call(service, KEY)
    yield "revoked", "connect_required" in asked.get("structuredContent", {}), (gone.text, asked)
    yield "other-stays", await _who(service, OTHER_KEY) == "ben", ""
    yield "no-key-there", not any(key in seen for key in _PEOPLE.values() for seen in server.seen), ""


async def _call(service: RunningService, key: str) -> Mapping[str, Any]:
    headers = {"Authorization": f"Bearer {key}"}
    answer = await WireClient(service).ask("tools/call", {"name": "accounts__whoami", "arguments": {}}, headers=headers)
    result: Mapping[str, Any] = answer.get("result", answer)
    return result


async def _who(service: RunningService, key: str) -> str:
    result = await _call(service, key)
    return str(result["content"][0]["text"]) if "content" in result else str(result)


async def _connect(browser: Browser, link: str, key: str, person: str) -> None:
    context = await browser.new_context()
    context.set_default_timeout(BOUND_S * 1_000)

    async def loopback_alone(route: Route) -> None:
        # The issuer's pages name fonts of others.
        await (route.continue_() if urlsplit(route.request.url).hostname == "127.0.0.1" else route.abort())

    try:
        await context.route("**/*", loopback_alone)
        page = await context.new_page()
        await page.goto(link)
        await page.fill("input[name=key]", key)
        await page.get_by_role("button", name="Go on").click()
        await page.get_by_role("button", name="Connect").click()
        await page.fill("input[name=login]", person)
        await page.fill("input[name=password]", "any")
        await page.locator("button[type=submit]").click()
        await page.locator("input[name=prompt][value=consent]").wait_for(state="attached")
        await page.locator("button[type=submit]").click()
        await page.get_by_role("heading", name="Connected").wait_for()
    finally:
        await context.close()
