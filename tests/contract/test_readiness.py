"""When the engine takes no requests (S3 "503"; case E26)."""

import asyncio

import httpx

from app.gateway.ports import UpstreamStatus
from tests.support.requirement import requirement
from tests.support.script import ScriptModel, says
from tests.support.service import BOUND_S, FileServer, chat_body, frames, running_service


class SlowStart(FileServer):
    """Still connecting, until told otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.status = UpstreamStatus("connecting")
        self.go = asyncio.Event()

    async def supervise(self, changed):  # type: ignore[no-untyped-def]
        await self.go.wait()
        self.status = UpstreamStatus("ready")
        await super().supervise(changed)


def unavailable(response: httpx.Response) -> bool:
    return (response.status_code, response.json()) == (
        503,
        {"code": "engine_unavailable", "message": "Agent Loop is not accepting requests"},
    )


@requirement("E26")
async def test_until_every_upstream_had_its_turn_the_engine_is_unavailable() -> None:
    files = SlowStart()
    async with running_service(ScriptModel(says("ok")), [files], await_ready=False) as service:
        assert unavailable(await service.http.post("/engine/chat", json=chat_body()))
        assert (await service.http.get("/readyz")).status_code == 503
        files.go.set()
        async with asyncio.timeout(BOUND_S):
            await service.app.state.lifecycle.wait_ready()
        assert (await service.chat())[-1][0] == "done"
        ready = (await service.http.get("/readyz")).json()
    assert ready["upstreams"] == {
        "files": {
            "state": "ready",
            "error": "",
            "tools": 4,
            "stale": False,
            "last_error": "",
            "connected_s": None,
            "connections": 0,
            "breaker": "closed",
            "in_flight": 0,
            "queued": 0,
        }
    }


@requirement("E26", "gatekit G58", "gatekit G59")
async def test_a_slow_upstream_holds_the_start_no_longer_than_the_deadline() -> None:
    settings = {"server": {"start_deadline_s": 0.1}}
    async with running_service(ScriptModel(says("ok")), [SlowStart()], settings=settings) as service:
        assert (await service.chat())[-1][0] == "done"


@requirement("E26")
async def test_one_stream_more_than_the_limit_is_refused_and_a_finished_one_makes_room() -> None:
    gate = asyncio.Event()
    model = ScriptModel([gate, *says("first")], says("second"))
    async with running_service(model, settings={"engine": {"max_streams": 1}}) as service:
        async with service.http.stream("POST", "/engine/chat", json=chat_body()) as first:
            assert unavailable(await service.http.post("/engine/chat", json=chat_body()))
            gate.set()
            assert frames((await first.aread()).decode())[-1][0] == "done"
        assert (await service.chat())[0] == ("text-delta", {"content": "second"})


@requirement("DESIGN §2 Paths")
async def test_health_needs_no_credential_and_everything_else_does() -> None:
    async with running_service() as service:
        del service.http.headers["Authorization"]
        assert (await service.http.get("/healthz")).json() == {"status": "ok"}
        assert (await service.http.get("/readyz")).status_code == 200
        for path in ("/openapi.json", "/mcp", "/mcp/gateway", "/metrics", "/docs", "/", "/healthz/", "//healthz"):
            assert (await service.http.get(path)).status_code == 401, path
