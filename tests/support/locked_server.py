"""A tool server that wants a login, and its issuer, on one loopback port: ``/mcp`` the server, ``/as`` the issuer.

The issuer checks PKCE, the client and the redirect address; its page answers with a redirect at once. What is odd of a
test is set on the attributes.
"""

import json
from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from tests.support.http_service import HttpService, Reply, Seen


class Issuer:
    """*metadata* and *resource* are added to the documents; a value of None takes a member out."""

    def __init__(self) -> None:
        self.service = HttpService(self.answer)
        self.metadata: dict[str, Any] = {}
        self.resource: dict[str, Any] = {}
        self.challenge = 'Bearer resource_metadata="{url}/.well-known/oauth-protected-resource/mcp"'
        self.comes_back: dict[str, str] = {}
        self.token_answer: Reply | None = None
        self.rotates = True
        self.forms: list[dict[str, str]] = []
        self.registered: list[dict[str, Any]] = []
        self.authorized: list[dict[str, str]] = []
        self.good_refresh: set[str] = set()
        self.good_access: set[str] = set()
        self.revoked: list[str] = []
        self._codes: dict[str, dict[str, str]] = {}

    async def __aenter__(self) -> "Issuer":
        await self.service.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.service.__aexit__(*error)

    @property
    def url(self) -> str:
        return self.service.url

    @property
    def server_url(self) -> str:
        return f"{self.url}/mcp"

    @property
    def issuer(self) -> str:
        return f"{self.url}/as"

    @property
    def asked(self) -> list[str]:
        return [seen.target.partition("?")[0] for seen in self.service.seen]

    def answer(self, seen: Seen) -> Reply:
        path, _, query = seen.target.partition("?")
        match path:
            case "/mcp":
                return self._mcp(seen)
            case "/.well-known/oauth-protected-resource/mcp":
                return _json({"resource": self.server_url, "authorization_servers": [self.issuer]} | self.resource)
            case "/.well-known/oauth-authorization-server/as":
                return _json(self._metadata() | self.metadata)
            case "/as/register":
                self.registered.append(json.loads(seen.body))
                return _json({**self.registered[-1], "client_id": f"client-{len(self.registered)}"}, 201)
            case "/as/authorize":
                return self._authorize(dict(parse_qsl(query)))
            case "/as/token":
                return self._token(dict(parse_qsl(seen.body.decode())))
            case "/as/revoke":
                self.revoked.append(dict(parse_qsl(seen.body.decode()))["token"])
                return Reply()
        return Reply(status=404)

    def _metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "registration_endpoint": f"{self.issuer}/register",
            "revocation_endpoint": f"{self.issuer}/revoke",
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
            "authorization_response_iss_parameter_supported": True,
        }

    def _authorize(self, query: dict[str, str]) -> Reply:
        self.authorized.append(query)
        code = f"code-{len(self.authorized)}"
        self._codes[code] = query
        back = {"code": code, "state": query["state"], "iss": self.issuer} | self.comes_back
        return Reply(status=302, headers={"location": f"{query['redirect_uri']}?{urlencode(back)}"})

    def _token(self, form: dict[str, str]) -> Reply:
        self.forms.append(form)
        if self.token_answer is not None:
            return self.token_answer
        if form["grant_type"] == "authorization_code":
            asked = self._codes.pop(form["code"])
            digest = urlsafe_b64encode(sha256(form["code_verifier"].encode()).digest()).decode().rstrip("=")
            same = all(form[name] == asked[name] for name in ("redirect_uri", "client_id", "resource"))
            if digest != asked["code_challenge"] or not same:
                return _json({"error": "invalid_grant"}, 400)
            scope = asked.get("scope", "")
        else:
            if form["refresh_token"] not in self.good_refresh:
                return _json({"error": "invalid_grant"}, 400)
            scope = ""
            if self.rotates:
                self.good_refresh.clear()
        number = len(self.forms)
        self.good_refresh.add(f"refresh-{number}")
        self.good_access.add(f"access-{number}")
        given = {"access_token": f"access-{number}", "refresh_token": f"refresh-{number}"}
        return _json({**given, "token_type": "Bearer", "expires_in": 3600, **({"scope": scope} if scope else {})})

    def _mcp(self, seen: Seen) -> Reply:
        token = seen.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in self.good_access:
            return Reply(b"{}", 401, {"www-authenticate": self.challenge.format(url=self.url)})
        message = json.loads(seen.body) if seen.body else {}
        match message.get("method"):
            case "initialize":
                about = {"serverInfo": {"name": "locked", "version": "1"}, "capabilities": {"tools": {}}}
                return _result(message, {"protocolVersion": "2025-11-25", **about})
            case "tools/list":
                return _result(message, {"tools": [{"name": "open", "inputSchema": {"type": "object"}}]})
            case "ping":
                return _result(message, {})
        if "id" in message:
            error = {"code": -32601, "message": "no such method"}
            return _json({"jsonrpc": "2.0", "id": message["id"], "error": error})
        return Reply(status=202)


def query_of(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query))


def _result(message: dict[str, Any], result: dict[str, Any]) -> Reply:
    return _json({"jsonrpc": "2.0", "id": message["id"], "result": result})


def _json(document: dict[str, Any], status: int = 200) -> Reply:
    kept = {name: value for name, value in document.items() if value is not None}
    return Reply(json.dumps(kept).encode(), status)
