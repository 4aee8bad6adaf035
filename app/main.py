"""Puts the house together: the one module that knows every other (DESIGN §1)."""

import secrets
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib.metadata import version
from time import monotonic, time

from fastapi import FastAPI

from app.heap import Heap
from app.mcp_door.doors import DoorLimits, McpDoors
from app.metrics import CONTENT_TYPE, Gauges, Metrics
from middleware.auth import AuthMiddleware, Refused
from middleware.body_limit import BodyLimitMiddleware
from middleware.correlation import CorrelationMiddleware
from middleware.last_resort import LastResortMiddleware
from routers.engine import engine_router
from routers.health import health_router
from routers.mcp import mcp_routes
from routers.metrics import metrics_router
from routers.openapi import publish_openapi
from routers.operations import operations_router
from routers.refusals import refuse_in_one_shape
from wicketgate.access.identity import Identity
from wicketgate.access.keys import HashedKey, KeyRing
from wicketgate.catalog.tokens import TokenCounter
from wicketgate.config.applied import Applied
from wicketgate.config.approvals import make_approval_desk, make_seal, reseal
from wicketgate.config.arrangement import call_policies, guarded, make_members, runtime_policies
from wicketgate.config.audit_loader import make_auditor
from wicketgate.config.plugin_loader import make_plugin_chain
from wicketgate.config.providers import make_provider
from wicketgate.config.runs import make_keyed_runs
from wicketgate.config.settings import LOOPBACK_HOSTS, KeySettings, Settings, StorageSettings
from wicketgate.context.sizes import CountedTexts
from wicketgate.engine.drain import Drain
from wicketgate.engine.limits import StreamLimit
from wicketgate.engine.loop import Engine
from wicketgate.engine.tool_rounds import EngineLimits
from wicketgate.engine.window import ModelWindow
from wicketgate.faces.assembly import make_faces
from wicketgate.faces.gateway import GatewayFace
from wicketgate.faces.operations import Operations
from wicketgate.fleet.multiplex import MultiplexUpstream
from wicketgate.gateway.audit import Auditor
from wicketgate.gateway.lifecycle import Lifecycle
from wicketgate.gateway.options import RuntimeOptions
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.models.provider import Provider
from wicketgate.ports import ArtifactStore, Upstream
from wicketgate.storage.memory_store import MemoryArtifactStore
from wicketgate.storage.session_store import MemorySessionStore
from wicketgate.storage.sqlite_store import SQLiteArtifactStore
from wicketgate.token_table import load_token_counter

VERSION = version("wicketgate")

_LOOPBACK_NAMES = [f"[{host}]" if ":" in host else host for host in LOOPBACK_HOSTS]
_LOOPBACK = [*_LOOPBACK_NAMES, *(f"{name}:*" for name in _LOOPBACK_NAMES)]


def create_app(
    settings: Settings,
    *,
    extra_keys: Sequence[HashedKey] = (),
    upstreams: Sequence[Upstream] | None = None,
    provider: Provider | None = None,
) -> FastAPI:
    """The whole application. *upstreams* and *provider* stand in for the configured ones, at the edge only.

    ``app.state.lifecycle`` tells when it is ready, ``app.state.drain`` stops it. Raises ConfigError.
    """
    tokens = load_token_counter()
    artifacts = make_artifact_store(settings.storage)
    auditor = make_auditor(settings.plugins, time)
    runtime, fleet, lifecycle = create_runtime(settings, upstreams, tokens, artifacts, auditor)
    metrics = Metrics()
    streams = StreamLimit(settings.engine.max_streams)
    face = GatewayFace(runtime, started=lifecycle.started, meter=metrics)
    if provider is None:
        provider = make_provider(settings.model)
    window = ModelWindow(settings.model.context_tokens, settings.model.answer_tokens, CountedTexts(tokens))
    seal = make_seal(settings.auth)
    approvals = make_approval_desk(settings, seal)
    engine = Engine(provider, face, window, engine_limits(settings), metrics, approvals)
    keyed = make_keyed_runs(engine, streams, settings.engine)
    limits_of_doors = DoorLimits(
        _hosts(settings),
        _origins(settings),
        settings.server.max_body_bytes,
        settings.mcp.max_sessions,
        settings.mcp.max_sessions_per_actor,
    )
    operations = Operations(runtime, started=lifecycle.started)
    faces = make_faces(
        runtime,
        fleet,
        lifecycle.started,
        gateway=face,
        operations=operations,
        timeout_s=settings.engine.tool_timeout_s,
    )
    doors = McpDoors(faces, version=VERSION, seal=seal, limits=limits_of_doors)
    runtime.watch(doors.catalog_changed)
    runtime.watch_access(doors.access_changed)
    metrics.watch(partial(_gauges, runtime, fleet, streams, doors, auditor))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            if auditor is not None:
                stack.push_async_callback(auditor.aclose)  # last, for all that ends before is told to it
            stack.push_async_callback(artifacts.aclose)
            stack.push_async_callback(approvals.aclose)
            stack.push_async_callback(provider.aclose)
            await stack.enter_async_context(lifecycle.running())
            await stack.enter_async_context(doors.running())
            stack.push_async_callback(keyed.aclose)
            yield

    # The framework's own documentation pages load scripts from elsewhere; the documents are ours to publish.
    app = FastAPI(
        title="Wicketgate",
        version=VERSION,
        lifespan=lifespan,
        openapi_url=None,
        redirect_slashes=False,
        # It would look for providers at each request; nothing here sets any up.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.engine = engine
    app.state.surface = face
    app.state.lifecycle = lifecycle
    app.state.applied = applied = Applied(settings, runtime, fleet, lifecycle)
    app.state.drain = Drain(lifecycle, streams, doors.end_listening)
    refuse_in_one_shape(app)
    app.include_router(
        engine_router(engine, streams, keyed, ready=lifecycle.ready, heartbeat_s=settings.engine.heartbeat_s)
    )
    app.include_router(health_router(runtime, fleet, lifecycle.ready))
    app.include_router(metrics_router(metrics.render, CONTENT_TYPE))
    app.include_router(operations_router(operations))
    app.router.routes.extend(mcp_routes(doors.endpoints, settings.mcp.face))
    publish_openapi(app)

    # Each wraps the ones above it: the last is the outermost.
    keys = KeyRing(())

    def follow(settings: Settings) -> None:
        keys.replace([*map(_hashed, settings.auth.keys), *extra_keys])
        engine.limits = engine_limits(settings)
        reseal(seal, approvals, settings.auth)

    follow(settings)
    applied.follow(follow)
    app.add_middleware(BodyLimitMiddleware, max_bytes=settings.server.max_body_bytes)
    app.add_middleware(AuthMiddleware, authenticate=partial(_authenticate, keys))
    app.add_middleware(LastResortMiddleware)
    app.add_middleware(CorrelationMiddleware, new_id=lambda: f"req_{secrets.token_hex(12)}")
    return app


def create_runtime(
    settings: Settings,
    upstreams: Sequence[Upstream] | None = None,
    tokens: TokenCounter | None = None,
    artifacts: ArtifactStore | None = None,
    auditor: Auditor | None = None,
) -> tuple[ProxyRuntime, MultiplexUpstream, Lifecycle]:
    """The part without doors: what `wicketgate check` needs, and what every door stands on. Who puts or gets artifacts
    gives a store, and closes it."""
    members = make_members(settings) if upstreams is None else list(map(guarded, upstreams))
    fleet = MultiplexUpstream(members)
    runtime = ProxyRuntime(
        fleet,
        RuntimeOptions(
            policies=runtime_policies(settings),
            artifacts=artifacts or make_artifact_store(settings.storage),
            sessions=MemorySessionStore() if settings.mcp.cache_stable else None,
            tokens=tokens or load_token_counter(),
            plugins=make_plugin_chain(settings.plugins, monotonic),
            auditor=auditor,
            heap=Heap(),
            now=monotonic,
        ),
    )
    return runtime, fleet, Lifecycle(fleet, runtime, start_deadline_s=settings.server.start_deadline_s)


def engine_limits(settings: Settings) -> EngineLimits:
    """The runtime ends calls by their own deadlines; the engine's is the one behind them all."""
    longest_s = max([settings.engine.tool_timeout_s, *(p.longest_s() for p in call_policies(settings).values())])
    engine = settings.engine
    return EngineLimits(
        engine.max_iterations, longest_s + 1, engine.max_parallel_tools, engine.max_calls_per_turn, engine.loop_guard
    )


def make_artifact_store(settings: StorageSettings) -> ArtifactStore:
    """The store that the configuration asks for, checked; nothing is open before its first use. Raises ConfigError."""
    if settings.sqlite_file is None:
        return MemoryArtifactStore(settings.max_bytes, settings.max_age_s, monotonic)
    return SQLiteArtifactStore(settings.sqlite_file, settings.max_bytes, settings.max_age_s, time)


def _gauges(
    runtime: ProxyRuntime, fleet: MultiplexUpstream, streams: StreamLimit, doors: McpDoors, auditor: Auditor | None
) -> Gauges:
    tools = Counter(item.server for item in runtime.catalog().items.values())
    lost, refused = (auditor.lost, auditor.refused) if auditor else ({}, {})
    return Gauges(fleet.states(), tools, streams.active, doors.open_sessions(), lost, refused)


async def _authenticate(keys: KeyRing, credential: str) -> Identity | Refused:
    key = keys.find(credential)
    if key is None:
        return Refused("Invalid credentials")
    return Refused("Identity is suspended") if key.suspended else key.identity


def _hosts(settings: Settings) -> list[str]:
    """Host headers that /mcp answers to: a foreign one is a page in a browser that had its name rebound to us."""
    return [*_LOOPBACK, *settings.mcp.allowed_hosts]


def _origins(settings: Settings) -> list[str]:
    """Pages that /mcp answers to: those of this machine, which still need a credential."""
    return [*(f"http://{host}" for host in _LOOPBACK), *settings.mcp.allowed_origins]


def _hashed(key: KeySettings) -> HashedKey:
    return HashedKey(key.id, key.sha256, Identity(key.actor, key.permissions), key.suspended)
