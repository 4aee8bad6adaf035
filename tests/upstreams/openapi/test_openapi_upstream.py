"""OpenApiUpstream against real HTTP services (CARD-18, UP-28 to UP-33)."""

import asyncio
import base64
import json
import os
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import orders_service
from tests.support.credentials import Tokens
from tests.support.http_service import HttpService, Reply, Seen
from tests.support.ports import free_port
from tests.support.requirement import requirement
from wicketgate.access.identity import Identity
from wicketgate.errors import ArgsInvalid, UpstreamError, UpstreamLost, UpstreamTimeout, UpstreamUnavailable
from wicketgate.fleet.member import Member
from wicketgate.net import Credentials, HttpClient, Outgoing
from wicketgate.ports import CallContext, UpstreamStatus
from wicketgate.results.envelope import mcp_result_to_envelope
from wicketgate.upstreams.openapi.upstream import DocumentSource, FileSource, OpenApiUpstream, ServiceAccess, UrlSource

CONTEXT = CallContext(Identity("owner_1", ("*",)), "trace-1", "session")
BOUND_S = 20.0
ORDERS = orders_service.app.openapi()
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=15)


def document(*names: str, **more: Any) -> bytes:
    paths: dict[str, Any] = {f"/{name}": {"get": {"operationId": name}} for name in names}
    return json.dumps({"openapi": "3.1.0", "paths": paths, **more}).encode()


class Fixed:
    """A document that is there, and then does not change."""

    url = ""
    poll_s = 1_000.0

    def __init__(self, data: bytes) -> None:
        self._data: bytes | None = data

    async def load(self) -> bytes | None:
        data, self._data = self._data, None
        return data


class Watched:
    """*source*, and how often it was looked at."""

    def __init__(self, source: DocumentSource) -> None:
        self._source = source
        self._looked = asyncio.Semaphore(0)
        self.poll_s = source.poll_s
        self.url = source.url

    async def load(self) -> bytes | None:
        self._looked.release()
        return await self._source.load()

    async def seen(self) -> None:
        """Until what is there now has been read, and its consequences drawn: the third look from now begins."""
        while not self._looked.locked():
            await self._looked.acquire()
        async with asyncio.timeout(BOUND_S):
            for _ in range(3):
                await self._looked.acquire()


def make(
    source: DocumentSource | bytes,
    base_url: str = "",
    headers: Mapping[str, str] | None = None,
    credentials: Credentials | None = None,
    http: HttpClient | None = None,
    max_answer_bytes: int = 10_000_000,
    follow_redirects: bool = False,
    query: Mapping[str, str] | None = None,
) -> OpenApiUpstream:
    return OpenApiUpstream(
        "shop",
        Fixed(source) if isinstance(source, bytes) else source,
        http or HttpClient(Outgoing()),
        ServiceAccess(base_url, headers or {}, credentials, max_answer_bytes, follow_redirects, query or {}),
        connect_timeout_s=5,
        jitter=random.random,
    )


@asynccontextmanager
async def supervised(upstream: OpenApiUpstream, ready: bool = True) -> AsyncIterator["asyncio.Queue[str]"]:
    changes: asyncio.Queue[str] = asyncio.Queue()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(upstream.supervise, changes.put_nowait)
        if ready:
            await changed(changes)
        yield changes
        tasks.cancel_scope.cancel()


async def changed(changes: "asyncio.Queue[str]") -> None:
    async with asyncio.timeout(BOUND_S):
        assert await changes.get() == "shop"


async def call(upstream: OpenApiUpstream, tool: str, **arguments: Any) -> dict[str, Any]:
    async with asyncio.timeout(BOUND_S):
        return dict(await upstream.call_tool(tool, arguments, CONTEXT, BOUND_S))


async def names(upstream: OpenApiUpstream) -> list[str]:
    return [tool["name"] for tool in await upstream.list_tools()]


@asynccontextmanager
async def orders() -> AsyncIterator[OpenApiUpstream]:
    async with HttpService(app=orders_service.app) as service:
        upstream = make(json.dumps(ORDERS).encode(), service.url)
        async with supervised(upstream):
            yield upstream


async def test_a_real_service_is_called_through_its_own_document() -> None:
    async with orders() as shop:
        assert await names(shop) == [
            "getOrder", "deleteOrder", "createOrder", "upload", "login", "sum", "hello", "picture", "events",
        ]  # fmt: skip
        order: dict[str, Any] = {"customer": "Zoë", "lines": [{"sku": "a", "notes": [{"sku": "b"}]}], "size": "small"}
        made = await call(shop, "createOrder", **order, dry=True)
        assert made["structuredContent"]["dry"] is True
        assert made["structuredContent"]["order"]["lines"][0]["notes"][0] == {"sku": "b", "quantity": 1, "notes": []}
        assert await call(shop, "deleteOrder", order_id=5) == {"content": []}
        assert (await call(shop, "sum", body=[1, 2]))["content"] == [{"type": "text", "text": "3"}]
        assert (await call(shop, "hello"))["content"] == [{"type": "text", "text": "hello"}]
        assert (await call(shop, "picture"))["content"][0]["mimeType"] == "image/png"
        assert (await call(shop, "login", user="a&b", codes=[1, 2]))["structuredContent"] == {
            "user": "a&b",
            "codes": [1, 2],
        }
        data = base64.b64encode(bytes(range(256))).decode()
        found = (await call(shop, "upload", file=data, more=[data, "AA=="], title="t é"))["structuredContent"]
        assert found == {"title": "t é", "file": list(range(256)), "more": [list(range(256)), [0]]}


@requirement("UP-31")
async def test_the_servers_refusal_is_an_answer() -> None:
    async with orders() as shop:
        missing = await call(shop, "getOrder", order_id="missing")
        assert missing["isError"] is True
        assert missing["structuredContent"] == {"detail": "no such order"}
        assert mcp_result_to_envelope(missing, "t")[0].status == "error"
        wrong = await call(shop, "sum", body=["x"])
        assert "HTTP 422" in wrong["content"][0]["text"]


@requirement("UP-29")
async def test_whatever_is_given_arrives_as_it_was() -> None:
    arrived: list[dict[str, Any]] = []
    async with orders() as shop:
        loop = asyncio.get_running_loop()

        @given(
            TEXT.filter(lambda text: text and "/" not in text and "\\" not in text and text not in (".", "..")),
            st.lists(TEXT, max_size=3),
            st.floats(allow_nan=False, allow_infinity=False) | st.integers(-1000, 1000),
            st.booleans(),
            st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=9),
            TEXT.filter(bool),
        )
        @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
        def one(order_id: str, tags: list[str], ratio: float, urgent: bool, note: str, session: str) -> None:
            given: dict[str, Any] = {
                "order_id": order_id,
                "tags": tags,
                "ratio": ratio,
                "urgent": urgent,
                "x-note": note,
            }
            future = asyncio.run_coroutine_threadsafe(call(shop, "getOrder", **given), loop)
            found = future.result(BOUND_S)["structuredContent"]
            given["note"] = given.pop("x-note")
            assert {key: value for key, value in found.items() if key != "session"} == given
            arrived.append(found)

        await asyncio.to_thread(one)
    assert len(arrived) >= 25


@requirement("UP-22", "OPS-14")
async def test_the_trace_and_the_configured_headers_go_out_and_cannot_be_overridden() -> None:
    parameters = [
        {"name": name, "in": "header"} for name in ("X-Tenant", "X-Correlation-ID", "X-Free", "Authorization")
    ]
    paths = {"/a": {"get": {"operationId": "a", "parameters": parameters}}}
    async with HttpService() as service:
        upstream = make(document(paths=paths), service.url + "/v1/", {"X-Tenant": "ours", "Authorization": "Bearer k"})
        async with supervised(upstream):
            [tool] = await upstream.list_tools()
            assert list(tool["inputSchema"]["properties"]) == ["X-Free"]
            arguments: dict[str, Any] = {"X-Tenant": "theirs", "X-Free": "1", "Authorization": "theirs"}
            await call(upstream, "a", **arguments)
    seen = service.seen[0]
    assert seen.target == "/v1/a"
    sent = {name: seen.headers[name] for name in ("x-tenant", "authorization", "x-correlation-id", "x-free")}
    assert sent == {"x-tenant": "ours", "authorization": "Bearer k", "x-correlation-id": "trace-1", "x-free": "1"}


async def test_a_configured_accept_goes_before_the_documents_but_the_body_keeps_its_type() -> None:
    paths = {"/a": {"post": {"operationId": "a", "requestBody": {"content": {"text/plain": {}}}}}}
    async with HttpService() as service:
        upstream = make(document(paths=paths), service.url, {"Accept": "application/v3+json", "CONTENT-TYPE": "x/y"})
        async with supervised(upstream):
            await call(upstream, "a", body="hello")
    assert service.seen[0].headers["accept"] == "application/v3+json"
    assert service.seen[0].headers["content-type"] == "text/plain"
    assert service.raw_names.count("accept") == service.raw_names.count("content-type") == 1


@requirement("CARD-18", "UP-30")
async def test_a_subscription_is_marked_and_refused_unsent() -> None:
    async with orders() as shop:
        by_name = {tool["name"]: tool for tool in await shop.list_tools()}
        assert by_name["events"]["_meta"] == {"wicketgate/operation": "subscription"}
        assert "_meta" not in by_name["hello"]
        with pytest.raises(UpstreamError, match="stream"):
            await call(shop, "events")


async def test_a_stream_that_was_not_declared_is_refused_unread() -> None:
    headers = {"content-type": "text/event-stream"}
    async with HttpService(lambda seen: Reply(b"data: 1\n\n", headers=headers, cut=True)) as service:
        upstream = make(document("a"), service.url)
        async with supervised(upstream):
            with pytest.raises(UpstreamError, match="stream"):
                await call(upstream, "a")


async def test_arguments_that_cannot_be_sent_are_refused() -> None:
    async with orders() as shop:
        for bad in ("..", "../x", ""):
            with pytest.raises(ArgsInvalid):
                await call(shop, "getOrder", order_id=bad)
        with pytest.raises(UpstreamError, match="no longer"):
            await call(shop, "nothing")


@requirement("UP-23")
async def test_a_refused_credential_is_renewed_once() -> None:
    def answer(seen: Seen) -> Reply:
        return Reply(b"{}") if seen.headers["authorization"] in accepted else Reply(b"who?", 401)

    accepted = ["Bearer t1"]
    credentials = Tokens()
    async with HttpService(answer) as service:
        upstream = make(document("a"), service.url, credentials=credentials)
        async with supervised(upstream):
            assert (await call(upstream, "a"))["structuredContent"] == {}
            accepted.clear()
            assert (await call(upstream, "a"))["isError"] is True
    assert [seen.headers["authorization"] for seen in service.seen] == [
        "Bearer t0",
        "Bearer t1",
        "Bearer t1",
        "Bearer t2",
    ]


async def test_without_a_credential_nothing_is_sent() -> None:
    class NoToken(Tokens):
        async def authorization(self) -> str:
            raise UpstreamUnavailable("shop cannot be called.")

    async with HttpService() as service:
        upstream = make(document("a"), service.url, credentials=NoToken())
        async with supervised(upstream):
            with pytest.raises(UpstreamUnavailable):
                await call(upstream, "a")
    assert service.seen == []


async def test_a_service_that_is_down_is_unavailable_and_a_broken_call_is_lost() -> None:
    async with HttpService(lambda seen: Reply(b"{", cut=True)) as service:
        upstream = make(document("a"), service.url)
        async with supervised(upstream):
            with pytest.raises(UpstreamLost):
                await call(upstream, "a")
    upstream = make(document("a"), "http://127.0.0.1:9")
    async with supervised(upstream):
        with pytest.raises(UpstreamUnavailable) as fault:
            await call(upstream, "a")
        assert fault.value.message == "shop cannot be reached (it refuses connections)."


async def test_a_server_that_does_not_answer_is_given_up_in_time() -> None:
    async def answer(seen: Seen) -> Reply:
        await asyncio.Event().wait()
        return Reply()

    async with HttpService(answer) as service:
        upstream = make(document("a"), service.url)
        async with supervised(upstream):
            with pytest.raises(UpstreamTimeout):
                await Member(upstream).call_tool("a", {}, CONTEXT, 0.05)


async def test_an_answer_that_is_too_large_is_refused() -> None:
    async with HttpService(lambda seen: Reply(b"x" * 5_000, 200 if "ok" in seen.target else 500)) as service:
        upstream = make(document("ok", "bad"), service.url, max_answer_bytes=1_000)
        async with supervised(upstream):
            with pytest.raises(UpstreamError, match="more than"):
                await call(upstream, "ok")
            assert "(cut)" in (await call(upstream, "bad"))["content"][1]["text"]


async def test_a_large_answer_arrives_whole() -> None:
    large = json.dumps({"rows": list(range(200_000))}).encode()
    async with HttpService(lambda seen: Reply(large)) as service:
        upstream = make(document("a"), service.url)
        async with supervised(upstream):
            assert len((await call(upstream, "a"))["structuredContent"]["rows"]) == 200_000


@requirement("UP-33")
async def test_a_file_that_changes_changes_the_tools_and_a_broken_one_keeps_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "shop.json"
    file.write_bytes(document("a"))
    source = Watched(FileSource(file, poll_s=0.01))
    upstream = make(source, "http://127.0.0.1:9")
    async with supervised(upstream) as changes:
        assert await names(upstream) == ["a"]
        file.write_bytes(document("a", "b"))
        await changed(changes)
        assert await names(upstream) == ["a", "b"]
        file.write_bytes(b"{broken")
        await source.seen()
        assert caplog.text.count("the operations of the last one stay") == 1
        assert await names(upstream) == ["a", "b"]
        broken = (
            "the document is neither JSON nor YAML: line 1, column 8: not valid YAML: a comma is missing, or the "
            "bracket of line 1 is not closed"
        )
        assert upstream.status == UpstreamStatus("ready", last_error=broken)
        (tmp_path / "new").write_bytes(document("c"))
        (tmp_path / "new").replace(file)
        await changed(changes)
        assert await names(upstream) == ["c"]
        # The same again is no news.
        os.utime(file)
        await source.seen()
        assert changes.empty()


async def test_a_file_whose_rights_change_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(document("a"))
    source = FileSource(tmp_path / "x.json")
    assert await source.load() is not None
    assert await source.load() is None
    (tmp_path / "x.json").chmod(0o400)
    assert await source.load() is not None


@requirement("UP-94")
@pytest.mark.parametrize(
    ("paths", "mend"),
    [
        ({}, "it describes none, or none that is not marked x-internal"),
        ({"/a": {"get": {"x-internal": True}}}, "it describes none, or none that is not marked x-internal"),
        ({"/a": {"$ref": "#/a"}}, "/a: a reference leads to nothing"),
        ({"/a": {"$ref": "#/a"}, "/b": {"get": 5}}, "/a: a reference leads to nothing; and 1 more"),
    ],
)
async def test_a_document_that_yields_nothing_is_no_success(tmp_path: Path, paths: dict[str, Any], mend: str) -> None:
    file = tmp_path / "shop.json"
    file.write_bytes(document(paths=paths))
    source = Watched(FileSource(file, poll_s=0.01))
    upstream = make(source, "http://127.0.0.1:9")
    async with supervised(upstream, ready=False) as changes:
        await source.seen()
        assert (upstream.status.phase, upstream.status.error) == (
            "down",
            "its document has no usable operation",
        )
        assert upstream.status.report == f"its document has no usable operation: {mend}"
        file.write_bytes(document("a"))
        await changed(changes)
        assert (upstream.status.phase, await names(upstream)) == ("ready", ["a"])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (None, "its document was not found"),
        (b'{"swagger": "2.0"}', "the document is Swagger 2.0; convert it to OpenAPI 3 first"),
        (b"\xff", "the document is not UTF-8 text"),
        (document(), "the document names no http or https server; set base_url"),
    ],
)
async def test_a_document_that_cannot_be_used_is_reported_in_the_status_until_it_can(
    tmp_path: Path, data: bytes | None, reason: str
) -> None:
    file = tmp_path / "shop.json"
    if data is not None:
        file.write_bytes(data)
    source = Watched(FileSource(file, poll_s=0.01))
    upstream = make(source)
    async with supervised(upstream, ready=False) as changes:
        await source.seen()
        assert upstream.status.phase == "down"
        assert upstream.status.error == reason
        if data is None:
            assert upstream.status.report == (
                f"{reason}: correct openapi; a relative path counts from the folder that the gate was started in"
            )
        with pytest.raises(UpstreamUnavailable):
            await upstream.list_tools()
        file.write_bytes(document("a", servers=[{"url": "http://127.0.0.1:9"}]))
        await changed(changes)
        assert await names(upstream) == ["a"]


def by_url(service: HttpService, http: HttpClient, credentials: Credentials | None = None) -> UrlSource:
    return UrlSource(f"{service.url}/docs/openapi.json", http, {"X-Key": "k"}, credentials, poll_s=0.01)


@requirement("UP-33")
async def test_a_document_over_http_is_asked_for_again_with_its_etag() -> None:
    current = [document("a")]

    def answer(seen: Seen) -> Reply:
        if seen.target != "/docs/openapi.json":
            return Reply(json.dumps({"target": seen.target}).encode())
        tag = f'"{hash(current[0])}"'
        if seen.headers.get("if-none-match") == tag:
            return Reply(status=304)
        return Reply(current[0], headers={"etag": tag})

    async with HttpService(answer) as service:
        http = HttpClient(Outgoing())
        source = Watched(by_url(service, http))
        upstream = make(source, http=http)
        async with supervised(upstream) as changes:
            assert (await call(upstream, "a"))["structuredContent"] == {"target": "/a"}
            await source.seen()
            assert changes.empty()
            current[0] = document("b", servers=[{"url": "/v2"}])
            await changed(changes)
            assert (await call(upstream, "b"))["structuredContent"] == {"target": "/v2/b"}
    assert service.seen[0].headers["x-key"] == "k"


@requirement("UP-90")
async def test_nothing_is_read_but_the_document_itself() -> None:
    paths = {"/a": {"get": {"operationId": "a"}}, "/b": {"get": {"$ref": "paths/b.yaml"}}}
    async with HttpService(lambda seen: Reply(document(paths=paths))) as service:
        http = HttpClient(Outgoing())
        upstream = make(by_url(service, http), http=http)
        async with supervised(upstream):
            assert await names(upstream) == ["a"]
            [reason] = upstream.left_out
    assert reason.startswith("GET /b: paths/b.yaml: ")
    assert "bundle it first (redocly bundle)" in reason
    assert {seen.target for seen in service.seen} == {"/docs/openapi.json"}


async def test_a_document_may_need_a_credential_that_is_renewed() -> None:
    def answer(seen: Seen) -> Reply:
        return Reply(document("a")) if seen.headers["authorization"] == "Bearer t1" else Reply(status=401)

    async with HttpService(answer) as service:
        http = HttpClient(Outgoing())
        upstream = make(by_url(service, http, Tokens()), http=http)
        async with supervised(upstream):
            assert await names(upstream) == ["a"]


async def test_a_server_of_documents_that_comes_late_is_found() -> None:
    port = free_port()
    http = HttpClient(Outgoing())
    source = Watched(UrlSource(f"http://127.0.0.1:{port}/x", http, {}, None))
    upstream = make(source, http=http)
    async with supervised(upstream, ready=False) as changes:
        await source.seen()
        assert upstream.status.error == "its document cannot be reached: it refuses connections"
        async with HttpService(lambda seen: Reply(document("a")), port=port):
            await changed(changes)
            assert upstream.status.phase == "ready"


async def test_one_bad_operation_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    paths = {"/a": {"get": {"operationId": "a"}}, "/b": {"get": {"parameters": [{"$ref": "http://evil.example/"}]}}}
    upstream = make(document(paths=paths), "http://127.0.0.1:9")
    async with supervised(upstream):
        assert await names(upstream) == ["a"]
    assert "GET /b" in caplog.text and "evil" not in caplog.text


@requirement("UP-41")
@pytest.mark.parametrize("status", [301, 302, 307])
async def test_a_call_that_is_redirected_is_answered_so_and_not_repeated_elsewhere(status: int) -> None:
    async with HttpService(lambda seen: Reply(status=status, headers={"location": "/other"})) as service:
        upstream = make(document("a"), service.url)
        async with supervised(upstream):
            result = await call(upstream, "a")
    assert result["isError"] is True
    assert [seen.target for seen in service.seen] == ["/a"]


@requirement("UP-41")
@pytest.mark.parametrize(("method", "followed"), [("get", True), ("head", True), ("post", False), ("put", False)])
async def test_redirects_of_calls_that_read_are_followed_within_the_origin_if_configured(
    method: str, followed: bool
) -> None:
    def answer(seen: Seen) -> Reply:
        return Reply(status=307, headers={"location": "/other"}) if seen.target == "/a" else Reply(b"{}")

    async with HttpService(answer) as service:
        raw = document(paths={"/a": {method: {"operationId": "a"}}})
        upstream = make(raw, service.url, follow_redirects=True)
        async with supervised(upstream):
            await call(upstream, "a")
    assert [seen.target for seen in service.seen] == (["/a", "/other"] if followed else ["/a"])


@requirement("UP-67", "UP-68")
@pytest.mark.parametrize(
    ("reply", "why", "mend"),
    [
        (
            None,
            "its document cannot be reached: it refuses connections",
            "start it, or correct the port in openapi",
        ),
        (
            Reply(b"<!doctype html>", 200, {"content-type": "text/html"}),
            "its document is a web page",
            "openapi must name the JSON or YAML itself, often /openapi.json",
        ),
        (
            Reply(b"[]", 200, {"content-type": "application/json"}),
            "this is no OpenAPI document (no paths)",
            "openapi must name the JSON or YAML itself, often /openapi.json",
        ),
        (
            Reply(status=401),
            "the server of its document answered 401",
            "it wants a credential, or another one: headers (Authorization) or oauth",
        ),
        (
            Reply(status=404),
            "the server of its document answered 404",
            "correct the path; openapi must name the JSON or YAML itself, often /openapi.json",
        ),
        (
            Reply(b"The plain HTTP request was sent to HTTPS port", 400),
            "the server of its document answered 400",
            "it speaks https, not http: write https:// in openapi",
        ),
        (
            Reply(status=302, headers={"location": "http://elsewhere.invalid/"}),
            "the server of its document answered 302",
            "it redirects to another server; write the address that it redirects to",
        ),
        (Reply(status=502), "the server of its document answered 502", "look at the log of that server"),
    ],
)
async def test_a_document_that_does_not_come_is_told_with_its_mend(
    reply: Reply | None, why: str, mend: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with HttpService(lambda _: reply or Reply()) as service, AsyncExitStack() as stack:
        if reply is None:
            await service.__aexit__(None, None, None)
        http = HttpClient(Outgoing())
        source = Watched(UrlSource(f"{service.url}/private?key=hidden", http, {}, None))
        upstream = OpenApiUpstream(
            "shop",
            source,
            http,
            ServiceAccess("", {}, None, 1_000),
            connect_timeout_s=5,
            jitter=random.random,
            tried=service.url,
        )
        await stack.enter_async_context(supervised(upstream, ready=False))
        await source.seen()
        assert upstream.status.error == why
        assert upstream.status.report == f"{why} ({service.url}): {mend}"
        with pytest.raises(UpstreamUnavailable) as refused:
            await upstream.list_tools()
        assert refused.value.message == f"shop is not connected ({why})."
    assert "private" not in caplog.text
    assert "hidden" not in caplog.text
