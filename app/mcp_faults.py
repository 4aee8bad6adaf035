"""Messages at the MCP doors that are malformed or too large, refused in place of the SDK (FACE-4, FACE-5, ROUTE-2)."""

import logging

from starlette.requests import ClientDisconnect

from app.json_body import NotAnObject, TooManyValues, declared_bytes, given_again, read_object
from app.mcp_calls import App, AsgiMessage, AsgiScope, Receive, Send
from app.mcp_refusals import refused
from app.mcp_sessions import opens_session
from wicketgate.faces.mcp.message import Fault, fault_of
from wicketgate.faces.mcp.opening import BODY_BYTES, SMALL_BYTES
from wicketgate.mcp_names import INVALID_REQUEST

log = logging.getLogger("wicketgate.mcp")

# A shorter body is judged when it has been read.
_LARGE_BYTES = 65_536
_TOO_LARGE_TO_KEEP = f"A request that opens a session has {SMALL_BYTES} bytes at most."

# The answers that the SDK gives to a message that it does not understand.
_SUSPECT = (202, 400)


async def read_message(scope: AsgiScope, receive: Receive, send: Send, max_values: int) -> bytes | None:
    """Returns the whole body of a POST; None if it was refused, while it arrived if it is large (FACE-43, FACE-44), or
    if its client has left."""
    try:
        declared = declared_bytes(scope)
        if declared is None or declared > _LARGE_BYTES:
            body = await read_object(receive, max_values)
        else:
            body = await _read(receive)
    except NotAnObject as error:
        fault = fault_of(error.likeness) or Fault(INVALID_REQUEST, str(error))
        await refused(fault)(scope, receive, send)
        return None
    except TooManyValues as error:
        await refused(Fault(INVALID_REQUEST, str(error)), 413)(scope, receive, send)
        return None
    except ClientDisconnect:
        return None
    # What is kept as long as a session or a listening stream must be small.
    if len(body) > SMALL_BYTES and opens_session(scope, body):
        await refused(Fault(INVALID_REQUEST, _TOO_LARGE_TO_KEEP), 413)(scope, receive, send)
        return None
    return body


async def _read(receive: Receive) -> bytes:
    """The whole of a short body. Raises ClientDisconnect."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        if not message.get("more_body"):
            return bytes(body)


def with_own_faults(app: App) -> App:
    """ASGI: refuses malformed messages in place of the SDK (FACE-4, FACE-5, ROUTE-2).

    The body of a POST comes in one piece. An answer of *app* that may be to a malformed message is held back until the
    message has been checked.
    """

    async def checked(scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            await app(scope, receive, send)
            return
        body = (await receive())["body"]
        scope[BODY_BYTES] = len(body)
        again = given_again(body, receive)
        held: list[AsgiMessage] = []
        passing = left = False

        async def given() -> AsgiMessage:
            nonlocal left
            message = await again()
            left = left or message["type"] == "http.disconnect"
            return message

        async def holding(message: AsgiMessage) -> None:
            nonlocal passing, body
            # Most answers pass at once.
            if not passing and message["type"] == "http.response.start" and message["status"] not in _SUSPECT:
                passing = True
                body = b""
            if passing:
                await send(message)
                return
            # A suspect answer is complete: send it, or the fault of the message in its place.
            held.append(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                passing = True
                fault = fault_of(body) if body else None
                if fault is not None:
                    await refused(fault)(scope, receive, send)
                    return
                for each in held:
                    await send(each)

        try:
            await app(scope, given, holding)
        except Exception:
            # The SDK may fail on an answer that nobody waits for.
            if not left:
                raise
            log.debug("a request failed after its client had left", exc_info=True)

    return checked
