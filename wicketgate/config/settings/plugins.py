"""The section ``plugins``: the chain that every call passes, by kind and upstream (S2)."""

from collections.abc import Iterator
from typing import Any

from pydantic import Field, field_validator

from wicketgate.config.settings.base import Section


class PluginSettings(Section):
    """One plugin in its place. Lower *priority* runs first; what is not *critical* is passed over when it fails."""

    handler: str = Field(min_length=1, max_length=128)
    """A plugin that comes with Wicketgate, or an entry point of the group ``wicketgate.plugins``."""
    priority: int = Field(default=50, ge=0, le=100)
    critical: bool = True
    enabled: bool = True
    config: dict[str, Any] = {}


Plugins = dict[str, tuple[PluginSettings, ...]]
"""By upstream name, or ``_global`` for all."""


class PluginsSettings(Section):
    """The chain that every call passes, by kind (S2)."""

    security: Plugins = {}
    middleware: Plugins = {}
    auditing: Plugins = {}

    @field_validator("auditing")
    @classmethod
    def _everything_is_audited(cls, auditing: Plugins) -> Plugins:
        for name in auditing:
            if name != "_global":
                raise ValueError(f"{name!r}: auditing plugins see every call, so they belong under _global")
        return auditing

    def servers(self) -> Iterator[tuple[str, str]]:
        """Pairs of kind and upstream name for which something is configured."""
        for kind in ("security", "middleware"):
            yield from ((kind, name) for name in getattr(self, kind) if name != "_global")
