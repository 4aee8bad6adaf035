"""The one place where a configured upstream becomes an Upstream (DESIGN §2 "upstreams")."""

import random
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from pydantic import SecretStr

from app.edges.mcp_transport import http_transport, stdio_transport
from app.edges.mcp_upstream import Connect, McpClientUpstream
from app.edges.python_upstream import PythonUpstream
from app.gateway.ports import Upstream
from app.settings import UpstreamSettings


def make_upstream(settings: UpstreamSettings) -> Upstream:
    """The connector that the configuration asks for."""
    if settings.python:
        folder = str(Path(settings.cwd or ".").resolve())
        return PythonUpstream(settings.name, settings.python, threads=settings.threads, folder=folder)
    connect: Connect
    if settings.url:
        connect = partial(http_transport, settings.url, _revealed(settings.headers))
    else:
        connect = partial(stdio_transport, settings.name, settings.command, _revealed(settings.env), settings.cwd)
    return McpClientUpstream(settings.name, connect, connect_timeout_s=settings.connect_timeout_s, jitter=random.random)


def _revealed(values: Mapping[str, SecretStr]) -> dict[str, str]:
    return {name: value.get_secret_value() for name, value in values.items()}
