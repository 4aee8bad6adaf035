"""A token server that rotates refresh tokens and detects the second use of one: that ends the whole grant (RFC 9700).

Beside it a resource server that takes its access tokens. Over HTTP, for several processes.
"""

import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import httpx

from wicketgate.login.steps import GrantInvalid, IssuerAway
from wicketgate.login.token_endpoint import Refresh, Tokens

ISSUER, RESOURCE = "https://id.example.com", "https://mcp.example.com/mcp"


class RotatingIssuer:
    """*life_s* is that of access tokens, *slow_s* the time that each exchange takes. *refreshes* and *reuses* count."""

    def __init__(self, life_s: float, slow_s: float = 0.0) -> None:
        self.life_s = life_s
        self.slow_s = slow_s
        self.refreshes = 0
        self.reuses = 0
        self.too_early = 0
        self.used = 0
        self.refused = 0
        self.dead = False
        self._lock = threading.Lock()
        self._access, self._refresh, self._issued_at = "", "", 0.0
        self._former = set[str]()
        self.server: ThreadingHTTPServer | None = None

    def first(self) -> Tokens:
        with self._lock:
            return _tokens(self._new())

    def exchange(self, refresh_token: str) -> dict[str, object] | None:
        """None for invalid_grant."""
        time.sleep(self.slow_s)  # an issuer that takes its time
        with self._lock:
            if self.dead or refresh_token != self._refresh:
                # Of this grant, but not the last: somebody has stolen one, and nobody knows who.
                self.reuses += refresh_token in self._former
                self.dead = True
                return None
            self.refreshes += 1
            self.too_early += time.time() < self._issued_at + self.life_s * 0.9 - 0.01
            return self._new()

    def takes(self, access_token: str) -> bool:
        with self._lock:
            good = not self.dead and access_token == self._access and time.time() < self._issued_at + self.life_s
            self.used += good
            self.refused += not good
            return good

    def _new(self) -> dict[str, object]:
        self._former.add(self._refresh)
        self._access, self._refresh, self._issued_at = secrets.token_hex(8), secrets.token_hex(8), time.time()
        return {"access_token": self._access, "refresh_token": self._refresh, "expires_in": self.life_s}

    @property
    def url(self) -> str:
        assert self.server is not None
        return f"http://127.0.0.1:{self.server.server_address[1]}"


@contextmanager
def served(issuer: RotatingIssuer) -> Iterator[RotatingIssuer]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
            given = issuer.exchange(form["refresh_token"][0])
            self._answer(200 if given else 400, given or {"error": "invalid_grant"})

        def do_GET(self) -> None:
            good = issuer.takes(self.headers.get("authorization", "").removeprefix("Bearer "))
            self._answer(200 if good else 401, {})

        def _answer(self, status: int, body: object) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    issuer.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    issuer.server.daemon_threads = True
    thread = threading.Thread(target=issuer.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield issuer
    finally:
        issuer.server.shutdown()
        issuer.server.server_close()
        thread.join()


def refresh_at(client: httpx.AsyncClient, url: str) -> Refresh:
    async def refresh(tokens: Tokens) -> Tokens:
        form = {"grant_type": "refresh_token", "refresh_token": tokens.refresh_token}
        try:
            answer = await client.post(f"{url}/token", data=form)
        except httpx.RequestError:
            raise IssuerAway("no answer") from None
        if answer.status_code == 400:
            raise GrantInvalid("invalid_grant")
        return _tokens(answer.json())

    return refresh


def _tokens(given: dict[str, object]) -> Tokens:
    life_s = given["expires_in"]
    assert isinstance(life_s, float)
    access_token, refresh_token = str(given["access_token"]), str(given["refresh_token"])
    scopes = frozenset({"tools"})
    return Tokens(access_token, refresh_token, scopes, time.time() + life_s, "", ISSUER, RESOURCE, "client-1")
