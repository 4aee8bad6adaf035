"""The section ``auth``: who may come in."""

from pathlib import Path

from pydantic import Field, SecretStr, field_validator

from wicketgate.access.identity import ACTOR_PATTERN, parse_permissions
from wicketgate.config.settings.base import Section, refuse_repeats

_MIN_SEAL_KEY_CHARS = 32


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
    seal_keys: tuple[SecretStr, ...] = Field(default=(), max_length=8)
    """Seal approvals and request states: the first seals, all open; the same for all replicas. Without them what is
    sealed ends with the process. Empty ones are left out, so that an old key may come from a variable that is unset."""
    approval_ttl_s: float = Field(default=3_600.0, ge=1, le=30 * 86_400)

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
            # Without the key itself, which is a secret.
            raise ValueError("holds the same key twice")
        return ring

    @property
    def has_keys(self) -> bool:
        """True if a caller on another machine can hold a key: a configured one, or the one of *key_file*."""
        return bool(self.keys or self.key_file)

    def ring(self) -> list[str]:
        return [key.get_secret_value() for key in self.seal_keys]
