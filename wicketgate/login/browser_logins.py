"""Logins of browsers at one of our own issuers (OpenID Connect: code, PKCE, nonce), and the ID tokens from them.

The state of a login is sealed into a cookie of its browser: nothing is stored for unknown visitors, and an answer is
accepted only in the browser that asked. A used login is recorded, so its code is redeemed once. ID tokens are stored
for the exchange by ``id_jag`` (UP-195 to UP-197).
"""

import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from wicketgate.access.issuer import BrowserClient, Issuer, TokenRefused
from wicketgate.access.issuers import Issuers
from wicketgate.access.key_sets import IssuerAway as KeysAway
from wicketgate.login import token_endpoint
from wicketgate.login.authorize import Pending, authorization, code_of
from wicketgate.login.discovery import Issuer as FoundIssuer
from wicketgate.login.discovery import issuer_of
from wicketgate.login.oauth_http import Carrier, Recent
from wicketgate.login.registrar import GivenClient, Registration, given_method
from wicketgate.login.sealed_rows import Row, SealedRows, row_key
from wicketgate.login.steps import Distrusted, IssuerAway, NotOffered

CALLBACK = "/login/callback"
LIFE_S = 600.0
_MOST_S = 30 * 86_400.0
_TRIES = 5
_MAX_COOKIE = 4_000


class KeptIdTokens:
    """Implements IdTokens with the latest ID token of each actor, kept in *rows* until it ends. *issuers* gives those
    whose ID tokens are needed, by their names, as they are configured now. *now* is the time of day in seconds."""

    def __init__(self, rows: SealedRows, issuers: Callable[[], Mapping[str, Issuer]], now: Callable[[], float]) -> None:
        self._rows = rows
        self._issuers = issuers
        self._now = now

    async def keep(self, name: str, actor: str, id_token: str, ends_at: float) -> None:
        """Keep what the issuer *name* gave for *actor*, in place of one before; nothing where none is needed. Raises
        StoreUnavailable."""
        issuer = self._issuers().get(name)
        if issuer is None or self._now() >= ends_at:
            return
        key, value = _id_token_key(actor), {"id_token": id_token, **_given_by(issuer)}
        ends_at = min(ends_at, self._now() + _MOST_S)
        for _ in range(_TRIES):
            former = await self._rows.read("id_token", key)
            version = 1 if former is None else former.version + 1
            # Of two logins at once the later one counts.
            if await self._rows.write(Row("id_token", key, actor, value, version, ends_at)):
                return

    async def id_token_of(self, actor: str) -> str | None:
        row = await self._rows.read("id_token", _id_token_key(actor))
        if row is None or row.owner != actor or row.expires_at is None or self._now() >= row.expires_at:
            return None
        issuer = self._issuers().get(str(row.value.get("name")))
        # An ID token goes to nobody but the issuer that gave it, and by the client that it was given to.
        if issuer is None or any(row.value.get(name) != value for name, value in _given_by(issuer).items()):
            return None
        return str(row.value["id_token"])


def _given_by(issuer: Issuer) -> Mapping[str, str]:
    client = "" if issuer.login is None else issuer.login.client_id
    return {"name": issuer.name, "issuer": issuer.url, "client_id": client}


def _id_token_key(actor: str) -> str:
    return row_key("id token of", actor)


@dataclass(frozen=True, slots=True)
class Asked:
    """The question to a browser: *url* is where it goes, *cookie* what it keeps until it comes back."""

    url: str
    cookie: str


@dataclass(frozen=True, slots=True)
class CameBack:
    """*actor* has logged in at *issuer*, by its URL, on the way to the login *flow* at *upstream*."""

    actor: str
    issuer: str
    upstream: str
    flow: str


@dataclass(eq=False, repr=False)
class BrowserLogins:
    """*carrier* makes what carries requests to one issuer. *now* is the time of day, *clock* monotonic, both in
    seconds. *id_tokens* keeps what the logins gave, *rows* the ways that were used."""

    _issuers: Issuers
    _rows: SealedRows
    _carrier: Callable[[str], Carrier]
    _public_url: str
    _now: Callable[[], float]
    _clock: Callable[[], float]
    _id_tokens: KeptIdTokens

    def __post_init__(self) -> None:
        self._redirect_uri = f"{self._public_url}{CALLBACK}"
        self._documents: dict[str, Recent[FoundIssuer]] = {}

    @property
    def names(self) -> Mapping[str, str]:
        """The issuers at which callers can log in: their URLs by their names."""
        return {each.name: each.url for each in self._issuers.all if each.login is not None}

    async def begin(self, name: str, upstream: str, flow: str) -> Asked:
        """The way to the issuer *name*, for the login *flow* at *upstream*. Raises LoginFailure."""
        issuer, client = self._client(name)
        found = await self._found(issuer.url)
        nonce = secrets.token_urlsafe(16)
        pending = self._pending(found, client, secrets.token_urlsafe(24), secrets.token_urlsafe(32))
        url = f"{pending.url}&{urlencode({'nonce': nonce})}"
        value = {"verifier": pending.verifier, "nonce": nonce, "upstream": upstream, "flow": flow}
        value["says_issuer"] = "1" if found.says_issuer else ""
        ends_at = int(self._now() + LIFE_S)
        row = Row("browser", _key(pending.state), name, value, 1, ends_at)
        return Asked(url, f"{name}.{ends_at}.{urlsafe_b64encode(self._rows.seal.seal(row)).decode()}")

    async def finish(self, cookie: str, came: Mapping[str, str]) -> CameBack:
        """The person that has logged in, by the query that *came* back. Raises LoginFailure and StoreUnavailable."""
        state = came.get("state", "")
        name, value = self._opened(cookie, state)
        issuer, client = self._client(name)
        found = replace(await self._found(issuer.url), says_issuer=bool(value["says_issuer"]))
        pending = self._pending(found, client, state, value["verifier"])
        code = code_of(pending, came)
        used = Row("browser", row_key("used way to an issuer", state), "", {}, 1, self._now() + LIFE_S)
        if not await self._rows.write(used):
            raise Distrusted("the answer was used before")
        own, endpoint = pending.registration, found.token_endpoint
        at = token_endpoint.Client(found.issuer, endpoint, own.client_id, own.auth_method, own.client_secret)
        redeem = token_endpoint.redeem(at, pending, code, self._now())
        tokens = await self._carrier(issuer.url).run(redeem)
        try:
            actor, ends_at = await self._issuers.logged_in(name, tokens.id_token, value["nonce"])
        except TokenRefused:
            raise Distrusted("the ID token of the answer does not hold") from None
        except KeysAway as away:
            raise IssuerAway(str(away)) from None
        await self._id_tokens.keep(name, actor, tokens.id_token, ends_at)
        return CameBack(actor, issuer.url, value["upstream"], value["flow"])

    async def _found(self, url: str) -> FoundIssuer:
        """The issuer by its document, as it was a moment ago: many forms send it no more requests. Raises
        LoginFailure."""
        if url not in self._documents:
            in_force = self.names.values()
            self._documents = {kept: each for kept, each in self._documents.items() if kept in in_force}
            self._documents[url] = Recent(lambda: self._carrier(url).run(issuer_of(url)), self._clock)
        return await self._documents[url].get()

    def _client(self, name: str) -> tuple[Issuer, BrowserClient]:
        """Raises NotOffered."""
        for issuer in self._issuers.all:
            if issuer.name == name and issuer.login is not None:
                return issuer, issuer.login
        raise NotOffered("nobody can log in with a browser at this issuer")

    def _pending(self, found: FoundIssuer, client: BrowserClient, state: str, verifier: str) -> Pending:
        method = given_method(GivenClient(found.issuer, client.client_id, client.client_secret), found)
        own = Registration(found.issuer, self._redirect_uri, client.client_id, method, "given", client.client_secret)
        # Many issuers of companies check PKCE and do not say so; the nonce binds their answers besides.
        return authorization(replace(found, s256=True), own, client.scopes, "", state=state, verifier=verifier)

    def _opened(self, cookie: str, state: str) -> tuple[str, Mapping[str, str]]:
        """The name of the issuer and what was kept. Raises Distrusted."""
        name, _, rest = cookie.partition(".")
        ends_at, _, sealed = rest.partition(".")
        in_time = ends_at.isascii() and ends_at.isdigit() and len(ends_at) < 12 and self._now() < int(ends_at)
        opened = None
        if state and in_time and len(cookie) <= _MAX_COOKIE:
            try:
                data = urlsafe_b64decode(sealed.encode("ascii"))
            except (NotBase64, ValueError):
                data = b""
            opened = self._rows.seal.open(Row("browser", _key(state), name, {}, 1, int(ends_at)), data)
        if opened is None:
            raise Distrusted("the answer belongs to no login that is under way in this browser")
        return name, opened.value


def _key(state: str) -> str:
    return row_key("login at an issuer", state)
