"""What can be configured, with its bounds and defaults (DESIGN §2). How it is read: ``edges/settings_file.py``.

Every value has a default that is safe, or is required; an unknown key is an error. Nobody imports an instance: it is
made once and passed down as plain values.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)

from app.access_settings import AccessRuleSettings
from app.auth.identity import ACTOR_PATTERN, parse_permissions
from app.openapi.servers import is_base_url

LOOPBACK_HOSTS = frozenset({"127.0.0.1", "::1", "localhost"})

Seconds = Annotated[float, Field(gt=0, le=86_400)]

SECRET_NAME = re.compile(r"token|key|secret|passw|auth|credential|cookie", re.IGNORECASE)

_SQLITE = "sqlite:///"

_MAX_RULES = 1_000


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
    approval_key: SecretStr | None = Field(default=None, min_length=32)
    """Seals approvals; the same for all replicas. Without it they end with the process."""
    approval_ttl_s: float = Field(default=3_600.0, ge=1, le=30 * 86_400)

    @field_validator("keys")
    @classmethod
    def _unique(cls, keys: tuple[KeySettings, ...]) -> tuple[KeySettings, ...]:
        _refuse_repeats("id", (key.id for key in keys))
        _refuse_repeats("sha256", (key.sha256 for key in keys))
        return keys


class ModelChoice(_Section):
    """One model, and where it is."""

    provider: Literal["scripted", "openai-chat", "anthropic-messages"] = "scripted"
    base_url: str = ""
    model: str = ""
    api_key: SecretStr | None = None
    context_tokens: int | None = Field(default=None, ge=1_000)
    max_tokens: int | None = Field(default=None, ge=1)
    """The longest answer to ask for; None leaves it to the server, or is ``answer_tokens`` where one must be named."""
    dialect: Literal["auto", "openai", "mistral", "groq", "compatible"] = "auto"
    """Of ``openai-chat``: whose quirks are met. ``auto`` goes by the host; name it for a server behind a proxy."""
    extra: dict[str, Any] = Field(default_factory=dict)
    """Fields for the body of every request, such as ``temperature`` or ``parallel_tool_calls``."""

    @field_validator("extra")
    @classmethod
    def _not_the_loops(cls, extra: dict[str, Any]) -> dict[str, Any]:
        if taken := sorted(extra.keys() & _LOOPS_OWN):
            raise ValueError(f"{taken[0]} is set by the engine and cannot be given here")
        return extra

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.provider != "scripted":
            _check_url("base_url", self.base_url)
            if not self.model:
                raise ValueError("model is required: the name that the provider knows it by")
        return self


_LOOPS_OWN = {"model", "messages", "system", "tools", "stream", "stream_options"}


class FallbackSettings(ModelChoice):
    """A stand-in that understands nothing must never answer for a model, so there is no default."""

    provider: Literal["openai-chat", "anthropic-messages"]


class ModelSettings(ModelChoice):
    context_tokens: int = Field(default=128_000, ge=1_000)
    answer_tokens: int = Field(default=4_096, ge=1)
    """What of the window is kept free for an answer; never more than half of what the tool definitions leave."""
    first_event_timeout_s: Seconds = 30.0
    idle_timeout_s: Seconds = 60.0
    """Between bytes: a server's keep-alives count."""
    stall_timeout_s: Seconds = 300.0
    """Between events of the answer: keep-alives do not count."""
    attempts: int = Field(default=3, ge=1, le=10)
    """How often a model is asked that is overloaded or not there, as long as nothing of an answer has come."""
    patience_s: float = Field(default=60.0, ge=0, le=3_600)
    """How long all waits between attempts may take together; no single one takes more than a minute."""
    fallbacks: tuple[FallbackSettings, ...] = Field(default=(), max_length=8)
    """Asked in this order when the model before fails before its first word; after an overflow only a larger one."""


class ResumeSettings(_Section):
    """Of runs whose request carries an Idempotency-Key."""

    keep_s: Seconds = 120.0
    """How long the events of a run can be asked for again after its end."""
    grace_s: Seconds = 5.0
    """With ``on_disconnect: cancel``, how long a run waits for its client to come back."""
    detached_s: Seconds = 600.0
    """With ``on_disconnect: continue``, how long a run goes on that nobody reads."""
    run_bytes: int = Field(default=1024 * 1024, ge=64 * 1024)
    total_bytes: int = Field(default=128 * 1024 * 1024, ge=1024 * 1024)


class EngineSettings(_Section):
    max_iterations: int | None = Field(default=None, ge=1)
    tool_timeout_s: Seconds = 30.0
    max_parallel_tools: int = Field(default=8, ge=1, le=1_000)
    max_calls_per_turn: int = Field(default=128, ge=1, le=10_000)
    loop_guard: int | None = Field(default=3, ge=2)
    """From which identical call on, with the same result each time, the model gets an error; null is never."""
    max_streams: int = Field(default=500, ge=1)
    heartbeat_s: Seconds = 15.0
    stuck_reader_s: Seconds = 60.0
    """A client that takes nothing of what waits for it is cut after so long."""
    on_disconnect: Literal["cancel", "continue"] = "cancel"
    """What becomes of a run with an Idempotency-Key that nobody reads; its request may say otherwise."""
    resume: ResumeSettings = ResumeSettings()


Face = Literal["gateway", "transparent", "registry", "namespaced"]

FACES: tuple[str, ...] = get_args(Face)


class McpSettings(_Section):
    face: Face = "gateway"
    """Which of the faces ``/mcp`` is."""
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


class BreakerSettings(_Section):
    """After *failures* in a row to reach it or get an answer, nothing is sent for a pause that doubles up to
    *max_pause_s*; then one call tries. 0 failures: never."""

    failures: int = Field(default=5, ge=0, le=1_000)
    pause_s: Seconds = 1.0
    max_pause_s: Seconds = 30.0


_OF_CALLS = {
    "required",
    "namespace",
    "timeout_s",
    "tool_timeouts_s",
    "retry",
    "cache",
    "tolerant_args",
    "max_concurrent",
    "max_queued",
    "breaker",
}


class OAuthSettings(_Section):
    """How the gateway gets its own access token for an upstream: by *refresh_token* if there is one, else by client
    credentials."""

    token_url: str
    client_id: str = Field(min_length=1)
    client_secret: SecretStr | None = None
    scope: str = ""
    audience: str = ""
    refresh_token: SecretStr | None = None
    auth_method: Literal["basic", "post"] = "basic"
    """How the client secret is sent: in a Basic header, or in the form."""

    @field_validator("token_url")
    @classmethod
    def _usable(cls, token_url: str) -> str:
        _check_url("token_url", token_url)
        return token_url

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.client_secret is None and self.refresh_token is None:
            raise ValueError("give client_secret, or refresh_token, or both")
        return self

    def secrets(self) -> Iterator[str]:
        yield from (secret.get_secret_value() for secret in (self.client_secret, self.refresh_token) if secret)


class UpstreamSettings(_Section):
    """One source of tools: *command* (stdio), *url* (streamable HTTP, or the older SSE), *openapi* (an HTTP service and
    its document) or *python* (functions of this process)."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_-]{0,63}$")
    enabled: bool = True
    """False: not started, and its tools are as if there were none."""
    required: bool = False
    """True: ``serve`` ends with an error when it has not given its tools by the end of ``server.start_deadline_s``."""
    command: tuple[str, ...] = ()
    env: dict[str, SecretStr] = {}
    cwd: str | None = None
    """Of *command*; for *python*, where its module is looked for besides what is installed."""
    python: str = Field(default="", pattern=r"^$|^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$")
    """``package.module:registry``; see app/tools.py."""
    threads: int = Field(default=8, ge=1, le=256)
    """For the functions of *python* that are not async."""
    url: str = ""
    openapi: str = ""
    """The document: a path from the working directory, or an http or https URL."""
    base_url: str = ""
    """What the paths of the document stand behind; the document's own server if it is not given."""
    headers: dict[str, SecretStr] = {}
    transport: Literal["http", "sse"] = "http"
    max_answer_bytes: int = Field(default=64 * 1024 * 1024, ge=64 * 1024)
    oauth: OAuthSettings | None = None
    namespace: Literal["name", "infer"] = "name"
    connect_timeout_s: Seconds = 10.0
    timeout_s: Seconds | None = None
    tool_timeouts_s: dict[str, Seconds] = {}
    """By the tool's own name, which may hold ``*``; the first that fits."""
    retry: RetrySettings = RetrySettings()
    cache: CacheSettings = CacheSettings()
    max_concurrent: int = Field(default=64, ge=1, le=10_000)
    """Calls at once; up to *max_queued* wait for a place, within their deadline."""
    max_queued: int = Field(default=256, ge=0, le=100_000)
    breaker: BreakerSettings = BreakerSettings()
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
        kinds = [kind for kind in _KINDS if getattr(self, kind)]
        if len(kinds) != 1:
            raise ValueError(f"give exactly one of {', '.join(_KINDS[:-1])} and {_KINDS[-1]}")
        for field, owners in _BELONGS_TO.items():
            if getattr(self, field) != type(self).model_fields[field].default and kinds[0] not in owners:
                raise ValueError(f"{field} belongs to {' and '.join(owners)}, not to {kinds[0]}")
        if self.command and not self.command[0].strip():
            raise ValueError("command starts with an empty word")
        if any("\0" in text for text in (*self.command, *self.env, *_revealed(self.env))):
            raise ValueError("command and env must not hold NUL characters")
        return self

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if self.url:
            _check_url("url", self.url)
        if "://" in self.openapi:
            _check_url("openapi", self.openapi)
        elif "\0" in self.openapi:
            raise ValueError("openapi must be a path or a URL")
        if self.base_url and not is_base_url(self.base_url):
            raise ValueError("base_url must be an http:// or https:// URL with a host, without a query or credentials")
        for name, value in self.headers.items():
            if not _HEADER_NAME.fullmatch(name):
                raise ValueError("headers: a name may hold only letters, digits and hyphens, or others of RFC 9110")
            if not (text := value.get_secret_value()).isascii() or not text.isprintable():
                raise ValueError(f"headers.{name}: only printable ASCII can be sent; is there a line end in it?")
        if self.oauth is not None and "authorization" in map(str.lower, self.headers):
            raise ValueError("headers.Authorization and oauth are two credentials for one header; give one of them")
        return self

    def same_session(self, other: "UpstreamSettings") -> bool:
        """Whether a session made by the one serves the other: they differ in how calls are made, at most."""
        return self.model_dump(exclude=_OF_CALLS) == other.model_dump(exclude=_OF_CALLS)

    @property
    def kind(self) -> str:
        """``command``, ``url``, ``openapi`` or ``python``."""
        return next(kind for kind in _KINDS if getattr(self, kind))


_KINDS = ("command", "url", "openapi", "python")
_BELONGS_TO: Mapping[str, tuple[str, ...]] = {
    "env": ("command",),
    "cwd": ("command", "python"),
    "threads": ("python",),
    "transport": ("url",),
    "base_url": ("openapi",),
    "headers": ("url", "openapi"),
    "oauth": ("url", "openapi"),
}
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


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


class PinSettings(_Section):
    """What happens to tools whose definitions are not as they were accepted, or look suspicious."""

    file: str | None = None
    """Made by ``wicketgate lock``; without it no tool is pinned."""
    new_tools: Literal["allow", "quarantine"] = "allow"
    suspicious: Literal["flag", "quarantine"] = "flag"

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.new_tools == "quarantine" and self.file is None:
            raise ValueError("new_tools: quarantine needs pins.file: without it every tool is new")
        return self


class QuotaSettings(_Section):
    """Executions in any sixty seconds. *per_tool* goes by tool id, which may hold ``*``; the first that fits."""

    per_actor: int | None = Field(default=None, ge=0)
    per_tool: dict[str, Annotated[int, Field(ge=0)]] = {}


class PluginSettings(_Section):
    """One plugin in its place. Lower *priority* runs first; what is not *critical* is passed over when it fails."""

    handler: str = Field(min_length=1, max_length=128)
    """A plugin that comes with Wicketgate, or an entry point of the group ``wicketgate.plugins``."""
    priority: int = Field(default=50, ge=0, le=100)
    critical: bool = True
    enabled: bool = True
    config: dict[str, Any] = {}


Plugins = dict[str, tuple[PluginSettings, ...]]
"""By upstream name, or ``_global`` for all."""


class PluginsSettings(_Section):
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


class Settings(_Section):
    """All of it. Made by ``load_settings``, or directly where no file is meant."""

    server: ServerSettings = ServerSettings()
    auth: AuthSettings = AuthSettings()
    model: ModelSettings = ModelSettings()
    engine: EngineSettings = EngineSettings()
    mcp: McpSettings = McpSettings()
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
        _refuse_repeats("name", (upstream.name for upstream in upstreams))
        return upstreams

    @model_validator(mode="after")
    def _guarded(self) -> Self:
        if not self.auth.keys and self.server.host not in LOOPBACK_HOSTS:
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
        if self.auth.approval_key is not None:
            yield self.auth.approval_key.get_secret_value()
        for model in (self.model, *self.model.fallbacks):
            if model.api_key is not None:
                yield model.api_key.get_secret_value()
        for upstream in self.upstreams:
            yield from (value.get_secret_value() for value in upstream.headers.values())
            if upstream.oauth is not None:
                yield from upstream.oauth.secrets()
            yield from (value.get_secret_value() for name, value in upstream.env.items() if SECRET_NAME.search(name))


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


def _refuse_repeats(field: str, values: Iterable[str]) -> None:
    seen: set[str] = set()
    for value in values:
        if value in seen:
            raise ValueError(f"the {field} {value!r} is used twice")
        seen.add(value)
