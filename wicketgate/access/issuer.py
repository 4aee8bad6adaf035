"""Issuers, and what their tokens say of a caller (ACCESS-110 to ACCESS-118, ACCESS-206).

Nothing here is fetched: a token is read, judged against what is configured for its issuer, and becomes an identity.
What a token says counts only when its signature was verified with a key of that issuer, or its issuer has vouched
for it.
"""

import binascii
import hashlib
import hmac
import json
import math
from base64 import urlsafe_b64decode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wicketgate.access.identity import FailureReason, Identity, issuer_key_id

LEEWAY_S = 30.0
"""Clocks of issuers may differ from ours by so much."""

MAX_ACTOR_CHARS = 128
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._@-")
_ACCESS_TOKEN_TYPES = frozenset({"at+jwt", "application/at+jwt"})
_TYPES = frozenset({"", "jwt"}) | _ACCESS_TOKEN_TYPES
_OF_ID_TOKENS = ("nonce", "at_hash", "c_hash", "s_hash", "events")
_OTHER_KINDS = frozenset({"id", "refresh", "offline", "logout"})
_OF_EACH_TOKEN = frozenset(
    {"exp", "iat", "nbf", "jti", "auth_time", "sid", "session_state", "uti", "rh", "aio", "active"}
)
"""Claims that differ in each token, or say nothing of the caller."""
_SCOPE_CLAIMS = ("scope", "scp")
_OF_ACCESS_TOKENS = ("client_id", "azpacr", "appidacr")
"""Claims that issuers write into access tokens alone: which client asked, and how it proved that. ``azp`` and ``roles``
are not among them, since ID tokens have them too."""
_ACCESS_KINDS = frozenset({"bearer", "access"})
_TOKEN_TYPES = _ACCESS_KINDS | {"access_token"}


class TokenRefused(Exception):
    """The token gives no identity here. *reason* is for logs and metrics."""

    def __init__(self, reason: FailureReason = "token_refused") -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Grant:
    """Gives *permissions* to tokens whose *claim* has *value*, or holds it in a list; to all of them if *claim* is
    empty. The claim ``scope`` is that of all scopes, ``roles`` that of the issuer's roles."""

    permissions: tuple[str, ...]
    claim: str = ""
    value: str = ""


@dataclass(frozen=True, slots=True)
class Introspection:
    """The place, and the client, for questions about opaque tokens (RFC 7662). Without *url* the issuer's own document
    names it. Only tokens that begin with *prefix* are the issuer's."""

    url: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class BrowserClient:
    """This service as a client at which its callers log in with a browser (OpenID Connect)."""

    client_id: str
    client_secret: str = field(default="", repr=False)
    scopes: tuple[str, ...] = ("openid",)


@dataclass(frozen=True, slots=True)
class Issuer:
    """An issuer whose tokens are accepted. *url* is what ``iss`` has to say, to the letter. In *audience*,
    ``{resource}`` stands for the URL of the path that is called. *scopes* are needed by every request; *implied* names
    the scopes that a broader one holds."""

    name: str
    url: str
    audience: tuple[str, ...] = ("{resource}",)
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    actor: str = "sub"
    roles: str = ""
    scopes: tuple[str, ...] = ()
    implied: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    grants: tuple[Grant, ...] = (Grant(("tools:*",)),)
    jwks_uri: str = ""
    introspection: Introspection | None = None
    login: BrowserClient | None = None

    def scopes_for(self, permission: str) -> tuple[str, ...]:
        """Returns the scopes that a token needs for *permission*: those of every request, and the first that gives it;
        none if no scope gives it."""
        for grant in self.grants:
            if grant.claim == "scope" and Identity("", grant.permissions).allows(permission):
                return tuple(dict.fromkeys((*self.scopes, grant.value)))
        return ()

    def all_scopes(self) -> tuple[str, ...]:
        """Returns every scope that means something here."""
        named = (grant.value for grant in self.grants if grant.claim == "scope")
        return tuple(dict.fromkeys((*self.scopes, *named)))


@dataclass(frozen=True, slots=True)
class UnverifiedJwt:
    """A signed token as its sender wrote it. Nothing of it is proved."""

    algorithm: str
    key_id: str | None
    issuer: str
    kind: str = ""
    """Its ``typ``, in lower case."""


def read_jwt(token: str) -> UnverifiedJwt | None:
    """Returns None for a text that is no signed JWT, such as an opaque token. Raises TokenRefused for one that no
    issuer's keys can prove here: without ``iss``, of another type, or with extensions that we do not know."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    header = _object(parts[0])
    if header is None or "alg" not in header:
        return None
    claims = _object(parts[1])
    algorithm, key_id, kind = header["alg"], header.get("kid"), header.get("typ", "")
    if claims is None or not isinstance(algorithm, str) or not isinstance(kind, str):
        raise TokenRefused
    if not (key_id is None or isinstance(key_id, str)) or kind.lower() not in _TYPES:
        raise TokenRefused
    # What such a header asks for is not done here, so the token may not be read as if it were not there.
    if "crit" in header or "b64" in header:
        raise TokenRefused
    issuer = claims.get("iss")
    if not isinstance(issuer, str):
        raise TokenRefused
    return UnverifiedJwt(algorithm, key_id, issuer, kind.lower())


def _object(part: str) -> Mapping[str, Any] | None:
    try:
        value = json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


@dataclass(frozen=True, slots=True)
class Verified:
    """A token that was verified. The end of *identity* is that of the token, or a little later for a token that is over
    already by our clock. *opaque*: its issuer was asked about it."""

    issuer: Issuer
    identity: Identity
    audiences: frozenset[str]
    scopes: frozenset[str]
    expires_at: float
    opaque: bool = False


def shows_access(kind: str, claims: Mapping[str, Any]) -> bool:
    """Returns whether a token of the type *kind* shows that it is an access token, and no ID token."""
    if kind in _ACCESS_TOKEN_TYPES or scopes_of(claims, {}):
        return True
    if any(isinstance(claims.get(name), str) and claims[name] for name in _OF_ACCESS_TOKENS):
        return True
    kinds = (claims.get(name) for name in ("typ", "token_use"))
    return any(isinstance(each, str) and each.lower() in _ACCESS_KINDS for each in kinds)


def judge(issuer: Issuer, claims: Mapping[str, Any], now: float, *, shown: bool) -> Verified:
    """Judges the *claims* of a token that *issuer* has signed or vouched for. *shown* says that it is an access token
    for certain: without that it is refused if its audience may be a client, to which ID tokens are issued. Raises
    TokenRefused."""
    if any(name in claims for name in _OF_ID_TOKENS):
        raise TokenRefused
    # Bound to a key of its client (DPoP, mTLS), which is not checked here: a thief could use it.
    if "cnf" in claims or str(claims.get("token_type", "Bearer")).lower() not in _TOKEN_TYPES:
        raise TokenRefused
    for name in ("typ", "token_use"):
        kind = claims.get(name)
        if isinstance(kind, str) and kind.lower() in _OTHER_KINDS:
            raise TokenRefused
    # Its life.
    expires_at = _time(claims.get("exp"))
    for name in ("nbf", "iat"):
        if name in claims and _time(claims[name]) > now + LEEWAY_S:
            raise TokenRefused("not_yet_valid")
    if now >= expires_at + LEEWAY_S:
        raise TokenRefused("expired")
    # Whom it is for, and of whom.
    audience = claims.get("aud")
    audiences = [audience] if isinstance(audience, str) else audience
    if not isinstance(audiences, list) or not audiences or not all(isinstance(each, str) for each in audiences):
        raise TokenRefused("wrong_audience")
    # No client is called by a URL that the operator chose for the gate.
    if not shown and any(each in audiences for each in issuer.audience if "://" not in each and each != "{resource}"):
        raise TokenRefused
    subject = value_at(claims, issuer.actor)
    if not isinstance(subject, str) or not subject:
        raise TokenRefused
    # What it may do.
    scopes = scopes_of(claims, issuer.implied)
    roles = tuple(sorted(set(texts(value_at(claims, issuer.roles))))) if issuer.roles else ()
    kept = {name: value for name, value in claims.items() if name not in _OF_EACH_TOKEN}
    identity = Identity(
        actor_of(issuer.name, subject),
        permissions_of(issuer.grants, claims, scopes, roles),
        issuer_key_id(issuer.name),
        roles,
        json.dumps(kept, sort_keys=True, separators=(",", ":")),
        issuer.name,
        expires_at if now < expires_at else expires_at + LEEWAY_S,
    )
    return Verified(issuer, identity, frozenset(audiences), scopes, expires_at)


def actor_of_id_token(issuer: Issuer, claims: Mapping[str, Any], nonce: str, now: float) -> str:
    """Judges the *claims* of an ID token that *issuer* has signed for its ``login``, and returns the actor, which is
    the one that an access token of the same person has. Raises TokenRefused."""
    audience = claims.get("aud")
    audiences = [audience] if isinstance(audience, str) else audience
    own = issuer.login.client_id if issuer.login is not None else None
    if own is None or not isinstance(audiences, list) or own not in audiences:
        raise TokenRefused("wrong_audience")
    if (len(audiences) > 1 or "azp" in claims) and claims.get("azp") != own:
        raise TokenRefused("wrong_audience")
    given = claims.get("nonce")
    if not nonce or not isinstance(given, str):
        raise TokenRefused
    if not hmac.compare_digest(given.encode("utf-8", "surrogatepass"), nonce.encode()):
        raise TokenRefused
    if _time(claims.get("iat")) > now + LEEWAY_S:
        raise TokenRefused("not_yet_valid")
    if now >= _time(claims.get("exp")) + LEEWAY_S:
        raise TokenRefused("expired")
    subject = value_at(claims, issuer.actor)
    if not isinstance(subject, str) or not subject:
        raise TokenRefused
    return actor_of(issuer.name, subject)


def _time(value: object) -> float:
    """Raises TokenRefused for what is no time."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TokenRefused
    try:
        seconds = float(value)
    except OverflowError:
        raise TokenRefused from None
    if not math.isfinite(seconds):
        raise TokenRefused
    return seconds


def value_at(claims: Mapping[str, Any], path: str) -> Any:
    """Returns the claim at *path*: its name, or names with dots between them (``realm_access.roles``); None if there is
    none. A claim whose own name has dots is found first."""
    if path in claims:
        return claims[path]
    found: Any = claims
    for name in path.split("."):
        if not isinstance(found, Mapping) or name not in found:
            return None
        found = found[name]
    return found


def texts(value: object) -> Sequence[str]:
    """Returns the texts of a claim that is one, or a list of them."""
    if isinstance(value, str):
        return [value]
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def scopes_of(claims: Mapping[str, Any], implied: Mapping[str, Sequence[str]]) -> frozenset[str]:
    """Returns the scopes of a token, with those that broader ones hold."""
    found = {scope for name in _SCOPE_CLAIMS for text in texts(claims.get(name)) for scope in text.split()}
    waiting = list(found)
    while waiting:
        for narrower in implied.get(waiting.pop(), ()):
            if narrower not in found:
                found.add(narrower)
                waiting.append(narrower)
    return frozenset(found)


def permissions_of(
    grants: Iterable[Grant], claims: Mapping[str, Any], scopes: frozenset[str], roles: Sequence[str]
) -> tuple[str, ...]:
    """Returns the permissions in the order of the *grants*, each once."""

    def has(grant: Grant) -> bool:
        match grant.claim:
            case "":
                return True
            case "scope":
                return grant.value in scopes
            case "roles":
                return grant.value in roles
        return grant.value in texts(value_at(claims, grant.claim))

    return tuple(dict.fromkeys(permission for grant in grants if has(grant) for permission in grant.permissions))


def actor_of(name: str, subject: str) -> str:
    """Returns the actor of a *subject* of the issuer *name*: ``corp:ann``. Two subjects never have one actor: what
    cannot stand in an actor is ``/`` and two hex digits, and one that is too long is ``/h`` and its digest."""
    encoded = subject.encode("utf-8", "surrogatepass")
    escaped = "".join(chr(byte) if chr(byte) in _PLAIN else f"/{byte:02x}" for byte in encoded)
    actor = f"{name}:{escaped}"
    return actor if len(actor) <= MAX_ACTOR_CHARS else f"{name}:/h{hashlib.sha256(encoded).hexdigest()}"
