"""Answers ``GET /healthz`` in the port, before everything else (OPS-35).

The application answers it the same for other servers, some turns of the loop later. Under load a turn may be long.
"""

from collections.abc import Coroutine, Sequence
from typing import Any

from starlette.types import Receive, Scope, Send

PATH = b"/healthz"

_BODY = b'{"status":"ok"}'
_HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(_BODY))]
_BODY_HEADERS = frozenset({b"content-length", b"transfer-encoding"})


async def alive(scope: Scope, receive: Receive, send: Send) -> None:
    """ASGI. It waits for nothing."""
    await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
    await send({"type": "http.response.body", "body": _BODY})


def asks_for_health(method: bytes, url: bytes, headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Returns True for a request without a body that ``alive`` may answer."""
    return url == PATH and method == b"GET" and not any(name in _BODY_HEADERS for name, _ in headers)


def run_at_once(answering: Coroutine[Any, Any, None]) -> None:
    """Runs a coroutine that waits for nothing."""
    try:
        answering.send(None)
    except StopIteration:
        return
    answering.close()
    raise AssertionError("the answer to /healthz waited")
