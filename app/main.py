"""Composes the HTTP service: a gate, with paths, middleware and metrics in front of it.

``uvicorn app.main:app`` and ``uvicorn --factory app.main:create_app`` start it (OPS-21).
``wicketgate serve`` runs it on a server with more bounds.
"""

import os
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from time import monotonic, time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from app.console.files import ConsoleFiles
from app.console.live import Feed
from app.console.sign_in import SignIn
from app.gauges import Gauges
from app.late_doors import LateDoors
from app.lifespan import Program, service_lifespan
from app.local_key import LocalKey, local_key
from app.logs import service_logs
from app.metrics import CONTENT_TYPE, Metrics
from app.pace import Pace, PaceMiddleware
from app.port.connections import ConnectionCounts
from app.process import Heap
from app.workers.forwarding import WorkerPeers
from app.workers.metrics import WorkerMetrics
from middleware.auth import AuthMiddleware
from middleware.client_address import ClientAddressMiddleware, TrustedProxies
from middleware.correlation import CorrelationMiddleware
from middleware.cors import CorsMiddleware
from middleware.drain import DrainMiddleware
from middleware.hosts import HostMiddleware, HostRule
from middleware.refusals import BodyLimitMiddleware, LastResortMiddleware
from routers.connections import connections_router
from routers.console import console_router
from routers.console_approvals import approvals_router
from routers.console_calls import console_calls_router
from routers.console_desk import console_desk_router
from routers.console_files import console_file_routes, no_such_page, open_paths
from routers.console_sign_in import SIGN_IN_PATH, sign_in_router
from routers.console_tools import console_tools_router
from routers.engine import engine_router
from routers.faces import FacePaths, without_prefix
from routers.health import health_router, metrics_router
from routers.login_tries import LoginTries
from routers.openapi import publish_openapi
from routers.operations import operations_router
from routers.refusals import refuse_in_one_shape
from routers.well_known import well_known_router
from wicketgate.access.identity import HashedKey
from wicketgate.config.runtime import make_marks
from wicketgate.config.settings import LOOPBACK_HOSTS, Settings
from wicketgate.config.settings_file import find_config, load_settings, log_configuration
from wicketgate.config.upstreams import UsersOf
from wicketgate.errors import ConfigError
from wicketgate.gate import VERSION, Gate
from wicketgate.log_text import Redactor
from wicketgate.login.waiting import Waiting
from wicketgate.models.provider import Provider
from wicketgate.ports import Upstream
from wicketgate.random_ids import random_id

if TYPE_CHECKING:
    from app.mcp_door import McpDoors
    from routers.connect import ConnectPages


_OUTERMOST = frozenset({"ServerErrorMiddleware", "ExceptionTelemetryMiddleware", "AppBodyLimitMiddleware"})


class Service(FastAPI):
    """The framework without its outermost layers, in which all of a request and of its answer would be wrapped once
    more: what escapes the application, bodies and telemetry are the business of the middleware here."""

    def build_middleware_stack(self) -> ASGIApp:
        stack: Any = super().build_middleware_stack()
        while type(stack).__name__ in _OUTERMOST:
            stack = stack.app
        served: ASGIApp = stack
        return served

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await super().__call__(scope, receive, send)
        # Past the framework's own steps, which are for a prefix, for telemetry and for websockets.
        scope = without_prefix(scope)
        scope["app"] = self
        if self.middleware_stack is None:
            self.middleware_stack = self.build_middleware_stack()
        await self.middleware_stack(scope, receive, send)


def create_app(
    settings: Settings | None = None,
    *,
    program: Program | None = None,
    extra_keys: Sequence[HashedKey] = (),
    upstreams: Sequence[Upstream] | None = None,
    provider: Provider | None = None,
    clock: Callable[[], float] = time,
    users: UsersOf | None = None,
    waiting: Waiting | None = None,
) -> FastAPI:
    """Makes the application; ``app.state.gate`` is the gate behind it.

    Without *settings* it is a program of its own, configured by the file that ``find_config`` finds; a wrong one ends
    the process with one line on stderr. With *settings* and no *program* it is part of another program, whose process
    stays as it is; a wrong one raises ConfigError. *upstreams* and *provider* stand in for the configured ones, at the
    edge only, as *clock* does for the system's (seconds since the epoch), *users* and *waiting* for logins of users.
    Without any key it takes the one kept in ``auth.key_file``; without that file it makes one and serves only callers
    on this machine. A program of its own shows that key at the start; in another program it is ``app.state.local_key``.
    """
    if settings is not None:
        return _make_app(settings, program, extra_keys, upstreams, provider, clock, users, waiting)
    try:
        load = partial(load_settings, find_config(os.environ))
        return _make_app(load(), program or Program(load), extra_keys, upstreams, provider, clock, users, waiting)
    except ConfigError as error:
        # A server would show the exception with forty lines of its own.
        raise SystemExit(f"wicketgate: {error}") from None


def _make_app(
    settings: Settings,
    program: Program | None,
    extra_keys: Sequence[HashedKey],
    upstreams: Sequence[Upstream] | None,
    provider: Provider | None,
    clock: Callable[[], float],
    users: UsersOf | None,
    waiting: Waiting | None,
) -> FastAPI:
    """Raises ConfigError."""
    # A key, if none is configured.
    local: LocalKey | None = None
    if not settings.auth.identifies and not extra_keys:
        shared = program.place if program is not None else None
        local = (shared.local if shared is not None else None) or local_key(settings.auth.key_file)
        extra_keys = [local.hashed]
    # The gate, and the doors in front of it.
    metrics = Metrics()
    place = program.place if program is not None else None
    with _logs(program, settings):
        if program is not None and (place is None or place.number == 0):
            log_configuration(settings)
        heap = None if program is None else Heap()
        gate = Gate(
            settings,
            upstreams=upstreams,
            provider=provider,
            keys=extra_keys,
            meter=metrics,
            heap=heap,
            clock=clock,
            owner=place.owner if place is not None else None,
            peers=WorkerPeers(place, make_marks(settings.storage)) if place is not None else None,
            users=users,
            waiting=waiting,
        )
    gate.authenticator.observe(metrics.auth_failed)
    gate.authenticator.observe(gate.audit_events.login_failed)
    own_server = program.server if program is not None else None
    doors = LateDoors(
        gate.faces,
        partial(_make_doors, gate),
        # Another server begins to listen when all is done, and other processes may ask for what only doors know.
        at_start=own_server is None or gate.has_peers,
        max_sessions=settings.mcp.max_sessions,
        heap=heap,
    )
    gate.runtime.watch(doors.catalog_changed)
    gate.runtime.watch_access(doors.access_changed)
    gate.drain.follow(doors.end_listening)
    gate.drain.wait_for(doors.answered)
    gate.revocation.add(doors.end_of)
    metrics.watch(partial(_gauges, gate, doors, own_server.connections if own_server is not None else None))

    # Without the framework's documentation pages, which load scripts from other hosts.
    pace = Pace()
    workers = WorkerMetrics(place, metrics.render) if place is not None else None
    app = Service(
        title="Wicketgate",
        version=VERSION,
        lifespan=lambda app: service_lifespan(gate, doors, program, local, metrics.loop_late, pace, workers),
        openapi_url=None,
        redirect_slashes=False,
        # The framework would look for telemetry providers at each request; there are none here.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.gate = gate
    app.state.local_key = local.secret if local is not None else ""
    app.state.doors = doors
    console = ConsoleFiles() if settings.server.console else None
    read_metrics = metrics.read if workers is None else workers.metrics
    connect = _connect_pages(gate)
    faces = _add_paths(app, gate, connect, console, doors, metrics, read_metrics, local.sign_in if local else None)

    # The middleware. Each wraps the ones above it: the last is the outermost.
    server = settings.server
    app.add_middleware(FacePaths, endpoints=faces)
    app.add_middleware(BodyLimitMiddleware, max_bytes=server.max_body_bytes, timeout_s=server.body_timeout_s)
    local_only = local is not None and local.file is None
    if gate.has_peers:
        behind = AuthMiddleware(
            FacePaths(_nothing_else, faces), gate.authenticator, gate.key_uses, local_only=local_only
        )
        gate.peers.answer_with(DrainMiddleware(behind, gate.drain))
    app.add_middleware(
        AuthMiddleware,
        authenticator=gate.authenticator,
        uses=gate.key_uses,
        local_only=local_only,
        open_paths=frozenset() if console is None else open_paths(console) | {SIGN_IN_PATH},
        open_under=() if connect is None else connect.open_under,
        **({} if console is None else {"page_without_key": no_such_page}),
    )
    app.add_middleware(DrainMiddleware, drain=gate.drain)
    app.add_middleware(LastResortMiddleware)
    if server.allowed_origins:
        app.add_middleware(CorsMiddleware, rule=HostRule((), (), server.allowed_origins))
    hosts = [f"{server.host}:*", *server.allowed_hosts, *filter(None, [urlsplit(server.public_url).netloc])]
    app.add_middleware(HostMiddleware, rule=HostRule(LOOPBACK_HOSTS, hosts, server.allowed_origins))
    app.add_middleware(CorrelationMiddleware, new_id=lambda: f"req_{random_id()}", measure=metrics.http_answer)
    app.add_middleware(ClientAddressMiddleware, proxies=TrustedProxies(server.trusted_proxies))
    app.add_middleware(PaceMiddleware, pace=pace)
    return app


if TYPE_CHECKING:
    app: FastAPI
else:

    def __getattr__(name: str) -> FastAPI:
        """Makes ``app`` at its first use, so that importing this module reads no configuration."""
        if name != "app":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        made = globals()[name] = create_app()
        return made


async def _nothing_else(scope: Scope, receive: Receive, send: Send) -> None:
    raise RuntimeError("other workers forward requests to faces alone")


def _add_paths(
    app: FastAPI,
    gate: Gate,
    connect: "ConnectPages | None",
    console: ConsoleFiles | None,
    doors: LateDoors,
    metrics: Metrics,
    read_metrics: Callable[[], Awaitable[bytes]],
    sign_in: SignIn | None,
) -> Mapping[str, ASGIApp]:
    """Returns the endpoints of the faces by path. They are served in front of the framework's router."""
    heartbeat_s = gate.settings.engine.heartbeat_s
    max_values = gate.settings.server.max_body_values
    refuse_in_one_shape(app)
    routers = [
        engine_router(
            gate.engine,
            gate.streams,
            gate.keyed,
            ready=gate.taking,
            heartbeat_s=heartbeat_s,
            max_values=max_values,
        ),
        health_router(
            gate.runtime,
            gate.fleet,
            lambda: doors.ready and gate.ready(),
            gate.records,
            gate.storage_state,
            gate.issuers.states,
        ),
        metrics_router(read_metrics, CONTENT_TYPE),
        operations_router(gate.operations, gate.shares.calls, max_values),
        well_known_router(gate.issuers, gate.authenticator.resources),
        *([] if connect is None else [connect.router()]),
        connections_router(gate.user_logins),
    ]
    feed = None if console is None else Feed(gate)
    # Without pages too: an approver decides from a terminal or a program.
    routers.append(approvals_router(gate, feed))
    if feed is not None:
        routers += [console_router(gate, feed, heartbeat_s), sign_in_router(sign_in)]
        routers.append(console_tools_router(gate, max_values))
        routers.append(console_desk_router(gate, max_values))
        routers.append(console_calls_router(gate))
    for router in routers:
        app.router.routes.extend(router.routes)
    endpoints = doors.endpoints
    faces = {"/mcp": endpoints[gate.settings.mcp.face], **{f"/mcp/{name}": each for name, each in endpoints.items()}}
    if console is not None:
        app.router.routes.extend(console_file_routes(console))
    publish_openapi(app)
    paths = (route.path for router in routers for route in router.routes if isinstance(route, Route | APIRoute))
    metrics.know_paths([*faces, *paths])
    return faces


def _connect_pages(gate: Gate) -> "ConnectPages | None":
    """Returns None where no upstream has accounts of users."""
    if gate.user_logins is None or gate.browser_logins is None or gate.id_tokens is None:
        return None

    def server_host(name: str) -> str:
        found = next((upstream.url for upstream in gate.settings.upstreams if upstream.name == name), "")
        return urlsplit(found).netloc.rpartition("@")[2]

    from routers.connect import ConnectPages

    return ConnectPages(
        gate.user_logins,
        gate.browser_logins,
        gate.id_tokens,
        gate.authenticator,
        gate.audit_events,
        LoginTries(monotonic),
        lambda: bool(gate.accepted_keys()),
        server_host,
    )


def _logs(program: Program | None, settings: Settings) -> AbstractContextManager[object]:
    """Formats the log of a program while it makes its gate: the lifespan begins later, maybe in a forked process."""
    if program is None:
        return nullcontext()
    server = settings.server
    return service_logs(server.log_level, Redactor(settings.secrets()), log_format=server.log_format)


def _gauges(gate: Gate, doors: LateDoors, connections: ConnectionCounts | None) -> Gauges:
    tools = Counter(item.server for item in gate.runtime.catalog().tools.values())
    lost, refused = (gate.auditor.lost, gate.auditor.refused) if gate.auditor else ({}, {})
    return Gauges(
        gate.fleet.states(),
        tools,
        [*gate.shares, gate.runtime.running, *doors.session_counts()],
        lost,
        refused,
        audit_seconds=gate.auditor.seconds if gate.auditor else {},
        storage=gate.storage,
        keys=gate.key_life(),
        connections=connections,
        learned=gate.runtime.learning.lessons,
        lessons_dropped=gate.runtime.learning.dropped,
        logins=gate.login_counts,
    )


def _make_doors(gate: Gate) -> "McpDoors":
    from app.mcp_door import DoorLimits, McpDoors

    server, mcp = gate.settings.server, gate.settings.mcp
    return McpDoors(
        gate.faces,
        version=VERSION,
        seal=gate.seal,
        limits=DoorLimits(
            server.max_body_bytes, server.max_body_values, mcp.max_sessions, mcp.max_sessions_per_actor, mcp.direct
        ),
        calls=gate.shares.calls,
        kept=gate.mcp_sessions,
        peers=gate.peers,
        fail=gate.storage.fail,
    )
