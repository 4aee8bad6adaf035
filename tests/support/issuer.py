"""An issuer of tokens on a free loopback port: its document, its keys, and introspection of opaque tokens.

async with Issuer() as issuer:
    ... issuer.url ... issuer.token(aud="https://gate.example/mcp")
"""

import asyncio
import json
import warnings
from collections.abc import Mapping
from time import time
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from joserfc import jws
from joserfc.errors import SecurityWarning
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey

from tests.support.http_service import HttpService, Reply, Seen

SigningKey = RSAKey | ECKey | OKPKey | OctKey

RSA = RSAKey.generate_key(2048, {"kid": "rsa-1", "use": "sig", "alg": "RS256"})
EC = ECKey.generate_key("P-256", {"kid": "ec-1", "use": "sig"})
OTHER_RSA = RSAKey.generate_key(2048, {"kid": "rsa-2", "use": "sig", "alg": "RS256"})


def signed(claims: Mapping[str, Any], key: SigningKey = RSA, **header: Any) -> str:
    """A compact JWS of *claims*; *header* adds to ``alg``, ``kid`` and ``typ``, and None leaves one out."""
    merged = {"alg": "RS256", "kid": key.get("kid"), "typ": "at+jwt", **header}
    whole = {name: value for name, value in merged.items() if value is not None}
    registry = jws.JWSRegistry(algorithms=[whole["alg"]], strict_check_header=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SecurityWarning)  # of the older name EdDSA
        return jws.serialize_compact(whole, json.dumps(claims).encode(), key, registry=registry)


class Issuer:
    """*path* is that of the issuer's URL. *seen* holds the paths that were asked for."""

    def __init__(self, path: str = "", *keys: SigningKey, clock: Any = time) -> None:
        self.path = path
        self.keys: list[SigningKey] = list(keys) or [RSA, EC]
        self.clock = clock
        self.opaque: dict[str, dict[str, Any]] = {}
        self.metadata: dict[str, Any] = {}
        self.documents = {"/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"}
        self.away = False
        self.body: bytes | None = None
        """Stands in for the key set."""
        self.gate = asyncio.Event()
        self.gate.set()
        self._service = HttpService(self._answer)
        self.url = ""

    async def __aenter__(self) -> Self:
        await self._service.__aenter__()
        self.url = self._service.url + self.path
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.gate.set()
        await self._service.__aexit__(kind, error, trace)

    @property
    def seen(self) -> list[str]:
        return [seen.target for seen in self._service.seen]

    @property
    def requests(self) -> list[Seen]:
        return self._service.seen

    def claims(self, **claims: Any) -> dict[str, Any]:
        """Those of a good access token; None leaves one out."""
        now = self.clock()
        whole = {
            "iss": self.url,
            "sub": "ann",
            "aud": "https://gate.example/mcp",
            "exp": now + 300,
            "iat": now,
            **claims,
        }
        return {name: value for name, value in whole.items() if value is not None}

    def token(self, key: SigningKey = RSA, header: Mapping[str, Any] | None = None, **claims: Any) -> str:
        return signed(self.claims(**claims), key, **(header or {}))

    async def _answer(self, seen: Seen) -> Reply:
        await self.gate.wait()
        if self.away:
            return Reply(b"busy", 503)
        path = urlsplit(seen.target).path
        root = self._service.url
        places = {f"{each}{self.path}" for each in self.documents} | {
            f"{self.path}{each}" for each in self.documents if each.endswith("configuration")
        }
        if path in places:
            document = {
                "issuer": self.url,
                "jwks_uri": f"{root}/keys",
                "introspection_endpoint": f"{root}/introspect",
                **self.metadata,
            }
            return Reply(json.dumps(document).encode())
        if path == "/keys":
            whole = {"keys": [key.as_dict(private=False) for key in self.keys if not isinstance(key, OctKey)]}
            return Reply(self.body if self.body is not None else json.dumps(whole).encode())
        if path == "/introspect":
            token = parse_qs(seen.body.decode())["token"][0]
            found = self.opaque.get(token)
            return Reply(json.dumps({"active": True, **found} if found else {"active": False}).encode())
        return Reply(b"{}", 404)
