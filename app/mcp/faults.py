"""Messages at the MCP doors that are malformed or too large, refused in place of the SDK (FACE-4, FACE-5, ROUTE-2)."""

from functools import partial
from typing import Any

from starlette.requests import ClientDisconnect

from app.json_body import TooManyValues, declared_bytes, read_counted, read_short
from app.mcp.requests import AsgiScope, Receive, Send, refused
from wicketgate.faces.mcp.message import Fault, read_message
from wicketgate.heavy_work import run_queued
from wicketgate.mcp_names import INVALID_REQUEST

# A shorter body is judged when it has been read.
_LARGE_BYTES = 65_536


async def read_body(scope: AsgiScope, receive: Receive, send: Send) -> bytes | None:
    """Returns the whole body of a POST; None if it was refused, or if its client has left. A large body is judged
    while it arrives (FACE-44)."""
    try:
        declared = declared_bytes(scope)
        short = declared is not None and declared <= _LARGE_BYTES
        return await (read_short(receive, _LARGE_BYTES) if short else read_counted(receive))
    except TooManyValues as error:
        await refused(Fault(INVALID_REQUEST, str(error)), 413)(scope, receive, send)
    except ClientDisconnect:
        pass
    return None


async def message_of(body: bytes, scope: AsgiScope, receive: Receive, send: Send) -> dict[str, Any] | None:
    """Returns the message in *body*; None if it was refused."""
    read = partial(read_message, body)
    message = read() if len(body) < _LARGE_BYTES else await run_queued(read, scope["state"]["identity"].actor)
    if isinstance(message, Fault):
        await refused(message)(scope, receive, send)
        return None
    return message
