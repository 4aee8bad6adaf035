"""``wicketgate serve``: the listening socket, the loop, the logs, and what is told once it is ready (DESIGN §2)."""

import asyncio
import json
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from app.hangup import on_hangup
from app.heap import collect_seldom
from app.logs import json_logs, set_log_level
from app.main import create_app
from app.port.server import serve_app
from wicketgate.access.identity import Identity
from wicketgate.access.keys import HashedKey, new_key
from wicketgate.config.reloader import Reloader
from wicketgate.config.settings import Settings
from wicketgate.errors import ConfigError
from wicketgate.gate import Gate
from wicketgate.text.redaction import Redactor

_BACKLOG = 2048


def serve_until_stopped(settings: Settings, load: Callable[[], Settings], watched: Path | None) -> int:
    """Serve by *settings*, and by what *load* reads when told to, or when *watched* changes; the exit code.

    Raises ConfigError.
    """
    listener = _bind(settings.server.host, settings.server.port)
    extra_keys, shown_key = [], ""
    if not settings.auth.keys:
        shown_key, digest = new_key("local")
        extra_keys = [HashedKey("local", digest, Identity("local", ("*",)))]
    redactor = Redactor([*settings.secrets(), shown_key])

    def follow(settings: Settings) -> None:
        redactor.learn(settings.secrets())
        set_log_level(settings.server.log_level)

    with json_logs(settings.server.log_level, redactor):
        app = create_app(settings, extra_keys=extra_keys)
        collect_seldom()
        address = _address(listener)
        gate: Gate = app.state.gate
        gate.follow(follow)

        required = [upstream.name for upstream in settings.upstreams if upstream.required and upstream.enabled]
        missing: dict[str, str] = {}

        async def begin() -> None:
            await gate.wait_ready()
            missing.update(gate.lifecycle.missing(required))
            if missing:
                signal.raise_signal(signal.SIGTERM)
            else:
                _greet(address, shown_key)

        async def run() -> bool:
            reloader = Reloader(load, gate.apply, ready=gate.wait_ready, watched=watched)
            on_hangup(reloader.request)
            greeting = asyncio.create_task(begin())
            try:
                async with reloader.running():
                    return await serve_app(
                        app,
                        listener,
                        drain_s=settings.server.drain_s,
                        stuck_reader_s=settings.engine.stuck_reader_s,
                        stopping=gate.drain.begin,
                        drained=gate.drain.wait,
                    )
            finally:
                greeting.cancel()

        with listener:
            served = _runner()(run())
    if missing:
        names = "; ".join(f"{name}: {why}" for name, why in missing.items())
        raise ConfigError(f"An upstream that is required is not there ({names}). Start it, or set required: false")
    return 0 if served else 1


def _runner() -> Callable[[Any], bool]:
    """The loop of the performance guide where there is one (not on Windows)."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


def _bind(host: str, port: int) -> socket.socket:
    """Listen before anything is started: a taken port is the most common trouble, and deserves a plain word."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named so that asyncio's own loop, too, sends without waiting (it looks at the number).
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)  # binding alone does not claim the port
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"Cannot listen on {host} port {port}: {error.strerror}. Choose another with --port or server.port."
        ) from None
    return listener


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _greet(address: str, shown_key: str) -> None:
    """Once requests are taken: where, and what to paste. On stderr, since stdout carries nothing but log lines."""
    lines = ["", f"Wicketgate is ready on {address}", f"  MCP clients: {address}/mcp"]
    if shown_key:
        body = {
            "messages": [{"role": "user", "content": "What time is it in Tokyo?"}],
            "metadata": {"correlation_id": "hello-1"},
        }
        lines += [
            f"  Key, for this run only: {shown_key}",
            "",
            "Try it:",
            f"  curl -N {address}/engine/chat -H 'Authorization: Bearer {shown_key}' \\",
            f"    -H 'Content-Type: application/json' -d '{json.dumps(body)}'",
        ]
    click.echo("\n".join([*lines, ""]), err=True)
