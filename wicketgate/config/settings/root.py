"""The configuration as a whole, and its small sections ``server``, ``mcp`` and ``network`` (DESIGN §2)."""

from collections.abc import Iterator
from typing import Literal, Self, get_args

from pydantic import Field, field_validator, model_validator

from wicketgate.config.settings.access import AccessRuleSettings
from wicketgate.config.settings.auth import AuthSettings
from wicketgate.config.settings.base import LOOPBACK_HOSTS, SECRET_NAME, Seconds, Section, refuse_repeats
from wicketgate.config.settings.engine import EngineSettings
from wicketgate.config.settings.model import ModelSettings
from wicketgate.config.settings.plugins import PluginsSettings
from wicketgate.config.settings.storage import PinSettings, QuotaSettings, StorageSettings
from wicketgate.config.settings.upstreams import UpstreamSettings

_MAX_RULES = 1_000


class ServerSettings(Section):
    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65_535)
    max_body_bytes: int = Field(default=10 * 1024 * 1024, ge=1024)
    start_deadline_s: Seconds = 10.0
    """How long readiness waits for upstreams that have neither connected nor failed."""
    drain_s: float = Field(default=1.0, ge=0, le=3_600)
    """How long running streams may go on after a stop signal."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"


Face = Literal["gateway", "transparent", "registry", "namespaced"]

FACES: tuple[str, ...] = get_args(Face)


class McpSettings(Section):
    face: Face = "gateway"
    """Which of the faces ``/mcp`` is."""
    cache_stable: bool = True
    allowed_hosts: tuple[str, ...] = ()
    """Host headers that are answered, besides the loopback names; ``:*`` at the end stands for any port."""
    allowed_origins: tuple[str, ...] = ()
    max_sessions: int = Field(default=2_000, ge=1)
    """Of the handshake era; a session ends when its client says so, or after half an hour without a request."""
    max_sessions_per_actor: int = Field(default=500, ge=1)


class NetworkSettings(Section):
    ca_file: str = ""
    """Certificates in PEM of authorities that are trusted besides the system's, for every connection that goes out."""


class Settings(Section):
    """All of it. Made by ``load_settings``, or directly where no file is meant."""

    server: ServerSettings = ServerSettings()
    auth: AuthSettings = AuthSettings()
    model: ModelSettings = ModelSettings()
    engine: EngineSettings = EngineSettings()
    mcp: McpSettings = McpSettings()
    network: NetworkSettings = NetworkSettings()
    storage: StorageSettings = StorageSettings()
    quota: QuotaSettings = QuotaSettings()
    pins: PinSettings = PinSettings()
    plugins: PluginsSettings = PluginsSettings()
    access: tuple[AccessRuleSettings, ...] = ()
    """In order: the first that matches a tool, and whose condition holds, decides."""
    upstreams: tuple[UpstreamSettings, ...] = ()
    from_variables: frozenset[str] = Field(default=frozenset(), exclude=True, repr=False)
    """Values that the file took from variables: mostly secrets, and a masked path costs less than a shown password."""

    @field_validator("access")
    @classmethod
    def _few(cls, access: tuple[AccessRuleSettings, ...]) -> tuple[AccessRuleSettings, ...]:
        if len(access) > _MAX_RULES:
            raise ValueError(f"has more than {_MAX_RULES} rules")
        return access

    @field_validator("upstreams")
    @classmethod
    def _unique(cls, upstreams: tuple[UpstreamSettings, ...]) -> tuple[UpstreamSettings, ...]:
        refuse_repeats("name", (upstream.name for upstream in upstreams))
        return upstreams

    @model_validator(mode="after")
    def _guarded(self) -> Self:
        if not self.auth.has_keys and self.server.host not in LOOPBACK_HOSTS:
            raise ValueError(
                "auth.keys is empty, so server.host must be a loopback address; make a key with: wicketgate key new"
            )
        names = {upstream.name for upstream in self.upstreams}
        for kind, name in self.plugins.servers():
            if name not in names:
                raise ValueError(f"plugins.{kind}.{name}: there is no upstream of this name")
        return self

    def secrets(self) -> Iterator[str]:
        """What must be masked in logs: the API key, headers, ``env`` named as secrets are, and ``from_variables``."""
        yield from self.from_variables
        yield from self.auth.ring()
        for model in (self.model, *self.model.fallbacks):
            if model.api_key is not None:
                yield model.api_key.get_secret_value()
        for upstream in self.upstreams:
            yield from (value.get_secret_value() for value in upstream.headers.values())
            if upstream.oauth is not None:
                yield from upstream.oauth.secrets()
            yield from (value.get_secret_value() for name, value in upstream.env.items() if SECRET_NAME.search(name))
