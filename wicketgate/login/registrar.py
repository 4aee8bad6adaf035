"""The gate as a client of an issuer: registered by hand, by a document of its own, or by asking (RFC 7591).

A registration belongs to one issuer and one redirect address, and is used with no other. Each issuer has a redirect
address of its own, so that a code of one is never sent to another (mix-up, RFC 9700 §4.4; ACCESS-250); one that has
the gate registered elsewhere with that address is held off by its answers (ACCESS-311). An issuer is only as safe as
the weakest client of the gate that it may show another one, so each way to be a client has its own too.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Literal
from urllib.parse import urlsplit

from wicketgate.login.discovery import Issuer
from wicketgate.login.steps import Answer, Distrusted, NotOffered, Refused, Steps, check_there, post_json
from wicketgate.net.guard import is_loopback
from wicketgate.net.outgoing import shown_origin

AuthMethod = Literal["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]
_METHODS: tuple[AuthMethod, ...] = ("none", "client_secret_basic", "client_secret_post")
_MAX_CHARS = 4_000
_SOON_S = 60.0


@dataclass(frozen=True, slots=True)
class Registration:
    """The gate as *issuer* knows it. *made*: by the operator, by the gate's document, or by asking. *expires_at*, of
    the secret, is in seconds since the epoch."""

    issuer: str
    redirect_uri: str
    client_id: str
    auth_method: AuthMethod
    made: Literal["given", "document", "asked"]
    client_secret: str = field(default="", repr=False)
    expires_at: float | None = None

    def fits(self, issuer: str, redirect_uri: str, now: float) -> bool:
        """True if it may be used at *issuer* with *redirect_uri* for a while."""
        ended = self.expires_at is not None and self.expires_at - _SOON_S <= now
        return (self.issuer, self.redirect_uri) == (issuer, redirect_uri) and not ended


@dataclass(frozen=True, slots=True)
class GivenClient:
    """A client that the operator registered at *issuer*. *auth_method* is empty where the issuer's metadata decides.
    *has_key*: it signs with a private key."""

    issuer: str
    client_id: str
    client_secret: str = field(default="", repr=False)
    has_key: bool = False
    auth_method: AuthMethod | None = None


Way = Literal["given", "key", "document", "asked"]
"""How the gate is a client: by hand, by its document with or without a key, or by asking."""
_MARKS: Mapping[Way, str] = {"key": "k", "document": "d", "asked": "r"}
MARK_CHARS = 25


def way_at(issuer: Issuer, given: GivenClient | None, document_url: str, *, has_key: bool, is_named: bool) -> Way:
    """The way to be a client of *issuer*. Every issuer can read a document, and show it to another one as its own: it
    is used only with a key, or where answers name their issuer. *is_named*: the operator has named the issuer, and
    trusts it."""
    if given is not None:
        return "given"
    if issuer.takes_documents and is_document_url(document_url):
        if has_key and issuer.takes_keys:
            return "key"
        if issuer.says_issuer or is_named:
            return "document"
    return "asked"


def mark_of(issuer: str, way: Way) -> str:
    """The name of *issuer* in addresses of the gate; empty for a client that was registered by hand, with an address
    that the operator knows."""
    return f"{_MARKS[way]}{sha256(issuer.encode()).hexdigest()[: MARK_CHARS - 1]}" if way in _MARKS else ""


def redirect_uri_at(issuer: str, way: Way, base: str) -> str:
    return f"{base}/{mark}" if (mark := mark_of(issuer, way)) else base


def registration(
    issuer: Issuer,
    way: Way,
    base: str,
    *,
    given: GivenClient | None = None,
    document_url: str = "",
    known: Registration | None = None,
    now: float,
    scopes: Iterable[str] = (),
) -> Steps[Registration]:
    """The registration for a login at *issuer*: the *given* one, the *known* one, the document, or a new one, which may
    ask for *scopes*. Redirect addresses begin with *base*; in *document_url* ``{mark}`` stands for that of the issuer.

    Raises Distrusted if the given one belongs to another issuer, NotOffered if there is no way to be registered.
    """
    redirect_uri = redirect_uri_at(issuer.issuer, way, base)
    if given is not None:
        if given.issuer.rstrip("/") != issuer.issuer.rstrip("/"):
            raise Distrusted(
                f"oauth.client_id belongs to oauth.issuer, and the issuer is {shown_origin(issuer.issuer)}"
            )
        method = given_method(given, issuer)
        return Registration(issuer.issuer, redirect_uri, given.client_id, method, "given", given.client_secret)
    if way in ("key", "document"):
        client_id = document_url.replace("{mark}", mark_of(issuer.issuer, way))
        method = "private_key_jwt" if way == "key" else "none"
        return Registration(issuer.issuer, redirect_uri, client_id, method, "document")
    if known is not None and known.made == "asked" and known.fits(issuer.issuer, redirect_uri, now):
        return known
    if issuer.registration_endpoint:
        return (yield from _asked(issuer, redirect_uri, scopes))
    raise NotOffered(
        f"the issuer at {shown_origin(issuer.issuer)} registers no clients by itself: register one there with the "
        f"redirect address {base}, and write oauth.issuer, oauth.client_id and oauth.client_secret"
    )


def is_document_url(url: str) -> bool:
    """True if *url* can be a client's id: https, with a path."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme == "https" and parts.path not in ("", "/") and not parts.fragment and "@" not in parts.netloc


def client_document(
    document_url: str, base: str, mark: str, keys: Iterable[Mapping[str, str]]
) -> dict[str, Any] | None:
    """The document for the issuer with *mark*, the gate's id there; None if there is no such mark. *keys* are the
    public keys with which it may sign."""
    if not re.fullmatch(rf"[dk][0-9a-f]{{{MARK_CHARS - 1}}}", mark):
        return None
    method: AuthMethod = "private_key_jwt" if mark[0] == "k" else "none"
    document = {"client_id": document_url.replace("{mark}", mark), **_metadata(f"{base}/{mark}", method)}
    if method == "private_key_jwt":
        document |= {"jwks": {"keys": list(keys)}, "token_endpoint_auth_signing_alg": "ES256"}
    return document


def _metadata(redirect_uri: str, method: AuthMethod) -> dict[str, Any]:
    return {
        "client_name": "Wicketgate",
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
        "application_type": "native" if _is_native(redirect_uri) else "web",
    }


def _is_native(redirect_uri: str) -> bool:
    """True for a program on a person's machine, which keeps no secret; a service does."""
    return is_loopback(urlsplit(redirect_uri).hostname or "")


def _asked(issuer: Issuer, redirect_uri: str, scopes: Iterable[str]) -> Steps[Registration]:
    metadata = _metadata(redirect_uri, _preferred(issuer, redirect_uri))
    # Servers made with the SDK refuse scopes that the client was not registered with.
    if scope := " ".join(scopes):
        metadata["scope"] = scope
    answer: Answer = yield post_json(issuer.registration_endpoint, metadata)
    check_there(answer, "the issuer's registration endpoint")
    document = answer.document()
    if answer.status not in (200, 201) or document is None:
        code = error_code(document or {})
        raise Refused(f"the issuer at {shown_origin(issuer.issuer)} registered no client: {answer.status} {code}", code)
    client_id, secret = _text(document, "client_id"), _text(document, "client_secret")
    if not client_id:
        raise Refused("the issuer's registration has no client_id", "")
    method = document.get("token_endpoint_auth_method") or (
        metadata["token_endpoint_auth_method"] if secret else "none"
    )
    if method not in _METHODS or (method != "none" and not secret):
        raise NotOffered("the issuer registered the client for an authentication that it cannot do")
    ends = document.get("client_secret_expires_at")
    expires_at = float(ends) if secret and isinstance(ends, int) and 0 < ends < 10**11 else None
    return Registration(issuer.issuer, redirect_uri, client_id, method, "asked", secret, expires_at)


def _preferred(issuer: Issuer, redirect_uri: str) -> AuthMethod:
    """Revocation at servers made with the SDK knows the form alone, so that comes first."""
    with_secret: tuple[AuthMethod, ...] = ("client_secret_post", "client_secret_basic")
    order: tuple[AuthMethod, ...] = ("none", *with_secret) if _is_native(redirect_uri) else (*with_secret, "none")
    return next((method for method in order if method in issuer.auth_methods), "client_secret_basic")


def given_method(given: GivenClient, issuer: Issuer) -> AuthMethod:
    """Returns the configured method, otherwise the first one that *issuer* accepts."""
    if given.auth_method is not None:
        return given.auth_method
    if given.has_key:
        return "private_key_jwt"
    if not given.client_secret:
        return "none"
    return next((method for method in _METHODS[1:] if method in issuer.auth_methods), "client_secret_basic")


def _text(document: Mapping[str, Any], name: str) -> str:
    value = document.get(name)
    usable = isinstance(value, str) and len(value) <= _MAX_CHARS and value.isascii() and value.isprintable()
    return value if isinstance(value, str) and usable else ""


def error_code(document: Mapping[str, Any]) -> str:
    """The error code of an answer: a word of the issuer's, so bounded."""
    code = document.get("error")
    plain = isinstance(code, str) and code.isascii() and code.replace("_", "").isalnum() and len(code) <= 40
    return code if isinstance(code, str) and plain else ""
