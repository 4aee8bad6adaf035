"""The configuration: ``wicketgate.yaml``, read once, checked whole, frozen (DESIGN §2).

Every value is a default that is safe or is required. An unknown key, an unset variable or a value out of range stops
the start with one line that names the field. Environment variables such as ``WICKETGATE_SERVER__PORT=9090`` (YAML
values) override the file, and the command line overrides both.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)

from app.auth.identity import ACTOR_PATTERN, parse_permissions
from app.errors import ConfigError

LOOPBACK_HOSTS = frozenset({"127.0.0.1", "::1", "localhost"})

Seconds = Annotated[float, Field(gt=0, le=86_400)]

_SQLITE = "sqlite:///"


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ServerSettings(_Section):
    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65_535)
    max_body_bytes: int = Field(default=4 * 1024 * 1024, ge=1024)
    start_deadline_s: Seconds = 10.0
    """How long readiness waits for upstreams that have neither connected nor failed."""
    drain_s: float = Field(default=1.0, ge=0, le=3_600)
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
        _refuse_repeats("sha256", (key.sha256 for key in keys))
        return keys


class ModelSettings(_Section):
    provider: Literal["scripted", "openai-chat"] = "scripted"
    base_url: str = ""
    model: str = ""
    api_key: SecretStr | None = None
    context_tokens: int = Field(default=128_000, ge=1_000)
    answer_tokens: int = Field(default=4_096, ge=1)
    """What of the window is kept free for an answer; never more than half of what the tool definitions leave."""
    first_event_timeout_s: Seconds = 30.0
    idle_timeout_s: Seconds = 60.0

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.provider != "scripted":
            _check_url("base_url", self.base_url)
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
    max_sessions: int = Field(default=2_000, ge=1)
    """Of the handshake era; a session ends when its client says so, or after half an hour without a request."""
    max_sessions_per_actor: int = Field(default=500, ge=1)


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
    tolerant_args: bool = False
    """Mend arguments where nothing can be lost: ``"42"`` where an integer is wanted, objects given as JSON text."""

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
        if self.url:
            _check_url("url", self.url)
        if any("\0" in text for text in (*self.command, *self.env, *_revealed(self.env))):
            raise ValueError("command and env must not hold NUL characters")
        if self.url and (self.env or self.cwd):
            raise ValueError("env and cwd belong to command, not to url")
        if self.command and self.headers:
            raise ValueError("headers belong to url, not to command")
        return self


class StorageSettings(_Section):
    """Where artifacts are kept, and how much and how long."""

    url: str = "memory://"
    """Or ``sqlite:///relative.db``, from the working directory, or ``sqlite:////absolute.db``."""
    max_bytes: int = Field(default=256 * 1024 * 1024, ge=1024 * 1024)
    max_age_s: float = Field(default=3_600.0, gt=0, le=30 * 86_400)

    @field_validator("url")
    @classmethod
    def _known(cls, url: str) -> str:
        if url == "memory://":
            return url
        if not url.startswith("sqlite:"):
            raise ValueError("must be memory:// or a file, for example sqlite:///var/wicketgate.db")
        file = url.removeprefix(_SQLITE)
        if file == url:
            raise ValueError(
                "needs three slashes before a relative path (sqlite:///var/wicketgate.db) and four before an "
                "absolute one (sqlite:////var/lib/wicketgate.db)"
            )
        if file == ":memory:":
            raise ValueError("is memory:// here")
        if not file.strip("/") or file.endswith("/") or "\0" in file or "?" in file:
            raise ValueError("must name a file after sqlite:///, without options")
        return url

    @property
    def sqlite_file(self) -> Path | None:
        """None for memory."""
        return Path(self.url.removeprefix(_SQLITE)) if self.url.startswith(_SQLITE) else None


class Settings(_Section):
    """All of it. Made by ``load_settings``, or directly where no file is meant."""

    server: ServerSettings = ServerSettings()
    auth: AuthSettings = AuthSettings()
    model: ModelSettings = ModelSettings()
    engine: EngineSettings = EngineSettings()
    mcp: McpSettings = McpSettings()
    storage: StorageSettings = StorageSettings()
    upstreams: tuple[UpstreamSettings, ...] = ()

    _variables: frozenset[str] = PrivateAttr(default=frozenset())

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

    def secrets(self) -> Iterator[str]:
        """What must be masked in logs: the API key, headers, ``env`` that is named as secrets are, and whatever came
        from a variable: most do so because they are secret, and a masked path costs less than a shown password."""
        yield from self._variables
        if self.model.api_key is not None:
            yield self.model.api_key.get_secret_value()
        for upstream in self.upstreams:
            yield from (value.get_secret_value() for value in upstream.headers.values())
            yield from (value.get_secret_value() for name, value in upstream.env.items() if _SECRET_NAME.search(name))


def load_settings(
    path: Path | None, environ: Mapping[str, str] | None = None, *, server: Mapping[str, Any] | None = None
) -> Settings:
    """Read *path* (or only defaults and environment) and check it. Raises ConfigError, one line per fault.

    *server* holds keys of that section from the command line; they win over everything.
    """
    environ = os.environ if environ is None else environ
    values = {} if path is None else _read_yaml(path)
    used: set[str] = set()
    try:
        values = _substitute(values, environ, used, "")
    except RecursionError:  # YAML can build a value that holds itself
        raise ConfigError(f"In the configuration file {path}: not valid YAML: nested without end") from None
    for name, text in environ.items():
        if name.startswith(_PREFIX):
            _override(values, name, _yaml(text, f"the environment variable {name}"))
    for key, value in (server or {}).items():
        _override(values, f"{_PREFIX}SERVER__{key.upper()}", value)
    try:
        settings = Settings(**values)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False, include_context=False)
        raise ConfigError("\n".join(f"Invalid configuration: {_where(f['loc'])}{_what(f)}" for f in faults)) from None
    settings._variables = frozenset(environ[name] for name in used)
    return settings


_PREFIX = "WICKETGATE_"
_SECRET_NAME = re.compile(r"token|key|secret|passw|auth|credential|cookie", re.IGNORECASE)


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"Cannot read the configuration file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"The configuration file {path} is not UTF-8 text") from None
    values = _yaml(text, f"the configuration file {path}")
    if values is None:
        return {}
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise ConfigError(f"The configuration file {path} must hold sections such as 'server:' and 'upstreams:'")
    return values


def _yaml(text: str, source: str) -> Any:
    try:
        return yaml.load(text, _UniqueKeys)  # noqa: S506  # a subclass of the safe loader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) if isinstance(error, _RepeatedKey) else None
        raise ConfigError(f"In {source}{line}: {problem or 'not valid YAML'}") from None
    except (ValueError, RecursionError):  # an impossible date; a value that holds itself
        raise ConfigError(f"In {source}: not valid YAML") from None


class _RepeatedKey(yaml.constructor.ConstructorError):
    pass


class _UniqueKeys(yaml.SafeLoader):
    """Refuses a key that is given twice: of two sections of one name, the first would be lost without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key is not None and key in seen:
                raise _RepeatedKey(problem=f"the key {key!r} is given twice", problem_mark=key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def _override(values: dict[str, Any], name: str, value: Any) -> None:
    """Put *value* where the parts of *name* lead; an unknown part is found by the check of the whole."""
    *sections, key = name.removeprefix(_PREFIX).lower().split("__")
    for section in sections:
        inner = values.setdefault(section, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"Invalid configuration: {name}: {section} is not a section")
        values = inner
    values[key] = value


_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def _substitute(value: Any, environ: Mapping[str, str], used: set[str], where: str) -> Any:
    """Put ``${VAR}`` and ``${VAR:-default}`` in place, everywhere in the file; *used* gets the names that were set."""
    if isinstance(value, dict):
        return {
            key: _substitute(item, environ, used, f"{where}.{key}" if where else str(key))
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_substitute(item, environ, used, f"{where}[{index}]") for index, item in enumerate(value)]
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
        if variable in environ:
            used.add(variable)
        return text

    return _VARIABLE.sub(found, value)


def _check_url(field: str, url: str) -> None:
    """Raises ValueError; the text does not repeat the value, which may hold a credential."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise ValueError(f"{field} must be an http:// or https:// URL with a host")


def _revealed(values: Mapping[str, SecretStr]) -> Iterator[str]:
    return (value.get_secret_value() for value in values.values())


def _where(loc: tuple[int | str, ...]) -> str:
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return f"{text}: " if text else ""


def _what(fault: Any) -> str:
    match fault["type"]:
        case "extra_forbidden":
            return "unknown key"
        case "tuple_type":
            return "must be a list"
        case "model_type" | "dict_type" | "model_attributes_type":
            return "must be a section with keys"
    message: str = fault["msg"]
    return message.removeprefix("Value error, ")


def _refuse_repeats(field: str, values: Iterable[str]) -> None:
    seen: set[str] = set()
    for value in values:
        if value in seen:
            raise ValueError(f"the {field} {value!r} is used twice")
        seen.add(value)
