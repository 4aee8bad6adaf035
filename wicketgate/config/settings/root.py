"""The whole configuration, and its sections ``server``, ``mcp``, ``tasks``, ``network``, ``storage``, ``quota``,
``pins`` and ``plugins``."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, field_validator, model_validator

from wicketgate.access.policy import AccessDefault, VirtualGate
from wicketgate.config.settings.access import AccessRuleSettings, AuthSettings, FlowSettings
from wicketgate.config.settings.base import (
    LOOPBACK_HOSTS,
    SECRET_NAME,
    BareUrl,
    Networks,
    Seconds,
    Section,
    ToolPattern,
    refuse_repeats,
)
from wicketgate.config.settings.browse import BrowseSettings
from wicketgate.config.settings.chat import EngineSettings, ModelSettings
from wicketgate.config.settings.issuers import IssuerSettings
from wicketgate.config.settings.spending import SpendingSettings
from wicketgate.config.settings.upstreams import SandboxSettings, UpstreamSettings
from wicketgate.faces.surface import MAX_ALWAYS, ResultForm
from wicketgate.gateway.spending import SpendingRules
from wicketgate.storage.fail_modes import USUAL, FailMode, StateKind
from wicketgate.storage.redis.url import RedisPlace, is_redis, read_url
from wicketgate.upstreams.mcp.sandbox import Sandbox

_SQLITE = "sqlite:///"


class TlsSettings(Section):
    """Files in PEM, which are read again when they change."""

    cert: str = Field(min_length=1)
    """The certificate, and those between it and its authority."""
    key: str = Field(min_length=1)
    """Its private key, without a password."""
    client_ca: str = ""
    """Authorities of clients: with it, each client needs a certificate of one of them, besides its key."""


class ServerSettings(Section):
    host: str = "127.0.0.1"
    """Address to listen on. Any other than a loopback address needs ``auth.keys``, ``auth.key_file`` or
    ``auth.issuers``."""
    port: int = Field(default=8080, ge=0, le=65_535)
    """Port to listen on; 0 takes a free one."""
    tls: TlsSettings | None = None
    """TLS at the port of ``wicketgate serve``. None: plain HTTP, for loopback or behind a proxy."""
    public_url: BareUrl = ""
    """The URL at which clients reach this service, as issuers know it: ``https://gate.example.com``. Tokens are issued
    for it; it is never taken from a request."""
    max_body_bytes: int = Field(default=10 * 1024 * 1024, ge=1024)
    """A longer request is refused with 413."""
    start_deadline_s: Seconds = 10.0
    """Longest wait of readiness for upstreams that have neither connected nor failed."""
    drain_s: float = Field(default=1.0, ge=0, le=3_600)
    """Time that running streams and calls have left after a stop signal."""
    settle_s: float = Field(default=0.0, ge=0, le=3_600)
    """Time after SIGTERM in which ``/readyz`` says 503 and requests are still served, before the drain begins."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """``debug`` also shows what stdio servers write to stderr."""
    log_format: Literal["auto", "text", "json"] = "auto"
    """``auto`` is text where the log goes to a terminal, JSON elsewhere."""
    max_connections: int | None = Field(default=None, ge=1)
    """None: half of the files that the process may open, at most 10,000. One address may have three quarters of them,
    unless it is one of *trusted_proxies*."""
    trusted_proxies: Networks = ()
    """Addresses and networks whose ``X-Forwarded-For`` or ``Forwarded`` names the client."""
    allowed_hosts: tuple[str, ...] = ()
    """Names in Host headers that are accepted besides loopback names, addresses and *host*. ``:*`` at the end stands
    for any port, ``*`` for every name."""
    allowed_origins: tuple[str, ...] = ()
    """Origin headers that are accepted besides those of loopback names; their pages may read the answers (CORS)."""
    console: bool = True
    """Serve the web console at ``/console/``. Its files hold no data; its data needs a key like everything else."""

    @field_validator("public_url")
    @classmethod
    def _joinable(cls, url: str) -> str:
        return url.rstrip("/")


GATE_NAME = r"^[a-z0-9][a-z0-9-]{0,31}$"

FaceName = Literal["gateway", "transparent", "registry", "namespaced"]

FACES: tuple[str, ...] = get_args(FaceName)


class McpSettings(Section):
    face: FaceName = "gateway"
    """The face at ``/mcp``."""
    result: ResultForm = "text"
    """The default form of results of the three tools over MCP: ``text`` as a model reads it, ``json`` for programs, or
    ``both``."""
    always: tuple[ToolPattern, ...] = Field(default=(), max_length=MAX_ALWAYS)
    """Tools that clients are shown next to the three, with their schemas: at most 20 patterns as in access rules, or
    ids. Of the tools that they match, the first 20 are listed."""
    cache_stable: bool = False
    """The order of cards of requests that do not ask for one."""
    direct: bool = True
    """Calls, lists of tools and pings over HTTP are answered without the server of MCP's SDK where that is the same for
    their client, at a fraction of the time. False: every request goes through that server."""
    max_streams_per_actor: int | None = Field(default=None, ge=1)
    """Streams on which clients of one actor listen, at a face in each process. None shares the 4,096 of each face by
    what each actor holds there (``access/shares.py``)."""
    max_calls: int = Field(default=512, ge=1)
    """Requests under way at ``/mcp`` and ``/operations`` together, in each process."""
    max_calls_per_actor: int | None = Field(default=None, ge=1)
    """Those of one actor in all processes that share ``storage.url``. None shares those of each process by what each
    actor holds there."""


class TaskSettings(Section):
    """Calls of MCP clients that take longer than clients wait, and calls that servers go on with as tasks."""

    after_s: float = Field(default=25.0, ge=0, le=3_600)
    """A call that takes longer goes on without its request, whose answer says how to get the result. 0: never."""
    max_running: int = Field(default=256, ge=1, le=100_000)
    """Calls that go on without a request in each process, those among them that have ended and were not asked for."""
    max_running_per_actor: int | None = Field(default=None, ge=1, le=100_000)
    """Those of one actor in all processes that share ``storage.url``. None shares those of each process by what each
    actor holds there."""
    longest_s: Seconds = 3_600.0
    """Time for a call that its server goes on with as a task, or that reports progress again and again, in place of
    ``timeout_s`` of the upstream if that is shorter."""


class CodeModeSettings(Section):
    """Programs of models: the fourth tool, ``tool_run``, at the gateway face and in chats."""

    enabled: bool = False
    """Needs ``pip install 'wicketgate[code]'``."""
    seconds: float = Field(default=5.0, gt=0, le=600)
    """Seconds for which a program may compute. Waiting for tools does not count."""
    memory: int = Field(default=64 * 1024 * 1024, ge=1024 * 1024)
    """Bytes that a program may hold."""
    calls: int = Field(default=200, ge=1, le=100_000)
    """Calls that a program may make."""
    workers: int = Field(default=2, ge=1, le=64)
    """Processes that run programs, for each process of the gate; another program waits for one."""
    keep: float = Field(default=86_400.0, ge=1, le=30 * 86_400)
    """Seconds for which a program waits for a person, and its answer is kept."""


class NetworkSettings(Section):
    ca_file: str = ""
    """PEM certificates of authorities that every outgoing connection trusts besides those of the system."""


OpenOrClosed = Literal["open", "closed"]


class StorageFailSettings(Section):
    """Kinds of state while the store of *url* cannot be used. ``open``: each process continues with what it counts and
    remembers itself. ``closed``: what needs the state is refused, or done without where nothing needs it."""

    quotas: OpenOrClosed = "open"
    """``open``: an actor may run what its quota allows at each process, which counts what it admitted before.
    ``closed``: nothing that has a quota runs."""
    places: OpenOrClosed = "open"
    """Streams and calls where ``..._per_actor`` limits an actor. ``open``: each process counts its own.
    ``closed``: nothing new begins that has such a limit."""
    learned_words: OpenOrClosed = "open"
    """``open``: each process keeps what it learns, and writes it later. ``closed``: it is forgotten."""

    budgets: OpenOrClosed = "open"
    """``open``: each process knows only what it has counted itself. ``closed``: no chat begins that has a budget."""

    def modes(self) -> dict[StateKind, FailMode]:
        """Returns the mode of every kind of state, those without a setting included."""
        return {
            **USUAL,
            "quotas": self.quotas,
            "places": self.places,
            "learned_words": self.learned_words,
            "budgets": self.budgets,
        }


class StorageSettings(Section):
    """The place of artifacts and of what processes share, and its bounds."""

    url: str = Field(default="memory://", repr=False)
    """Or ``sqlite:///relative.db``, from the working directory, or ``sqlite:////absolute.db``; or a Redis that replicas
    share: ``redis://user:password@host:6379/0``, ``redis+sentinel://host:26379,host:26379/service`` or
    ``redis+cluster://host:6379,host:6379``; ``rediss`` in place of ``redis`` is TLS."""
    max_bytes: int = Field(default=256 * 1024 * 1024, ge=1024 * 1024)
    """Bytes of all artifacts; one takes half of it at most."""
    max_age_s: float = Field(default=3_600.0, gt=0, le=30 * 86_400)
    """An artifact is dropped so long after it was made last."""
    fail: StorageFailSettings = StorageFailSettings()
    """Each kind of state while the store cannot be used."""

    @field_validator("url")
    @classmethod
    def _known(cls, url: str) -> str:
        if url == "memory://":
            return url
        if is_redis(url):
            read_url(url)
            return url
        if not url.startswith("sqlite:"):
            raise ValueError(
                "must be memory:// or a file (sqlite:///var/wicketgate.db) or a Redis (redis://localhost:6379)"
            )
        file = url.removeprefix(_SQLITE)
        if file == url:
            raise ValueError(
                "needs three slashes before a relative path (sqlite:///var/wicketgate.db) and four before an "
                "absolute one (sqlite:////var/lib/wicketgate.db)"
            )
        if file == ":memory:":
            raise ValueError("must be memory:// for a store in memory")
        if not file.strip("/") or file.endswith("/") or "\0" in file or "?" in file:
            raise ValueError("must name a file after sqlite:///, without options")
        return url

    @property
    def sqlite_file(self) -> Path | None:
        """None if the store is in memory."""
        return Path(self.url.removeprefix(_SQLITE)) if self.url.startswith(_SQLITE) else None

    @property
    def is_shared(self) -> bool:
        """True if what is stored outlives this process, and other processes may share it."""
        return self.sqlite_file is not None or self.redis_place is not None

    @property
    def redis_place(self) -> RedisPlace | None:
        """None if the store is no Redis."""
        return read_url(self.url) if is_redis(self.url) else None

    @property
    def shown(self) -> str:
        """The URL without user and password."""
        return str(self.redis_place or self.url)


class PinSettings(Section):
    """Treatment of tools whose definitions are new, changed or suspicious."""

    file: str | None = None
    """Made by ``wicketgate lock``; without it no tool is pinned."""
    new_tools: Literal["allow", "quarantine"] = "allow"
    """Treatment of tools without a pin."""
    suspicious: Literal["flag", "quarantine"] = "flag"
    """Treatment of tools whose texts look suspicious."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.new_tools == "quarantine" and self.file is None:
            raise ValueError("new_tools: quarantine needs pins.file: without it every tool is new")
        return self


class QuotaSettings(Section):
    """Executions a minute, in an approximate window (ACCESS-320). *per_tool* is by tool id, which may hold ``*``; the
    first match counts."""

    per_actor: int | None = Field(default=None, ge=0)
    """Executions of each actor."""
    per_tool: dict[str, Annotated[int, Field(ge=0)]] = {}
    """Executions of each actor by tool: ``{"github:delete_*": 5}``."""


class GateSettings(Section):
    """A virtual gate at ``/mcp/gates/<name>``: some of the tools, for the clients that are sent there. It only takes
    away: permissions, rules and quotas of the whole gate hold too."""

    face: FaceName = "gateway"
    """The face of its clients."""
    tools: tuple[ToolPattern, ...] = Field(min_length=1)
    """Its tools, as patterns like those of access rules: ``["zendesk:*"]``."""
    always: tuple[ToolPattern, ...] = Field(default=(), max_length=MAX_ALWAYS)
    """Those among them that clients are shown next to the three, in place of ``mcp.always``."""
    access: tuple[AccessRuleSettings, ...] = Field(default=(), max_length=1_000)
    """Rules for calls that come through it, besides ``access``: the strictest outcome counts."""
    quota: QuotaSettings = QuotaSettings()
    """Executions a minute through it, besides ``quota``."""

    @model_validator(mode="after")
    def _lists_next_to_three(self) -> Self:
        if self.always and self.face != "gateway":
            raise ValueError(f"always is for face: gateway; face: {self.face} lists every tool or none by its name")
        return self


class PluginSettings(Section):
    """One plugin in its place. Lower *priority* runs first. A plugin that is not *critical* is skipped if it fails."""

    handler: str = Field(min_length=1, max_length=128)
    """A plugin that comes with Wicketgate, or an entry point of the group ``wicketgate.plugins``."""
    priority: int = Field(default=50, ge=0, le=100)
    """0 to 100; lower runs first."""
    critical: bool = True
    """False: the plugin is skipped if it fails."""
    enabled: bool = True
    """False: the plugin is left out."""
    config: dict[str, Any] = {}
    """Settings of the plugin itself."""


Plugins = dict[str, tuple[PluginSettings, ...]]
"""By upstream name; ``_global`` is for all."""


class PluginsSettings(Section):
    """The chain that every call passes, by kind (ROUTE-18, ROUTE-19)."""

    security: Plugins = {}
    """Plugins that allow or block calls and results."""
    middleware: Plugins = {}
    """Plugins that change calls, results and what tools there are."""
    auditing: Plugins = {}
    """Sinks of audit records, under ``_global`` only."""

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


class Settings(Section):
    """The whole configuration: from a file with ``load``, from what a file may hold with ``from_dict``.

    Every value is required or has a default that is safe.
    """

    server: ServerSettings = ServerSettings()
    """The port of the service, and its bounds."""
    auth: AuthSettings = AuthSettings()
    """The keys that callers hold, and the issuers of their tokens."""
    model: ModelSettings = ModelSettings()
    """The model that answers chats."""
    engine: EngineSettings = EngineSettings()
    """The course of a chat."""
    mcp: McpSettings = McpSettings()
    """The door for MCP clients."""
    tasks: TaskSettings = TaskSettings()
    """Calls of MCP clients that take longer than clients wait."""
    code_mode: CodeModeSettings = CodeModeSettings()
    """Programs of models, which call tools."""
    browse: BrowseSettings = BrowseSettings()
    """The finding of tools."""
    network: NetworkSettings = NetworkSettings()
    """Connections that go out."""
    storage: StorageSettings = StorageSettings()
    """The place of artifacts and of what processes share, and its bounds."""
    quota: QuotaSettings = QuotaSettings()
    """Executions in any sixty seconds."""
    spending: SpendingSettings = SpendingSettings()
    """The prices of tools, and budgets."""
    pins: PinSettings = PinSettings()
    """Accepted definitions of tools."""
    plugins: PluginsSettings = PluginsSettings()
    """The chain that every call passes."""
    access: tuple[AccessRuleSettings, ...] = Field(default=(), max_length=1_000)
    """The first rule that matches a tool and whose condition holds decides."""
    access_default: AccessDefault = "allow"
    """Decides about a tool that no rule decides on and that the caller has the permission for."""
    gates: dict[Annotated[str, Field(pattern=GATE_NAME)], GateSettings] = {}
    """Virtual gates by name: lower-case letters, digits and hyphens, at most 32."""
    flow: FlowSettings = FlowSettings()
    """Labels for rules that ask where a destination comes from."""
    sandbox: SandboxSettings | None = None
    """The limits of all servers over stdio that have none of their own."""
    upstreams: tuple[UpstreamSettings, ...] = ()
    """The sources of tools. Each has a *name* and one of *command*, *url*, *openapi* and *python*."""
    from_variables: Mapping[str, str] = Field(default={}, exclude=True, repr=False)
    """Values that the file took from variables, with their names. Most are secrets, and masking a path does little
    harm."""
    from_file: Path | None = Field(default=None, exclude=True, repr=False)
    """The file that was read."""

    @classmethod
    def load(cls, path: str | Path | None = None) -> "Settings":
        """Reads the file at *path*, under the variables of the environment that override it, as ``wicketgate serve``
        does. None: without a file. Raises ConfigError, one line per fault."""
        from wicketgate.config.settings_file import load_settings

        return load_settings(None if path is None else Path(path))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Settings":
        """Accepts the content of a configuration file, including ``mcpServers`` and ``${VAR}``. Variables override
        nothing. Raises ConfigError, one line per fault."""
        from wicketgate.config.settings_file import settings_from

        return settings_from(values)

    @field_validator("upstreams", mode="before")
    @classmethod
    def _none(cls, upstreams: Any) -> Any:
        """A bare ``upstreams:``, whose entries are all comments, is an empty list."""
        return () if upstreams is None else upstreams

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
        if self.auth.issuers and not self.server.public_url:
            raise ValueError(
                "auth.issuers needs server.public_url, the URL at which clients reach this service: tokens name it"
            )
        self._check_prices()
        for upstream in self.upstreams:
            upstream.take_variables(self.from_variables)
            if upstream.credentials == "exchange":
                self._check_exchange(upstream)
        names = {upstream.name for upstream in self.upstreams}
        for kind, name in self.plugins.servers():
            if name not in names:
                raise ValueError(f"plugins.{kind}.{name}: there is no upstream of this name")
        return self

    def _check_prices(self) -> None:
        """What one model costs nothing cannot be told from what was forgotten, and a budget would not notice."""
        models = {
            "model": self.model,
            **{f"model.fallbacks.{at}": each for at, each in enumerate(self.model.fallbacks)},
        }
        without = [place for place, each in models.items() if each.prices is None]
        if without and len(without) < len(models):
            raise ValueError(f"{without[0]}.prices is missing: other models have some; {{input: 0, output: 0}} is free")
        if without and self.spending.budgets and not self.spending.tools:
            raise ValueError("spending.budgets needs prices: model.prices, or spending.tools")

    def spending_rules(self) -> SpendingRules:
        model, tools = self.model, self.spending.tool_prices()
        prices = None if model.prices is None else model.prices.made()
        budgets = [each.made() for each in self.spending.budgets]
        return SpendingRules(tools, budgets, bool(prices or tools), model.model or model.provider, prices)

    def virtual_gates(self) -> Mapping[str, VirtualGate]:
        return {
            name: VirtualGate(gate.tools, tuple(rule.rule() for rule in gate.access))
            for name, gate in self.gates.items()
        }

    def face_names(self) -> list[str]:
        """Returns the names of all faces, as in paths below ``/mcp``."""
        return [*FACES, *(f"gates/{name}" for name in self.gates)]

    def sandbox_of(self, upstream: UpstreamSettings) -> Sandbox | None:
        """Returns the sandbox of a server over stdio."""
        wanted = self.sandbox if upstream.sandbox is None else upstream.sandbox
        return wanted.made() if wanted and upstream.command else None

    def exchanged_issuer(self, upstream: UpstreamSettings) -> IssuerSettings | None:
        """The issuer whose tokens *upstream* exchanges; None if it names none of them, or none of several."""
        assert upstream.exchange is not None
        wanted, issuers = upstream.exchange.issuer, self.auth.issuers
        found = [issuer for issuer in issuers if issuer.name == wanted] if wanted else issuers
        return found[0] if len(found) == 1 else None

    def _check_exchange(self, upstream: UpstreamSettings) -> None:
        place = f"upstreams.{upstream.name}.oauth.exchange.issuer"
        if not self.auth.issuers:
            raise ValueError(f"{place}: auth.issuers is empty, and only an issuer's tokens can be exchanged")
        if self.exchanged_issuer(upstream) is None:
            raise ValueError(f"{place}: give the name of one of auth.issuers")

    def secrets(self) -> Iterator[str]:
        """Values to mask in logs, ``env`` where it is named like a secret, and all of ``from_variables``."""
        yield from self.from_variables
        yield from self.auth.secrets()
        if self.storage.redis_place is not None and self.storage.redis_place.password is not None:
            yield self.storage.redis_place.password
        for model in (self.model, *self.model.fallbacks):
            if model.api_key is not None:
                yield model.api_key.get_secret_value()
        for upstream in self.upstreams:
            yield from (value.get_secret_value() for value in (*upstream.headers.values(), *upstream.query.values()))
            if upstream.oauth is not None:
                yield from upstream.oauth.secrets()
            yield from (value.get_secret_value() for name, value in upstream.env.items() if SECRET_NAME.search(name))
