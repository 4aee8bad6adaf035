"""Our own door as the tokens of real issuers find it, request by request; the logins are those of ``wicketgate.login``.

The issuers are stopped at the end.
"""

import time
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit

import httpx

from conformance.issuer import Issuer, browse, minted
from conformance.judge import Check
from tests.support.ports import free_port
from wicketgate.login.client import Login, LoginClient, LoginPlan
from wicketgate.login.oauth_http import Carrier
from wicketgate.net import Outgoing
from wicketgate.net.challenge import Refusal, refusal_of

_WELL_KNOWN = "/.well-known/oauth-protected-resource"
_INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "door", "version": "1"},
    },
}
_HEADERS = {"accept": "application/json, text/event-stream"}


class Door:
    """The gate at *base*, whose issuers are *corp* (JWTs) and *other* (opaque tokens); *scopes* are needed by every
    request."""

    def __init__(self, base: str, corp: Issuer, other: Issuer, scopes: tuple[str, ...]) -> None:
        self._base = base
        self._corp = corp
        self._other = other
        self._scopes = scopes
        self._url = f"{base}/mcp"
        self._found: list[Check] = []
        self._http = httpx.AsyncClient(trust_env=False, timeout=30)

    async def checks(self) -> list[Check]:
        async with self._http:
            await self._refusals()
            await self._minted()
            jwt = await self._of_corp()
            opaque = await self._of_other()
            await self._away(jwt, opaque)
        return self._found

    async def _refusals(self) -> None:
        status, refusal = await self._ask(None)
        where = f"{self._base}{_WELL_KNOWN}/mcp"
        said = (status, refusal.resource_metadata, refusal.scopes, "error" in refusal.bearer)
        self._check("no-token", said == (401, where, self._scopes, False), said)
        document = (await self._http.get(where)).json()
        issuers = [self._corp.url, self._other.url]
        named = document["resource"] == self._url and document["authorization_servers"] == issuers
        self._check("metadata", named, document)

    async def _minted(self) -> None:
        """Tokens that the issuer has signed with its key, and would not issue; and one of another's key."""
        mint = self._corp.mint
        for name, token in {
            "expired": mint(self._url, self._scopes, ends_in_s=-60),
            "audience": mint(f"{self._base}/mcp/registry", self._scopes),
            "no-audience": mint("", self._scopes),
            "key-of-another": minted(self._other.key, self._corp.url, self._url, self._scopes),
            "unknown-issuer": minted(self._corp.key, "http://127.0.0.1:1", self._url, self._scopes),
            "opaque-unknown": "0123456789abcdef0123456789abcdef",
        }.items():
            await self._refused(name, token)
        status, refusal = await self._ask(mint(self._url, self._scopes[:1]))
        self._check("scopes", (status, refusal.lacks_scopes, refusal.scopes) == (403, True, self._scopes), refusal)

    async def _of_corp(self) -> str:
        """Returns a token that opens the door."""
        ann = await self._login(self._corp, "ann", ("openid", *self._scopes))
        await self._opens("own-login", ann.tokens.access_token)
        await self._refused("other-face", ann.tokens.access_token, "/mcp/registry")
        await self._refused("id-token", ann.tokens.id_token)
        await self._refused("refresh-token", ann.tokens.refresh_token)
        client = self._client(self._corp, self._scopes)
        renewed = await client.refresh(ann)
        await self._opens("own-refresh", renewed.tokens.access_token)
        await self._opens("second-person", (await self._login(self._corp, "bob", self._scopes)).tokens.access_token)
        return renewed.tokens.access_token

    async def _of_other(self) -> str:
        ann = await self._login(self._other, "ann", self._scopes)
        opaque = "." not in ann.tokens.access_token
        self._check("opaque", opaque, "the token is a JWT")
        await self._opens("introspected", ann.tokens.access_token)
        await self._refused("opaque-other-face", ann.tokens.access_token, "/mcp/registry")
        await self._refused("opaque-refresh-token", ann.tokens.refresh_token)
        gone = await self._login(self._other, "ann", self._scopes)
        await self._client(self._other, self._scopes).revoke(gone)
        await self._refused("revoked", gone.tokens.access_token)
        return (await self._login(self._other, "ann", self._scopes)).tokens.access_token

    async def _away(self, jwt: str, opaque: str) -> None:
        """*opaque* was not seen at the door yet."""
        for issuer in (self._corp, self._other):
            await issuer.process.stop()
        await self._opens("away-keys-kept", jwt)
        await self._opens("away-new-token", self._corp.mint(self._url, self._scopes, subject="new"))
        reply = await self._post(opaque)
        self._check("away-opaque", (reply.status_code, "retry-after" in reply.headers) == (503, True), reply)

    async def _login(self, issuer: Issuer, person: str, scopes: tuple[str, ...]) -> Login:
        client = self._client(issuer, scopes)

        async def opened(url: str) -> Mapping[str, str]:
            return dict(parse_qsl(urlsplit(await browse(url, person)).query))

        _, refusal = await self._ask(None)
        return await client.log_in(f"http://127.0.0.1:{free_port()}/callback", opened, refusal)

    def _client(self, issuer: Issuer, scopes: tuple[str, ...]) -> LoginClient:
        plan = LoginPlan(self._url, issuer=issuer.url, scopes=scopes)
        return LoginClient(plan, Carrier(Outgoing(), [self._url, issuer.url]), time.time)

    async def _opens(self, name: str, token: str) -> None:
        reply = await self._post(token)
        self._check(name, reply.status_code == 200, f"{reply.status_code} {reply.text[:200]}")

    async def _refused(self, name: str, token: str, path: str = "/mcp") -> None:
        status, refusal = await self._ask(token, path)
        self._check(name, (status, refusal.bearer.get("error")) == (401, "invalid_token"), f"{status} {refusal}")

    async def _ask(self, token: str | None, path: str = "/mcp") -> tuple[int, Refusal]:
        reply = await self._post(token, path)
        return reply.status_code, refusal_of(reply.status_code, reply.headers) or Refusal(reply.status_code)

    async def _post(self, token: str | None, path: str = "/mcp") -> httpx.Response:
        headers = {**_HEADERS, **({} if token is None else {"authorization": f"Bearer {token}"})}
        return await self._http.post(self._base + path, json=_INITIALIZE, headers=headers)

    def _check(self, name: str, good: bool, message: object) -> None:
        self._found.append(Check(name, "SUCCESS" if good else "FAILURE", str(message)))
