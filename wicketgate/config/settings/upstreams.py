"""The section ``upstreams``: each entry is one source of tools, of exactly one kind."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal, Self
from urllib.parse import quote_plus, unquote, unquote_plus, urlsplit

from pydantic import AfterValidator, ByteSize, Field, PrivateAttr, SecretStr, field_validator, model_validator

from wicketgate.config.settings.base import (
    Seconds,
    Section,
    SecureUrl,
    WebUrl,
    check_url,
    is_secret_name,
    revealed,
)
from wicketgate.upstreams.mcp.sandbox import Sandbox
from wicketgate.upstreams.openapi.document import is_base_url


class RetrySettings(Section):
    """Repeats calls that never reached the server.

    *declared_safe* is your word that the hints of this server are true: then calls of tools that it declares read-only
    and idempotent are repeated too.
    """

    attempts: int = Field(default=2, ge=1, le=10)
    """The most times that a call is sent."""
    declared_safe: bool = False
    """Your word that the hints of this server are true: calls of tools that it declares read-only and idempotent are
    repeated too."""


class CacheSettings(Section):
    """Keeps results of these *tools* while fresh, if the tool is declared read-only; names may hold ``*``.

    Each actor gets its own results again. *shared* is your word that no result of these tools depends on the caller:
    then every actor who may make the same call gets them.
    """

    tools: tuple[str, ...] = ()
    """The tools' own names, which may hold ``*``."""
    ttl_s: Seconds = 60.0
    """Time in which a result is given again."""
    shared: bool = False
    """Your word that no result of these tools depends on the caller: every actor who may make the call gets it."""


class SandboxSettings(Section):
    """What a server over stdio may reach besides the programs of the machine. It takes bubblewrap, and user namespaces
    that are not switched off. Hosts are not filtered: ordinary servers pass by any proxy."""

    network: Literal["none", "all"] = "none"
    """``all``: the network of the gate."""
    read: tuple[str, ...] = ()
    """Files and folders that it may read."""
    write: tuple[str, ...] = ()
    """Folders that it may write too. Without any it writes only temporary files, in memory."""
    memory: ByteSize | None = None
    """Data of one of its processes: ``512MiB``."""
    file_size: ByteSize | None = None
    """The largest file that it may write."""
    cpu_s: int | None = Field(default=None, ge=1)
    """CPU time of one of its processes in seconds, after which that is killed."""
    files: int | None = Field(default=None, ge=16)
    """Open files of one of its processes."""
    processes: int | None = Field(default=256, ge=1)
    """Processes and threads in the sandbox; not limited under root."""

    def made(self) -> Sandbox:
        limits = self.memory, self.file_size, self.cpu_s, self.files, self.processes
        return Sandbox(self.network == "all", self.read, self.write, *limits)


def _readable_key(key: SecretStr | None) -> SecretStr | None:
    if key is not None:
        from wicketgate.login.assertion import read_private_key

        read_private_key(key.get_secret_value())
    return key


_PrivateKey = Annotated[SecretStr | None, AfterValidator(_readable_key)]

_CONNECT_S = 10.0
# The first run of npx or uvx downloads and installs the server.
_STDIO_CONNECT_S = 60.0

# Settings of single calls; a session outlives their changes.
_OF_CALLS = {
    "required",
    "namespace",
    "timeout_s",
    "tool_timeouts_s",
    "retry",
    "cache",
    "tolerant_args",
    "read_only",
    "max_concurrent",
}


class ExchangeSettings(Section):
    """For ``credentials: exchange``: how a caller's token of an issuer of ``auth.issuers`` becomes one for the server.
    The gateway is a client of that issuer, registered there."""

    issuer: str = Field(default="", pattern=r"^$|^[a-z0-9][a-z0-9-]{0,31}$")
    """The name of the issuer in ``auth.issuers``; without it, the only one there."""
    by: Literal["token", "id_jag"] = "token"
    """``token``: the issuer exchanges the caller's access token for one of the server's (RFC 8693). ``id_jag``: it
    gives an assertion about the caller, for which the server's own issuer, *oauth.issuer*, gives a token."""
    token_url: SecureUrl = ""
    """The issuer's token endpoint; without it, its own metadata is asked."""
    client_id: str = Field(min_length=1)
    """The name by which the issuer knows this client."""
    client_secret: SecretStr | None = None
    """By a variable: ``${EXCHANGE_SECRET}``."""
    private_key: _PrivateKey = None
    """For ``auth_method: private_key_jwt``: the PEM of an RSA, P-256 or Ed25519 key."""
    key_id: str = ""
    """The ``kid`` of *private_key*, if the issuer wants one."""
    auth_method: Literal["basic", "post", "private_key_jwt"] = "basic"
    """Place of the client secret: a Basic header, or the form; or a signature in its place."""
    audience: str = ""
    """With ``by: token``: the server as the issuer knows it, where it wants ``audience``."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.private_key is not None) != (self.auth_method == "private_key_jwt"):
            raise ValueError("private_key and auth_method: private_key_jwt belong together")
        if self.private_key is None and self.client_secret is None:
            raise ValueError("give client_secret, or private_key with auth_method: private_key_jwt")
        if self.audience and self.by != "token":
            raise ValueError("audience belongs to by: token; with id_jag it is oauth.issuer")
        return self


class OAuthSettings(Section):
    """Ways to an access token of the gateway's own. With *token_url*: by *refresh_token* if there is one, otherwise by
    client credentials. Without it the server says who its issuer is, and ``wicketgate login NAME`` logs in there once,
    in a browser; with ``grant: client_credentials`` nobody has to."""

    token_url: WebUrl = ""
    """The URL of the token endpoint. Without it, the server's own metadata is asked."""
    grant: Literal["login", "client_credentials"] = "login"
    """Without *token_url*: log in as a person, or as the client itself."""
    issuer: WebUrl = ""
    """The issuer at which *client_id* is registered, or the one to take. One that does not promise ``iss`` has to be
    named here."""
    client_id: str = ""
    """The name by which the issuer knows this client. Without it, the gateway registers itself."""
    client_secret: SecretStr | None = None
    """By a variable: ``${CLIENT_SECRET}``."""
    private_key: _PrivateKey = None
    """For ``auth_method: private_key_jwt``: the PEM of an RSA, P-256 or Ed25519 key."""
    key_id: str = ""
    """The ``kid`` of *private_key*, if the issuer wants one."""
    scope: str = ""
    """Scopes to ask for, with blanks between them. Empty: with *token_url* none, otherwise those that the server
    wants."""
    audience: str = ""
    """The audience to ask for, where the token server wants one."""
    resource: str = "auto"
    """The resource for which tokens are asked (RFC 8707): ``auto``, the server as it names itself (with *token_url*
    none); ``omit``, nothing; or a URL."""
    authorize_params: dict[str, str] = Field(default={}, max_length=20)
    """Further parameters of the page on which a person logs in, such as ``access_type: offline``."""
    private_hosts: tuple[str, ...] = Field(default=(), max_length=50)
    """Hosts with private addresses, or without https, that the server's metadata may name: names, ``*.corp.example``,
    addresses, networks."""
    refresh_token: SecretStr | None = None
    """Taken in place of client credentials, if it is given."""
    auth_method: Literal["", "basic", "post", "private_key_jwt"] = ""
    """Place of the client secret: a Basic header, or the form; or a signature in its place. Empty: what the issuer
    takes; with *token_url* a Basic header."""
    exchange: ExchangeSettings | None = None
    """For ``credentials: exchange``."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.token_url or self.grant == "client_credentials":
            if not self.client_id:
                raise ValueError("give client_id, the name by which the token server knows this client")
            if self.client_secret is None and self.refresh_token is None and self.private_key is None:
                raise ValueError("give client_secret, or refresh_token, or both")
        elif self.refresh_token is not None or self.audience:
            raise ValueError("refresh_token and audience belong to token_url")
        if self.token_url and (self.grant != "login" or self.authorize_params):
            raise ValueError("grant and authorize_params are for logins without token_url")
        if not self.token_url and self.client_id and not self.issuer:
            # A server that names another issuer would be given the secret.
            raise ValueError("give issuer too, the one at which client_id is registered")
        if (self.private_key is not None) != (self.auth_method == "private_key_jwt"):
            raise ValueError("private_key and auth_method: private_key_jwt belong together")
        if self.resource not in ("auto", "omit"):
            check_url("resource", self.resource)
        if self.authorize_params:
            from wicketgate.login.authorize import OWN_PARAMETERS

            if own := OWN_PARAMETERS.intersection(self.authorize_params):
                raise ValueError(f"authorize_params: {', '.join(sorted(own))} cannot be set here")
        return self

    @property
    def needs_person(self) -> bool:
        """True if a person has to log in, once, with ``wicketgate login``."""
        return not self.token_url and self.grant == "login"

    def secrets(self) -> Iterator[str]:
        given = [self.client_secret, self.refresh_token]
        if self.exchange is not None:
            given.append(self.exchange.client_secret)
        yield from (secret.get_secret_value() for secret in given if secret)


class UpstreamSettings(Section):
    """One source of tools: *command* (stdio), *url* (streamable HTTP, or the older SSE), *openapi* (an HTTP service and
    its document) or *python* (functions of this process)."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_-]{0,63}$")
    """The namespace of its tools: lower-case letters, digits, ``-`` and ``_``, a letter first, no ``__``, no ``_`` at
    the end."""
    enabled: bool = True
    """False: it is not started, and has no tools."""
    required: bool = False
    """True: ``serve`` ends with an error if it has given no tools by the end of ``server.start_deadline_s``."""
    command: tuple[str, ...] = ()
    """An MCP server over stdio: the program to start and its arguments."""
    env: dict[str, SecretStr] = {}
    """Variables for *command*, besides HOME, PATH and the like."""
    cwd: str | None = None
    """The working directory of *command*; for *python*, a further folder in which to look for the module."""
    sandbox: SandboxSettings | Literal[False] | None = None
    """The limits of *command*. None: those of ``sandbox`` at the top, if there are any; false: none."""
    idle_s: float | None = Field(default=None, ge=1, le=86_400)
    """The process of *command* is ended after so long without a request, and started again by the next one. Its tools
    stay listed. None: it runs always."""
    python: str = Field(default="", pattern=r"^$|^[A-Za-z_][\w.]*(:[A-Za-z_][\w.]*)?$")
    """``package.module:name``, the name of a ``ToolRegistry``, a function or a list of functions; ``package.module``
    stands for all public functions of a module."""
    threads: int = Field(default=8, ge=1, le=256)
    """Threads for the functions of *python* that are not async."""
    url: str = ""
    """An MCP server over streamable HTTP."""
    openapi: str = ""
    """The document: a path from the working directory, or an http or https URL."""
    base_url: str = ""
    """The URL before the paths of the document. Without it, the server that the document names."""
    follow_redirects: bool = False
    """For *openapi*: calls by GET and HEAD follow redirects within the origin."""
    headers: dict[str, SecretStr] = {}
    """Sent with every request to *url*, or every call of the service of *openapi*."""
    query: dict[str, SecretStr] = Field(default={}, max_length=20)
    """Sent in the query of every call of the service of *openapi*: for keys that a service takes only there."""
    transport: Literal["http", "sse"] = "http"
    """``sse``: *url* is the stream of a server of the older HTTP+SSE transport."""
    max_answer_bytes: int = Field(default=16 * 1024 * 1024, ge=64 * 1024)
    """A larger answer is not taken, and its call fails."""
    oauth: OAuthSettings | None = None
    """Credentials of the gateway for *url* or *openapi*."""
    credentials: Literal["shared", "user", "exchange"] = "shared"
    """``user``: the server at *url* is called with each caller's own account, which they connect in a browser;
    ``shared``: with the gateway's own credential, if there is one. ``exchange``: with a token for which the caller's
    own was exchanged, by ``oauth.exchange``."""
    era: Literal["client", "2025-11-25", "2026-07-28"] = "client"
    """The era of MCP in which it is called. ``client``: 2026-07-28 if it supports that; over HTTP, a call whose client
    can be asked while it runs uses a second session, with a handshake. ``2025-11-25``: only with a handshake, in the
    newest version up to this one that it supports. ``2026-07-28``: only without."""
    forward: tuple[Literal["sampling", "roots"], ...] = ()
    """Capabilities of clients that it may use while it runs a call: *sampling*, the client's model; *roots*, the names
    of the client's folders. Questions to a person (elicitation) are always passed on."""
    instructions: bool = False
    """True: its instructions for a model are shown to clients of the namespaced face."""
    namespace: Literal["name", "infer"] = "name"
    """``infer``: each tool's own prefix is its namespace."""
    connect_timeout_s: Seconds | None = None
    """Longest time to be connected. None: 60 for *command*, whose first run may install the server, otherwise 10."""
    timeout_s: Seconds | None = None
    """Time for a call to answer. None: ``engine.tool_timeout_s``."""
    tool_timeouts_s: dict[str, Seconds] = {}
    """By the tool's own name, which may hold ``*``; the first match counts."""
    read_only: tuple[str, ...] = ()
    """Your word that these tools write nothing, by the tool's own name, which may hold ``*``: their calls leave no
    record of the intent in the audit log. Operations with GET and HEAD and Python tools say so themselves."""
    retry: RetrySettings = RetrySettings()
    """Repeats calls that never reached the server."""
    cache: CacheSettings = CacheSettings()
    """Keeps results of read-only tools."""
    max_concurrent: int = Field(default=64, ge=1, le=10_000)
    """Calls at once; up to 256 wait for a slot, within their deadline, and one more is refused."""
    tolerant_args: bool = False
    """True: arguments are repaired where nothing can be lost: ``"42"`` for an integer, an object given as JSON text."""

    @field_validator("name")
    @classmethod
    def _namespace(cls, name: str) -> str:
        if "__" in name or name.endswith("_"):
            raise ValueError("must not contain '__' or end in '_': clients address tools as 'name__tool'")
        return name

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        kinds = [kind for kind in _KINDS if getattr(self, kind)]
        if len(kinds) != 1:
            given = f"here are {' and '.join(kinds)}" if kinds else "here is none"
            raise ValueError(f"give exactly one of {', '.join(_KINDS[:-1])} and {_KINDS[-1]}; {given}")
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
        if self.transport == "sse" and self.era == "2026-07-28":
            raise ValueError("era: the older HTTP+SSE transport has only 2025-11-25; leave era out, or transport")
        for name, value in self.headers.items():
            if not _HEADER_NAME.fullmatch(name):
                raise ValueError("headers: a name may hold only letters, digits and hyphens, or others of RFC 9110")
            if not (text := value.get_secret_value()).isascii() or not text.isprintable():
                raise ValueError(f"headers.{name}: only printable ASCII can be sent; is there a line end in it?")
        for name, value in self.query.items():
            if not name or not (name + value.get_secret_value()).isprintable():
                raise ValueError(f"query.{name}: name and value must be printable; is there a line end in it?")
        self._check_exchange()
        if self.is_per_user:
            self._check_user()
        if self.oauth is not None and "authorization" in map(str.lower, self.headers):
            raise ValueError("headers.Authorization and oauth are two credentials for one header; give one of them")
        if self.oauth is not None and self.openapi and not self.oauth.token_url:
            raise ValueError("oauth of an openapi service needs token_url: its document names no issuer to log in at")
        return self

    def _check_user(self) -> None:
        """Raises ValueError for settings that would give one account to all callers."""
        if "authorization" in map(str.lower, self.headers):
            raise ValueError(
                "headers.Authorization is the same for all callers,"
                f" but with credentials: {self.credentials} each has its own"
            )
        if self.cache.shared:
            raise ValueError(f"cache.shared: with credentials: {self.credentials} each result belongs to one caller")
        if self.credentials == "user" and self.oauth is not None and not self.oauth.needs_person:
            raise ValueError("oauth: with credentials: user each caller logs in; leave token_url and grant out")
        if self.instructions:
            raise ValueError(
                f"instructions: with credentials: {self.credentials} they may describe one account; remove this setting"
            )

    def _check_exchange(self) -> None:
        """Raises ValueError unless ``exchange`` is there where it is needed, and whole."""
        exchange = self.exchange
        if (self.credentials == "exchange") != (exchange is not None):
            raise ValueError("credentials: exchange and oauth.exchange belong together")
        if self.oauth is None or exchange is None:
            return
        if not self.oauth.needs_person:
            raise ValueError("oauth: with credentials: exchange leave token_url and grant out; exchange has its own")
        if exchange.by == "id_jag" and not (self.oauth.issuer and self.oauth.client_id):
            raise ValueError("oauth.exchange by id_jag needs oauth.issuer, that of the server, and oauth.client_id")
        if exchange.by == "id_jag" and self.oauth.client_secret is None and self.oauth.private_key is None:
            raise ValueError("oauth.exchange by id_jag needs oauth.client_secret, or oauth.private_key")

    @property
    def exchange(self) -> ExchangeSettings | None:
        """``oauth.exchange``, if there is one."""
        return self.oauth.exchange if self.oauth is not None else None

    @property
    def is_per_user(self) -> bool:
        """True if each caller has sessions of its own."""
        return self.credentials != "shared"

    @property
    def connects_users(self) -> bool:
        """True if callers connect their accounts in a browser."""
        return self.credentials == "user"

    @property
    def needs_operator_login(self) -> bool:
        """True if an operator logs in, once for all callers."""
        of_person = self.oauth is not None and self.oauth.needs_person
        return of_person and bool(self.url) and not self.is_per_user

    _of_variables: Mapping[str, str] = PrivateAttr({})

    @property
    def needs_id_tokens(self) -> bool:
        """True if callers log in with a browser at the issuer of their tokens: the exchange needs an ID token."""
        return self.exchange is not None and self.exchange.by == "id_jag"

    def same_session(self, other: "UpstreamSettings") -> bool:
        """True if a session made for *other* can stay: they differ in settings of single calls at most."""
        return self.model_dump(exclude=_OF_CALLS) == other.model_dump(exclude=_OF_CALLS)

    def secrets(self) -> Iterator[str]:
        """Credentials that the upstream is given, to be masked in what it says (UP-58): of *headers* and *query* those
        that are named like one and other long values in one piece, cookies, of *env*, *command* and the queries of URLs
        those that are named like one, users of URLs, long tokens in the path of *url* or of a URL in *command*,
        *oauth*."""
        for name, value in self.headers.items():
            text = value.get_secret_value()
            if is_secret_name(name) or (not _HARMLESS_HEADER.match(name) and _IN_ONE_PIECE.fullmatch(text)):
                yield text
            if name.lower() == "cookie":
                yield from (value for _, found, value in (each.partition("=") for each in text.split("; ")) if found)
        for name, given in revealed(self.query).items():
            if is_secret_name(name) or (not _HARMLESS_HEADER.match(name) and _KEY.fullmatch(given)):
                yield given
        env = revealed(self.env)
        yield from (value for name, value in env.items() if is_secret_name(name))
        yield from _in_arguments(self.command)
        for url in (self.url, self.openapi, *env.values(), *self.command):
            yield from _user_of(url)
            yield from _in_query_of(url)
        for url in (self.url, *env.values(), *self.command):
            yield from _in_path_of(url)
        if self.oauth is not None:
            yield from self.oauth.secrets()
            if self.oauth.client_secret is not None:  # as a Basic header carries it
                secret = self.oauth.client_secret.get_secret_value()
                yield f"{quote_plus(self.oauth.client_id)}:{quote_plus(secret)}"
            exchange = self.oauth.exchange
            if exchange is not None and exchange.client_secret is not None:
                yield f"{quote_plus(exchange.client_id)}:{quote_plus(exchange.client_secret.get_secret_value())}"

        yield from (value for value, name in self._of_variables.items() if is_secret_name(name))

    def guessed(self) -> Iterator[str]:
        """Values of variables that may be secret, though their names do not say so: masked in what calls bring, not in
        declarations (OPS-475)."""
        yield from (value for value, name in self._of_variables.items() if not is_secret_name(name))

    def take_variables(self, variables: Mapping[str, str]) -> None:
        """Takes those of *variables*, names by value, that this upstream is given and that may be secret (OPS-423), and
        what references of any place gave (OPS-570)."""
        given = (each for values in (self.env, self.headers, self.query) for each in revealed(values).values())
        texts = "\n".join((self.url, self.openapi, self.base_url, *self.command, *given))
        found = (
            (value, name)
            for value, name in variables.items()
            if ":" in name or (value in texts and not _is_plain(name, value))  # a reference, or a variable
        )
        self._of_variables = dict(found)

    @property
    def kind(self) -> str:
        """``command``, ``url``, ``openapi`` or ``python``."""
        return next(kind for kind in _KINDS if getattr(self, kind))

    @property
    def connect_within_s(self) -> float:
        """*connect_timeout_s* with its default."""
        if self.connect_timeout_s is not None:
            return self.connect_timeout_s
        return _STDIO_CONNECT_S if self.command else _CONNECT_S


_PLACE = re.compile(r"(?:~|\.{1,2})?/.*|[a-z][a-z0-9+.-]*://[^@]*|[a-z0-9-]+(?:\.[a-z0-9-]+)+(?::[0-9]+)?", re.DOTALL)
"""A path, a URL without a user, or a host."""


def _is_plain(name: str, value: str) -> bool:
    """Returns whether the *value* of a variable may be repeated in results: by its name, or because it is a place."""
    if is_secret_name(name):
        return False
    plain = not is_secret_name(name, by_default=True) or _HARMLESS_HEADER.match(name.replace("_", "-"))
    return bool(plain or _PLACE.fullmatch(value))


_KINDS = ("command", "url", "openapi", "python")

_BELONGS_TO: Mapping[str, tuple[str, ...]] = {
    "env": ("command",),
    "cwd": ("command", "python"),
    "sandbox": ("command",),
    "idle_s": ("command",),
    "threads": ("python",),
    "transport": ("url",),
    "instructions": ("command", "url"),
    "era": ("command", "url"),
    "forward": ("command", "url"),
    "base_url": ("openapi",),
    "follow_redirects": ("openapi",),
    "headers": ("url", "openapi"),
    "query": ("openapi",),
    "oauth": ("url", "openapi"),
    "credentials": ("url",),
}

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HARMLESS_HEADER = re.compile(
    r"(?i:accept|content-|user-agent|host|origin|referer|cache-control|prefer|from$"
    r"|.*(?:version|region|tenant|organi[sz]ation|project|workspace|account|environment|locale)(?:-?(?:id|name))?$)"
)
_KEY = re.compile(r"\S{16,}")
_IN_ONE_PIECE = re.compile(r"[^\s/]{16,}")

# Random characters. A slug, a UUID and a hash may be the name of a thing, which the data of the server may hold.
_TOKEN_IN_PATH = re.compile(
    r"(?=[^/]{0,512}[0-9])(?=[^/]{0,512}[a-z])(?=[^/]{0,512}[A-Z])(?:[A-Za-z0-9_+=~.-]|%[0-9A-F]{2}){24,512}"
)

_ARGUMENT = re.compile(r"-{0,2}([A-Za-z][\w.-]*)(?:=|:\s*)(.+)", re.DOTALL)
_OPTION = re.compile(r"--?([A-Za-z][\w.-]*)")


def _in_arguments(command: Sequence[str]) -> Iterator[str]:
    """Yields the values of arguments that are named like a secret: ``--key value``, ``--key=value``, ``KEY=value`` and
    ``Key: value``."""
    for place, argument in enumerate(command[1:], start=1):
        option = _OPTION.fullmatch(command[place - 1]) if place > 1 else None
        if option is not None and is_secret_name(option[1]) and not argument.startswith("-"):
            yield argument
        elif (given := _ARGUMENT.fullmatch(argument)) is not None and is_secret_name(given[1]):
            yield given[2]


def _in_query_of(url: str) -> Iterator[str]:
    """Yields the values of a URL's query that are named like a secret, as they are sent and as they are meant."""
    if "://" not in url or "?" not in url:
        return
    query = url.partition("?")[2].partition("#")[0]
    for name, _, value in (pair.partition("=") for pair in query.split("&")):
        if value and is_secret_name(unquote_plus(name)):
            yield value
            if (meant := unquote_plus(value)) != value:
                yield meant


def _in_path_of(url: str) -> Iterator[str]:
    """Yields the segments of a URL's path that look like a token, as they are sent and as they are meant."""
    path = url.partition("://")[2].partition("?")[0].partition("#")[0]
    for segment in path.split("/")[1:]:
        if _TOKEN_IN_PATH.fullmatch(segment):
            yield segment
            if (meant := unquote(segment)) != segment:
                yield meant


def _user_of(url: str) -> Iterator[str]:
    """Yields the password of a URL, and user and password as HTTP sends them."""
    if "://" not in url or "@" not in url:
        return
    try:
        parts = urlsplit(url)
    except ValueError:
        return
    if parts.password:
        user, password = unquote(parts.username or ""), unquote(parts.password)
        yield from (parts.password, password, f"{user}:{password}")
