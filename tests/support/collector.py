"""A collector of OpenTelemetry: takes spans over OTLP as protobuf, on a free loopback port."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.support.http_service import HttpService, Reply, Seen


@dataclass(frozen=True, slots=True)
class SentSpan:
    """*trace*, *id* and *parent* in hexadecimal digits; *parent* is empty for a root. *process* is the
    ``service.instance.id`` of its resource."""

    name: str
    kind: str
    trace: str
    id: str
    parent: str
    attributes: Mapping[str, Any]
    failed: bool
    process: str


class Collector(HttpService):
    """*variables* send the spans of a process here; *raw* holds every body that came."""

    def __init__(self) -> None:
        super().__init__(self._take)
        self.spans: list[SentSpan] = []
        self.raw: list[bytes] = []

    def variables(self, process: str = "one") -> dict[str, str]:
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.url,
            "OTEL_RESOURCE_ATTRIBUTES": f"service.instance.id={process}",
            "OTEL_BSP_SCHEDULE_DELAY": "50",
        }

    def of(self, trace: str) -> Sequence[SentSpan]:
        return [span for span in self.spans if span.trace == trace]

    def _take(self, seen: Seen) -> Reply:
        assert seen.target == "/v1/traces"
        self.raw.append(seen.body)
        request = ExportTraceServiceRequest.FromString(seen.body)
        for each in request.resource_spans:
            of_process = _plain(each.resource.attributes)
            assert of_process["service.name"] == "wicketgate"
            for scope in each.scope_spans:
                self.spans += [_read(span, str(of_process.get("service.instance.id", ""))) for span in scope.spans]
        return Reply(b"", headers={"content-type": "application/x-protobuf"})


def _read(span: Span, process: str) -> SentSpan:
    return SentSpan(
        span.name,
        Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        _plain(span.attributes),
        span.status.code == Status.STATUS_CODE_ERROR,
        process,
    )


def _plain(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
