"""The configured issuers, and their verified tokens (ACCESS-110 to ACCESS-121, ACCESS-206).

A token that was verified before is looked up, which costs little more than its digest: ``known`` never waits. Otherwise
``verify`` fetches what it needs: the issuer's keys, or the introspection of an opaque token (RFC 7662; ACCESS-119).
"""

import asyncio
import logging
from base64 import b64encode
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar
from urllib.parse import quote_plus, urlencode
from weakref import WeakValueDictionary

import httpx

from wicketgate.access.identity import KEY_PREFIX, Identity, Lapse, issuer_key_id
from wicketgate.access.issuer import (
    Issuer,
    TokenRefused,
    UnverifiedJwt,
    Verified,
    actor_of_id_token,
    judge,
    read_jwt,
    shows_access,
)
from wicketgate.access.key_sets import DEADLINE_S, MAX_BYTES, IssuerAway, KeySet, discover, endpoint_of
from wicketgate.access.signed_headers import TrustedGateway
from wicketgate.net import HttpClient, fetch
from wicketgate.net.addresses import network_of
from wicketgate.net.outgoing import trouble_of
from wicketgate.results.bulk import read_object

_MOST_AT_ONCE = 16
MOST_WAITING = 512
"""Tokens that wait for an answer, those asked about now among them. Anybody can make tokens up: one more is told at
once that nothing can be said."""


class Introspector:
    """Asks one issuer about a bounded number of tokens concurrently. Tokens from one network take at most half of the
    places and half of the queue (ACCESS-290)."""

    def __init__(self, issuer: Issuer, http: Callable[[], HttpClient]) -> None:
        assert issuer.introspection is not None
        self._issuer = issuer
        self._given = issuer.introspection
        self._url = issuer.introspection.url
        self._http = http
        self._places = asyncio.Semaphore(_MOST_AT_ONCE)
        self._shares = WeakValueDictionary[str, asyncio.Semaphore]()
        self._waiting = Counter[str]()
        self.trouble = ""
        """Why the last question has failed; empty if it has not."""

    async def claims(self, token: str, source: str) -> Mapping[str, Any]:
        """Returns what the issuer says of *token*, sent from the address *source*. Raises TokenRefused for one that is
        not good, and IssuerAway."""
        network = network_of(source)
        share = self._shares.setdefault(network, asyncio.Semaphore(_MOST_AT_ONCE // 2))
        self._waiting[network] += 1
        try:
            if self._waiting[network] > MOST_WAITING // 2 or self._waiting.total() > MOST_WAITING:
                raise IssuerAway("introspection: too many tokens wait for an answer")
            # The wait for a place counts too: otherwise each would have its whole time after those before it.
            async with asyncio.timeout(DEADLINE_S), share, self._places:
                claims = await self._ask(token)
        except (httpx.RequestError, TimeoutError) as error:
            trouble = trouble_of(error)
            self.trouble = trouble.told(self._url or self._issuer.url, "auth.issuers")
            raise IssuerAway(self.trouble) from None
        except IssuerAway as away:
            self.trouble = str(away)
            raise
        finally:
            self._waiting -= Counter((network,))
        self.trouble = ""
        if claims.get("active") is not True or claims.get("iss", self._issuer.url) != self._issuer.url:
            raise TokenRefused("unknown")
        return claims

    async def _ask(self, token: str) -> Mapping[str, Any]:
        if not self._url:
            document = await discover(self._http(), self._issuer.url)
            self._url = endpoint_of(document, "introspection_endpoint", self._issuer.url)
        pair = f"{quote_plus(self._given.client_id)}:{quote_plus(self._given.client_secret)}"
        headers = {
            "content-type": "application/x-www-form-urlencoded",
            "accept": "application/json",
            "authorization": "Basic " + b64encode(pair.encode()).decode(),
        }
        body = urlencode({"token": token, "token_type_hint": "access_token"}).encode()
        reply = await fetch(self._http(), "POST", self._url, headers, body, max_bytes=MAX_BYTES)
        if reply.status != 200 or reply.cut:
            # A 401 is about our own credential, so it says nothing of the token.
            raise IssuerAway(f"introspection: status {reply.status}" if not reply.cut else "introspection: too long")
        claims = read_object(reply.body)
        if claims is None:
            raise IssuerAway("introspection: the answer is no JSON object")
        return claims


log = logging.getLogger("wicketgate.access")

MAX_KEPT = 4_096
KEPT_S = 60.0
_REFUSED_KEPT_S = 10.0

T = TypeVar("T")


class _Kept(Generic[T]):
    """The facts of tokens, by their digests: the latest, each until its time, in seconds since the epoch."""

    def __init__(self) -> None:
        self._by_digest: OrderedDict[str, tuple[T, float]] = OrderedDict()

    def get(self, digest: str, now: float) -> T | None:
        found = self._by_digest.get(digest)
        if found is None:
            return None
        if now >= found[1]:
            del self._by_digest[digest]
            return None
        self._by_digest.move_to_end(digest)
        return found[0]

    def put(self, digest: str, value: T, until: float) -> None:
        self._by_digest[digest] = value, until
        self._by_digest.move_to_end(digest)
        if len(self._by_digest) > MAX_KEPT:
            self._by_digest.popitem(last=False)


@dataclass(frozen=True, slots=True)
class IssuerState:
    """*keys*: the number of keys; None before they were fetched, and where none are needed. *trouble*: why the last
    request to the issuer has failed; empty if it has not."""

    name: str
    issuer: str
    keys: int | None
    trouble: str


class _Known:
    """An issuer in force."""

    def __init__(self, issuer: Issuer, http: Callable[[], HttpClient], now: Callable[[], float]) -> None:
        self.issuer = issuer
        self.keys = KeySet(issuer.name, issuer.url, issuer.jwks_uri, http, now)
        self.introspector = Introspector(issuer, http) if issuer.introspection is not None else None
        from wicketgate.access.jose import Algorithm  # with the first issuer: fifty modules

        self.algorithms = {name: Algorithm(name) for name in issuer.algorithms}


class Issuers:
    """*connect* makes the client for all requests to issuers, when the first is made. *clock* gives seconds since the
    epoch, *now* those of a monotonic clock."""

    def __init__(self, connect: Callable[[], HttpClient], clock: Callable[[], float], now: Callable[[], float]) -> None:
        self._connect = connect
        self.clock = clock
        self._now = now
        self._http: HttpClient | None = None
        self._known: dict[str, _Known] = {}
        self.gateway: TrustedGateway | None = None
        """The gateway in front whose signed headers count."""
        self._lapses: list[Lapse] = []
        self._verified: _Kept[Verified] = _Kept()
        self._refused: _Kept[TokenRefused] = _Kept()
        self._asking: dict[str, asyncio.Task[Verified]] = {}

    def __bool__(self) -> bool:
        return bool(self._known)

    @property
    def all(self) -> Sequence[Issuer]:
        return [each.issuer for each in self._known.values()]

    def replace(self, issuers: Iterable[Issuer], gateway: TrustedGateway | None = None) -> None:
        """Accept tokens of these issuers and no others, and signed headers of *gateway*, from the next request on. What
        was started under one that differs from before ends (``lapsed``)."""
        if self.gateway is not None and gateway != self.gateway:
            self._lapses.append(Lapse(issuer_key_id(self.gateway.name), "trusted_headers differ"))
        self.gateway = gateway
        wanted = {issuer.url: issuer for issuer in issuers}
        former = {known.issuer.name: url for url, known in self._known.items()}
        for url, issuer in wanted.items():
            if former.get(issuer.name, url) != url:
                log.warning(
                    "auth.issuers: %s is now the name of another issuer. Its callers get the results, chats, approvals"
                    " and quotas of callers of the former issuer with the same subject: give the new issuer a new name",
                    issuer.name,
                )
        for url, known in self._known.items():
            if wanted.get(url) != known.issuer:
                self._lapses.append(Lapse(issuer_key_id(known.issuer.name), "the issuer is gone, or has changed"))
        kept = {url: each for url, each in self._known.items() if wanted.get(url) == each.issuer}
        self._known = {url: kept.get(url) or _Known(issuer, self._client, self._now) for url, issuer in wanted.items()}
        self._verified, self._refused = _Kept(), _Kept()

    def behind(self, actor: str) -> str:
        """Returns the URL of the issuer whose tokens say who *actor* is; empty if none does."""
        name, colon, _ = actor.partition(":")
        return next((url for url, each in self._known.items() if colon and each.issuer.name == name), "")

    def lapsed(self) -> list[Lapse]:
        """Returns the issuers whose tokens do not count any more, or not as they did, each once."""
        lapses, self._lapses = self._lapses, []
        return lapses

    def stands(self, identity: Identity) -> bool:
        """Implements Standing for identities of tokens: their issuer is still accepted. A token's own end ends its
        requests; what may outlive a request goes on (ACCESS-124)."""
        names = {each.issuer.name for each in self._known.values()}
        if self.gateway is not None:
            names.add(self.gateway.name)
        return identity.issuer in names

    def known(self, digest: str) -> Verified | TokenRefused | None:
        """Returns what is known of the token with this digest (``hash_key``); None if it has to be verified."""
        now = self.clock()
        return self._verified.get(digest, now) or self._refused.get(digest, now)

    async def verify(self, token: str, digest: str, source: str = "") -> Verified:
        """*source*: the address of the client that brings it. Raises TokenRefused and IssuerAway."""
        found = read_jwt(token)
        if found is not None:
            return await self._verify_jwt(token, digest, found)
        known = self._issuer_of(token)
        if known is None:
            raise TokenRefused("unknown")
        # An opaque token is asked about once, however many requests come with it.
        asking = self._asking.get(digest)
        if asking is None:
            asking = self._asking[digest] = asyncio.create_task(self._introspect(known, token, digest, source))
            asking.add_done_callback(lambda task: self._asked(digest, task))
        await asyncio.wait([asking])
        return asking.result()

    async def logged_in(self, name: str, id_token: str, nonce: str) -> tuple[str, float]:
        """Returns the actor that the issuer *name* has logged in with its answer's *id_token*, and the end of that
        token in seconds since the epoch. Raises TokenRefused and IssuerAway."""
        found = read_jwt(id_token)
        known = self._known.get(found.issuer) if found is not None else None
        if found is None or known is None or known.issuer.name != name:
            raise TokenRefused
        _, claims = await self._signed(id_token, found)
        return actor_of_id_token(known.issuer, claims, nonce, self.clock()), float(claims["exp"])

    def _asked(self, digest: str, task: "asyncio.Task[Verified]") -> None:
        self._asking.pop(digest, None)
        if not task.cancelled():
            task.exception()  # anyone who waited has left, and nobody else looks at it

    async def reach(self) -> None:
        """Fetches the keys of all issuers, for ``states``, which says what is wrong with one in place of the log."""
        await asyncio.gather(*(each.keys.refresh(logged=False) for each in self._known.values()))

    def states(self) -> list[IssuerState]:
        return [
            IssuerState(
                each.issuer.name,
                each.issuer.url,
                each.keys.count,
                each.keys.trouble or (each.introspector.trouble if each.introspector is not None else ""),
            )
            for each in self._known.values()
        ]

    async def aclose(self) -> None:
        """Ends what is under way."""
        for task in list(self._asking.values()):
            task.cancel()
        for each in self._known.values():
            await each.keys.aclose()
        if self._http is not None:
            await self._http.aclose()

    def _client(self) -> HttpClient:
        if self._http is None:
            self._http = self._connect()
        return self._http

    async def _verify_jwt(self, token: str, digest: str, found: UnverifiedJwt) -> Verified:
        known, claims = await self._signed(token, found)
        return self._judged(known.issuer, claims, digest, shown=shows_access(found.kind, claims))

    async def _signed(self, token: str, found: UnverifiedJwt) -> tuple[_Known, Mapping[str, Any]]:
        """The issuer of a token, and the claims that it has signed. Raises TokenRefused and IssuerAway."""
        # The issuer comes first: a key id means something only among its keys. Of the header only ``alg``, one of those
        # pinned for this issuer, and ``kid`` count; keys and addresses in it (``jwk``, ``jku``, ``x5u``) do not.
        known = self._known.get(found.issuer)
        algorithm = known.algorithms.get(found.algorithm) if known is not None else None
        if known is None or algorithm is None:
            raise TokenRefused
        claims: Mapping[str, Any] | None = None
        for key in await known.keys.find(found.algorithm, found.key_id):
            claims = algorithm.claims(token, key)
            if claims is not None:
                break
        if claims is None or claims.get("iss") != found.issuer:
            raise TokenRefused
        return known, claims

    def _issuer_of(self, token: str) -> _Known | None:
        """The one issuer that is asked about an opaque token. An issuer that is asked could use the token, so no
        other is shown it, and none is shown our own keys."""
        if token.startswith(KEY_PREFIX):
            return None
        for known in self._known.values():
            asked = known.issuer.introspection
            if asked is not None and token.startswith(asked.prefix):
                return known
        return None

    async def _introspect(self, known: _Known, token: str, digest: str, source: str) -> Verified:
        assert known.introspector is not None
        try:
            claims = await known.introspector.claims(token, source)
        except TokenRefused as refused:
            self._refused.put(digest, refused, self.clock() + _REFUSED_KEPT_S)
            raise
        return self._judged(known.issuer, claims, digest, shown=True, opaque=True)

    def _judged(
        self, issuer: Issuer, claims: Mapping[str, Any], digest: str, *, shown: bool, opaque: bool = False
    ) -> Verified:
        now = self.clock()
        verified = replace(judge(issuer, claims, now, shown=shown), opaque=opaque)
        # A configuration that has come in the meantime counts.
        if (known := self._known.get(issuer.url)) is None or known.issuer is not issuer:
            raise TokenRefused
        self._verified.put(digest, verified, min(verified.expires_at, now + KEPT_S))
        return verified
