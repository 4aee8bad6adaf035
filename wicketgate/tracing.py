"""Spans of OpenTelemetry: HTTP request, chat, model call, tool call, request to a tool server (OPS-540).

The parent of a span is the ``traceparent`` of W3C Trace Context that came with the request or call, and the span puts
its own in the same place. A trace therefore follows everything that carries ``CallContext.meta``: kept runs, other
processes, tool servers. Names and attributes are those of the semantic conventions for HTTP, generative AI and MCP.
Spans contain arguments, results and messages only if the operator asks for content, masked and cut (OPS-544).
"""

import json
import re
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from wicketgate.errors import InputRequired, WicketgateError
from wicketgate.ports import CallContext

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

T = TypeVar("T")

TRACEPARENT = "traceparent"
_TRACESTATE = "tracestate"
# Version ff and ids of zeros alone are invalid (W3C Trace Context §3.2.2).
_WELL_FORMED = re.compile("(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII)
_MOST_STATE_CHARS = 512
MOST_CONTENT_CHARS = 16_384

TOOL_ERROR = "tool_error"
"""The ``error.type`` if a tool reports an error in its result (conventions for MCP)."""

Kind = Literal["SERVER", "CLIENT", "INTERNAL"]
Attributes = Mapping[str, str | int | list[str]]

# One per process, as OpenTelemetry has it. The package is imported only if there is a tracer.
_tracer: "Tracer | None" = None
_mask: Callable[[str], str] | None = None


def use_tracer(tracer: "Tracer | None", mask: Callable[[str], str] | None = None) -> None:
    """Starts all spans of this process with *tracer*; None turns traces off. With *mask*, which masks secrets, spans
    have content."""
    global _tracer, _mask
    _tracer, _mask = tracer, mask


def content_is_on() -> bool:
    return _mask is not None


def traces_are_on() -> bool:
    return _tracer is not None


def parent_of(carrier: Mapping[str, Any]) -> str:
    """Returns the ``traceparent`` of *carrier*; empty if it is missing or malformed, because the caller wrote it."""
    value = carrier.get(TRACEPARENT)
    return value if isinstance(value, str) and _WELL_FORMED.fullmatch(value) else ""


class OpenSpan:
    """A started span. *traceparent* identifies it as the parent of other spans."""

    __slots__ = ("_span", "traceparent")

    def __init__(self, span: "Span") -> None:
        own = span.get_span_context()
        self._span = span
        self.traceparent = f"00-{own.trace_id:032x}-{own.span_id:016x}-{own.trace_flags:02x}"

    def under(self, context: CallContext) -> CallContext:
        """Returns *context* with this span as the parent of what follows."""
        return context.having(meta={**context.meta, TRACEPARENT: self.traceparent})

    def rename(self, name: str) -> None:
        self._span.update_name(name)

    def note(self, attributes: Attributes) -> None:
        self._span.set_attributes(attributes)

    def note_content(self, name: str, value: object) -> None:
        """Notes *value*, which is not large, as JSON if the operator asks for content."""
        if _mask is not None:
            self._span.set_attribute(name, _mask(json.dumps(value, default=str))[:MOST_CONTENT_CHARS])

    def end(self, error: str = "") -> None:
        """Ends the span. *error* is a code or an exception class, never a message; empty if nothing failed."""
        if error:
            from opentelemetry.trace import StatusCode

            self._span.set_attribute("error.type", error)
            self._span.set_status(StatusCode.ERROR)
        self._span.end()


def begin(name: str, kind: Kind, attributes: Attributes, carrier: Mapping[str, Any]) -> OpenSpan | None:
    """Starts a span below the ``traceparent`` of *carrier*, or a new trace. Returns None if traces are off."""
    if _tracer is None:
        return None
    from opentelemetry.context import Context
    from opentelemetry.trace import SpanKind
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    state = str(carrier.get(_TRACESTATE, ""))
    known = {TRACEPARENT: parent_of(carrier), _TRACESTATE: state if len(state) <= _MOST_STATE_CHARS else ""}
    parent = TraceContextTextMapPropagator().extract(known, Context())
    return OpenSpan(_tracer.start_span(name, parent, SpanKind[kind], attributes))


def error_of(failure: BaseException) -> str:
    """Returns the ``error.type`` of *failure*; empty if a server asks a question or the caller has left."""
    if isinstance(failure, InputRequired | CancelledError | GeneratorExit):
        return ""
    code = getattr(failure, "code", None) if isinstance(failure, WicketgateError) else None
    return code or type(failure).__name__


def traced(
    name: str,
    kind: Kind,
    attributes: Attributes,
    context: CallContext,
    run: Callable[[CallContext], Awaitable[T]],
    conclude: Callable[[OpenSpan, T | None], str] | None = None,
) -> Awaitable[T]:
    """Runs *run* in a span, which is the parent of all spans in the context that *run* gets.

    *conclude* gets the span and the result (None after a failure) and returns the ``error.type`` of the result.
    """
    return run(context) if _tracer is None else _traced(name, kind, attributes, context, run, conclude)


async def _traced(
    name: str,
    kind: Kind,
    attributes: Attributes,
    context: CallContext,
    run: Callable[[CallContext], Awaitable[T]],
    conclude: Callable[[OpenSpan, T | None], str] | None,
) -> T:
    span = begin(name, kind, attributes, context.meta)
    if span is None:
        return await run(context)
    error, result = "", None
    try:
        result = await run(span.under(context))
    except BaseException as failure:
        error = error_of(failure)
        raise
    finally:
        found = "" if conclude is None else conclude(span, result)
        span.end(error or found)
    return result


def tool_error(span: OpenSpan, result: Mapping[str, Any] | None) -> str:
    """Returns the ``error.type`` of a tool's result."""
    return TOOL_ERROR if result is not None and result.get("isError") else ""
