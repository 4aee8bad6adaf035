"""The sections ``auth`` and ``access``: what proves who a caller is, and the rules of what each caller may do."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, PrivateAttr, SecretStr, field_validator, model_validator

from wicketgate.access.approvers import MOST_APPROVERS, Need, check_by
from wicketgate.access.conditions import Condition, condition_of
from wicketgate.access.flow import FlowRules
from wicketgate.access.identity import ACTOR_PATTERN, ROLE_PREFIX, HashedKey, Identity, parse_permissions
from wicketgate.access.policy import AccessDefault, AccessPolicy, AccessRule, VirtualGate
from wicketgate.access.signed_headers import FRONT
from wicketgate.config.settings.base import (
    SECTION,
    WORD,
    Granted,
    Section,
    ToolPattern,
    check_url,
    refuse_repeats,
    word_or_section,
)
from wicketgate.config.settings.issuers import IssuerSettings, TrustedHeaderSettings, refuse_doubtful_tokens

_MIN_SEAL_KEY_CHARS = 32
_NOT_A_TIME = "must be a time as in ISO 8601, with its zone: 2027-01-31T00:00:00Z"
_NO_ZONE = "has no zone: write 2027-01-31T00:00:00Z, or +01:00 in place of Z"


def _role(role: str) -> str:
    try:
        check_by(f"{ROLE_PREFIX}{role}")
    except ValueError:
        raise ValueError(f"not a role: {role!r}") from None
    return role


class KeySettings(Section):
    id: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,31}$")
    """Its name in logs: lower-case letters, digits and hyphens, at most 32."""
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """SHA-256 of the key, 64 hex digits. ``wicketgate key new`` prints it with the key."""
    actor: str = Field(pattern=f"^{ACTOR_PATTERN.pattern}$")
    """The actor of calls with this key: the name that quotas, approvals and runs go by."""
    permissions: Granted = ("tools:*",)
    """Permissions of the actor: ``tools:*``, ``tools:<namespace>:*``, ``ops:read``, or names that rules ask for."""
    roles: tuple[Annotated[str, AfterValidator(_role)], ...] = ()
    """Roles of the actor: ``lead``. Rules ask for one by ``require: ["role:lead"]``, ``approval: {by: "role:lead"}`` or
    ``when: "'lead' in roles"``."""
    suspended: bool = False
    """True: the key is refused, and what it has started ends."""
    not_before: datetime | None = None
    """The key is good from then on: 2027-01-31T00:00:00Z."""
    expires_at: datetime | None = None
    """The key is good until just before then: 2027-01-31T00:00:00Z."""

    @field_validator("not_before", "expires_at", mode="before")
    @classmethod
    def _moment(cls, value: object) -> object:
        """Takes ISO 8601 with a zone, as text or as YAML has read it."""
        if isinstance(value, str):
            try:
                value = datetime.fromisoformat(value)
            except ValueError:
                raise ValueError(_NOT_A_TIME) from None
        if value is not None and not isinstance(value, datetime):
            raise ValueError(_NOT_A_TIME)
        if value is not None and value.tzinfo is None:
            raise ValueError(_NO_ZONE)
        return value

    @model_validator(mode="after")
    def _ends_after_it_begins(self) -> Self:
        if self.not_before is not None and self.expires_at is not None and self.expires_at <= self.not_before:
            raise ValueError("expires_at must be after not_before")
        return self

    def hashed(self) -> HashedKey:
        """Returns the entry as the key ring has it. Raises nothing: the times are checked."""
        return HashedKey(
            self.id,
            self.sha256,
            Identity(self.actor, self.permissions, self.id, self.roles),
            self.suspended,
            None if self.not_before is None else self.not_before.timestamp(),
            None if self.expires_at is None else self.expires_at.timestamp(),
        )


class AuthSettings(Section):
    keys: tuple[KeySettings, ...] = ()
    """The keys that callers hold, by their hashes."""
    key_file: Path | None = None
    """Without *keys*, the first start makes a key, shows it once and keeps its hash in this file. Without the file the
    key lasts for one run and admits callers on this machine."""
    issuers: tuple[IssuerSettings, ...] = Field(default=(), max_length=32)
    """Issuers whose tokens (OAuth) open the doors too. They need ``server.public_url``."""
    trusted_headers: TrustedHeaderSettings | None = None
    """A gateway in front whose signed identity headers are accepted; without it such headers count for nothing."""
    seal_keys: tuple[SecretStr, ...] = Field(default=(), max_length=8)
    """Seal approvals and request states: the first seals, all open. All processes on one store need the same ones.
    Without any, what is sealed is void when the service ends. Empty ones are left out: an old key may come from a
    variable that is unset.
    """
    same_person: tuple[tuple[str, ...], ...] = ()
    """Actors that are one person, each group a list: ``[[ann, "corp:ann"]]``. Approvers are counted by persons."""
    approval_ttl_s: float = Field(default=3_600.0, ge=1, le=30 * 86_400)
    """Time in which an approval is good."""
    approval_webhook: SecretStr | None = None
    """A URL that gets a POST with ``{"text": ...}`` for each call that begins to wait for an approval."""
    audit_key: SecretStr | None = None
    """Arguments are recorded in the audit log as an HMAC under this key, so that short ones cannot be guessed."""

    @field_validator("approval_webhook")
    @classmethod
    def _is_url(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None:
            check_url("approval_webhook", url.get_secret_value())
        return url

    @field_validator("audit_key")
    @classmethod
    def _long(cls, key: SecretStr | None) -> SecretStr | None:
        if key is not None and len(key.get_secret_value()) < _MIN_SEAL_KEY_CHARS:
            raise ValueError(f"needs {_MIN_SEAL_KEY_CHARS} random characters or more")
        return key

    @field_validator("keys")
    @classmethod
    def _unique(cls, keys: tuple[KeySettings, ...]) -> tuple[KeySettings, ...]:
        refuse_repeats("id", (key.id for key in keys))
        refuse_repeats("sha256", (key.sha256 for key in keys))
        return keys

    @field_validator("seal_keys")
    @classmethod
    def _strong(cls, keys: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        ring = tuple(key for key in keys if key.get_secret_value())
        if any(len(key.get_secret_value()) < _MIN_SEAL_KEY_CHARS for key in ring):
            raise ValueError(f"each key needs {_MIN_SEAL_KEY_CHARS} random characters or more")
        if len({key.get_secret_value() for key in ring}) < len(ring):
            # The message leaves out the key, which is a secret.
            raise ValueError("holds the same key twice")
        return ring

    @field_validator("same_person")
    @classmethod
    def _once(cls, groups: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
        if any(len(group) < 2 for group in groups):
            raise ValueError('name two actors or more of each person: [[ann, "corp:ann"]]')
        actors = [actor for group in groups for actor in group]
        for actor in actors:
            if not ACTOR_PATTERN.fullmatch(actor):
                raise ValueError(f"not an actor: {actor[:40]!r}")
        refuse_repeats("actor", actors)
        return groups

    @field_validator("issuers")
    @classmethod
    def _distinct(cls, issuers: tuple[IssuerSettings, ...]) -> tuple[IssuerSettings, ...]:
        refuse_repeats("name", (issuer.name for issuer in issuers))
        refuse_repeats("issuer", (issuer.issuer for issuer in issuers))
        refuse_doubtful_tokens(issuers)
        return issuers

    @model_validator(mode="after")
    def _one_actor_each(self) -> Self:
        names = [issuer.name for issuer in self.issuers]
        if self.trusted_headers is not None:
            names.append(FRONT)
        refuse_repeats("name", names)
        for key in self.keys:
            name, colon, _ = key.actor.partition(":")
            if colon and name in names:
                raise ValueError(f"keys.{key.id}: an actor that begins with {name}: is one of the issuer {name}")
        return self

    @property
    def identifies(self) -> bool:
        """True if a configured key, token or signed header can prove who a caller is."""
        return bool(self.keys or self.issuers or self.trusted_headers)

    @property
    def has_keys(self) -> bool:
        """True if a caller on another machine can prove who it is, also with the key of *key_file*."""
        return bool(self.identifies or self.key_file)

    def secrets(self) -> Iterator[str]:
        """The values to mask in logs."""
        yield from self.ring()
        if self.approval_webhook is not None:
            yield self.approval_webhook.get_secret_value()
        if self.digest_key is not None:
            yield self.digest_key
        for issuer in self.issuers:
            if issuer.introspection is not None:
                yield issuer.introspection.client_secret.get_secret_value()
            if issuer.login is not None and issuer.login.client_secret is not None:
                yield issuer.login.client_secret.get_secret_value()
        if self.trusted_headers is not None:
            yield from (secret.get_secret_value() for secret in self.trusted_headers.secrets)

    @property
    def digest_key(self) -> str | None:
        return self.audit_key.get_secret_value() if self.audit_key is not None else None

    def ring(self) -> list[str]:
        return [key.get_secret_value() for key in self.seal_keys]


class ApprovalSettings(Section):
    """The approval of a call: by its caller, or by others."""

    by: str
    """``role:lead``, ``permission:approve:payments`` or ``actor:ann``, who must not be the caller; ``caller`` is as
    ``approval: always``."""
    count: int = Field(default=1, ge=1, le=MOST_APPROVERS)
    """The number of different actors that have to approve."""

    @field_validator("by")
    @classmethod
    def _names_somebody(cls, by: str) -> str:
        if by != "caller":
            check_by(by)
        return by

    @model_validator(mode="after")
    def _can_be_had(self) -> Self:
        if self.count > 1 and (self.by == "caller" or self.by.startswith("actor:")):
            raise ValueError("count: one actor cannot approve twice; name a role or a permission")
        return self

    def asked(self) -> Literal["always"] | Need:
        return "always" if self.by == "caller" else Need(self.by, self.count)


class FlowSettings(Section):
    """Labels for rules that ask where a destination comes from (``seen`` and ``strange`` in *when*). All but
    *destinations* only take approvals away."""

    trusted: tuple[ToolPattern, ...] = ()
    """Tools whose results no stranger can write: ``crm:*``. Those among them that only read may name destinations."""
    annotated: tuple[str, ...] = ()
    """Upstreams whose ``readOnlyHint`` is believed: of their read-only tools, only URLs are destinations."""
    destinations: dict[ToolPattern, tuple[str, ...]] = {}
    """Further arguments that are destinations, by tool: ``{"shop:order": [supplier]}``. Names like ``to``,
    ``recipients``, ``channel`` or ``webhook_url`` are known."""
    allow: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Destinations that are always fine: ``*@example.org``, ``https://*.example.org/*``, or a value with ``*``."""

    def rules(self) -> FlowRules:
        return FlowRules(self.trusted, frozenset(self.annotated), self.destinations, self.allow)


def _permission(permission: str) -> str:
    if permission.startswith(ROLE_PREFIX):
        check_by(permission)
    elif "*" in permission or parse_permissions(permission) != (permission,):
        raise ValueError(f"not one permission: {permission!r}; only granted permissions may contain '*'")
    return permission


Permission = Annotated[str, AfterValidator(_permission)]


class AccessRuleSettings(Section):
    """A rule for some tools. The first that fits a tool, and whose condition holds, decides."""

    match: ToolPattern
    """The tools: ``<namespace>:<tool>`` with ``*``, ``?`` and ``[...]``. Capitals matter."""
    require: tuple[Permission, ...] = ()
    """Permissions and roles (``role:lead``) that a caller must have, all of them."""
    require_any: tuple[Permission, ...] = ()
    """Permissions and roles (``role:lead``) of which a caller must have one."""
    visibility: Literal["external", "internal"] = "external"
    """``internal`` hides the tools from all callers."""
    when: str | None = None
    """A condition in CEL over ``actor``, ``permissions``, ``roles``, ``claims``, ``args``, ``seen`` (untrusted tools
    that the session has read) and ``strange`` (destinations in ``args`` of unknown origin); the rule is passed over
    where it is false."""
    approval: Annotated[
        Annotated[ApprovalSettings, SECTION] | Annotated[Literal["never", "always"], WORD],
        Discriminator(word_or_section),
    ] = "never"
    """``always``: each call waits for the decision of its caller. ``{by: "role:lead"}``: for that of others."""
    effect: Literal["allow", "deny"] = "allow"
    """``deny`` refuses the call."""
    # Compiled once, since it takes longer than all else of a rule together.
    _condition: Condition | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        asks = bool(self.require or self.require_any or self.approval != "never")
        if asks and (self.effect == "deny" or self.visibility == "internal"):
            raise ValueError("a rule that denies or hides a tool cannot have require, require_any or approval")
        condition = self._condition = None if self.when is None else condition_of(self.when)
        if self.visibility == "internal" and condition is not None and condition.needs_args:
            raise ValueError("visibility cannot depend on args: use effect: deny")
        return self

    @field_validator("when")
    @classmethod
    def _compiles(cls, when: str | None) -> str | None:
        if when is not None:
            condition_of(when)
        return when

    def rule(self) -> AccessRule:
        return AccessRule(
            self.match,
            self.require,
            self.require_any,
            self.visibility,
            self._condition,
            self.approval.asked() if isinstance(self.approval, ApprovalSettings) else self.approval,
            self.effect,
        )


def access_policy(
    rules: Iterable[AccessRuleSettings],
    default: AccessDefault = "allow",
    gates: Mapping[str, VirtualGate] | None = None,
) -> AccessPolicy:
    """Compiles the rules, in their order."""
    return AccessPolicy([rule.rule() for rule in rules], default, gates or {})
