"""The first request that needs the SDK imports it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from app.main import create_app
from app.mcp.door import NoSdk, SdkPart
from tests.support.requirement import requirement
from tests.support.service import KEY, FileServer
from wicketgate.access.identity import hash_key
from wicketgate.config.settings import Settings


@requirement("OPS-370")
async def test_a_service_that_has_ended_begins_no_import(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []

    async def noted(name: str) -> None:
        begun.append(name)

    monkeypatch.setattr("app.mcp.door.imported", noted)
    part = SdkPart({}, 1, None)
    async with part.running():
        pass
    with pytest.raises(NoSdk) as refused:
        await part.side("gateway")
    assert refused.value.refusal.headers["retry-after"]
    assert begun == []


@requirement("OPS-371", "FACE-125")
async def test_a_stop_refuses_what_waits_and_an_answer_of_the_drain_still_waits_for_the_import(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = asyncio.Event()

    side: Any = object()

    class Part:
        @staticmethod
        @asynccontextmanager
        async def sdk_serving(doors: object, max_bytes: int) -> AsyncIterator[dict[str, object]]:
            yield {"gateway": side}

    async def slow(name: str) -> type[Part]:
        await done.wait()
        return Part

    monkeypatch.setattr("app.mcp.door.imported", slow)
    part = SdkPart({}, 1, None)
    async with part.running(), asyncio.timeout(10):
        waiting = asyncio.create_task(part.side("gateway"))
        await asyncio.sleep(0)
        part.stop()
        with pytest.raises(NoSdk):
            await waiting
        later = asyncio.create_task(part.side("gateway"))
        await asyncio.sleep(0)
        assert not later.done()
        done.set()
        assert await later is side


@requirement("OPS-371")
async def test_a_request_waits_for_the_import_no_longer_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(name: str) -> None:
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr("app.mcp.door.imported", never)
    monkeypatch.setattr("app.mcp.door.WAITS_S", 0.01)
    part = SdkPart({}, 1, None)
    async with part.running():
        with pytest.raises(NoSdk) as refused:
            await part.side("gateway")
        assert refused.value.refusal.headers["retry-after"]
        assert not part.failed


@requirement("FACE-244")
async def test_an_embedder_may_ask_right_after_the_start() -> None:
    key = {"id": "test", "sha256": hash_key(KEY), "actor": "owner_1", "permissions": ["*"]}
    app = create_app(Settings.model_validate({"auth": {"keys": [key]}}), upstreams=[FileServer()])
    message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    headers = {"Authorization": f"Bearer {KEY}", "Accept": "application/json, text/event-stream"}
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1") as http,
    ):
        answer = await http.post("/mcp", json=message, headers=headers)
    assert answer.json() == {"jsonrpc": "2.0", "id": 1, "result": {}}
