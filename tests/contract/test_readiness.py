"""The times in which the engine takes no requests (CHAT-22, CHAT-78)."""

import asyncio

import httpx
import pytest

from tests.support.requirement import requirement
from tests.support.script import ScriptModel, says
from tests.support.service import (
    BOUND_S,
    KEY,
    OPERATOR_KEY,
    READER_KEY,
    SUSPENDED_KEY,
    FileServer,
    chat_body,
    frames,
    running_service,
)
from wicketgate.access.identity import hash_key
from wicketgate.ports import UpstreamStatus
from wicketgate.upstreams.embedded import StubUpstream


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


async def all_doors_refuse(http: httpx.AsyncClient) -> None:
    listing = {"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {}}
    message = await http.post("/mcp", json=listing)
    found = await http.get("/operations", params={"query": "files"})
    called = await http.post("/operations/call", json={"operation": "/files/read"})
    for answer in (message, found, called):
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1"), answer.text
    assert (message.json()["id"], message.json()["error"]["code"]) == (7, -32603)
    assert found.json()["code"] == "unavailable"


@requirement("CHAT-22", "FACE-127")
async def test_until_every_upstream_had_its_turn_the_engine_is_unavailable() -> None:
    files = SlowStart()
    async with running_service(ScriptModel(says("ok")), [files], await_ready=False) as service:
        assert unavailable(await service.http.post("/engine/chat", json=chat_body()))
        assert (await service.http.get("/readyz")).status_code == 503
        await all_doors_refuse(service.http)
        files.go.set()
        async with asyncio.timeout(BOUND_S):
            await service.app.state.gate.wait_ready()
        assert (await service.chat())[-1][0] == "done"
        ready = await service.health()
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
            "held_off": 0,
            "in_flight": 0,
            "queued": 0,
        }
    }


@requirement("UP-67")
async def test_the_details_have_the_error_as_the_operator_reads_it() -> None:
    away = StubUpstream([], name="away")
    away.status = UpstreamStatus("down", "it refuses connections", detail="it refuses connections (http://shop:1): ...")
    async with running_service(upstreams=[FileServer(), away]) as service:
        assert (await service.health())["upstreams"]["away"]["error"] == "it refuses connections (http://shop:1): ..."


@requirement("ACCESS-53")
async def test_the_details_name_a_rule_that_matches_no_tool() -> None:
    settings = {"access": [{"match": "files:read_file"}, {"match": "files:raed_file", "effect": "deny"}]}
    async with running_service(upstreams=[FileServer()], settings=settings) as service:
        assert (await service.health())["catalog"]["unmatched"] == ["access[1] (files:raed_file)"]


@requirement("CHAT-22", "OPS-11")
async def test_a_slow_upstream_holds_the_start_no_longer_than_the_deadline() -> None:
    settings = {"server": {"start_deadline_s": 0.1}}
    async with running_service(ScriptModel(says("ok")), [SlowStart()], settings=settings) as service:
        assert (await service.chat())[-1][0] == "done"


@requirement("CHAT-22")
async def test_one_stream_more_than_the_limit_is_refused_and_a_finished_one_makes_room() -> None:
    gate = asyncio.Event()
    model = ScriptModel([gate, *says("first")], says("second"))
    async with running_service(model, settings={"engine": {"max_streams": 1}}) as service:
        async with service.http.stream("POST", "/engine/chat", json=chat_body()) as first:
            assert unavailable(await service.http.post("/engine/chat", json=chat_body()))
            gate.set()
            assert frames((await first.aread()).decode())[-1][0] == "done"
        assert (await service.chat())[0] == ("text-delta", {"content": "second"})


@requirement("OPS-10")
@pytest.mark.parametrize("started", [True, False])
async def test_details_are_for_operators_and_everybody_hears_whether_it_is_ready(started: bool) -> None:
    files = FileServer() if started else SlowStart()
    keys = [{"id": "root", "sha256": hash_key("wg_root"), "actor": "root", "permissions": ["*"]}]
    settings = {"auth": {"keys": keys}}
    async with running_service(upstreams=[files], settings=settings, await_ready=started) as service:
        bearers = {"tools": KEY, "reader": READER_KEY, "suspended": SUSPENDED_KEY, "wrong": "wg_wrong"}
        headers = {name: [("Authorization", f"Bearer {bearer}")] for name, bearer in bearers.items()}
        headers |= {"none": [], "basic": [("Authorization", "Basic eDp5")], "bare": [("Authorization", "Bearer")]}
        headers["two"] = [("Authorization", f"Bearer {OPERATOR_KEY}")] * 2
        headers["forged"] = [("X-Actor-Permissions", "ops:read"), ("X-Actor-ID", "root")]
        async with httpx.AsyncClient(base_url=service.url, trust_env=False) as http:
            plain = {name: await http.get("/readyz", headers=given) for name, given in headers.items()}
            details = [
                await http.get("/readyz", headers={"Authorization": f"Bearer {key}"})
                for key in (OPERATOR_KEY, "wg_root")
            ]
    status = 200 if started else 503
    for name, answer in plain.items():
        assert (answer.status_code, answer.json()) == (status, {"ready": started}), name
    for answer in details:
        assert (answer.status_code, answer.json()["ready"]) == (status, started)
        assert answer.json().keys() == {"ready", "catalog", "storage", "issuers", "upstreams"}
        assert answer.json()["storage"] == {"kind": "memory", "away": "", "shortfalls": [], "degraded": {}}
        assert answer.json()["upstreams"].keys() == {"files"}


@requirement("ACCESS-4")
async def test_health_needs_no_credential_and_everything_else_does() -> None:
    async with running_service() as service:
        del service.http.headers["Authorization"]
        assert (await service.http.get("/healthz")).json() == {"status": "ok"}
        assert (await service.http.get("/readyz")).status_code == 200
        closed = ("/openapi.json", "/mcp", "/mcp/gateway", "/metrics", "/docs", "/console/api/me", "/healthz/")
        for path in closed:
            assert (await service.http.get(path)).status_code == 401, path


@requirement("CARD-36")
async def test_twins_are_told_with_their_places_and_their_server_serves() -> None:
    twins = StubUpstream([{"name": "other"}, *({"name": "one", "title": f"{n}"} for n in range(100))], name="twins")
    async with running_service(ScriptModel(says("ok")), [twins]) as service:
        ready = await service.health()
    assert (ready["catalog"]["tools"], ready["upstreams"]["twins"]["tools"]) == (2, 2)
    assert list(ready["catalog"]["left_out"]) == [f"twins[{place}]" for place in range(2, 52)]
    assert ready["catalog"]["left_out"]["twins[2]"].endswith(", as has twins[1], which is kept")
