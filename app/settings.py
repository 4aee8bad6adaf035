"""The configuration: ``wicketgate.yaml``, read once, checked whole, frozen (DESIGN §2).

Every value is a default that is safe or is required. An unknown key, an unset variable or a value out of range stops
the start with one line that names the field. ``WICKETGATE_SERVER__PORT=9090`` and the like override the file.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from app.auth.identity import ACTOR_PATTERN, parse_permissions
from app.errors import ConfigError

LOOPBACK_HOSTS = frozenset({"127.0.0.1", "::1", "localhost"})

Seconds = Annotated[float, Field(gt=0, le=86_400)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ServerSettings(_Section):
    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65_535)
    max_body_bytes: int = Field(default=4 * 1024 * 1024, ge=1024)
    start_deadline_s: Seconds = 10.0
    """How long readiness waits for upstreams that have neither connected nor failed."""
    drain_s: float = Field(default=2.0, ge=0, le=3_600)
    """How long running streams may go on after a stop signal."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"


class KeySettings(_Section):
    id: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,31}$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    actor: str = Field(pattern=f"^{ACTOR_PATTERN.pattern}$")
    permissions: tuple[str, ...] = ("tools:*",)
    suspended: bool = False

    @field_validator("permissions")
    @classmethod
    def _well_formed(cls, permissions: tuple[str, ...]) -> tuple[str, ...]:
        return parse_permissions(",".join(permissions))


class AuthSettings(_Section):
    keys: tuple[KeySettings, ...] = ()

    @field_validator("keys")
    @classmethod
    def _unique(cls, keys: tuple[KeySettings, ...]) -> tuple[KeySettings, ...]:
        _refuse_repeats("id", (key.id for key in keys))
        return keys


class ModelSettings(_Section):
    provider: Literal["scripted", "openai-chat"] = "scripted"
    base_url: str = ""
    model: str = ""
    api_key: SecretStr | None = None
    context_tokens: int = Field(default=128_000, ge=1_000)
    first_event_timeout_s: Seconds = 30.0
    idle_timeout_s: Seconds = 60.0

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.provider != "scripted":
            if not self.base_url.startswith(("http://", "https://")):
                raise ValueError("base_url must be the http(s) root of the API, for example https://api.example.com/v1")
            if not self.model:
                raise ValueError("model is required: the name that the provider knows it by")
        return self


class EngineSettings(_Section):
    max_iterations: int | None = Field(default=None, ge=1)
    tool_timeout_s: Seconds = 30.0
    max_parallel_tools: int = Field(default=8, ge=1, le=1_000)
    max_streams: int = Field(default=500, ge=1)
    heartbeat_s: Seconds = 15.0


class McpSettings(_Section):
    face: Literal["gateway"] = "gateway"
    cache_stable: bool = True
    allowed_hosts: tuple[str, ...] = ()
    """Host headers that are answered, besides the loopback names; ``:*`` at the end stands for any port."""
    allowed_origins: tuple[str, ...] = ()


class RetrySettings(_Section):
    """Calls that never reached the server are tried again; others only if *declared_safe* and the tool is declared
    read-only and idempotent: your word that this server's hints can be believed."""

    attempts: int = Field(default=2, ge=1, le=10)
    base_s: float = Field(default=0.5, ge=0, le=60)
    declared_safe: bool = False


class CacheSettings(_Section):
    """Results of these tools are given again while fresh, if the tool is declared read-only; names may hold ``*``."""

    tools: tuple[str, ...] = ()
    ttl_s: Seconds = 60.0


class UpstreamSettings(_Section):
    """One tool server: *command* (stdio) or *url* (streamable HTTP)."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_-]{0,63}$")
    command: tuple[str, ...] = ()
    env: dict[str, SecretStr] = {}
    cwd: str | None = None
    url: str = ""
    headers: dict[str, SecretStr] = {}
    namespace: Literal["name", "infer"] = "name"
    connect_timeout_s: Seconds = 10.0
    timeout_s: Seconds | None = None
    tool_timeouts_s: dict[str, Seconds] = {}
    """By the tool's own name, which may hold ``*``; the first that fits."""
    retry: RetrySettings = RetrySettings()
    cache: CacheSettings = CacheSettings()

    @field_validator("name")
    @classmethod
    def _namespace(cls, name: str) -> str:
        if "__" in name or name.endswith("_"):
            raise ValueError("must not contain '__' or end in '_': 'name__tool' is how tools are addressed elsewhere")
        return name

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError("give exactly one of command and url")
        if self.command and not self.command[0].strip():
            raise ValueError("command starts with an empty word")
        if self.url and not self.url.startswith(("http://", "https://")):
            raise ValueError("url must start with http:// or https://")
        if self.url and (self.env or self.cwd):
            raise ValueError("env and cwd belong to command, not to url")
        if self.command and self.headers:
            raise ValueError("headers belong to url, not to command")
        return self


class Settings(BaseSettings):
    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix="WICKETGATE_",
        env_nested_delimiter="__",
    )

    server: ServerSettings = ServerSettings()
    auth: AuthSettings = AuthSettings()
    model: ModelSettings = ModelSettings()
    engine: EngineSettings = EngineSettings()
    mcp: McpSettings = McpSettings()
    upstreams: tuple[UpstreamSettings, ...] = ()

    @field_validator("upstreams")
    @classmethod
    def _unique(cls, upstreams: tuple[UpstreamSettings, ...]) -> tuple[UpstreamSettings, ...]:
        _refuse_repeats("name", (upstream.name for upstream in upstreams))
        return upstreams

    @model_validator(mode="after")
    def _guarded(self) -> Self:
        if not self.auth.keys and self.server.host not in LOOPBACK_HOSTS:
            raise ValueError(
                "auth.keys is empty, so server.host must be a loopback address; make a key with: wicketgate key new"
            )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return env_settings, init_settings

    def secrets(self) -> Iterator[str]:
        """Every secret value, for the redaction of logs."""
        if self.model.api_key is not None:
            yield self.model.api_key.get_secret_value()
        for upstream in self.upstreams:
            for value in (*upstream.env.values(), *upstream.headers.values()):
                yield value.get_secret_value()


def load_settings(
    path: Path | None, environ: Mapping[str, str] | None = None, *, server: Mapping[str, Any] | None = None
) -> Settings:
    """Read *path* (or only defaults and environment) and check it. Raises ConfigError, one line per fault.

    *server* holds keys of that section from the command line; they win over the file.
    """
    values = {} if path is None else _read_yaml(path)
    if server and isinstance(values.setdefault("server", {}), dict):
        values["server"].update(server)
    values = _substitute(values, os.environ if environ is None else environ, "")
    try:
        return Settings(**values)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False, include_context=False)
        raise ConfigError("\n".join(f"Invalid configuration: {_where(f['loc'])}{_what(f)}" for f in faults)) from None


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"Cannot read the configuration file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"The configuration file {path} is not UTF-8 text") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise ConfigError(f"The configuration file {path}{line} is not valid YAML") from None
    if values is None:
        return {}
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise ConfigError(f"The configuration file {path} must hold sections such as 'server:' and 'upstreams:'")
    return values


_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def _substitute(value: Any, environ: Mapping[str, str], where: str) -> Any:
    """Put ``${VAR}`` and ``${VAR:-default}`` in place, everywhere in the file."""
    if isinstance(value, dict):
        return {key: _substitute(item, environ, f"{where}.{key}" if where else str(key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_substitute(item, environ, f"{where}[{index}]") for index, item in enumerate(value)]
    if not isinstance(value, str):
        return value

    def found(match: re.Match[str]) -> str:
        variable, default = match.group(1), match.group(2)
        text = environ.get(variable, default)
        if text is None:
            raise ConfigError(
                f"Invalid configuration: {where}: the environment variable {variable} is not set "
                f"(${{{variable}:-default}} gives a default)"
            )
        return text

    return _VARIABLE.sub(found, value)


def _where(loc: tuple[int | str, ...]) -> str:
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return f"{text}: " if text else ""


def _what(fault: Any) -> str:
    if fault["type"] == "extra_forbidden":
        return "unknown key"
    message: str = fault["msg"]
    return message.removeprefix("Value error, ")


def _refuse_repeats(field: str, values: Iterable[str]) -> None:
    seen: set[str] = set()
    for value in values:
        if value in seen:
            raise ValueError(f"the {field} {value!r} is used twice")
        seen.add(value)
