"""The issuers whose tokens are accepted, and the gateway in front whose signed headers are: parts of ``auth``."""

import re
from collections.abc import Iterable
from ipaddress import ip_network
from itertools import permutations
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, field_validator, model_validator

from wicketgate.access.identity import KEY_PREFIX
from wicketgate.access.issuer import BrowserClient, Grant, Introspection, Issuer
from wicketgate.access.signed_headers import FRONT, TrustedGateway
from wicketgate.config.settings.base import BareUrl, Granted, Networks, Section, SecureUrl, check_url

_NAME = r"^[a-z0-9][a-z0-9-]{0,31}$"
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,200}")
_MIN_SECRET_CHARS = 32

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"]


def _scope(scope: str) -> str:
    if not _SCOPE.fullmatch(scope):
        raise ValueError(f"not a scope: {scope[:40]!r}")
    return scope


Scope = Annotated[str, AfterValidator(_scope)]


class IntrospectionSettings(Section):
    """Opaque tokens are asked about (RFC 7662)."""

    url: SecureUrl = ""
    """Its URL; without it the issuer's own document says it."""
    client_id: str = Field(min_length=1)
    """The name by which the issuer knows this service."""
    client_secret: SecretStr
    """By a variable: ``${INTROSPECTION_SECRET}``."""
    prefix: str = Field(default="", pattern=r"^[A-Za-z0-9._~+/-]{0,64}$")
    """The beginning of its tokens: others are not shown to it. Needed where several issuers are asked."""

    @field_validator("prefix")
    @classmethod
    def _not_ours(cls, prefix: str) -> str:
        if prefix.startswith(KEY_PREFIX):
            raise ValueError(f"{KEY_PREFIX} is the prefix of this service's keys, which are never sent to an issuer")
        return prefix

    def made(self) -> Introspection:
        return Introspection(self.url, self.client_id, self.client_secret.get_secret_value(), self.prefix)


class BrowserLoginSettings(Section):
    """This service as a client of the issuer, at which callers log in with a browser to connect accounts. Its redirect
    address there is ``<server.public_url>/login/callback``."""

    client_id: str = Field(min_length=1)
    """The name by which the issuer knows this service."""
    client_secret: SecretStr | None = None
    """By a variable: ``${LOGIN_SECRET}``."""
    scopes: tuple[Scope, ...] = ("openid",)
    """Scopes to ask for; ``openid`` is among them."""

    @field_validator("scopes")
    @classmethod
    def _openid(cls, scopes: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(("openid", *scopes)))

    def made(self) -> BrowserClient:
        secret = self.client_secret.get_secret_value() if self.client_secret is not None else ""
        return BrowserClient(self.client_id, secret, self.scopes)


class TokenPermissionSettings(Section):
    """Permissions of some tokens: of those with *scope* or *role*, or whose *claim* is *value* or holds it in
    a list; of all tokens where none of these is given."""

    grant: Granted = Field(min_length=1)
    """The permissions: ``tools:*``, ``tools:<namespace>:*``, ``ops:read``, or names that rules ask for."""
    scope: str = ""
    """A scope that the token has, in ``scope`` or ``scp``."""
    role: str = ""
    """A role that the token has, in the claim of *roles*."""
    claim: str = ""
    """The name of a claim, or names with dots between them."""
    value: str = ""
    """The value of *claim*."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(map(bool, (self.scope, self.role, self.claim))) > 1:
            raise ValueError("give one of scope, role and claim")
        if bool(self.claim) != bool(self.value):
            raise ValueError("claim and value belong together")
        if self.scope:
            _scope(self.scope)
        return self

    def made(self) -> Grant:
        pairs = (("scope", self.scope), ("roles", self.role), (self.claim, self.value))
        claim, value = next(((claim, value) for claim, value in pairs if value), ("", ""))
        return Grant(self.grant, claim, value)


class IssuerSettings(Section):
    """An issuer whose tokens are accepted besides keys."""

    name: str = Field(pattern=_NAME)
    """The beginning of its actors (``corp:ann``): lower-case letters, digits and hyphens, at most 32."""
    issuer: BareUrl
    """The ``iss`` of its tokens, to the letter: an https:// URL, or http:// on a loopback address."""
    audience: tuple[Annotated[str, Field(min_length=1)], ...] = Field(default=("{resource}",), min_length=1)
    """The values of ``aud``, of which a token has to hold one. ``{resource}`` is the URL of the path that is called."""
    algorithms: tuple[Algorithm, ...] = Field(default=("RS256", "ES256"), min_length=1)
    """The signatures that are accepted."""
    jwks_uri: SecureUrl = ""
    """The URL of its keys; without it the issuer's own document says it."""
    introspection: IntrospectionSettings | None = None
    """The way to ask about opaque tokens; without it they are refused."""
    actor: str = Field(default="sub", min_length=1)
    """The claim that tells callers apart. It must never be given to a second person."""
    roles: str = ""
    """The claim with the roles of a caller, such as ``roles`` or ``realm_access.roles``."""
    scopes: tuple[Scope, ...] = ()
    """Scopes that every request needs."""
    implied_scopes: dict[str, tuple[str, ...]] = {}
    """Scopes that a broader one holds: ``{tools.write: [tools.read]}``."""
    login: BrowserLoginSettings | None = None
    """The way for its callers to say in a browser who they are; without it they cannot connect accounts of their
    own."""
    permissions: tuple[TokenPermissionSettings, ...] = (TokenPermissionSettings(grant=("tools:*",)),)
    """Permissions of callers, by what their tokens say."""

    @field_validator("issuer")
    @classmethod
    def _given(cls, issuer: str) -> str:
        check_url("issuer", issuer)
        return issuer

    @field_validator("roles", "actor")
    @classmethod
    def _path(cls, path: str) -> str:
        return path.removeprefix("claims.")

    def made(self) -> Issuer:
        return Issuer(
            self.name,
            self.issuer,
            self.audience,
            tuple(self.algorithms),
            self.actor,
            self.roles,
            self.scopes,
            self.implied_scopes,
            tuple(each.made() for each in self.permissions),
            self.jwks_uri,
            None if self.introspection is None else self.introspection.made(),
            None if self.login is None else self.login.made(),
        )


def refuse_doubtful_tokens(issuers: Iterable[IssuerSettings]) -> None:
    """Raises ValueError where an opaque token could be that of several issuers: each would be shown the others'."""
    prefixes = {each.name: each.introspection.prefix for each in issuers if each.introspection is not None}
    without = [name for name, prefix in prefixes.items() if not prefix]
    if len(prefixes) > 1 and without:
        raise ValueError(
            f"{', '.join(without)}: several issuers have introspection, so give each an "
            "introspection.prefix with which its tokens begin; or remove introspection from all but one"
        )
    for one, other in permutations(prefixes, 2):
        if prefixes[other].startswith(prefixes[one]):
            raise ValueError(
                f"{one} and {other}: introspection.prefix of one begins like the other's: give each its own"
            )


class TrustedHeaderSettings(Section):
    """A gateway in front that authenticates callers, and signs who they are into headers."""

    addresses: Networks = Field(min_length=1)
    """Addresses and networks that its connections come from: ``[10.0.0.7, 10.1.0.0/16]``."""
    secrets: tuple[SecretStr, ...] = Field(min_length=1, max_length=8)
    """Secrets of which it signs with one, 32 random characters or more each."""
    permissions: Granted = ("tools:*",)
    """The most that its headers can give."""

    @field_validator("secrets")
    @classmethod
    def _strong(cls, secrets: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        ring = tuple(secret for secret in secrets if secret.get_secret_value())
        if not ring or any(len(secret.get_secret_value()) < _MIN_SECRET_CHARS for secret in ring):
            raise ValueError(f"each secret needs {_MIN_SECRET_CHARS} random characters or more")
        return ring

    def made(self) -> TrustedGateway:
        return TrustedGateway(
            FRONT,
            tuple(map(ip_network, self.addresses)),
            tuple(secret.get_secret_value().encode() for secret in self.secrets),
            self.permissions,
        )
