"""Traces for a collector (OPS-540), configured by the ``OTEL_*`` variables of OpenTelemetry and by nothing else."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wicketgate.daemon_threads import DaemonThreads
from wicketgate.errors import ConfigError
from wicketgate.gate import VERSION
from wicketgate.tracing import use_tracer

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

log = logging.getLogger("wicketgate.traces")

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_SENDS = "http/protobuf"
_CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_SAMPLERS = (
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
    "always_on",
    "always_off",
    "traceidratio",
)

_STOP_S = 3.0
"""Time for the last spans when the service stops."""


@dataclass(slots=True)
class SpanCounts:
    """Counts spans that ended, and spans that the collector accepted or did not. All others are queued, or were dropped
    because the queue was full."""

    ended: int = 0
    sent: int = 0
    failed: int = 0


def traces_wanted(environ: Mapping[str, str]) -> bool:
    """Returns whether the variables name a collector. Raises ConfigError for values that this service does not
    support."""
    exporter = environ.get("OTEL_TRACES_EXPORTER", "").strip()
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true" or exporter == "none":
        return False
    if exporter not in ("", "otlp"):
        raise ConfigError("OTEL_TRACES_EXPORTER must be otlp or none")
    if not exporter and not any(environ.get(name) for name in _ENDPOINTS):
        return False
    for name in _PROTOCOLS:
        if environ.get(name, _SENDS) not in ("", _SENDS):
            raise ConfigError(f"{name} must be {_SENDS}, which collectors take at port 4318")
    if environ.get("OTEL_TRACES_SAMPLER", _SAMPLERS[0]).strip().lower() not in _SAMPLERS:
        raise ConfigError(f"OTEL_TRACES_SAMPLER must be one of {', '.join(_SAMPLERS)}")
    return True


@asynccontextmanager
async def telemetry(counts: SpanCounts, mask: Callable[[str], str]) -> AsyncIterator[None]:
    """Sends spans until it is left, if the variables name a collector; with content, under *mask*, if they ask for it.
    Raises ConfigError."""
    if not traces_wanted(os.environ):
        yield
        return
    try:
        provider = _provider(counts)
    except ImportError:
        raise ConfigError(
            "The OTEL_* variables ask for traces, which need: pip install 'wicketgate[otel]'. "
            "OTEL_SDK_DISABLED=true turns them off"
        ) from None
    except ValueError as error:
        # The SDK names the variable in most of its errors; their texts go to the operator alone.
        raise ConfigError(f"A value of the OTEL_* variables cannot be used: {error}") from None
    with_content = os.environ.get(_CONTENT, "").strip().lower() == "true"
    use_tracer(provider.get_tracer("wicketgate", VERSION), mask if with_content else None)
    try:
        yield
    finally:
        use_tracer(None)
        # The exporter may try for longer; a daemon thread does not hold the process.
        with suppress(TimeoutError):
            await asyncio.wait_for(DaemonThreads(1, "traces").run(provider.shutdown), _STOP_S)


def _provider(counts: SpanCounts) -> "TracerProvider":
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult

    class Exporter(OTLPSpanExporter):
        """Counts spans. Logs the first failure of a series instead of each."""

        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            result = super().export(spans)
            if result is SpanExportResult.SUCCESS:
                counts.sent += len(spans)
                if self.failing:
                    log.info("the collector takes spans again")
            else:
                counts.failed += len(spans)
                if not self.failing:
                    log.warning("the collector does not take spans; they are dropped and counted")
            self.failing = result is not SpanExportResult.SUCCESS
            return result

        failing = False

    class Processor(BatchSpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            counts.ended += 1
            super().on_end(span)

    own = Resource.create({"service.name": "wicketgate", "service.version": VERSION})
    provider = TracerProvider(resource=own.merge(OTELResourceDetector().detect()), shutdown_on_exit=False)
    provider.add_span_processor(Processor(Exporter()))
    # Its warnings about variables are logged by now; failed batches are counted instead.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    return provider
