"""The request that a person answers in a browser, and what comes back with the browser (RFC 6749 §4.1, 7636, 9207)."""

import hmac
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from urllib.parse import parse_qsl, urlencode, urlsplit

from wicketgate.login.discovery import Discovery, Issuer
from wicketgate.login.registrar import Registration, error_code
from wicketgate.login.steps import Declined, Distrusted, NotOffered, Refused
from wicketgate.net.challenge import Refusal
from wicketgate.net.outgoing import shown_origin

OFFLINE = "offline_access"
OWN_PARAMETERS = frozenset(
    {"response_type", "client_id", "redirect_uri", "state", "scope", "resource", "code_challenge"}
    | {"code_challenge_method", "response_mode", "request", "request_uri", "nonce"}
)
"""Parameters that are decided here; an operator adds others only."""
_MAX_CODE = 4_000
MAX_SCOPES = 200
MAX_SCOPE = 200
"""Characters of one scope."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A login between the way to the issuer and the way back, with all that its end is checked against: the issuer that
    was asked, its registration and the secrets of this one attempt. *url* is for the browser."""

    url: str
    state: str = field(repr=False)
    verifier: str = field(repr=False)
    issuer: Issuer
    registration: Registration
    resource: str
    scopes: tuple[str, ...]


def asked_scopes(
    found: Discovery, refusal: Refusal | None, configured: tuple[str, ...], granted: Iterable[str]
) -> tuple[str, ...]:
    """The scopes to ask for: those of the operator, otherwise of the *refusal*, otherwise all of the server, or none.
    *granted* ones stay. ``offline_access`` goes with others where the issuer has it, for a refresh token. Raises
    Distrusted for more, or longer ones, than a person can be shown."""
    challenged = refusal.scopes if refusal is not None else None
    needed = configured or (challenged if challenged is not None else found.resource.scopes) or ()
    scopes = dict.fromkeys([*sorted(granted), *needed, *(challenged or ())])
    if len(scopes) > MAX_SCOPES or any(len(scope) > MAX_SCOPE for scope in scopes):
        raise Distrusted(f"more than {MAX_SCOPES} scopes are asked for, or one of more than {MAX_SCOPE} characters")
    if scopes and OFFLINE in (found.issuer.scopes or ()):
        scopes[OFFLINE] = None
    return tuple(scopes)


def authorization(
    issuer: Issuer,
    registration: Registration,
    scopes: tuple[str, ...],
    resource: str,
    *,
    state: str,
    verifier: str,
    more: Mapping[str, str] | None = None,
) -> Pending:
    """Write the request. *resource* is empty where it is left out. *state* and *verifier* are random, 43 characters.
    Raises Distrusted if the issuer does not say that it checks PKCE, or its page decides what is decided here."""
    if registration.issuer != issuer.issuer:
        raise Distrusted("a registration is used at its own issuer only")
    if not issuer.authorization_endpoint:
        raise NotOffered(f"the issuer at {shown_origin(issuer.issuer)} has no authorization endpoint")
    if not issuer.s256:
        raise Distrusted(f"the issuer at {shown_origin(issuer.issuer)} does not say that it checks PKCE with S256")
    # Some servers read ``;`` as ``&``.
    in_page = urlsplit(issuer.authorization_endpoint).query.replace(";", "&")
    if decided := sorted(OWN_PARAMETERS.intersection(name for name, _ in parse_qsl(in_page, keep_blank_values=True))):
        page = f"authorization_endpoint of the issuer at {shown_origin(issuer.issuer)}"
        raise Distrusted(f"{page} has {decided[0]} in its query")
    query = {name: value for name, value in (more or {}).items() if name not in OWN_PARAMETERS}
    query |= {
        "response_type": "code",
        "client_id": registration.client_id,
        "redirect_uri": registration.redirect_uri,
        "state": state,
        "code_challenge": urlsafe_b64encode(sha256(verifier.encode()).digest()).decode().rstrip("="),
        "code_challenge_method": "S256",
    }
    if scopes:
        query["scope"] = " ".join(scopes)
    if resource:
        query["resource"] = resource
    joint = "&" if urlsplit(issuer.authorization_endpoint).query else "?"
    url = f"{issuer.authorization_endpoint}{joint}{urlencode(query)}"
    return Pending(url, state, verifier, issuer, registration, resource, scopes)


def came_of(pairs: Sequence[tuple[str, str]]) -> Mapping[str, str]:
    """The query parameters of an answer; none of one that names a parameter twice (RFC 6749 §3.1), nor of one whose
    ``iss`` comes first: a hostile issuer may have registered the gate elsewhere with an address that has it."""
    came = dict(pairs)
    names = [name for name, _ in pairs if name in ("iss", "code", "error", "state")]
    return came if len(came) == len(pairs) and names[:1] != ["iss"] else {}


def code_of(pending: Pending, came: Mapping[str, str]) -> str:
    """The code that *came* back with the browser, as query parameters. Of an answer that is not from the issuer that
    was asked, not even its error is read. Raises Distrusted, Declined and Refused."""
    if not hmac.compare_digest(came.get("state", "").encode(), pending.state.encode()):
        raise Distrusted("the answer belongs to no login that is under way here")
    named = came.get("iss")
    if named is None and pending.issuer.says_issuer:
        raise Distrusted("the answer does not name its issuer, which says that its answers do")
    # Letter for letter: another spelling may be another issuer.
    if named is not None and named != pending.issuer.issuer:
        raise Distrusted("the answer is from another issuer than was asked")
    if "error" in came:
        code = error_code(came)
        if code == "access_denied":
            raise Declined("the issuer answered access_denied")
        raise Refused(f"the issuer answered {code or 'an error'}", code)
    code = came.get("code", "")
    if not 0 < len(code) <= _MAX_CODE:
        raise Refused("the issuer's answer has no code", "")
    return code
