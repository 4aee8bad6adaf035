"""Spans of calls at the doors, in one process with OpenTelemetry's own tracer (OPS-540, OPS-541, OPS-543)."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.support.http_service import HttpService, Reply, Seen
from tests.support.requirement import requirement
from tests.support.scripted_server import HANDSHAKE, MODERN, scripted_server
from tests.support.service import running_service
from tests.support.wire_client import WireClient
from wicketgate.config.settings import UpstreamSettings
from wicketgate.config.upstreams import UpstreamMaker
from wicketgate.net import Outgoing
from wicketgate.tracing import parent_of, use_tracer

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{CALLER}-01"
DONE = {"tools/call": lambda params: {"result": {"content": [], "resultType": "complete"}}}
FAILED = {"tools/call": lambda params: {"result": {"content": [], "isError": True, "resultType": "complete"}}}


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    use_tracer(provider.get_tracer("test"))
    yield exporter
    use_tracer(None)


def of_calls(exporter: InMemorySpanExporter) -> list[ReadableSpan]:
    """The spans of calls, in the order in which they ended."""
    names = ("execute_tool", "tools/call", "GET")
    return [span for span in exporter.get_finished_spans() if span.name.startswith(names)]


def own(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.span_id:016x}"


def parent(span: ReadableSpan) -> str:
    return "" if span.parent is None else f"{span.parent.span_id:016x}"


@requirement("OPS-540", "UP-82")
@pytest.mark.parametrize("era", [MODERN, HANDSHAKE])
async def test_a_call_over_mcp_stays_in_its_clients_trace(era: str, spans: InMemorySpanExporter) -> None:
    async with scripted_server(DONE) as server, running_service(upstreams=[server.upstream]) as service:
        client = WireClient(service, era)
        await client.call("raw__job", meta={"traceparent": TRACEPARENT, "tracestate": "a=b"})
    request, call = of_calls(spans)
    assert (parent(call), parent(request)) == (CALLER, own(call))
    (seen,) = server.seen("tools/call")
    meta = seen["params"]["_meta"]
    assert (meta["traceparent"], meta["tracestate"]) == (f"00-{TRACE}-{own(request)}-01", "a=b")


@requirement("OPS-540")
async def test_without_a_parent_of_its_own_a_call_is_below_its_http_request(spans: InMemorySpanExporter) -> None:
    async with scripted_server(DONE) as server, running_service(upstreams=[server.upstream]) as service:
        await WireClient(service, MODERN).call("raw__job")
    call = of_calls(spans)[-1]
    http = [span for span in spans.get_finished_spans() if span.name == "POST /mcp/namespaced"]
    assert parent(call) in {own(span) for span in http}


@requirement("OPS-541")
async def test_a_failed_tool_fails_its_spans_with_a_code_alone(spans: InMemorySpanExporter) -> None:
    async with scripted_server(FAILED) as server, running_service(upstreams=[server.upstream]) as service:
        await WireClient(service, MODERN).call("raw__job")
    for span in of_calls(spans):
        assert span.attributes is not None and span.attributes["error.type"] == "tool_error"
        assert not span.events and span.status.description is None


@requirement("OPS-541")
async def test_an_id_that_the_catalog_does_not_know_names_no_span(spans: InMemorySpanExporter) -> None:
    async with scripted_server(DONE) as server, running_service(upstreams=[server.upstream]) as service:
        client = WireClient(service, MODERN, "/mcp/gateway")
        await client.call("tool_execute", {"tool_id": "raw:the-private-words", "args": {}})
    (span,) = of_calls(spans)
    assert span.name == "execute_tool"
    assert span.attributes is not None and span.attributes["error.type"] == "HYDRATE_FAILED"
    assert "the-private-words" not in str(dict(span.attributes))


async def look_at(folder: Path, given: str, status: int = 200) -> Seen:
    """Calls an OpenAPI service that answers with *status*. Returns the request that the service received."""
    document = {
        "openapi": "3.1.0",
        "info": {"title": "t", "version": "1"},
        "paths": {"/x": {"get": {"operationId": "look", "responses": {"200": {"description": "ok"}}}}},
    }
    (folder / "raw.json").write_text(json.dumps(document))
    async with HttpService(lambda seen: Reply(b"{}", status)) as web:
        section = {"name": "raw", "openapi": str(folder / "raw.json"), "base_url": web.url}
        upstream = UpstreamMaker(Outgoing()).upstream(UpstreamSettings.model_validate(section))
        async with running_service(upstreams=[upstream]) as service:
            await WireClient(service, MODERN).call("raw__look", meta={"traceparent": given})
        return web.seen[0]


@requirement("OPS-540", "OPS-543")
@pytest.mark.parametrize(
    ("given", "reaches"), [(TRACEPARENT, True), (f"{TRACEPARENT}\r\nX-Injected: 1", False), ("x" * 8_000, False)]
)
async def test_an_openapi_service_gets_only_a_well_formed_traceparent(
    given: str, reaches: bool, tmp_path: Path
) -> None:
    seen = await look_at(tmp_path, given)
    assert seen.headers.get("traceparent") == (given if reaches else None)
    assert "x-injected" not in seen.headers


@requirement("OPS-541")
async def test_a_failed_answer_of_an_openapi_service_fails_its_span(
    tmp_path: Path, spans: InMemorySpanExporter
) -> None:
    seen = await look_at(tmp_path, TRACEPARENT, 404)
    request = next(span for span in of_calls(spans) if span.name == "GET")
    assert seen.headers["traceparent"] == f"00-{TRACE}-{own(request)}-01"
    assert request.attributes is not None
    assert (request.attributes["http.response.status_code"], request.attributes["error.type"]) == (404, "404")


@requirement("OPS-541")
async def test_a_method_that_no_standard_knows_names_no_span(spans: InMemorySpanExporter) -> None:
    async with running_service() as service:
        await service.http.request("PROPFIND", "/private")
    (span,) = spans.get_finished_spans()
    assert span.name == "HTTP"
    assert span.attributes is not None and span.attributes["http.request.method"] == "_OTHER"


@requirement("OPS-543")
@pytest.mark.parametrize(
    "value",
    [
        5,
        None,
        "",
        f" {TRACEPARENT}",
        f"{TRACEPARENT}\n",
        TRACEPARENT.upper(),
        f"ff{TRACEPARENT[2:]}",
        f"00-{TRACE}-{'0' * 16}-01",
        "00-1-01",
    ],
)
def test_a_malformed_traceparent_is_no_parent(value: object) -> None:
    assert parent_of({"traceparent": value}) == ""
    assert parent_of({"traceparent": TRACEPARENT}) == TRACEPARENT
