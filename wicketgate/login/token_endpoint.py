"""The tokens of a grant, and the requests to the token endpoint that issues them: code, refresh, client credentials,
exchange, ID-JAG, revocation.

RFC 6749 §4 to §6, 7009, 7523, 8693, 8707. All requests for tokens are made here.
"""

from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote_plus

from wicketgate.login.authorize import Pending
from wicketgate.login.registrar import AuthMethod, error_code
from wicketgate.login.steps import (
    Answer,
    ClientInvalid,
    Declined,
    GrantInvalid,
    Refused,
    Request,
    Steps,
    check_there,
    post_form,
)


@dataclass(frozen=True, slots=True)
class Tokens:
    """*expires_at* is in seconds since the epoch; None where the issuer named no life. *refresh_token* and *id_token*
    are empty if there is none. *client_id* is the registration that the tokens were issued to."""

    access_token: str = field(repr=False)
    refresh_token: str = field(default="", repr=False)
    scopes: frozenset[str] = frozenset()
    expires_at: float | None = None
    id_token: str = field(default="", repr=False)
    issuer: str = ""
    resource: str = ""
    client_id: str = ""


Refresh = Callable[[Tokens], Awaitable[Tokens]]
"""Exchange the refresh token for new tokens, of the same issuer for the same resource. Where its answer has no new
refresh token they have the former. Raises LoginFailure, of which GrantInvalid and ClientInvalid say that its owner has
to log in again, and StoreUnavailable."""


MAX_TOKEN = 16_000
"""Longer headers are refused by servers, and a token is searched for in all answers."""
_MAX_LIFETIME_S = 10**9
_KINDS = "urn:ietf:params:oauth:token-type:"
ACCESS_TOKEN, ID_TOKEN, ID_JAG = f"{_KINDS}access_token", f"{_KINDS}id_token", f"{_KINDS}id-jag"
_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


@dataclass(frozen=True, slots=True)
class Client:
    """The gate at one token endpoint. *assertion* signs one for the audience that it is given (private_key_jwt)."""

    issuer: str
    token_endpoint: str
    client_id: str
    auth_method: AuthMethod
    client_secret: str = field(default="", repr=False)
    assertion: Callable[[str], str] | None = field(default=None, repr=False)

    def request(self, form: Mapping[str, str]) -> Request:
        """A request of this client."""
        headers: dict[str, str] = {}
        own: dict[str, str] = {}
        match self.auth_method:
            case "client_secret_basic":
                pair = f"{quote_plus(self.client_id)}:{quote_plus(self.client_secret)}"
                headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
                # Servers made with the SDK look up the client by the form, and then at the header.
                own = {"client_id": self.client_id}
            case "client_secret_post":
                own = {"client_id": self.client_id, "client_secret": self.client_secret}
            case "private_key_jwt":
                if self.assertion is None:
                    raise ClientInvalid("there is no private key to sign with")
                # The issuer, not the endpoint: the audience that the successor of RFC 7523 asks for.
                signed = self.assertion(self.issuer or self.token_endpoint)
                own = {"client_assertion_type": _ASSERTION, "client_assertion": signed, "client_id": self.client_id}
            case "none":
                own = {"client_id": self.client_id}
        return post_form(self.token_endpoint, {**form, **own}, headers)


def redeem(client: Client, pending: Pending, code: str, now: float) -> Steps[Tokens]:
    """Tokens for the code that came back."""
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": pending.registration.redirect_uri,
        "code_verifier": pending.verifier,
    }
    return (yield from _tokens(client, form, frozenset(pending.scopes), pending.resource, now))


def refresh(client: Client, tokens: Tokens, now: float, more: Mapping[str, str] | None = None) -> Steps[Tokens]:
    """New tokens for those whose refresh token is good; its successor, if one comes, is kept in its place. *more*:
    fields that an issuer wants besides."""
    form = {"grant_type": "refresh_token", "refresh_token": tokens.refresh_token, **(more or {})}
    new = yield from _tokens(client, form, tokens.scopes, tokens.resource, now)
    return replace(
        new, refresh_token=new.refresh_token or tokens.refresh_token, id_token=new.id_token or tokens.id_token
    )


def client_credentials(
    client: Client, scopes: tuple[str, ...], resource: str, now: float, more: Mapping[str, str] | None = None
) -> Steps[Tokens]:
    """A token of the gate's own, without a person. *more*: fields that an issuer wants besides (``audience``)."""
    form = {"grant_type": "client_credentials", **_given(scope=" ".join(scopes)), **(more or {})}
    return (yield from _tokens(client, form, scopes, resource, now))


def exchange(
    client: Client, subject_token: str, *, audience: str, scopes: tuple[str, ...], resource: str, now: float
) -> Steps[Tokens]:
    """A token for another server in place of the access token *subject_token* (RFC 8693)."""
    form = {"grant_type": _EXCHANGE, "subject_token": subject_token, "subject_token_type": ACCESS_TOKEN}
    form |= {"requested_token_type": ACCESS_TOKEN, **_given(audience=audience, scope=" ".join(scopes))}
    return (yield from _tokens(client, form, scopes, resource, now))


def id_jag(
    client: Client, id_token: str, *, audience: str, resource: str, scopes: tuple[str, ...] = (), now: float
) -> Steps[str]:
    """First leg: an assertion about the person of *id_token*, which was issued to this client, for the authorization
    server *audience* of the tool server *resource*."""
    form = {
        "grant_type": _EXCHANGE,
        "requested_token_type": ID_JAG,
        "subject_token": id_token,
        "subject_token_type": ID_TOKEN,
        "audience": audience,
        "resource": resource,
        **_given(scope=" ".join(scopes)),
    }
    answer: Answer = yield client.request(form)
    document = _granted(answer)
    if document.get("issued_token_type") != ID_JAG:
        raise Refused("the issuer returned another kind of token than requested", "")
    return _token(document, "access_token")


def jwt_bearer(
    client: Client, assertion: str, *, scopes: tuple[str, ...] = (), resource: str = "", now: float
) -> Steps[Tokens]:
    """Second leg: a token for the tool server, by an assertion of the first (RFC 7523 §2.1)."""
    form = {"grant_type": _JWT_BEARER, "assertion": assertion, **_given(scope=" ".join(scopes))}
    return (yield from _tokens(client, form, scopes, resource, now))


def revoke(client: Client, revocation_endpoint: str, tokens: Tokens) -> Steps[None]:
    """Have the issuer end a login (RFC 7009): the refresh token, and with it all access tokens, if there is one."""
    token, kind = tokens.refresh_token, "refresh_token"
    if not token:
        token, kind = tokens.access_token, "access_token"
    made = client.request({"token": token, "token_type_hint": kind})
    answer: Answer = yield Request("POST", revocation_endpoint, made.headers, made.body)
    check_there(answer, "the issuer's revocation endpoint")
    # A token that the issuer does not know is no error there (RFC 7009 §2.2).
    if answer.status >= 400:
        raise Refused(f"the issuer's revocation endpoint answered {answer.status}", "")


def _tokens(client: Client, form: Mapping[str, str], scopes: Iterable[str], resource: str, now: float) -> Steps[Tokens]:
    answer: Answer = yield client.request({**form, **_given(resource=resource)})
    document = _granted(answer)
    kind = document.get("token_type", "Bearer")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise Refused("the token is not a bearer token", "")
    scope = document.get("scope")
    words = scope.split()[:200] if isinstance(scope, str) else ()
    # Half a surrogate pair cannot be kept.
    given = frozenset(filter(str.isprintable, words)) if scope and words else frozenset(scopes)
    return Tokens(
        _token(document, "access_token"),
        _token(document, "refresh_token", must=False),
        given,
        _end(document.get("expires_in"), now),
        _token(document, "id_token", must=False),
        client.issuer,
        resource,
        client.client_id,
    )


def _given(**fields: str) -> dict[str, str]:
    """The fields that have a value: an issuer may refuse an empty one."""
    return {name: value for name, value in fields.items() if value}


def _granted(answer: Answer) -> dict[str, Any]:
    """The document of an answer that gives something. Raises the failure that any other one is."""
    check_there(answer, "the token server")
    if answer.cut:
        raise Refused("the token server's answer is too large", "")
    document = answer.document()
    if document is None:
        raise Refused(f"the token server's answer cannot be read (HTTP status {answer.status})", "")
    # Some issuers refuse with 200.
    if "error" in document or answer.status != 200:
        code = error_code(document)
        said = f"the token server refused with {code or f'HTTP status {answer.status}'}"
        if code == "invalid_grant":
            raise GrantInvalid(said)
        if code == "invalid_client" or (answer.status == 401 and not code):
            raise ClientInvalid(said)
        if code == "access_denied":
            raise Declined(said)
        raise Refused(said, code)
    return document


def _token(document: Mapping[str, Any], name: str, *, must: bool = True) -> str:
    token = document.get(name)
    if isinstance(token, str) and 0 < len(token) <= MAX_TOKEN and token.isascii() and token.isprintable():
        return token
    if must:
        raise Refused("the token server's answer has no usable token", "")
    return ""


def _end(lifetime: object, now: float) -> float | None:
    """Some issuers write the lifetime as text."""
    if isinstance(lifetime, str) and lifetime.isascii() and lifetime.isdigit() and len(lifetime) < 10:
        lifetime = int(lifetime)
    if isinstance(lifetime, bool) or not isinstance(lifetime, int | float) or not 0 < lifetime < _MAX_LIFETIME_S:
        return None
    return now + lifetime
