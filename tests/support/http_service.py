"""An HTTP service on a free loopback port that records what reached it, byte for byte.

async with HttpService(lambda seen: Reply(b"{}")) as service:
    ... service.url ... service.seen[0].target
"""

import asyncio
import inspect
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState


@dataclass(frozen=True, slots=True)
class Seen:
    """One request. *target* is path and query as they came; header names are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """With *cut* the connection ends after *body*, before the length that was promised."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "application/json"})
    cut: bool = False


Answer = Callable[[Seen], Reply | Awaitable[Reply]]


class HttpService:
    """*app*, an ASGI application, may answer instead of *answer*."""

    def __init__(
        self, answer: Answer | None = None, *, app: Any = None, port: int = 0, tls: ssl.SSLContext | None = None
    ) -> None:
        self.seen: list[Seen] = []
        self.answer = answer or (lambda seen: Reply())
        self._inner = app
        self._port = port
        self._tls = tls
        self.arrived = asyncio.Event()
        self.url = ""
        self.raw_names: list[str] = []
        """Of the headers of the last request, repeated ones too."""

    async def __aenter__(self) -> Self:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", self._port))
        self.url = f"{'https' if self._tls else 'http'}://127.0.0.1:{self._socket.getsockname()[1]}"
        # uvicorn's protocol without its server, which takes 0.2 s to stop: there is one of these in very many tests.
        config = uvicorn.Config(
            self._app, interface="asgi3", lifespan="off", ws="none", log_config=None, access_log=False
        )
        config.load()
        self._state = ServerState()
        self._server = await asyncio.get_running_loop().create_server(
            lambda: HttpToolsProtocol(config, self._state, {}), sock=self._socket, ssl=self._tls
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for connection in list(self._state.connections):
            connection.transport.abort()
        tasks = list(self._state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
        target = scope["raw_path"].decode() + ("?" + scope["query_string"].decode() if scope["query_string"] else "")
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        seen = Seen(scope["method"], target, headers, body)
        self.seen.append(seen)
        self.raw_names = [name.decode("latin-1") for name, _ in scope["headers"]]
        self.arrived.set()
        if self._inner is not None:
            await self._inner(scope, _again(body), send)
            return
        reply = self.answer(seen)
        if inspect.isawaitable(reply):
            reply = await reply
        sent = [(name.encode(), value.encode()) for name, value in reply.headers.items()]
        if reply.cut:
            sent.append((b"content-length", str(len(reply.body) + 10).encode()))
        elif reply.status not in (204, 304):
            sent.append((b"content-length", str(len(reply.body)).encode()))
        await send({"type": "http.response.start", "status": reply.status, "headers": sent})
        await send({"type": "http.response.body", "body": reply.body, "more_body": reply.cut})


def _again(body: bytes) -> Callable[[], Awaitable[dict[str, Any]]]:
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        await asyncio.Event().wait()
        raise AssertionError

    return receive
