"""Makes the configured upstreams, and the members by which the fleet guards them."""

import asyncio
import os
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import monotonic, time

from wicketgate.config.settings import Settings, UpstreamSettings
from wicketgate.config.settings.base import revealed
from wicketgate.errors import ConfigError
from wicketgate.fleet.breaker import BreakerPolicy
from wicketgate.fleet.edge import KnownSecrets
from wicketgate.fleet.member import Member, UpstreamLimits
from wicketgate.fleet.server_log import ServerLog, ServerLogs
from wicketgate.fleet.turns import Turns
from wicketgate.login.user_credentials import UserCredentials
from wicketgate.net import Credentials, Outgoing, make_http_client, origin
from wicketgate.net.outgoing import shown_origin
from wicketgate.ports import Upstream
from wicketgate.upstreams.mcp.child_process import inherited_secrets
from wicketgate.upstreams.mcp.client import Connect
from wicketgate.upstreams.mcp.eras import Mode
from wicketgate.upstreams.mcp.http import http_transport
from wicketgate.upstreams.mcp.per_user import Note, UserUpstream
from wicketgate.upstreams.mcp.shared_stdio import SharedProgram, shared_stdio_transport
from wicketgate.upstreams.mcp.sse import sse_transport
from wicketgate.upstreams.mcp.stdio import LastWords, stdio_transport
from wicketgate.upstreams.mcp.upstream import McpServerUpstream

UsersOf = Callable[[UpstreamSettings], UserCredentials]
"""Gives the credentials of all callers at one upstream."""
SharedOf = Callable[[UpstreamSettings, Callable[[str], None]], Credentials]
"""Gives the credentials of one upstream with a login by its operator; the second gets each token before it is used."""

_LISTING_S = 30.0
_MODES: Mapping[str, Mode] = {"auto": "auto", "2025-11-25": "handshake", "2026-07-28": "modern"}


def make_members(
    settings: Settings,
    outgoing: Outgoing,
    turns: Turns | None = None,
    haste: asyncio.Event | None = None,
    owner: Path | None = None,
    logs: ServerLogs | None = None,
    users: UsersOf | None = None,
    shared: SharedOf | None = None,
) -> list[Member]:
    """Makes the enabled upstreams, which connect in *turns*; *haste* ends the grace of child processes. *owner* is the
    socket of the process that runs stdio servers for several gates. *logs* follow what happens to servers. *users*
    gives the credentials of callers, *shared* those of logins that are kept in the store: without it in a file of this
    machine. Raises ConfigError."""
    turns = turns or Turns()
    enabled = [upstream for upstream in settings.upstreams if upstream.enabled]
    return [make_member(upstream, outgoing, turns, haste, owner, logs, users, shared) for upstream in enabled]


def make_member(
    settings: UpstreamSettings,
    outgoing: Outgoing,
    turns: Turns,
    haste: asyncio.Event | None = None,
    owner: Path | None = None,
    logs: ServerLogs | None = None,
    users: UsersOf | None = None,
    shared: SharedOf | None = None,
) -> Member:
    inherits = inherited_secrets(os.environ) if settings.command else ()
    secrets = KnownSecrets([*settings.secrets(), *inherits], settings.guessed())
    log = None if logs is None else logs.of(settings.name)
    upstream = make_upstream(settings, outgoing, secrets, turns, haste, owner, log, users, shared)
    return guarded(upstream, upstream_limits(settings), secrets)


def guarded(upstream: Upstream, limits: UpstreamLimits | None = None, secrets: KnownSecrets | None = None) -> Member:
    return Member(upstream, limits, now=monotonic, chance=random.random, secrets=secrets)


def upstream_limits(settings: UpstreamSettings) -> UpstreamLimits:
    breaker = settings.breaker
    return UpstreamLimits(
        settings.max_concurrent,
        settings.max_queued,
        max(_LISTING_S, settings.connect_within_s + 1),  # the upstream's own deadline comes first, with its own words
        BreakerPolicy(breaker.failures, breaker.pause_s, breaker.max_pause_s),
    )


def outgoing_rules(settings: Settings) -> Outgoing:
    """Returns the rules of all outgoing connections, with the proxies of the environment. Raises ConfigError."""
    outgoing = Outgoing.from_environment(os.environ, settings.network.ca_file)
    try:
        outgoing.check()
    except OSError:
        raise ConfigError("network.ca_file: there is no readable file of PEM certificates at this path") from None
    return outgoing


def make_upstream(
    settings: UpstreamSettings,
    outgoing: Outgoing,
    secrets: KnownSecrets | None = None,
    turns: Turns | None = None,
    haste: asyncio.Event | None = None,
    owner: Path | None = None,
    log: ServerLog | None = None,
    users: UsersOf | None = None,
    shared: SharedOf | None = None,
) -> Upstream:
    """Makes the connector for the kind of this upstream. *secrets* learns each token that is fetched for it. Raises
    ConfigError."""
    secrets, log = secrets or KnownSecrets(), log or ServerLog(time)
    if settings.python:
        folder = str(Path(settings.cwd or ".").resolve())
        from wicketgate.upstreams.python.upstream import PythonUpstream

        return PythonUpstream(settings.name, settings.python, threads=settings.threads, folder=folder)
    if settings.openapi:
        return _openapi_upstream(settings, outgoing, secrets, turns)
    if settings.is_per_user:
        if users is None:
            raise ConfigError(f"upstreams.{settings.name}.credentials: no logins of users are kept here")
        return UserUpstream(
            settings.name,
            users(settings),
            lambda own, note: _mcp_upstream(settings, _over_http(settings, outgoing, own), turns, note),
            now=monotonic,
            max_sessions=settings.max_user_sessions,
            note=log.note,
        )
    return _mcp_upstream(settings, _connect(settings, outgoing, secrets, haste, owner, log, shared), turns, log.note)


def _mcp_upstream(settings: UpstreamSettings, connect: Connect, turns: Turns | None, note: Note) -> McpServerUpstream:
    return McpServerUpstream(
        settings.name,
        connect,
        connect_timeout_s=settings.connect_within_s,
        jitter=random.random,
        turns=turns,
        mode=_MODES[settings.era],
        forward=settings.forward,
        instructions=settings.instructions,
        tried=shown_origin(settings.url) if settings.url else settings.command[0],
        fetches=fetching_program(settings.command),
        note=note,
    )


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


def _connect(
    settings: UpstreamSettings,
    outgoing: Outgoing,
    secrets: KnownSecrets,
    haste: asyncio.Event | None,
    owner: Path | None,
    log: ServerLog,
    shared: SharedOf | None,
) -> Connect:
    max_bytes = settings.max_answer_bytes
    if not settings.url:
        env = revealed(settings.env)
        if owner is not None and not settings.per_worker:
            program = SharedProgram(settings.name, settings.command, env, settings.cwd, max_bytes)
            return partial(shared_stdio_transport, owner, program)
        return partial(
            stdio_transport,
            settings.name,
            settings.command,
            env,
            settings.cwd,
            max_answer_bytes=max_bytes,
            last_words=LastWords(settings.name, heard=log.line),
            haste=haste,
        )
    if shared is not None and settings.needs_operator_login:
        return _over_http(settings, outgoing, shared(settings, secrets.learn))
    return _over_http(settings, outgoing, _credentials(settings, outgoing, secrets))


def _over_http(settings: UpstreamSettings, outgoing: Outgoing, credentials: Credentials | None) -> Connect:
    return partial(
        sse_transport if settings.transport == "sse" else http_transport,
        settings.name,
        settings.url,
        revealed(settings.headers),
        outgoing=outgoing,
        credentials=credentials,
        max_answer_bytes=settings.max_answer_bytes,
    )


def _openapi_upstream(
    settings: UpstreamSettings, outgoing: Outgoing, secrets: KnownSecrets, turns: Turns | None
) -> Upstream:
    http = make_http_client(outgoing)
    headers, credentials = revealed(settings.headers), _credentials(settings, outgoing, secrets)
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
        turns=turns,
        tried=shown_origin(settings.openapi) or settings.openapi,
    )


def _credentials(settings: UpstreamSettings, outgoing: Outgoing, secrets: KnownSecrets) -> Credentials | None:
    """Credentials besides the static headers."""
    if settings.oauth is None:
        return None
    from wicketgate.config.upstream_logins import scopes_mend, token_source
    from wicketgate.login.issued import IssuedCredentials

    source = token_source(settings, outgoing)
    return IssuedCredentials(settings.name, source, time, secrets.learn, scopes_mend(settings))
