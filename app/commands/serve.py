"""``wicketgate serve``: the listening socket, the loop and the server. ``app.lifespan`` does the rest."""

import logging
import os
import resource
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import uvloop

from app.lifespan import Greeting, OwnServer, Program
from app.main import create_app
from app.port.connections import ConnectionCounts, Connections, connection_limits
from app.port.listener import Listener, open_listener
from app.port.server import Stop, serve_app
from app.port.tls import Certificates
from app.process import remembered_hangup, without_collections
from app.workers.place import CUT, Place
from middleware.client_address import TrustedProxies
from wicketgate.config.settings import ServerSettings, Settings
from wicketgate.errors import ConfigError
from wicketgate.gate import Gate

log = logging.getLogger("wicketgate.http")


def serve_until_stopped(
    settings: Settings,
    load: Callable[[], Settings],
    watched: Path | None,
    greeting: Greeting | None = None,
    *,
    workers: int = 1,
) -> int:
    """Serves until a signal stops it, and returns the exit code. Raises ConfigError.

    After SIGHUP or a change of *watched* the settings that *load* reads take the place of *settings*. *greeting* is
    shown in the place of the usual one. With more than one of *workers*, processes of their own serve.
    """
    with remembered_hangup():
        if workers > 1:
            from app.workers.supervisor import check_shared, serve_with_workers

            check_shared(settings, workers)
        tls = settings.server.tls is not None
        listener = open_listener(settings.server.host, settings.server.port, os.environ, tls=tls)
        with listener.socket:
            serve = partial(_serve, listener, watched=watched, greeting=greeting)
            if workers > 1:
                return serve_with_workers(serve, listener.address, settings, load, workers)
            return serve(settings, load, None)


def _serve(
    listener: Listener,
    settings: Settings,
    load: Callable[[], Settings],
    place: Place | None,
    *,
    watched: Path | None,
    greeting: Greeting | None,
) -> int:
    failures: list[ConfigError] = []

    def fail(error: ConfigError) -> None:
        failures.append(error)
        # The command shows the reason in one line. The server would add a traceback.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        signal.raise_signal(signal.SIGTERM)

    connections, tls = _connections(settings.server), settings.server.tls
    certificates = None if tls is None else Certificates(tls)
    server = OwnServer(listener.address, fail, connections.counts)
    with without_collections():
        app = create_app(settings, program=Program(load, watched, server, greeting, place))
    gate: Gate = app.state.gate

    def begin_drain(drain_s: float) -> None:
        if gate.drain.phase == "draining":  # asked for a second time
            gate.hurry()
        gate.drain.begin(drain_s)

    async def run() -> bool:
        stop = Stop(
            settings.server.settle_s,
            settings.server.drain_s,
            settling=gate.drain.settle,
            stopping=begin_drain,
            drained=gate.drain.wait,
            ready=gate.wait_ready,
            cut=CUT if place is not None else None,
            is_least=partial(place.loads.is_least, place.number) if place is not None else None,
        )
        return await serve_app(
            app,
            listener,
            stop,
            connections,
            debug=settings.server.log_level == "debug",
            certificates=certificates,
        )

    try:
        served = uvloop.run(run())
    except SystemExit:  # the server's answer to a failed start
        if not failures:
            raise
    if failures:
        raise failures[0]
    return 0 if served else 1


def _connections(server: ServerSettings) -> Connections:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        files = sys.maxsize
    trusted = TrustedProxies(server.trusted_proxies)
    limits = connection_limits(server.max_connections, files, trusted.trusts)
    if server.max_connections is not None and limits.most < server.max_connections:
        log.warning(
            "server.max_connections is %s, but the process may open %s files only: it is lowered to %s",
            server.max_connections,
            files,
            limits.most,
        )
    return Connections(limits, ConnectionCounts())
