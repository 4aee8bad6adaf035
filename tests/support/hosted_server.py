"""A hosted MCP server as users know it: it tells accounts by tokens, and its own issuer gives them (the SDK's routes).

``/page`` of the issuer is where a person logs in: links for each account, and one that declines.
"""

import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import escape
from typing import Any
from urllib.parse import urlencode

from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    TokenError,
)
from mcp.server.auth.routes import build_metadata, create_auth_routes
from mcp.server.auth.settings import ClientRegistrationOptions, RevocationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.support.account_server import AccountServer

SCOPE = "read"


class HostedServer(AccountServer):
    """*issuer* gives the tokens that the server takes; it is at the same origin."""

    def __init__(self) -> None:
        super().__init__()
        self.issuer = SdkIssuer(self)
        self.metadata: dict[str, Any] = {}
        self._issuer_app: ASGIApp

    @property
    def origin(self) -> str:
        return self.url.removesuffix("/mcp")

    @asynccontextmanager
    async def running(self) -> AsyncIterator["HostedServer"]:
        async with super().running():
            self._issuer_app = self.issuer.app(self.origin)  # the address is known now
            yield self

    def door(self, app: ASGIApp) -> ASGIApp:
        guarded = super().door(app)

        async def either(scope: Scope, receive: Receive, send: Send) -> None:
            of_server = scope["type"] != "http" or scope["path"] == "/mcp"
            await (guarded if of_server else self._issuer_app)(scope, receive, send)

        return either


class SdkIssuer(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """Keeps everything in memory. *lifetime_s* is that of access tokens; refresh tokens rotate, and are good once.
    *scopes* are those that it names, and has clients registered with."""

    scopes: list[str] | None = None

    def __init__(self, server: AccountServer) -> None:
        self._server = server
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.asked: dict[str, tuple[OAuthClientInformationFull, AuthorizationParams]] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.refresh: dict[str, RefreshToken] = {}
        self.lifetime_s = 3600
        self.refreshes = 0
        self.revoked: list[str] = []
        self.redirect: str = ""
        """Where the page leads to in the place of the right address."""
        self.adds: dict[str, str] = {}

    def app(self, origin: str) -> ASGIApp:
        async def resource(request: Request) -> Response:
            server: Any = self._server
            document = {"resource": f"{origin}/mcp", "authorization_servers": [f"{origin}/"]}
            return JSONResponse({**document, "scopes_supported": [SCOPE], **server.metadata})

        own, registers = AnyHttpUrl(f"{origin}/"), ClientRegistrationOptions(enabled=True, valid_scopes=self.scopes)
        self.adds = {"iss": f"{origin}/"}

        async def about(request: Request) -> Response:
            document = build_metadata(own, None, registers, RevocationOptions(enabled=True))
            says = {"authorization_response_iss_parameter_supported": True}
            return JSONResponse(document.model_dump(mode="json", exclude_none=True) | says)

        routes = create_auth_routes(
            self,
            own,
            client_registration_options=registers,
            revocation_options=RevocationOptions(enabled=True),
        )
        routes.insert(0, Route("/.well-known/oauth-authorization-server", endpoint=about))
        routes.append(Route("/.well-known/oauth-protected-resource/mcp", endpoint=resource))
        routes.append(Route("/page", endpoint=self._page))
        routes.append(Route("/page/done", endpoint=self._done))
        return Starlette(routes=routes)

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        assert client_info.client_id is not None
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        request = secrets.token_urlsafe(16)
        self.asked[request] = client, params
        return f"/page?{urlencode({'request': request})}"

    async def _page(self, request: Request) -> Response:
        asked = escape(request.query_params["request"])
        links = "".join(
            f'<p><a id="{name}" href="/page/done?request={asked}&as={name}">{name}</a></p>'
            for name in ("ann", "ben", "nobody")
        )
        return HTMLResponse(f"<!doctype html><title>Hosted</title><h1>Log in</h1>{links}")

    async def _done(self, request: Request) -> Response:
        client, params = self.asked.pop(request.query_params["request"])
        account = request.query_params["as"]
        answer = {"state": params.state or ""}
        if account == "nobody":
            answer["error"] = "access_denied"
        else:
            assert client.client_id is not None
            code = secrets.token_urlsafe(24)
            self.codes[code] = AuthorizationCode(
                code=code,
                scopes=params.scopes or [],
                expires_at=time.time() + 60,
                client_id=client.client_id,
                code_challenge=params.code_challenge,
                redirect_uri=params.redirect_uri,
                redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
                resource=params.resource,
                subject=account,
            )
            answer["code"] = code
        return RedirectResponse(f"{self.redirect or params.redirect_uri}?{urlencode({**answer, **self.adds})}", 302)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._give(client, authorization_code.subject or "", authorization_code.scopes)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        self.refreshes += 1
        if self.refresh.pop(refresh_token.token, None) is None:
            raise TokenError("invalid_grant")
        return self._give(client, refresh_token.subject or "", refresh_token.scopes)

    async def load_access_token(self, token: str) -> AccessToken | None:
        if token not in self._server.tokens:
            return None
        return AccessToken(token=token, client_id=next(iter(self.clients)), scopes=[])

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.revoked.append(token.token)
        account = token.subject or self._server.tokens.get(token.token)
        self.end(account or "")

    def end(self, account: str) -> None:
        """No token of *account* is good any more."""
        self._server.tokens = {each: of for each, of in self._server.tokens.items() if of != account}
        self.refresh = {each: kept for each, kept in self.refresh.items() if kept.subject != account}

    def expire(self, account: str) -> None:
        """No access token of *account* is good any more; it can be renewed."""
        self._server.tokens = {each: of for each, of in self._server.tokens.items() if of != account}

    def _give(self, client: OAuthClientInformationFull, account: str, scopes: list[str]) -> OAuthToken:
        access, refresh = f"access-{secrets.token_urlsafe(24)}", f"refresh-{secrets.token_urlsafe(24)}"
        self._server.tokens[access] = account
        if "admin" in scopes:
            self._server.admins.add(access)
        assert client.client_id is not None
        self.refresh[refresh] = RefreshToken(token=refresh, client_id=client.client_id, scopes=scopes, subject=account)
        return OAuthToken(
            access_token=access, refresh_token=refresh, expires_in=self.lifetime_s, scope=" ".join(scopes)
        )
