"""The production application on a real socket, with fake edges: a stub upstream and a scripted model."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from time import time
from typing import Any

import httpx
from fastapi import FastAPI

from app.main import create_app
from app.port.protocol import GuardedHttpProtocol
from tests.support.prompt_server import serving_app
from tests.support.script import ScriptModel
from tests.support.ways import on_the_way
from wicketgate.access.identity import HashedKey, Identity, hash_key
from wicketgate.config.settings import Settings
from wicketgate.models.provider import Provider
from wicketgate.ports import CallContext, Upstream
from wicketgate.upstreams.embedded import StubUpstream

KEY = "wg_test_0123456789012345678901234567890123456789"
OTHER_KEY = "wg_other_0123456789012345678901234567890123456789"
OPERATOR_KEY = "wg_operator_0123456789012345678901234567890123456"
READER_KEY = "wg_reader_0123456789012345678901234567890123456"
SUSPENDED_KEY = "wg_gone_0123456789012345678901234567890123456789"

BOUND_S = 30.0
"""Longest wait of a test for something that must come."""

Frame = tuple[str, dict[str, Any]]


def chat_body(text: str = "hi", **metadata: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "metadata": {"correlation_id": "req_1", **metadata}}


def frames(text: str) -> list[Frame]:
    """The events of a whole stream, comments left out."""
    found: list[Frame] = []
    for block in text.split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        if lines:
            fields = dict(line.split(": ", 1) for line in lines)
            found.append((fields["event"], json.loads(fields["data"])))
    return found


@dataclass
class RunningService:
    url: str
    http: httpx.AsyncClient
    app: Any

    async def health(self) -> dict[str, Any]:
        """The answer of ``/readyz`` to an operator."""
        response = await self.http.get("/readyz", headers={"Authorization": f"Bearer {OPERATOR_KEY}"})
        health: dict[str, Any] = response.json()
        return health

    async def metrics(self) -> str:
        """The answer of ``/metrics`` to an operator."""
        response = await self.http.get("/metrics", headers={"Authorization": f"Bearer {OPERATOR_KEY}"})
        assert response.status_code == 200, response.text
        return response.text

    async def chat(self, body: Mapping[str, Any] | None = None, **request: Any) -> list[Frame]:
        """POST and read to the end; the status must be 200."""
        response = await self.http.post("/engine/chat", json=body or chat_body(), **request)
        assert response.status_code == 200, response.text
        return frames(response.text)


TOOLS: list[dict[str, Any]] = [
    {
        "name": "read_file",
        "description": "Read a file.",
        "inputSchema": {
            "type": "object",
            "properties": {"path": {"type": "string"}},
            "required": ["path"],
            "additionalProperties": False,
        },
    },
    {"name": "fail", "description": "Always fails.", "inputSchema": {"type": "object"}},
    {"name": "slow", "description": "Waits.", "inputSchema": {"type": "object"}},
    {"name": "boom", "description": "Breaks.", "inputSchema": {"type": "object"}},
]


class FileServer(StubUpstream):
    """``files``: read_file answers, fail fails, slow waits for ``release``, boom raises what no upstream should."""

    def __init__(self) -> None:
        super().__init__(TOOLS, self._answer, name="files")
        self.release = asyncio.Event()
        self.slow_running = 0
        self.slow_at_once = 0
        self.slow_cancelled = asyncio.Event()

    async def _answer(self, name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        match name:
            case "read_file":
                return {"content": [{"type": "text", "text": f"contents of {arguments['path']}"}], "isError": False}
            case "slow":
                self.slow_running += 1
                self.slow_at_once = max(self.slow_at_once, self.slow_running)
                try:
                    await self.release.wait()
                except asyncio.CancelledError:
                    self.slow_cancelled.set()
                    raise
                finally:
                    self.slow_running -= 1
                return {"content": [{"type": "text", "text": "at last"}]}
            case "boom":
                raise RuntimeError("secret sk-123456789 at /srv/app.py")
            case _:
                return {"content": [{"type": "text", "text": "no such luck"}], "isError": True}


def _as_it_is(app: FastAPI) -> None:
    """Adds nothing."""


@asynccontextmanager
async def running_service(
    provider: Provider | None = None,
    upstreams: Sequence[Upstream] | None = (),
    *,
    await_ready: bool = True,
    settings: Mapping[str, Any] | None = None,
    configured_model: bool = False,
    clock: Callable[[], float] = time,
    prepare: Callable[[FastAPI], None] = _as_it_is,
    public: bool = False,
    stuck_reader_s: float = 60.0,
    **logins: Any,
) -> AsyncIterator[RunningService]:
    """Serve on a free port of the loopback until the context ends.

    *upstreams*: None for those of *settings*. *configured_model*: the model is the one of *settings*, not a script.
    *prepare* may add to the application before it starts. *public*: ``server.public_url`` is its
    address. *logins*: ``users`` and ``waiting`` of ``create_app``.
    """
    if provider is None and not configured_model:
        provider = ScriptModel()
    keys = [
        HashedKey("test", hash_key(KEY), Identity("owner_1", ("memory:*", "tools:*"), "test")),
        HashedKey("other", hash_key(OTHER_KEY), Identity("owner_2", ("tools:*",))),
        HashedKey("reader", hash_key(READER_KEY), Identity("reader", ("tools:files:read_file",))),
        HashedKey("operator", hash_key(OPERATOR_KEY), Identity("operator", ("ops:read",))),
        HashedKey("gone", hash_key(SUSPENDED_KEY), Identity("gone", ("tools:*",)), suspended=True),
    ]
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    whole = on_the_way(settings or {})
    if public:
        whole["server"] = {**whole.get("server", {}), "public_url": url}
    try:
        wanted = Settings(**whole)
        app = create_app(wanted, extra_keys=keys, upstreams=upstreams, provider=provider, clock=clock, **logins)
        prepare(app)
    except BaseException:
        listener.close()
        raise
    # As the service's own server does, if nobody has prepared its application.
    port = partial(GuardedHttpProtocol, stuck_reader_s=stuck_reader_s, writes_at_once=prepare is _as_it_is)
    options = {"timeout_graceful_shutdown": 3, "loop": "asyncio", "proxy_headers": False, "http": port}
    async with serving_app(app, listener, **options):
        if await_ready:
            async with asyncio.timeout(BOUND_S):
                await app.state.gate.wait_ready()
        async with httpx.AsyncClient(
            base_url=url, headers={"Authorization": f"Bearer {KEY}"}, timeout=BOUND_S, trust_env=False, verify=False
        ) as http:
            yield RunningService(url, http, app)
