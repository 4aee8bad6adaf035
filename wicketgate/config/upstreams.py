"""The one place where a configured upstream becomes an Upstream (DESIGN §2 "upstreams")."""

import os
import random
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from time import monotonic

from pydantic import SecretStr

from wicketgate.config.settings import UpstreamSettings
from wicketgate.net import Outgoing
from wicketgate.ports import Upstream
from wicketgate.upstreams.mcp.client import Connect
from wicketgate.upstreams.mcp.http import http_transport
from wicketgate.upstreams.mcp.sse import sse_transport
from wicketgate.upstreams.mcp.stdio import stdio_transport
from wicketgate.upstreams.mcp.upstream import McpServerUpstream
from wicketgate.upstreams.openapi.credentials import Credentials
from wicketgate.upstreams.openapi.exchange import HttpExchange
from wicketgate.upstreams.openapi.oauth import OAuthCredentials
from wicketgate.upstreams.openapi.servers import origin
from wicketgate.upstreams.openapi.source import DocumentSource, FileSource, UrlSource
from wicketgate.upstreams.openapi.upstream import OpenApiUpstream
from wicketgate.upstreams.python.upstream import PythonUpstream


def make_upstream(settings: UpstreamSettings) -> Upstream:
    """The connector that the configuration asks for."""
    if settings.python:
        folder = str(Path(settings.cwd or ".").resolve())
        return PythonUpstream(settings.name, settings.python, threads=settings.threads, folder=folder)
    if settings.openapi:
        return _openapi_upstream(settings)
    return McpServerUpstream(
        settings.name, _connect(settings), connect_timeout_s=settings.connect_timeout_s, jitter=random.random
    )


def _connect(settings: UpstreamSettings) -> Connect:
    max_bytes = settings.max_answer_bytes
    if not settings.url:
        env = _revealed(settings.env)
        return partial(stdio_transport, settings.name, settings.command, env, settings.cwd, max_answer_bytes=max_bytes)
    transport = sse_transport if settings.transport == "sse" else http_transport
    return partial(
        transport,
        settings.name,
        settings.url,
        _revealed(settings.headers),
        outgoing=Outgoing.from_environment(os.environ),
        credentials=_credentials(settings),
        max_answer_bytes=max_bytes,
    )


def _openapi_upstream(settings: UpstreamSettings) -> Upstream:
    http, headers, credentials = HttpExchange(), _revealed(settings.headers), _credentials(settings)
    source: DocumentSource
    if "://" in settings.openapi:
        # What opens the service is sent for its document too, unless that lies with somebody else.
        is_own = not settings.base_url or origin(settings.base_url) == origin(settings.openapi)
        source = UrlSource(settings.openapi, http, headers if is_own else {}, credentials if is_own else None)
    else:
        source = FileSource(Path(settings.openapi))
    return OpenApiUpstream(
        settings.name,
        source,
        http,
        base_url=settings.base_url,
        headers=headers,
        credentials=credentials,
        connect_timeout_s=settings.connect_timeout_s,
        max_answer_bytes=settings.max_answer_bytes,
        jitter=random.random,
    )


def _credentials(settings: UpstreamSettings) -> Credentials | None:
    """What the upstream wants besides static headers."""
    return OAuthCredentials(settings.name, settings.oauth, monotonic) if settings.oauth else None


def _revealed(values: Mapping[str, SecretStr]) -> dict[str, str]:
    return {name: value.get_secret_value() for name, value in values.items()}
