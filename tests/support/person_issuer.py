"""An issuer at which persons log in with a browser (OpenID Connect), and whose tokens the gate's doors take."""

import json
import secrets
from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from tests.support.http_service import Reply, Seen
from tests.support.issuer import RSA, Issuer, signed

CLIENT, SECRET = "wicketgate", "a secret of the gate"


class PersonIssuer(Issuer):
    """Its page has a link for each of *people*. *changes* alters the claims of ID tokens. *secret_in*: the last
    client sent its secret in the ``form`` or a ``header``."""

    def __init__(self, *people: str) -> None:
        super().__init__()
        self.people = people
        self.changes: dict[str, Any] = {}
        self.key: Any = RSA
        self.secret_in = ""
        self._codes: dict[str, dict[str, str]] = {}

    async def _answer(self, seen: Seen) -> Reply:
        parts = urlsplit(seen.target)
        root = self._service.url
        self.metadata |= {"authorization_endpoint": f"{root}/authorize", "token_endpoint": f"{root}/token"}
        html = {"content-type": "text/html"}
        query = dict(parse_qsl(parts.query))
        if parts.path == "/authorize":
            assert query["client_id"] == CLIENT
            links = []
            for person in self.people:
                code = secrets.token_urlsafe(12)
                self._codes[code] = {**query, "sub": person}
                back = f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"
                links.append(f'<p><a id="{person}" href="{back.replace("&", "&amp;")}">{person}</a></p>')
            return Reply(f"<!doctype html><title>id</title>{''.join(links)}".encode(), 200, html)
        form = dict(parse_qsl(seen.body.decode())) if parts.path == "/token" else {}
        if "code" in form:
            self.secret_in = "form" if form.get("client_secret") == SECRET else "header"
            asked = self._codes.pop(form["code"])
            digest = urlsafe_b64encode(sha256(form["code_verifier"].encode()).digest()).decode().rstrip("=")
            assert (digest, form["redirect_uri"]) == (asked["code_challenge"], asked["redirect_uri"])
            claims = {"sub": asked["sub"], "aud": CLIENT, "nonce": asked["nonce"], **self.changes}
            id_token = signed(self.claims(**claims), self.key, typ="JWT")
            given = {"access_token": "opaque", "token_type": "Bearer", "id_token": id_token, "expires_in": 60}
            return Reply(json.dumps(given).encode())
        return await super()._answer(seen)
