"""Finds who gives tokens for a tool server, and how: its metadata (RFC 9728), then that of its issuer (RFC 8414, OIDC).

Everything that is used of an issuer comes from one document, which names exactly the issuer that was asked for.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from wicketgate.access.key_sets import metadata_urls
from wicketgate.login.steps import Answer, Distrusted, IssuerUnnamed, NotOffered, Steps, check_there, get
from wicketgate.net.challenge import Refusal
from wicketgate.net.client import origin
from wicketgate.net.guard import is_loopback
from wicketgate.net.outgoing import shown_origin

_MAX_URL = 2_000
_MAX_WORDS = 200
_MAX_SCOPE = 200
_BASIC = ("client_secret_basic",)
"""RFC 8414 §2: what a document means that does not say."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A tool server as its metadata names it. *resource* is its own name for tokens. *scopes*: None if not said."""

    resource: str
    issuers: tuple[str, ...] = ()
    scopes: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Issuer:
    """An issuer by its one validated document; endpoints that it does not have are empty. *s256*: it says that it
    checks PKCE. *says_issuer*: its answers name it (RFC 9207). *takes_documents*: a URL may be a client's id.
    *takes_keys*: clients may sign with ES256 (``private_key_jwt``)."""

    issuer: str
    token_endpoint: str
    authorization_endpoint: str = ""
    registration_endpoint: str = ""
    revocation_endpoint: str = ""
    scopes: tuple[str, ...] | None = None
    auth_methods: tuple[str, ...] = _BASIC
    s256: bool = False
    says_issuer: bool = False
    takes_documents: bool = False
    takes_keys: bool = False


@dataclass(frozen=True, slots=True)
class Discovery:
    resource: Resource
    issuer: Issuer


def discover(server_url: str, refusal: Refusal | None = None, wanted: str = "") -> Steps[Discovery]:
    """Find the issuer of the server at *server_url*, which gave *refusal*. *wanted* is the one that the operator named.

    Raises NotOffered without metadata, Distrusted for metadata of something else, IssuerAway while it cannot be known.
    """
    resource = yield from _resource_of(server_url, refusal)
    if resource is None and wanted.rstrip("/") in ("", _origin_of(server_url)):
        # Servers of 2025-03-26 are their own issuers, and may have no document at all.
        issuer = yield from _own_issuer(server_url)
        return Discovery(Resource(_canonical(server_url)), issuer)
    resource = resource or Resource(_canonical(server_url), (wanted,))
    issuer = yield from issuer_of(_chosen(resource, wanted))
    return Discovery(resource, issuer)


def issuer_of(issuer: str) -> Steps[Issuer]:
    """Read the metadata of *issuer*. Raises as ``discover`` does."""
    for url in metadata_urls(issuer):
        document = yield from _document(url, "the issuer")
        if document is not None:
            return _read_issuer(document, issuer)
    raise NotOffered(f"no metadata of the issuer at {shown_origin(issuer)}")


def issuer_again(issuer: str, server_url: str) -> Steps[Issuer]:
    """The metadata of the issuer that gave tokens for the server before. Raises as ``discover`` does."""
    if issuer == _origin_of(server_url):
        return (yield from _own_issuer(server_url))
    return (yield from issuer_of(issuer))


def check_endpoints(issuer: Issuer) -> None:
    """The endpoints of an issuer that the operator has not named have to be its own: a hostile one could name those of
    another (ACCESS-310). Raises IssuerUnnamed."""
    own = {
        "token_endpoint": issuer.token_endpoint,
        "registration_endpoint": issuer.registration_endpoint,
        "revocation_endpoint": issuer.revocation_endpoint,
    }
    for name, url in own.items():
        if url and origin(url) != origin(issuer.issuer):
            raise _unnamed(f"has its {name} at {shown_origin(url)}", issuer)


def check_answers(issuer: Issuer) -> None:
    """The answers of an issuer that the operator has not named have to name it. Where a client is registered, where
    browsers are sent on and with whose address, a hostile one decides (ACCESS-311). Raises IssuerUnnamed."""
    if not issuer.says_issuer:
        raise _unnamed("does not promise that its answers name it (iss, RFC 9207), so they may be another's", issuer)


def _unnamed(what: str, issuer: Issuer) -> IssuerUnnamed:
    return IssuerUnnamed(f"the issuer {what}: if you trust it, name it at this upstream: oauth.issuer: {issuer.issuer}")


def resource_urls(server_url: str, named: str = "") -> list[str]:
    """The places of a server's metadata, in the order in which they are asked: *named* in its challenge, by its path,
    at its root."""
    path = urlsplit(server_url).path.rstrip("/")
    well_known = f"{_origin_of(server_url)}/.well-known/oauth-protected-resource"
    return list(dict.fromkeys([*filter(None, [named]), *([f"{well_known}{path}"] if path else []), well_known]))


def _resource_of(server_url: str, refusal: Refusal | None) -> Steps[Resource | None]:
    for url in resource_urls(server_url, refusal.resource_metadata if refusal is not None else ""):
        document = yield from _document(url, "the tool server's metadata")
        if document is not None:
            return _read_resource(document, server_url)
    return None


def _own_issuer(server_url: str) -> Steps[Issuer]:
    issuer = _origin_of(server_url)
    url = metadata_urls(issuer)[0]
    document = yield from _document(url, "the tool server")
    if document is not None:
        named = document.get("issuer")
        return _read_issuer(document, f"{issuer}/" if named == f"{issuer}/" else issuer)
    # No document, so nothing that could name another place: all is at the server's own origin.
    return Issuer(issuer, f"{issuer}/token", f"{issuer}/authorize", f"{issuer}/register", s256=True)


def _origin_of(server_url: str) -> str:
    parts = urlsplit(server_url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _document(url: str, whose: str) -> Steps[dict[str, Any] | None]:
    """None where there is none, so that the next place is asked."""
    answer: Answer = yield get(url)
    check_there(answer, whose)
    return answer.document() if answer.status == 200 else None


def _read_resource(document: Mapping[str, Any], server_url: str) -> Resource:
    resource = document.get("resource")
    if not isinstance(resource, str) or not covers(resource, server_url):
        raise Distrusted(f"the metadata of the tool server at {shown_origin(server_url)} is for another resource")
    issuers = _words(document.get("authorization_servers"), _MAX_URL) or ()
    return Resource(resource, issuers, _words(document.get("scopes_supported"), _MAX_SCOPE))


def _chosen(resource: Resource, wanted: str) -> str:
    """The issuer to ask: the operator's, in the server's spelling, otherwise the first."""
    if not wanted:
        if not resource.issuers:
            raise NotOffered("its metadata names no authorization server")
        return resource.issuers[0]
    if resource.issuers and wanted.rstrip("/") not in {each.rstrip("/") for each in resource.issuers}:
        named = ", ".join(filter(None, map(shown_origin, resource.issuers[:3])))
        raise Distrusted(f"the tool server names other issuers ({named}) than oauth.issuer")
    return wanted


def _read_issuer(document: Mapping[str, Any], expected: str) -> Issuer:
    if document.get("issuer") != expected:
        raise Distrusted(f"the metadata at {shown_origin(expected)} is of another issuer")
    token_endpoint = _url(document, "token_endpoint")
    if not token_endpoint:
        raise NotOffered(f"the issuer at {shown_origin(expected)} has no token endpoint")
    methods = _words(document.get("token_endpoint_auth_methods_supported"), _MAX_SCOPE) or _BASIC
    algorithms = _words(document.get("token_endpoint_auth_signing_alg_values_supported"), _MAX_SCOPE)
    return Issuer(
        expected,
        token_endpoint,
        _page_url(document, expected),
        _url(document, "registration_endpoint"),
        _url(document, "revocation_endpoint"),
        _words(document.get("scopes_supported"), _MAX_SCOPE),
        methods,
        "S256" in (_words(document.get("code_challenge_methods_supported"), _MAX_SCOPE) or ()),
        document.get("authorization_response_iss_parameter_supported") is True,
        document.get("client_id_metadata_document_supported") is True,
        "private_key_jwt" in methods and (algorithms is None or "ES256" in algorithms),
    )


def _url(document: Mapping[str, Any], name: str) -> str:
    """A URL of http or https without a user; empty if there is none. Raises Distrusted for anything else."""
    url = document.get(name)
    if url is None:
        return ""
    if not isinstance(url, str) or not is_web_url(url):
        raise Distrusted(f"{name} of the issuer is no http or https URL")
    return url


def _page_url(document: Mapping[str, Any], issuer: str) -> str:
    """The page that browsers are sent to; empty if there is none. Over http only with an issuer that was asked so,
    which the operator allows, at its own host or on this machine. Raises Distrusted."""
    url = _url(document, "authorization_endpoint")
    page, own = urlsplit(url), urlsplit(issuer)
    host = page.hostname or ""
    if page.scheme == "http" and (own.scheme != "http" or (host != own.hostname and not is_loopback(host))):
        raise Distrusted(f"authorization_endpoint of the issuer at {shown_origin(issuer)} is not https")
    return url


def is_web_url(url: str) -> bool:
    """True for an absolute URL of http or https in printable ASCII, without a user and a fragment."""
    if len(url) > _MAX_URL or not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        return False
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc and not parts.fragment


def _words(value: object, longest: int) -> tuple[str, ...] | None:
    """The strings of a list that hold no blank; None if it is no list."""
    if not isinstance(value, list):
        return None
    words = [each for each in value if isinstance(each, str) and 0 < len(each) <= longest]
    return tuple(dict.fromkeys(each for each in words if each.isprintable() and " " not in each))[:_MAX_WORDS]


def covers(resource: str, server_url: str) -> bool:
    """True if a token for *resource* is one for the server: the same origin, and its path or one above it."""
    try:
        if not is_web_url(resource) or origin(resource) != origin(server_url):
            return False
    except ValueError:
        return False
    above, path = urlsplit(resource).path.rstrip("/"), urlsplit(server_url).path.rstrip("/")
    return path == above or path.startswith(f"{above}/")


def _canonical(server_url: str) -> str:
    """The name of a server that has no metadata: its URL without user, query and fragment."""
    parts = urlsplit(server_url)
    path = "" if parts.path == "/" else parts.path
    return parts._replace(netloc=parts.netloc.rpartition("@")[2].lower(), path=path, query="", fragment="").geturl()
