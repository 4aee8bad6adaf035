"""Misdeeds of an HTTP server of the handshake era: forget its session, answer too much, compress it,
and ask for streams without end (UP-5)."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from time import time

import anyio
import pytest

from tests.support.credentials import Tokens
from tests.support.http_service import HttpService, Reply, Seen
from tests.support.requirement import requirement
from tests.support.supervised import BOUND_S, connected, context, next_change, over
from tests.support.until import until
from wicketgate.config.settings import UpstreamSettings
from wicketgate.config.upstream_logins import scopes_mend, token_source
from wicketgate.errors import Forbidden, UpstreamError, UpstreamUnavailable, UpstreamUnclear
from wicketgate.fleet.edge import KnownSecrets
from wicketgate.fleet.member import Member
from wicketgate.login.issued import IssuedCredentials
from wicketgate.net import Outgoing
from wicketgate.ports import UpstreamStatus
from wicketgate.upstreams.mcp.eras import Mode
from wicketgate.upstreams.mcp.http import http_transport
from wicketgate.upstreams.mcp.upstream import McpServerUpstream

JSON = {"content-type": "application/json"}
NO_STREAM = Reply(status=405)


@dataclass
class Server:
    """One tool, and a session that it can forget; *call*, *error* and *stream* are its answers."""

    call: Reply | None = None
    stream: Reply = NO_STREAM
    unknown: Reply = field(default_factory=lambda: Reply(status=404))
    error: object = None
    session: int = 1
    called: int = 0
    opened: int = 0

    def __call__(self, seen: Seen) -> Reply:
        if seen.method == "DELETE":
            return Reply(status=200)
        given = seen.headers.get("mcp-session-id")
        if given is not None and given != str(self.session):
            return self.unknown
        if seen.method == "GET":
            self.opened += 1
            return self.stream
        message = json.loads(seen.body)
        match message["method"]:
            case "initialize":
                result = {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "stub", "version": "1"},
                }
                return self._answer(message, result, {"mcp-session-id": str(self.session)})
            case "server/discover":
                found = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "ttlMs": 0}
                return self._answer(message, {**found, "resultType": "complete", "cacheScope": "private"}, {})
            case "tools/call":
                self.called += 1
                if self.error is not None:
                    body = {"jsonrpc": "2.0", "id": message["id"], "error": self.error}
                    return Reply(json.dumps(body).encode())
                return self.call or self._answer(message, {"content": [], "isError": False}, {})
            case _:
                return Reply(status=202)

    @staticmethod
    def _answer(message: dict[str, object], result: object, headers: dict[str, str]) -> Reply:
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
        return Reply(body, headers={**JSON, **headers})


@asynccontextmanager
async def serving(
    server: Server, max_bytes: int = 1_000_000
) -> AsyncIterator[tuple[McpServerUpstream, asyncio.Queue[str]]]:
    async with HttpService(server) as service, asyncio.timeout(BOUND_S):
        connect = partial(
            http_transport, "stub", f"{service.url}/mcp", {}, outgoing=Outgoing(), max_answer_bytes=max_bytes
        )
        upstream = over(connect, "handshake")
        async with connected(upstream) as changes:
            await until(lambda: any(seen.method == "GET" for seen in service.seen))
            yield upstream, changes


async def trouble_of_connecting(refusal: Reply, era: Mode = "auto") -> UpstreamStatus:
    async with HttpService(lambda _: refusal) as service, anyio.create_task_group() as tasks:
        upstream = over(partial(http_transport, "stub", f"{service.url}/mcp", {}, outgoing=Outgoing()), era)
        tasks.start_soon(upstream.supervise, lambda _: None)
        await until(lambda: upstream.status.phase == "down")
        tasks.cancel_scope.cancel()
    return upstream.status


def words(status: int, text: str) -> Reply:
    error = {"jsonrpc": "2.0", "error": {"code": -32000, "message": text}}
    return Reply(json.dumps(error).encode(), status)


@requirement("UP-5")
@pytest.mark.parametrize(
    "unknown",
    [
        Reply(status=404),
        Reply(b"<html>404</html>", 404, {"content-type": "text/html"}),
        words(404, "Session not found"),
        words(400, "Bad Request: No valid session ID provided"),
        Reply(b"Invalid or missing session ID", 400, {"content-type": "text/plain"}),
        Reply(b"Unauthorized: Session not found", 401, {"content-type": "text/plain"}),
    ],
    ids=["404", "404 page", "404 error", "400 error", "400 text", "401 text"],
)
async def test_a_server_that_was_restarted_is_known_by_its_refusal_and_connected_again(unknown: Reply) -> None:
    server = Server(unknown=unknown)
    async with serving(server) as (upstream, changes):
        server.session = 2
        with pytest.raises(UpstreamUnavailable, match="been restarted"):
            await upstream.call_tool("x", {}, context(), 5)
        assert server.called == 0
        while upstream.status.connections < 2:
            await next_change(changes)
        assert await upstream.call_tool("x", {}, context(), 5) == {"content": [], "isError": False}


@requirement("UP-5")
async def test_a_tool_that_says_the_words_of_a_lost_session_has_run_and_keeps_the_session() -> None:
    error = {"code": -32000, "message": "Session not found"}
    server = Server()
    async with serving(server) as (upstream, _):
        server.error = error
        with pytest.raises(UpstreamError) as refused:
            await upstream.call_tool("x", {}, context(), 5)
        assert not isinstance(refused.value, UpstreamUnavailable)
        server.error = None
        assert server.called == 1
        assert upstream.status.connections == 1


@requirement("UP-5")
async def test_a_server_that_was_restarted_while_nobody_calls_is_connected_again_by_its_stream() -> None:
    server = Server(stream=Reply(b"retry: 10\n\n", headers={"content-type": "text/event-stream"}))
    async with serving(server) as (upstream, changes):
        server.session = 2
        while upstream.status.connections < 2:
            await next_change(changes)


@requirement("UP-26")
@pytest.mark.parametrize("zipped", [False, True])
async def test_an_answer_without_measure_is_not_kept_and_costs_its_call_alone(zipped: bool) -> None:
    body = b"0" * 3_000_000
    server = Server(call=Reply(gzip.compress(body), headers={**JSON, "content-encoding": "gzip"}) if zipped else None)
    server.call = server.call or Reply(body)
    async with serving(server) as (upstream, _):
        with pytest.raises(UpstreamError, match="more than 1000000 bytes"):
            await upstream.call_tool("x", {}, context(), 5)
        server.call = None
        await upstream.call_tool("x", {}, context(), 5)
        assert upstream.status.connections == 1


RFC_6750 = b'{"error": "invalid_token", "error_description": "The access token expired"}'
JSON_RPC = b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32000, "message": "their words"}}'
HOW = {401: "wants a credential", 403: "wants a credential", 404: "has no MCP endpoint", 500: "gave no MCP answer"}
METADATA = {"www-authenticate": 'Bearer error="invalid_token", resource_metadata="https://h.invalid/m"'}


@requirement("UP-53", "UP-68", "UP-221")
@pytest.mark.parametrize(
    # In a session a 404 is about the session (UP-5).
    ("status", "era"),
    [(status, era) for status in HOW for era in ("handshake", "auto") if (status, era) != (404, "handshake")],
)
@pytest.mark.parametrize(
    "body",
    [b"no", b"{}", b'{"detail": "no"}', RFC_6750, b'{"error": {"code": "x", "message": "y"}}', JSON_RPC],
    ids=["text", "empty", "detail", "RFC 6750", "error object", "JSON-RPC"],
)
async def test_a_refusal_keeps_its_http_status_whatever_its_body_is(status: int, body: bytes, era: Mode) -> None:
    kind = {"content-type": "text/plain"} if body == b"no" else JSON
    refusal = Reply(body, status, {**kind, **METADATA})
    is_answer = body == JSON_RPC
    async with HttpService(Server(call=refusal, unknown=Reply(status=202))) as service, asyncio.timeout(BOUND_S):
        upstream = over(partial(http_transport, "stub", f"{service.url}/mcp", {}, outgoing=Outgoing()), era)
        async with connected(upstream):
            with pytest.raises(UpstreamError) as refused:
                await upstream.call_tool("x", {}, context(), 5)
    assert (refused.value.details or {})["status"] == status
    if is_answer:
        assert (refused.value.details or {})["upstream_message"] == "their words"
    else:
        assert f"{HOW[status]} " in refused.value.message
        assert isinstance(refused.value, UpstreamUnclear) is (status == 500)
    told = await trouble_of_connecting(refusal, era)
    assert f"HTTP status {status}" in told.error
    assert (HOW[status] in told.error) is (not is_answer or status < 404)
    assert ("wicketgate login stub" in told.detail) is (status < 404)


@requirement("UP-222")
@pytest.mark.parametrize(
    ("body", "issued", "mend"),
    [
        (b"no", False, "give its credential these scopes"),
        (RFC_6750, False, "give its credential these scopes"),
        (JSON_RPC, True, "add them to oauth.scope"),
    ],
)
async def test_a_lack_of_scopes_is_forbidden_and_names_them_and_what_an_operator_changes(
    body: bytes, issued: bool, mend: str
) -> None:
    challenge = {"www-authenticate": 'Bearer error="insufficient_scope", scope="mcp:write secret-0"'}
    lacks = Reply(body, 403, {**JSON, **challenge})
    secrets = KnownSecrets(["secret-0"])
    token = Reply(b'{"access_token": "secret-0", "token_type": "Bearer"}')
    async with HttpService(Server(call=lacks)) as service, HttpService(lambda _: token) as issuer:
        oauth = {"token_url": issuer.url, "client_id": "gate", "client_secret": "client-secret"}
        settings = UpstreamSettings.model_validate({"name": "stub", "url": f"{service.url}/mcp", "oauth": oauth})
        source = token_source(settings, Outgoing())
        of_client = IssuedCredentials("stub", source, time, scopes_mend=scopes_mend(settings))
        credentials = of_client if issued else Tokens("Bearer secret-", renews=False)
        connect = partial(http_transport, "stub", settings.url, {}, outgoing=Outgoing(), credentials=credentials)
        upstream = over(connect, "handshake")
        async with asyncio.timeout(BOUND_S), connected(upstream):
            with pytest.raises(Forbidden) as refused:
                await Member(upstream, secrets=secrets).call_tool("x", {}, context(), 5)
    assert (refused.value.details or {})["status"] == 403
    assert (refused.value.details or {})["scopes"][0] == "mcp:write"
    assert "mcp:write" in refused.value.message
    assert mend in refused.value.message
    assert "wicketgate login" not in refused.value.message
    assert "secret-0" not in str(refused.value.as_dict())
    assert not refused.value.retryable


@requirement("UP-53")
@pytest.mark.parametrize(
    ("status", "retry_after", "details", "retryable"),
    [
        (429, "7", {"status": 429, "retry_after_s": 7.0}, True),
        (503, "Wed, 21 Oct 2026 07:28:00 GMT", {"status": 503}, True),
        (503, "9" * 9, {"status": 503, "retry_after_s": 86_400.0}, True),
        (403, "7", {"status": 403}, False),
        (500, "7", {"status": 500}, False),
    ],
)
async def test_the_http_status_and_the_wait_reach_the_caller(
    status: int, retry_after: str, details: dict[str, object], retryable: bool
) -> None:
    busy = {"jsonrpc": "2.0", "id": "1", "error": {"code": -32000, "message": "busy"}}
    body = json.dumps(busy).encode() if status in (429, 503) else b"no"
    kind = "application/json" if status in (429, 503) else "text/plain"
    server = Server(call=Reply(body, status, {"content-type": kind, "retry-after": retry_after}))
    async with serving(server) as (upstream, _):
        with pytest.raises(UpstreamError) as refused:
            await upstream.call_tool("x", {}, context(), 5)
    error = refused.value
    assert (error.code, error.details, error.retryable) == ("UPSTREAM_ERROR", details, retryable)
    assert isinstance(error, UpstreamUnclear) is (status == 500)


@requirement("UP-16")
async def test_a_server_that_ends_its_stream_and_wants_it_again_at_once_is_not_obeyed() -> None:
    server = Server(stream=Reply(b"retry: 0\n\n", headers={"content-type": "text/event-stream"}))
    async with serving(server) as (upstream, _):
        for _ in range(20):
            await upstream.call_tool("x", {}, context(), 5)
        assert server.opened < 40
