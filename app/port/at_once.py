"""Writes pieces of a streamed answer past the application's ``send``.

``send`` is a coroutine behind one wrapper of each middleware, which all look at the head alone. A model's stream has a
piece for each token, and comes from a callback that cannot wait.
"""

from collections.abc import Callable
from typing import Any
from weakref import ref

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

WRITE_AT_ONCE = "wicketgate.write_at_once"
"""The name of the ASGI extension: see ``routers/event_stream.py``, which uses it."""


def offer(cycle: RequestResponseCycle) -> None:
    """Puts the extension into the scope of *cycle*."""
    extensions: Any = cycle.scope.setdefault("extensions", {})
    extensions[WRITE_AT_ONCE] = _writing(cycle)


def _writing(cycle: RequestResponseCycle) -> Callable[[bytes], bool]:
    weak = ref(cycle)  # the scope is the cycle's own: the two would hold each other

    def write(piece: bytes) -> bool:
        cycle = weak()
        if (
            cycle is None
            or not cycle.response_started
            or cycle.response_complete
            or cycle.disconnected
            or cycle.flow.write_paused
            or not cycle.chunked_encoding
            or not piece
        ):
            return False
        cycle.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        return True

    return write
