"""The one place where a configured upstream becomes an Upstream (DESIGN §2 "upstreams")."""

import random
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from time import monotonic

from pydantic import SecretStr

from wicketgate.config.settings import UpstreamSettings
from wicketgate.net import Credentials, Outgoing, make_http_client
from wicketgate.net.oauth import OAuthCredentials, TokenGrant
from wicketgate.ports import Upstream
from wicketgate.upstreams.mcp.client import Connect
from wicketgate.upstreams.mcp.http import http_transport
from wicketgate.upstreams.mcp.sse import sse_transport
from wicketgate.upstreams.mcp.stdio import stdio_transport
from wicketgate.upstreams.mcp.upstream import McpServerUpstream
from wicketgate.upstreams.openapi.document import origin
from wicketgate.upstreams.openapi.upstream import DocumentSource, FileSource, OpenApiUpstream, ServiceAccess, UrlSource
from wicketgate.upstreams.python.upstream import PythonUpstream


def make_upstream(settings: UpstreamSettings, outgoing: Outgoing) -> Upstream:
    """The connector that the configuration asks for."""
    if settings.python:
        folder = str(Path(settings.cwd or ".").resolve())
        return PythonUpstream(settings.name, settings.python, threads=settings.threads, folder=folder)
    if settings.openapi:
        return _openapi_upstream(settings, outgoing)
    return McpServerUpstream(
        settings.name, _connect(settings, outgoing), connect_timeout_s=settings.connect_timeout_s, jitter=random.random
    )


def _connect(settings: UpstreamSettings, outgoing: Outgoing) -> Connect:
    max_bytes = settings.max_answer_bytes
    if not settings.url:
        env = _revealed(settings.env)
        return partial(stdio_transport, settings.name, settings.command, env, settings.cwd, max_answer_bytes=max_bytes)
    return partial(
        sse_transport if settings.transport == "sse" else http_transport,
        settings.name,
        settings.url,
        _revealed(settings.headers),
        outgoing=outgoing,
        credentials=_credentials(settings, outgoing),
        max_answer_bytes=max_bytes,
    )


def _openapi_upstream(settings: UpstreamSettings, outgoing: Outgoing) -> Upstream:
    http = make_http_client(outgoing)
    headers, credentials = _revealed(settings.headers), _credentials(settings, outgoing)
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
        ServiceAccess(settings.base_url, headers, credentials, settings.max_answer_bytes),
        connect_timeout_s=settings.connect_timeout_s,
        jitter=random.random,
    )


def _credentials(settings: UpstreamSettings, outgoing: Outgoing) -> Credentials | None:
    """What the upstream wants besides static headers."""
    oauth = settings.oauth
    if oauth is None:
        return None
    grant = TokenGrant(
        oauth.token_url,
        oauth.client_id,
        oauth.client_secret.get_secret_value() if oauth.client_secret else "",
        oauth.scope,
        oauth.audience,
        oauth.refresh_token.get_secret_value() if oauth.refresh_token else "",
        in_form=oauth.auth_method == "post",
    )
    return OAuthCredentials(settings.name, grant, outgoing, monotonic)


def _revealed(values: Mapping[str, SecretStr]) -> dict[str, str]:
    return {name: value.get_secret_value() for name, value in values.items()}
