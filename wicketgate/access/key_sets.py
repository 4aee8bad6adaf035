"""The keys of an issuer, fetched when they are needed (ACCESS-111 to ACCESS-113).

Many requests that need the same keys wait for one fetch. Keys are fresh for ten minutes, are renewed beside the
requests from half of that on, and serve for a day while the issuer cannot be reached. A key that is not there is looked
for again at most every ten seconds.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx

from wicketgate.net import HttpClient, fetch
from wicketgate.net.outgoing import trouble_of

if TYPE_CHECKING:
    from joserfc.jwk import Key

log = logging.getLogger("wicketgate.access")

FRESH_S = 600.0
RENEW_S = 300.0
STALE_S = 86_400.0
AGAIN_S = 10.0
RETRY_AFTER_S = 2
"""Told to a client whose issuer cannot be reached; an issuer that was never reached is asked again as often."""
DEADLINE_S = 5.0
MAX_BYTES = 256 * 1024
_PATIENCE_S = 1.0
"""A token whose key is old waits so long for the issuer to say whether it has that key still."""

_MAX_KEYS = 100
_KIND_OF = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
_MOST_TRIED = 4


class IssuerAway(Exception):
    """The issuer cannot be reached, or answers nothing that can be used. The text is for the operator."""


def metadata_urls(issuer: str) -> Sequence[str]:
    """Returns the addresses at which the document of *issuer* may be, in the order to try them (RFC 8414, OpenID)."""
    parts = urlsplit(issuer)
    root, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    names = ("oauth-authorization-server", "openid-configuration")
    before = tuple(f"{root}/.well-known/{name}{path}" for name in names)
    return (*before, f"{root}{path}/.well-known/openid-configuration") if path else before


async def fetch_json(http: HttpClient, url: str) -> Mapping[str, Any] | None:
    """Returns the object at *url*; None if there is none at this address. Raises IssuerAway."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            reply = await fetch(http, "GET", url, {"accept": "application/json"}, max_bytes=MAX_BYTES, hops=2)
    except (httpx.RequestError, TimeoutError) as error:
        trouble = trouble_of(error)
        raise IssuerAway(trouble.told(url, "auth.issuers")) from None
    if 400 <= reply.status < 500 and reply.status not in (408, 429):
        return None
    if reply.status != 200 or reply.cut:
        raise IssuerAway(f"status {reply.status}" if reply.status != 200 else f"more than {MAX_BYTES} bytes")
    return _read_object(reply.body)


def _read_object(body: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise IssuerAway("the answer is no JSON") from None
    if not isinstance(value, dict):
        raise IssuerAway("the answer is no JSON object")
    return value


async def discover(http: HttpClient, issuer: str) -> Mapping[str, Any]:
    """Returns the document that *issuer* publishes about itself, and that names it to the letter. Raises IssuerAway."""
    for url in metadata_urls(issuer):
        document = await fetch_json(http, url)
        if document is None:
            continue
        if document.get("issuer") != issuer:
            raise IssuerAway("its document names another issuer")
        return document
    raise IssuerAway("it publishes no document about itself (RFC 8414, OpenID): set jwks_uri")


def endpoint_of(document: Mapping[str, Any], name: str, issuer: str) -> str:
    """Returns the URL under *name* in the issuer's document. Raises IssuerAway for one that is none, or not as secure
    as the issuer's own."""
    url = document.get(name)
    if not isinstance(url, str):
        raise IssuerAway(f"its document has no {name}")
    try:
        parts = urlsplit(url)
        usable = parts.scheme == "https" or (parts.scheme == "http" and urlsplit(issuer).scheme == "http")
        usable = usable and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise IssuerAway(f"{name} in its document cannot be used")
    return url


@dataclass(frozen=True, slots=True)
class PublishedKey:
    id: str | None
    kind: str
    algorithm: str | None
    key: "Key"

    def fits(self, algorithm: str) -> bool:
        return self.kind == _KIND_OF.get(algorithm[:2]) and self.algorithm in (None, algorithm)


def read_keys(document: Mapping[str, Any]) -> Sequence[PublishedKey]:
    """Returns the keys that can verify signatures; others, secret ones among them, are left out. Raises IssuerAway for
    what is no key set."""
    entries = document.get("keys")
    if not isinstance(entries, list):
        raise IssuerAway("what is at jwks_uri is no key set")
    return [key for entry in entries[:_MAX_KEYS] if (key := _read_key(entry)) is not None]


def _read_key(entry: object) -> PublishedKey | None:
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    operations, key_id, algorithm, kind = (entry.get(name) for name in ("key_ops", "kid", "alg", "kty"))
    if operations is not None and not (isinstance(operations, list) and "verify" in operations):
        return None
    if not isinstance(kind, str):
        return None
    from wicketgate.access.jose import public_key

    key = public_key(kind, entry)
    if key is None:
        return None
    return PublishedKey(
        key_id if isinstance(key_id, str) else None, kind, algorithm if isinstance(algorithm, str) else None, key
    )


class KeySet:
    """The keys of the issuer *issuer*, at *jwks_uri* or where its document says. *now* is a monotonic clock in
    seconds."""

    def __init__(
        self, name: str, issuer: str, jwks_uri: str, http: Callable[[], HttpClient], now: Callable[[], float]
    ) -> None:
        self._name = name
        self._issuer = issuer
        self._given_uri = self._uri = jwks_uri
        self._http = http
        self._now = now
        self._keys: Sequence[PublishedKey] | None = None
        self._fetched_at = float("-inf")
        self._tried_at = float("-inf")
        self._fetching: asyncio.Task[None] | None = None
        self.trouble = ""
        """Why the last fetch has failed; empty if it has not."""

    @property
    def count(self) -> int | None:
        """The number of keys; None before the first fetch."""
        return None if self._keys is None else len(self._keys)

    async def find(self, algorithm: str, key_id: str | None) -> "Sequence[Key]":
        """Returns the keys that may have signed a token; none if the issuer has no such key. Raises IssuerAway if that
        cannot be said now."""
        age = self._age()
        if age >= RENEW_S and self._may_ask(AGAIN_S if self._keys else RETRY_AFTER_S):
            fetching = self._fetch()
            if not self._held(algorithm, key_id):
                await asyncio.wait([fetching])
            elif age >= FRESH_S and not self.trouble:
                # One that has not answered by then is away, as far as anyone who has come can tell.
                await asyncio.wait([fetching], timeout=max(self._tried_at + _PATIENCE_S - self._now(), 0.0))
        if not (found := self._held(algorithm, key_id)) and self._may_ask(AGAIN_S):
            await self.refresh()
            found = self._held(algorithm, key_id)
        # The key may be one that the issuer has had since it was reached last.
        if not found and (self.trouble or self._age() >= STALE_S):
            raise IssuerAway(self.trouble)
        return found

    def _age(self) -> float:
        return self._now() - self._fetched_at

    def _may_ask(self, pause_s: float) -> bool:
        """Returns true while the issuer is being asked, which any caller can wait for, and *pause_s* after that."""
        return self._fetching is not None or self._now() - self._tried_at >= pause_s

    def _held(self, algorithm: str, key_id: str | None) -> "Sequence[Key]":
        if self._keys is None or self._age() >= STALE_S:
            return ()
        fitting = (each for each in self._keys if each.fits(algorithm))
        return [each.key for each in fitting if key_id is None or each.id in (None, key_id)][:_MOST_TRIED]

    async def refresh(self, *, logged: bool = True) -> None:
        """Fetches the keys, together with all who wait for them. Never raises: what came of it is in the state, and in
        the log if it is to be *logged*."""
        # A caller that leaves must not take the keys from the others, so it waits beside the task.
        await asyncio.wait([self._fetch(logged=logged)])

    def _fetch(self, *, logged: bool = True) -> "asyncio.Task[None]":
        """Returns the fetch that is under way, or begins one."""
        if self._fetching is None:
            self._tried_at = self._now()
            self._fetching = asyncio.create_task(self._refresh(logged), name=f"keys of {self._name}")
            self._fetching.add_done_callback(self._fetched)
        return self._fetching

    def _fetched(self, task: "asyncio.Task[None]") -> None:
        self._fetching = None

    async def _refresh(self, logged: bool) -> None:
        try:
            if not self._uri:
                document = await discover(self._http(), self._issuer)
                self._uri = endpoint_of(document, "jwks_uri", self._issuer)
            found = await fetch_json(self._http(), self._uri)
            if found is None:
                raise IssuerAway("there is nothing at jwks_uri")
            keys = read_keys(found)
        except IssuerAway as away:
            if logged and not self.trouble:
                log.warning("issuer %s: its keys cannot be fetched: %s", self._name, away)
            self.trouble = str(away)
            self._uri = self._given_uri  # it may have moved
            return
        except Exception as error:
            # The last boundary of this task: anyone who waits for it is told that there are no keys.
            log.exception("issuer %s: its keys cannot be read", self._name)
            self.trouble = type(error).__name__
            return
        if self.trouble:
            log.info("issuer %s: its keys can be fetched again", self._name)
        self._keys, self._fetched_at, self.trouble = keys, self._now(), ""

    async def aclose(self) -> None:
        """Ends a fetch that is under way."""
        if (fetching := self._fetching) is not None:
            fetching.cancel()
            await asyncio.wait([fetching])
