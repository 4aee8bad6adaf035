"""The section ``auth``: who may come in."""

from pathlib import Path

from pydantic import Field, SecretStr, field_validator

from wicketgate.access.identity import ACTOR_PATTERN, parse_permissions
from wicketgate.config.settings.base import Section, refuse_repeats


class KeySettings(Section):
    id: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,31}$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    actor: str = Field(pattern=f"^{ACTOR_PATTERN.pattern}$")
    permissions: tuple[str, ...] = ("tools:*",)
    suspended: bool = False

    @field_validator("permissions")
    @classmethod
    def _well_formed(cls, permissions: tuple[str, ...]) -> tuple[str, ...]:
        return parse_permissions(",".join(permissions))


class AuthSettings(Section):
    keys: tuple[KeySettings, ...] = ()
    key_file: Path | None = None
    """Without *keys*, a key is made at the first start and shown once; its hash is kept in this file. Without the file
    the key is for one run, and for callers on this machine."""
    approval_key: SecretStr | None = Field(default=None, min_length=32)
    """Seals approvals; the same for all replicas. Without it they end with the process."""
    approval_ttl_s: float = Field(default=3_600.0, ge=1, le=30 * 86_400)

    @field_validator("keys")
    @classmethod
    def _unique(cls, keys: tuple[KeySettings, ...]) -> tuple[KeySettings, ...]:
        refuse_repeats("id", (key.id for key in keys))
        refuse_repeats("sha256", (key.sha256 for key in keys))
        return keys
