"""The one place where a configured upstream becomes an Upstream (DESIGN §2 "upstreams")."""

import random
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from pydantic import SecretStr

from app.edges.mcp_connection import Connect
from app.edges.mcp_http import http_transport, sse_transport
from app.edges.mcp_stdio import stdio_transport
from app.edges.mcp_upstream import McpClientUpstream
from app.edges.python_upstream import PythonUpstream
from app.gateway.ports import Upstream
from app.settings import UpstreamSettings


def make_upstream(settings: UpstreamSettings) -> Upstream:
    """The connector that the configuration asks for."""
    if settings.python:
        folder = str(Path(settings.cwd or ".").resolve())
        return PythonUpstream(settings.name, settings.python, threads=settings.threads, folder=folder)
    return McpClientUpstream(
        settings.name, _connect(settings), connect_timeout_s=settings.connect_timeout_s, jitter=random.random
    )


def _connect(settings: UpstreamSettings) -> Connect:
    max_bytes = settings.max_answer_bytes
    if not settings.url:
        env = _revealed(settings.env)
        return partial(stdio_transport, settings.name, settings.command, env, settings.cwd, max_answer_bytes=max_bytes)
    headers = _revealed(settings.headers)
    if settings.transport == "sse":
        return partial(sse_transport, settings.name, settings.url, headers)
    return partial(http_transport, settings.name, settings.url, headers, max_answer_bytes=max_bytes)


def _revealed(values: Mapping[str, SecretStr]) -> dict[str, str]:
    return {name: value.get_secret_value() for name, value in values.items()}
