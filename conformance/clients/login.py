"""Logging in with OAuth, for the drivers in Python. The issuer's pages are opened by a browser of the runner."""

import asyncio
import json
import os
import urllib.parse
import urllib.request
from typing import Any

from common import URL
from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

LOGIN: dict[str, Any] = json.loads(os.environ.get("MCP_LOGIN", "{}"))
"""``name`` of the client, ``document`` (its URL, or empty: it registers), ``port`` of its redirect address, and the
``browser``; empty for a client with a key."""


def visit(url: str) -> str:
    """Has a person log in at *url*; returns the address with the answer."""
    opened = urllib.request.urlopen(LOGIN["browser"] + "?" + urllib.parse.urlencode({"url": url}), timeout=30)
    text: str = opened.read().decode()
    return text


class Kept:
    """The part of a login that a client keeps: this process is its disk."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


_kept = Kept()


def provider(order: dict[str, Any]) -> OAuthClientProvider | None:
    """None for a client with a key. With ``access_token`` in *order* that stands in the place of the one it kept."""
    if not LOGIN:
        return None
    if "access_token" in order:
        assert _kept.tokens is not None
        _kept.tokens = _kept.tokens.model_copy(update={"access_token": order["access_token"]})
    answer = ""

    async def redirect(url: str) -> None:
        nonlocal answer
        answer = await asyncio.to_thread(visit, url)

    async def callback() -> Any:
        return _result(dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(answer).query)))

    metadata = OAuthClientMetadata.model_validate(
        {
            "client_name": LOGIN["name"],
            "redirect_uris": [f"http://127.0.0.1:{LOGIN['port']}/callback"],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        }
    )
    return OAuthClientProvider(URL, metadata, _kept, redirect, callback, client_metadata_url=LOGIN["document"] or None)


def _result(found: dict[str, str]) -> Any:
    try:
        from mcp.shared.auth import AuthorizationCodeResult
    except ImportError:  # mcp 1
        return found["code"], found["state"]
    return AuthorizationCodeResult(code=found["code"], state=found["state"], iss=found.get("iss"))
