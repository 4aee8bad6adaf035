"""A real issuer for logins: oidc-provider on Node, with tokens that it would not issue, and the person's browser.

Everything is on loopback. Documents of clients (CIMD), which have https addresses, are given to the issuer beforehand.
"""

import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx
from joserfc import jwt
from joserfc.jwk import RSAKey

from conformance.environments import modules_of, node
from tests.support.ports import free_port
from tests.support.process import Program, command

SCRIPT = Path(__file__).with_name("issuer.mjs")
CAUTIOUS = "cautious"
"""The name of clients whose first token lacks the last scope."""
_FORMS = 6


@dataclass(frozen=True, slots=True)
class Issuer:
    url: str
    process: Program
    key: RSAKey = field(repr=False)
    """The key that it signs with."""

    def mint(self, audience: str, scopes: Sequence[str], *, ends_in_s: float = 300.0, subject: str = "ann") -> str:
        """A token that it would not issue, such as one that is over."""
        return minted(self.key, self.url, audience, scopes, ends_in_s=ends_in_s, subject=subject)

    def deeds(self) -> list[dict[str, Any]]:
        """Everything that it has done so far: ``did``, ``client`` and more, in order."""
        lines = self.process.stdout.rpartition("\n")[0].splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]


def minted(
    key: RSAKey, issuer: str, audience: str, scopes: Sequence[str], *, ends_in_s: float = 300.0, subject: str = "ann"
) -> str:
    """An access token of ten minutes ago, signed with *key*."""
    now = time.time()
    claims: dict[str, Any] = {"iss": issuer, "sub": subject, "aud": audience, "scope": " ".join(scopes)}
    claims |= {"client_id": "minted", "iat": int(now - 600), "exp": int(now + ends_in_s)}
    return jwt.encode({"alg": "RS256", "typ": "at+jwt", "kid": key.kid}, claims, key)


@asynccontextmanager
async def issuer(
    folder: Path,
    scopes: Sequence[str],
    *,
    opaque: bool = False,
    documents: Mapping[str, Any] | None = None,
    clients: Sequence[Mapping[str, Any]] = (),
) -> AsyncIterator[Issuer]:
    """Starts it. *documents* are those of clients, by URL. Raises NotInstalled."""
    url = f"http://127.0.0.1:{free_port()}"
    key = RSAKey.generate_key(2048, {"use": "sig", "alg": "RS256", "kid": "signs"})
    given = {
        "url": url,
        "scopes": list(scopes),
        "opaque": opaque,
        "cautious": CAUTIOUS,
        "jwks": {"keys": [key.as_dict(private=True)]},
        "documents": dict(documents or {}),
        "clients": list(clients),
    }
    env = {"ISSUER": json.dumps(given), "MCP_MODULES": str(modules_of("oidc-provider"))}
    async with command(str(node()), str(SCRIPT), folder=folder, env=env) as process:
        await process.wait_for(r"(?m)^ready$")
        yield Issuer(url, process, key)


async def browse(url: str, person: str) -> str:
    """Opens *url* as *person* would: logs in, agrees. Returns the address that the browser is sent on to,
    without opening it. Raises RuntimeError where the issuer shows something else."""
    async with httpx.AsyncClient(trust_env=False, timeout=20) as http:
        own = urlsplit(url).netloc
        reply = await http.get(url)
        for _ in range(_FORMS):
            while (to := reply.headers.get("location")) is not None:
                to = urljoin(str(reply.url), to)
                if urlsplit(to).netloc != own:
                    return str(to)
                reply = await http.get(to)
            if 'name="prompt" value="login"' in reply.text:
                form = {"prompt": "login", "login": person, "password": "any"}
            elif 'name="prompt" value="consent"' in reply.text:
                form = {"prompt": "consent"}
            else:
                break
            reply = await http.post(str(reply.url), data=form)
    raise RuntimeError(f"the issuer shows a page with status {reply.status_code}: {reply.text[:300]}")
