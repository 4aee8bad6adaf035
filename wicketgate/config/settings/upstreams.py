"""The section ``upstreams``: each entry is one source of tools, of exactly one kind."""

import re
from collections.abc import Iterator, Mapping
from typing import Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from wicketgate.config.settings.base import Seconds, Section, check_url, revealed
from wicketgate.upstreams.openapi.document import is_base_url


class RetrySettings(Section):
    """Repeats calls that never reached the server.

    *declared_safe* is your word that the hints of this server are true: then calls of tools that it declares read-only
    and idempotent are repeated too.
    """

    attempts: int = Field(default=2, ge=1, le=10)
    base_s: float = Field(default=0.5, ge=0, le=60)
    declared_safe: bool = False


class CacheSettings(Section):
    """Keeps results of these *tools* while fresh, if the tool is declared read-only; names may hold ``*``.

    Each actor gets its own results again. *shared* is your word that no result of these tools depends on the caller:
    then every actor who may make the same call gets them.
    """

    tools: tuple[str, ...] = ()
    ttl_s: Seconds = 60.0
    shared: bool = False


class BreakerSettings(Section):
    """Stops sending after *failures* in a row to reach the server or to get an answer; 0 turns it off.

    One call tries again after a pause that doubles up to *max_pause_s*.
    """

    failures: int = Field(default=5, ge=0, le=1_000)
    pause_s: Seconds = 1.0
    max_pause_s: Seconds = 30.0


# Settings of single calls; a session outlives their changes.
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


class OAuthSettings(Section):
    """Ways to an access token of the gateway's own: *refresh_token* if there is one, otherwise client credentials."""

    token_url: str
    client_id: str = Field(min_length=1)
    client_secret: SecretStr | None = None
    scope: str = ""
    audience: str = ""
    refresh_token: SecretStr | None = None
    auth_method: Literal["basic", "post"] = "basic"
    """Place of the client secret: a Basic header, or the form."""

    @field_validator("token_url")
    @classmethod
    def _usable(cls, token_url: str) -> str:
        check_url("token_url", token_url)
        return token_url

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.client_secret is None and self.refresh_token is None:
            raise ValueError("give client_secret, or refresh_token, or both")
        return self

    def secrets(self) -> Iterator[str]:
        yield from (secret.get_secret_value() for secret in (self.client_secret, self.refresh_token) if secret)


class UpstreamSettings(Section):
    """One source of tools: *command* (stdio), *url* (streamable HTTP, or the older SSE), *openapi* (an HTTP service and
    its document) or *python* (functions of this process)."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_-]{0,63}$")
    enabled: bool = True
    """False: it is not started, and has no tools."""
    required: bool = False
    """True: ``serve`` ends with an error if it has given no tools by the end of ``server.start_deadline_s``."""
    command: tuple[str, ...] = ()
    env: dict[str, SecretStr] = {}
    cwd: str | None = None
    """The working directory of *command*; for *python*, a further folder in which to look for the module."""
    python: str = Field(default="", pattern=r"^$|^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$")
    """``package.module:registry``; ``wicketgate.tools`` explains registries."""
    threads: int = Field(default=8, ge=1, le=256)
    """Threads for the functions of *python* that are not async."""
    url: str = ""
    openapi: str = ""
    """The document: a path from the working directory, or an http or https URL."""
    base_url: str = ""
    """The URL before the paths of the document. Without it, the server that the document names."""
    headers: dict[str, SecretStr] = {}
    transport: Literal["http", "sse"] = "http"
    max_answer_bytes: int = Field(default=64 * 1024 * 1024, ge=64 * 1024)
    oauth: OAuthSettings | None = None
    namespace: Literal["name", "infer"] = "name"
    connect_timeout_s: Seconds = 10.0
    timeout_s: Seconds | None = None
    tool_timeouts_s: dict[str, Seconds] = {}
    """By the tool's own name, which may hold ``*``; the first match counts."""
    retry: RetrySettings = RetrySettings()
    cache: CacheSettings = CacheSettings()
    max_concurrent: int = Field(default=64, ge=1, le=10_000)
    """Calls at once; up to *max_queued* wait for a slot, within their deadline."""
    max_queued: int = Field(default=256, ge=0, le=100_000)
    breaker: BreakerSettings = BreakerSettings()
    tolerant_args: bool = False
    """True: arguments are repaired where nothing can be lost: ``"42"`` for an integer, an object given as JSON text."""

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
        if any("\0" in text for text in (*self.command, *self.env, *revealed(self.env).values())):
            raise ValueError("command and env must not hold NUL characters")
        return self

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if self.url:
            check_url("url", self.url)
        if "://" in self.openapi:
            check_url("openapi", self.openapi)
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
        """True if a session made for *other* can stay: they differ in settings of single calls at most."""
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
