"""An issuer that exchanges tokens (RFC 8693), gives assertions about persons (ID-JAG), and tokens for assertions of
others (RFC 7523). It checks the client, the signature and the life of what comes, and for whom it is.
"""

import asyncio
import json
from base64 import b64decode
from collections.abc import Mapping
from time import time
from typing import Any
from urllib.parse import parse_qsl, unquote_plus, urlsplit

from joserfc import jwt
from joserfc.errors import JoseError

from tests.support.http_service import Reply, Seen
from tests.support.issuer import RSA, Issuer, SigningKey

CLIENT, SECRET = "wicketgate", "exchange-secret-of-the-gate"
_KIND = "urn:ietf:params:oauth:token-type:"
_GRANT = "urn:ietf:params:oauth:grant-type:"


class ExchangeIssuer(Issuer):
    """*clients* are known with their secrets, or with the key that they sign with. *targets* are the resources and
    audiences for which it gives tokens; None for any. *trusted* are the issuers whose assertions count, by their URLs.
    *forms* are those of all requests for tokens. What is odd of a test is set on the attributes."""

    def __init__(self, *keys: SigningKey) -> None:
        super().__init__("", *keys)
        self.clients: dict[str, str | SigningKey] = {CLIENT: SECRET}
        self.targets: set[str] | None = None
        self.trusted: dict[str, SigningKey] = {}
        self.revoked: set[str] = set()
        self.forms: list[dict[str, str]] = []
        self.given: list[str] = []
        self.lifetime_s: float | None = 300
        self.gives: Mapping[str, Any] = {}
        """Takes the place of members of an answer."""
        self.hands_back = False
        self.down = False
        self.exchanging = asyncio.Event()
        self.exchanging.set()
        self.metadata = {"grant_types_supported": [f"{_GRANT}token-exchange", f"{_GRANT}jwt-bearer"]}

    async def _answer(self, seen: Seen) -> Reply:
        self.metadata["token_endpoint"] = f"{self.url}/token"
        if urlsplit(seen.target).path != "/token":
            return await super()._answer(seen)
        form = dict(parse_qsl(seen.body.decode()))
        self.forms.append(form)
        await self.exchanging.wait()
        if self.down:
            return Reply(b"busy", 503)
        client = self._client(seen, form)
        if client is None:
            return _error("invalid_client", 401)
        match form.get("grant_type", "").removeprefix(_GRANT), form.get("requested_token_type", "").removeprefix(_KIND):
            case "token-exchange", "id-jag":
                return self._assertion(form, client)
            case "token-exchange", _:
                return self._exchanged(form, client)
            case "jwt-bearer", _:
                return self._for_assertion(form, client)
        return _error("unsupported_grant_type")

    def _client(self, seen: Seen, form: Mapping[str, str]) -> str | None:
        kind, _, given = seen.headers.get("authorization", "").partition(" ")
        if kind == "Basic":
            name, _, secret = b64decode(given).decode().partition(":")
            return unquote_plus(name) if self.clients.get(unquote_plus(name)) == unquote_plus(secret) else None
        name = form.get("client_id", "")
        known = self.clients.get(name)
        if known is None or isinstance(known, str):
            return name if known is not None and known == form.get("client_secret") else None
        claims = self._read(form.get("client_assertion", ""), known)
        good = claims is not None and claims["iss"] == claims["sub"] == name and claims["aud"] == self.url
        return name if good else None

    def _read(self, token: str, key: SigningKey) -> dict[str, Any] | None:
        try:
            claims: dict[str, Any] = dict(jwt.decode(token, key, algorithms=["RS256"]).claims)
        except (JoseError, ValueError):
            return None
        return claims if claims["exp"] > self.clock() and token not in self.revoked else None

    def _exchanged(self, form: Mapping[str, str], client: str) -> Reply:
        subject = self._read(form["subject_token"], self.keys[0])
        if form["subject_token_type"] != f"{_KIND}access_token" or subject is None or subject["iss"] != self.url:
            return _error("invalid_request")
        target = form.get("audience") or form.get("resource", "")
        if self.targets is not None and target not in self.targets:
            return _error("invalid_target")
        if self.hands_back:
            return self._token(form["subject_token"], "access_token")
        return self._for(subject["sub"], target, client, form.get("scope"))

    def _assertion(self, form: Mapping[str, str], client: str) -> Reply:
        subject = self._read(form["subject_token"], self.keys[0])
        if form["subject_token_type"] != f"{_KIND}id_token" or subject is None or subject["aud"] != client:
            return _error("invalid_grant")
        now = self.clock()
        claims = {"iss": self.url, "sub": subject["sub"], "aud": form["audience"], "resource": form["resource"]}
        more = {"client_id": "gate-there", "jti": str(len(self.given)), "iat": now, "exp": now + 60}
        made = self.token(self.keys[0], {"typ": "oauth-id-jag+jwt"}, **claims, **more)
        return self._token(made, "id-jag", "N_A")

    def _for_assertion(self, form: Mapping[str, str], client: str) -> Reply:
        for url, key in self.trusted.items():
            claims = self._read(form["assertion"], key)
            if claims and (claims["iss"], claims["aud"], claims["client_id"]) == (url, self.url, client):
                return self._for(claims["sub"], claims["resource"], client, form.get("scope"))
        return _error("invalid_grant")

    def _for(self, person: str, target: str, client: str, scope: str | None) -> Reply:
        own: dict[str, Any] = {
            "sub": person,
            "aud": target,
            "act": {"sub": client},
            "scope": scope,
            "jti": str(len(self.given)),
        }
        more = {} if self.lifetime_s is None else {"exp": self.clock() + self.lifetime_s}
        return self._token(self.token(self.keys[0], **own, **more), "access_token")

    def _token(self, token: str, kind: str, type_: str = "Bearer") -> Reply:
        self.given.append(token)
        answer = {"access_token": token, "issued_token_type": f"{_KIND}{kind}", "token_type": type_}
        if self.lifetime_s is not None:
            answer |= {"expires_in": self.lifetime_s}  # type: ignore[dict-item]
        return Reply(json.dumps({**answer, **self.gives}).encode())


class TokensFor:
    """The tokens of *issuer* for the server with a URL, as AccountServer asks for accounts: ``sub`` is the account.
    *refused* are taken no more."""

    def __init__(self, issuer: Issuer, url: str, key: SigningKey = RSA) -> None:
        self.issuer = issuer
        self.url = url
        self.key = key
        self.refused: set[str] = set()
        self.claims: list[dict[str, Any]] = []

    def get(self, token: str) -> str | None:
        try:
            claims: dict[str, Any] = dict(jwt.decode(token, self.key, algorithms=["RS256"]).claims)
        except (JoseError, ValueError):
            return None
        if claims["aud"] != self.url or claims["iss"] != self.issuer.url or token in self.refused:
            return None
        self.claims.append(claims)
        return str(claims["sub"]) if claims["exp"] > self.issuer.clock() else None


def id_token(issuer: Issuer, person: str, client: str = CLIENT) -> str:
    """One that a login with a browser gave to *client*."""
    return issuer.token(sub=person, aud=client, nonce="n", exp=time() + 3_600)


def _error(code: str, status: int = 400) -> Reply:
    return Reply(json.dumps({"error": code}).encode(), status)
