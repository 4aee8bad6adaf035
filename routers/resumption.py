"""The headers by which a client may come back to a run (DESIGN §3 "The engine").

- ``Idempotency-Key``: one run for one key; spelled like a correlation id.
- ``Last-Event-ID``: the last event that the client has seen of it.
- ``X-On-Disconnect``: ``cancel`` or ``continue``, what becomes of the run when nobody reads it.
"""

from typing import cast

from starlette.datastructures import Headers

from wicketgate.engine.contract import InvalidRequest
from wicketgate.engine.keyed_runs import OnDisconnect, Resumption
from wicketgate.log_text import CORRELATION_ID, is_correlation_id

KEY = "Idempotency-Key"
LAST_EVENT_ID = "Last-Event-ID"
ON_DISCONNECT = "X-On-Disconnect"

CHOICES = ("cancel", "continue")


def resumption(headers: Headers) -> Resumption | None:
    """None without a key. Raises InvalidRequest."""
    key = _only(headers, KEY)
    # An empty one is what an event source sends that has seen no event yet.
    last_event_id = _only(headers, LAST_EVENT_ID) or None
    on_disconnect = _only(headers, ON_DISCONNECT)
    if key is None:
        if last_event_id is not None or on_disconnect is not None:
            # Running it anew might do once more what was done already.
            raise InvalidRequest(f"{LAST_EVENT_ID} and {ON_DISCONNECT} need the {KEY} of the run")
        return None
    if not is_correlation_id(key):
        raise InvalidRequest(f"{KEY} must match {CORRELATION_ID.pattern}")
    if on_disconnect not in (None, *CHOICES):
        raise InvalidRequest(f"{ON_DISCONNECT} must be cancel or continue")
    return Resumption(key, last_event_id, cast(OnDisconnect | None, on_disconnect))


def _only(headers: Headers, name: str) -> str | None:
    values = headers.getlist(name)
    if len(values) > 1:
        raise InvalidRequest(f"{name} was sent more than once")
    return values[0].strip() if values else None
