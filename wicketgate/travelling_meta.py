"""The part of a caller's ``_meta`` that travels with its calls to a tool server (UP-81, UP-82)."""

from collections.abc import Mapping
from typing import Any

from wicketgate.results.bulk import outweighs

TRACE_CONTEXT = ("traceparent", "tracestate", "baggage")
"""Keys of ``_meta`` and names of headers alike."""

# Of the gate, and of one connection: the caller's and the server's are two.
_OURS = ("wicketgate/", "io.modelcontextprotocol/")
_OF_THE_REQUEST = "progressToken"
_MAX_UNITS = 512
"""Sixteen characters each, so some 8 KiB of text."""
_MAX_TRACE_CHARS = 8_192


def travelling(meta: object, headers: Mapping[str, str]) -> dict[str, Any]:
    """The caller's own keys of *meta*, none if they are too much, with the trace context of *meta*, otherwise of
    *headers*."""
    given = meta if type(meta) is dict or isinstance(meta, Mapping) else {}
    own = {
        key: value
        for key, value in given.items()
        if key not in TRACE_CONTEXT and key != _OF_THE_REQUEST and not key.startswith(_OURS)
    }
    if own and outweighs(own, _MAX_UNITS):
        own = {}
    for key in TRACE_CONTEXT:
        value = given[key] if key in given else headers.get(key)
        if isinstance(value, str) and 0 < len(value) <= _MAX_TRACE_CHARS:
            own[key] = value
    return own
