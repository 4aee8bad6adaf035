"""The streams on which clients of the handshake era listen for notifications."""

from collections.abc import Awaitable, Callable
from functools import partial

import anyio

from app.mcp_calls import App, AsgiMessage, AsgiScope, Receive, Send
from app.mcp_refusals import unavailable
from wicketgate.access.authenticator import KeyUse


class Listening:
    """ASGI: the answer of *app* to GET is a stream without end, on which a client of the handshake era listens.

    It ends when the client leaves, or with ``end``. No call runs on it, so a stop need not wait for it.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._open: set[anyio.CancelScope] = set()
        self._ended = False

    def end(self) -> None:
        self._ended = True
        for stream in self._open:
            stream.cancel()

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["method"] != "GET":
            return await self._app(scope, receive, send)
        # The last message sent, so that an end may complete the answer.
        sent: AsgiMessage = {}

        def watched(message: AsgiMessage) -> Awaitable[None]:
            nonlocal sent
            sent = message
            return send(message)

        with anyio.CancelScope() as stream:
            if self._ended:
                stream.cancel()
            self._open.add(stream)
            use: KeyUse = scope["state"]["key_use"]
            use.kind, use.end = "streams", partial(_end_listening, stream, use, use.end)
            try:
                await self._app(scope, receive, watched)
            finally:
                self._open.discard(stream)
        if stream.cancelled_caught and not sent:
            await unavailable("The service is stopping")(scope, receive, send)
        elif stream.cancelled_caught and (sent["type"] == "http.response.start" or sent.get("more_body")):
            await send({"type": "http.response.body", "body": b"", "more_body": False})


def _end_listening(stream: anyio.CancelScope, use: KeyUse, refuse: Callable[[], None]) -> None:
    if use.answering:
        stream.cancel()
    else:
        refuse()
