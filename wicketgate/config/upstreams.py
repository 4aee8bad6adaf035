"""Makes the configured upstreams, and the members by which the fleet guards them."""

import asyncio
import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic, time

from wicketgate.config.settings import Settings, UpstreamSettings
from wicketgate.config.settings.base import revealed
from wicketgate.errors import ConfigError
from wicketgate.fleet.edge import KnownSecrets
from wicketgate.fleet.member import Member, UpstreamLimits
from wicketgate.fleet.server_log import ServerLog, ServerLogs
from wicketgate.fleet.turns import Turns
from wicketgate.login.user_credentials import UserCredentials
from wicketgate.net import Credentials, HttpClient, Outgoing, origin
from wicketgate.net.outgoing import shown_origin
from wicketgate.ports import Upstream
from wicketgate.tools import ToolRegistry
from wicketgate.upstreams.mcp.child_process import inherited_secrets
from wicketgate.upstreams.mcp.client import Connect
from wicketgate.upstreams.mcp.eras import Mode
from wicketgate.upstreams.mcp.http import http_transport
from wicketgate.upstreams.mcp.per_user import Note, UserUpstream
from wicketgate.upstreams.mcp.sandbox import Sandbox
from wicketgate.upstreams.mcp.sse import sse_transport
from wicketgate.upstreams.mcp.stdio import LastWords, stdio_transport
from wicketgate.upstreams.mcp.upstream import McpServerUpstream

UsersOf = Callable[[UpstreamSettings], UserCredentials]
"""Gives the credentials of all callers at one upstream."""
SharedOf = Callable[[UpstreamSettings, Callable[[str], None]], Credentials | None]
"""Returns the credentials of the operator's login at one upstream; None if each machine keeps its own. The second
argument gets each token before it is used."""

_LISTING_S = 30.0
_OWN = "local"
"""The namespace of the functions that a program gives the gate."""
_MODES: Mapping[str, Mode] = {"client": "auto", "2025-11-25": "handshake", "2026-07-28": "modern"}


def guarded(upstream: Upstream, limits: UpstreamLimits | None = None, secrets: KnownSecrets | None = None) -> Member:
    return Member(upstream, limits, now=monotonic, chance=random.random, secrets=secrets)


def own_functions(tools: object, settings: Settings) -> list[Upstream]:
    """Returns the upstream of a program's own functions, if there are any. Raises ConfigError."""
    try:
        registry = ToolRegistry.of(tools)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"tools: {error}") from None
    if not registry:
        return []
    if any(each.name == _OWN for each in settings.upstreams):
        raise ConfigError(
            f"tools: an upstream has the name {_OWN}, which is the namespace of a program's own functions"
        )
    from wicketgate.upstreams.python.tool import UnusableFunction, read_function
    from wicketgate.upstreams.python.upstream import PythonUpstream

    try:
        for tool in registry:
            read_function(tool)
    except UnusableFunction as error:
        reason = f": {str(error.__cause__).partition(chr(10))[0]}" if error.__cause__ else ""
        raise ConfigError(f"tools: {error}{reason}") from None
    return [PythonUpstream(_OWN, registry)]


def upstream_limits(settings: UpstreamSettings) -> UpstreamLimits:
    return UpstreamLimits(
        settings.max_concurrent,
        # The upstream's own deadline comes first, with its own words.
        listing_s=max(_LISTING_S, settings.connect_within_s + 1),
    )


def outgoing_rules(settings: Settings) -> Outgoing:
    """Returns the rules of all outgoing connections, with the proxies of the environment. Raises ConfigError."""
    outgoing = Outgoing.from_environment(os.environ, settings.network.ca_file)
    try:
        outgoing.check()
    except OSError:
        raise ConfigError("network.ca_file: there is no readable file of PEM certificates at this path") from None
    return outgoing


_FETCHING = frozenset({"npx", "uvx", "bunx", "pnpx", "docker", "podman"})
_FETCHING_WITH: Mapping[str, frozenset[str]] = {
    "npm": frozenset({"exec", "x"}),
    "pnpm": frozenset({"dlx"}),
    "yarn": frozenset({"dlx"}),
    "bun": frozenset({"x"}),
    "uv": frozenset({"run", "tool"}),
    "pipx": frozenset({"run"}),
}


def fetching_program(command: Sequence[str]) -> str:
    """Returns the name of the program in *command* that fetches what it starts at the first run; empty if none does."""
    program = Path(command[0]).stem.lower() if command else ""
    with_word = _FETCHING_WITH.get(program, frozenset())
    return program if program in _FETCHING or with_word.intersection(command[1:2]) else ""


@dataclass(frozen=True, slots=True)
class UpstreamMaker:
    """Makes upstreams, which connect in their places among *turns*; *haste* ends the grace of child processes. *logs*
    follow what happens to servers. *users* gives the credentials of callers, *shared* those of logins by an operator:
    without it they are in files of this machine. *sandbox* gives that of a server over stdio."""

    outgoing: Outgoing
    turns: Turns | None = None
    haste: asyncio.Event | None = None
    logs: ServerLogs | None = None
    users: UsersOf | None = None
    shared: SharedOf | None = None
    sandbox: Callable[[UpstreamSettings], Sandbox | None] = lambda settings: None

    def member(self, settings: UpstreamSettings) -> Member:
        """Makes an upstream as a member of the fleet. Raises ConfigError."""
        inherits = inherited_secrets(os.environ) if settings.command else ()
        secrets = KnownSecrets([*settings.secrets(), *inherits], settings.guessed())
        return guarded(self.upstream(settings, secrets), upstream_limits(settings), secrets)

    def upstream(self, settings: UpstreamSettings, secrets: KnownSecrets | None = None) -> Upstream:
        """Makes the connector for the kind of this upstream. *secrets* learns each token that is fetched for it. Raises
        ConfigError."""
        secrets = secrets or KnownSecrets()
        log = ServerLog(time) if self.logs is None else self.logs.of(settings.name)
        if settings.python:
            folder = str(Path(settings.cwd or ".").resolve())
            from wicketgate.upstreams.python.upstream import PythonUpstream

            return PythonUpstream(settings.name, settings.python, threads=settings.threads, folder=folder)
        if settings.openapi:
            return self._of_openapi(settings, secrets)
        if not settings.is_per_user:
            return self._of_mcp(settings, self._connect(settings, secrets, log), log.note)
        if self.users is None:
            raise ConfigError(f"upstreams.{settings.name}.credentials: logins of users are not stored here")
        return UserUpstream(
            settings.name,
            self.users(settings),
            lambda own, note: self._of_mcp(settings, self._over_http(settings, own), note),
            now=monotonic,
            note=log.note,
        )

    def _of_mcp(self, settings: UpstreamSettings, connect: Connect, note: Note) -> McpServerUpstream:
        return McpServerUpstream(
            settings.name,
            connect,
            connect_timeout_s=settings.connect_within_s,
            jitter=random.random,
            turns=self.turns or Turns(),
            mode=_MODES[settings.era],
            forward=settings.forward,
            instructions=settings.instructions,
            tried=shown_origin(settings.url) if settings.url else settings.command[0],
            fetches=fetching_program(settings.command),
            note=note,
            idle_s=settings.idle_s,
        )

    def _connect(self, settings: UpstreamSettings, secrets: KnownSecrets, log: ServerLog) -> Connect:
        if settings.url:
            shared = self.shared(settings, secrets.learn) if self.shared and settings.needs_operator_login else None
            return self._over_http(settings, shared or self._credentials(settings, secrets))
        return partial(
            stdio_transport,
            settings.name,
            settings.command,
            revealed(settings.env),
            settings.cwd,
            max_answer_bytes=settings.max_answer_bytes,
            last_words=LastWords(settings.name, heard=log.line),
            haste=self.haste,
            sandbox=self.sandbox(settings),
        )

    def _over_http(self, settings: UpstreamSettings, credentials: Credentials | None) -> Connect:
        return partial(
            sse_transport if settings.transport == "sse" else http_transport,
            settings.name,
            settings.url,
            revealed(settings.headers),
            outgoing=self.outgoing,
            credentials=credentials,
            max_answer_bytes=settings.max_answer_bytes,
        )

    def _of_openapi(self, settings: UpstreamSettings, secrets: KnownSecrets) -> Upstream:
        http = HttpClient(self.outgoing)
        headers, credentials = revealed(settings.headers), self._credentials(settings, secrets)
        from wicketgate.upstreams.openapi.upstream import (
            DocumentSource,
            FileSource,
            OpenApiUpstream,
            ServiceAccess,
            UrlSource,
        )

        source: DocumentSource
        if "://" in settings.openapi:
            # The service's credential is sent for its document too, unless the document is on a different server.
            is_own = not settings.base_url or origin(settings.base_url) == origin(settings.openapi)
            source = UrlSource(settings.openapi, http, headers if is_own else {}, credentials if is_own else None)
        else:
            source = FileSource(Path(settings.openapi))
        return OpenApiUpstream(
            settings.name,
            source,
            http,
            ServiceAccess(
                settings.base_url,
                headers,
                credentials,
                settings.max_answer_bytes,
                settings.follow_redirects,
                revealed(settings.query),
            ),
            connect_timeout_s=settings.connect_within_s,
            jitter=random.random,
            turns=self.turns or Turns(),
            tried=shown_origin(settings.openapi) or settings.openapi,
        )

    def _credentials(self, settings: UpstreamSettings, secrets: KnownSecrets) -> Credentials | None:
        """Credentials besides the static headers."""
        if settings.oauth is None:
            return None
        from wicketgate.config.upstream_logins import scopes_mend, token_source
        from wicketgate.login.issued import IssuedCredentials

        source = token_source(settings, self.outgoing)
        return IssuedCredentials(settings.name, source, time, secrets.learn, scopes_mend(settings))
