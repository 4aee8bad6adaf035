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
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from app.console.files import ConsoleFiles
from app.console.live import Feed
from app.console.sign_in import SignIn
from app.gauges import Gauges
from app.lifespan import Program, service_lifespan
from app.local_key import LocalKey, local_key
from app.logs import service_logs, write_info
from app.mcp.door import DoorLimits, McpDoors
from app.metrics import CONTENT_TYPE, Metrics
from app.pace import Pace
from app.port.connections import ConnectionCounts
from app.process import Heap
from app.telemetry import SpanCounts
from app.workers.metrics import WorkerMetrics
from middleware.auth import AuthGuard
from middleware.client_address import TrustedProxies
from middleware.correlation import AccessLog
from middleware.front import Front
from middleware.hosts import HostCheck, HostRule
from middleware.refusals import BodyLimit
from routers.connections import connections_router
from routers.console import SIGN_IN_PATH, console_router, sign_in_router
from routers.console_approvals import approvals_router
from routers.console_calls import console_calls_router
from routers.console_desk import console_desk_router
from routers.console_files import console_file_routes, no_such_page, open_paths
from routers.console_tools import console_tools_router
from routers.engine import PATH as CHAT_PATH
from routers.engine import chat_endpoint
from routers.faces import FacePaths, well_known_router, without_prefix
from routers.health import health_router, metrics_router
from routers.login_tries import LoginTries
from routers.openapi import publish_openapi
from routers.operations import operations_router
from routers.refusals import refusal_of, refuse_in_one_shape
from routers.spending import spending_router
from wicketgate.access.identity import HashedKey
from wicketgate.config.settings import LOOPBACK_HOSTS, Settings
from wicketgate.config.settings_file import find_config, load_settings, log_configuration, settings_from
from wicketgate.config.upstreams import UsersOf
from wicketgate.errors import ConfigError
from wicketgate.gate import VERSION, Gate
from wicketgate.log_text import Redactor
from wicketgate.login.login_flow import Waiting
from wicketgate.models.provider import Provider
from wicketgate.ports import Upstream
from wicketgate.random_ids import random_id
from wicketgate.storage.figures import SharedFigures

if TYPE_CHECKING:
    from routers.connect import ConnectPages


_OUTERMOST = frozenset({"ServerErrorMiddleware", "ExceptionTelemetryMiddleware", "AppBodyLimitMiddleware"})


class Service(FastAPI):
    """The framework without its outermost layers, in which all of a request and of its answer would be wrapped once
    more: what escapes the application, bodies and telemetry are the business of the middleware here."""

    def build_middleware_stack(self) -> ASGIApp:
        # Middleware that a program has put next to the routes is in front of the faces too (OPS-504).
        self.user_middleware.sort(key=lambda each: cast(Any, each.cls) is FacePaths)
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
    settings: Settings | Mapping[str, Any] | None = None,
    *,
    tools: object = (),
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
    stays as it is; a wrong one raises ConfigError. They may also be the content of a configuration file. *tools* are
    functions of that program, as ``Gate`` takes them. *upstreams* and *provider* stand in for the configured ones, at
    the edge only, as *clock* does for the system's (seconds since the epoch), *users* and *waiting* for logins of
    users.

    Without any key it takes the one kept in ``auth.key_file``; without that file it makes one and serves only callers
    on this machine. A program of its own shows that key at the start; in another program it is ``app.state.local_key``.

    Mounted in an application, it needs its lifespan run by that one, which may wait for the tools too::

        @asynccontextmanager
        async def lifespan(app: FastAPI) -> AsyncIterator[None]:
            async with gate_app.router.lifespan_context(gate_app):
                await gate_app.state.gate.wait_ready()
                yield

        app = FastAPI(lifespan=lifespan)
        app.mount("/gate", gate_app)  # /gate/mcp, /gate/engine/chat

    Clients of ``/mcp`` keep streams open. Give a server of your own a limit for its stop, because it ends them only
    then: uvicorn's ``--timeout-graceful-shutdown 2``. ``server.drain_s`` holds under ``wicketgate serve``.
    """
    if settings is None:
        try:
            load = partial(load_settings, find_config(os.environ))
            return create_app(
                load(),
                tools=tools,
                program=program or Program(load),
                extra_keys=extra_keys,
                upstreams=upstreams,
                provider=provider,
                clock=clock,
                users=users,
                waiting=waiting,
            )
        except ConfigError as error:
            # A server would show the exception with forty lines of its own.
            raise SystemExit(f"wicketgate: {error}") from None
    if not isinstance(settings, Settings):
        settings = settings_from(settings)
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
            tools=tools,
            waits=False,
            upstreams=upstreams,
            provider=provider,
            keys=extra_keys,
            meter=metrics,
            heap=heap,
            clock=clock,
            users=users,
            waiting=waiting,
            seal_key=place.seal_key if place is not None else None,
        )
    gate.keys.authenticator.observe(metrics.auth_failed)
    gate.keys.authenticator.observe(gate.records.events.login_failed)
    own_server = program.server if program is not None else None
    doors = _make_doors(gate, heap)
    gate.runtime.changes.watch(doors.catalog_changed)
    gate.runtime.changes.watch_access(doors.access_changed)
    gate.drain.follow(doors.end_listening)
    gate.drain.wait_for(doors.answered)
    spans = SpanCounts()
    connections = own_server.connections if own_server is not None else None
    metrics.watch(partial(_gauges, gate, doors, connections, spans), gate.approvals.look)

    # Without the framework's documentation pages, which load scripts from other hosts.
    pace = Pace()
    workers: WorkerMetrics | None = None
    if place is not None:
        workers = WorkerMetrics(
            place, metrics.read, SharedFigures(gate.shared.store, place.service, gate.shared.process.id)
        )
    app = Service(
        title="Wicketgate",
        version=VERSION,
        lifespan=lambda app: service_lifespan(gate, doors, program, local, metrics.loop_late, pace, spans, workers),
        openapi_url=None,
        redirect_slashes=False,
        # The framework would look for telemetry providers at each request; there are none here.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.gate = gate
    app.state.local_key = local.secret if local is not None else ""
    console = ConsoleFiles() if settings.server.console else None
    read_metrics = metrics.read if workers is None else workers.metrics
    connect = _connect_pages(gate)
    faces = _add_paths(app, gate, connect, console, doors, metrics, read_metrics, local.sign_in if local else None)

    # The middleware. Each wraps the ones above it: the last is the outermost.
    server = settings.server
    hosts = [f"{server.host}:*", *server.allowed_hosts, *filter(None, [urlsplit(server.public_url).netloc])]
    app.add_middleware(FacePaths, endpoints=faces)
    app.add_middleware(
        Front,
        pace=pace,
        proxies=TrustedProxies(server.trusted_proxies),
        access_log=AccessLog(lambda: f"req_{random_id()}", metrics.http_answer, write_info),
        hosts=HostCheck(HostRule(LOOPBACK_HOSTS, hosts, server.allowed_origins)),
        readers=HostRule((), (), server.allowed_origins) if server.allowed_origins else None,
        drain=gate.drain,
        guard=AuthGuard(
            gate.keys.authenticator,
            gate.keys.uses,
            local_only=local is not None and local.file is None,
            open_paths=frozenset() if console is None else open_paths(console) | {SIGN_IN_PATH},
            open_under=() if connect is None else connect.open_under,
            **({} if console is None else {"page_without_key": no_such_page}),
        ),
        bodies=BodyLimit(server.max_body_bytes),
        refusal_of=refusal_of,
    )
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


def _add_paths(
    app: FastAPI,
    gate: Gate,
    connect: "ConnectPages | None",
    console: ConsoleFiles | None,
    doors: McpDoors,
    metrics: Metrics,
    read_metrics: Callable[[], Awaitable[bytes]],
    sign_in: SignIn | None,
) -> Mapping[str, ASGIApp]:
    """Returns the endpoints of the faces and of chats by path. They are served in front of the framework's router."""
    heartbeat_s = gate.settings.engine.heartbeat_s
    refuse_in_one_shape(app)
    routers = [
        health_router(
            gate.runtime,
            gate.fleet,
            lambda: gate.lifecycle.ready() and not doors.sdk.failed,
            gate.records.ready,
            gate.shared.state,
            gate.keys.issuers.states,
        ),
        metrics_router(read_metrics, CONTENT_TYPE),
        operations_router(gate.operations, gate.shared.limits.calls),
        well_known_router(gate.keys.issuers, gate.keys.authenticator.resources),
        *([] if connect is None else [connect.router()]),
        connections_router(gate.logins.accounts),
    ]
    feed = None if console is None else Feed(gate)
    # Without pages too: an approver decides, and an operator counts, from a terminal or a program.
    routers += [approvals_router(gate, feed), spending_router(gate)]
    if feed is not None:
        routers += [console_router(gate, feed, heartbeat_s), sign_in_router(sign_in)]
        routers.append(console_tools_router(gate))
        routers.append(console_desk_router(gate))
        routers.append(console_calls_router(gate))
    for router in routers:
        app.router.routes.extend(router.routes)
    endpoints = doors.endpoints
    faces: dict[str, ASGIApp] = {
        "/mcp": endpoints[gate.settings.mcp.face],
        **{f"/mcp/{name}": each for name, each in endpoints.items()},
    }
    faces[CHAT_PATH] = chat_endpoint(
        gate.engine, gate.streams, gate.keyed, ready=gate.lifecycle.taking, heartbeat_s=heartbeat_s
    )
    publish_openapi(app, console=console is not None)
    if console is not None:
        app.router.routes.extend(console_file_routes(console))
    paths = (route.path for router in routers for route in router.routes if isinstance(route, Route | APIRoute))
    metrics.know_paths([*faces, *paths])
    return faces


def _connect_pages(gate: Gate) -> "ConnectPages | None":
    """Returns None where no upstream has accounts of users."""
    if gate.logins.accounts is None or gate.logins.browsers is None or gate.logins.id_tokens is None:
        return None

    def server_host(name: str) -> str:
        found = next((upstream.url for upstream in gate.settings.upstreams if upstream.name == name), "")
        return urlsplit(found).netloc.rpartition("@")[2]

    from routers.connect import ConnectPages

    return ConnectPages(
        gate.logins.accounts,
        gate.logins.browsers,
        gate.logins.id_tokens,
        gate.keys.authenticator,
        gate.records.events,
        LoginTries(monotonic),
        lambda: bool(gate.keys.accepted()),
        server_host,
    )


def _logs(program: Program | None, settings: Settings) -> AbstractContextManager[object]:
    """Formats the log of a program while it makes its gate: the lifespan begins later, maybe in a forked process."""
    if program is None:
        return nullcontext()
    server = settings.server
    return service_logs(server.log_level, Redactor(settings.secrets()), log_format=server.log_format)


def _gauges(gate: Gate, doors: McpDoors, connections: ConnectionCounts | None, spans: SpanCounts) -> Gauges:
    tools = Counter(item.server for item in gate.runtime.catalog().tools.values())
    lost, refused = (gate.records.auditor.lost, gate.records.auditor.refused) if gate.records.auditor else ({}, {})
    return Gauges(
        gate.fleet.states(),
        tools,
        [*gate.shared.limits, gate.runtime.running, *doors.stream_counts()],
        lost,
        refused,
        audit_seconds=gate.records.auditor.seconds if gate.records.auditor else {},
        storage=gate.shared.measures,
        keys=gate.keys.life(),
        connections=connections,
        learned=gate.runtime.learning.lessons,
        lessons_dropped=gate.runtime.learning.dropped,
        logins=gate.logins.counts,
        spans=spans,
        models=gate.models.counts,
        approvals_waiting=gate.approvals.seen_waiting,
        budgets=gate.spending.checks,
    )


def _make_doors(gate: Gate, heap: Heap | None) -> McpDoors:
    server, mcp = gate.settings.server, gate.settings.mcp
    return McpDoors(
        gate.faces,
        version=VERSION,
        seal=gate.shared.seal,
        limits=DoorLimits(server.max_body_bytes, mcp.max_streams_per_actor, mcp.direct),
        calls=gate.shared.limits.calls,
        stored=gate.shared.mcp_sessions,
        heap=heap,
    )
