"""Calls of an actor at two gates that share a Redis, and while it is away (ACCESS-97, ACCESS-100)."""

import asyncio

import httpx
import pytest

from tests.contract.replicas import two_gates
from tests.contract.test_calls_under_way import ACCEPT, OTHER, operation, refused, slow_calls
from tests.support.redis import RedisServer
from tests.support.requirement import requirement
from tests.support.script import ScriptModel, says
from tests.support.service import BOUND_S, FileServer, RunningService, chat_body, running_service
from tests.support.until import until

pytestmark = pytest.mark.usefixtures("patient_stores")

DISCOVER = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "server/discover",
    "params": {
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
    },
}
OF_2026 = {**ACCEPT, "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "server/discover"}


async def discovered(service: RunningService) -> httpx.Response:
    return await service.http.post("/mcp", json=DISCOVER, headers=OF_2026)


@requirement("ACCESS-97", "FACE-37")
async def test_calls_of_an_actor_at_one_gate_count_at_the_other(redis: RedisServer) -> None:
    one, other = FileServer(), FileServer()
    async with two_gates(redis.url, [[one], [other]], mcp={"max_calls_per_actor": 2}) as (here, there):
        async with slow_calls(here, one, {}), slow_calls(there, other, {}):
            for service in (here, there):
                refused(await discovered(service), "actor")
                refused(await operation(service, "read_file"), "actor")
                assert (await operation(service, "read_file", OTHER)).status_code == 200
        async with asyncio.timeout(BOUND_S):
            while (await discovered(there)).status_code == 429:
                await asyncio.sleep(0)
        assert (await discovered(there)).status_code == 200


@requirement("ACCESS-100", "OPS-191", "OPS-192")
async def test_closed_places_refuse_while_redis_is_away_and_are_there_again_without_a_restart(
    redis: RedisServer,
) -> None:
    settings = {
        "storage": {"url": redis.url, "fail": {"places": "closed"}},
        "mcp": {"max_calls_per_actor": 2},
        "engine": {"max_streams_per_actor": 2},
    }
    async with running_service(ScriptModel(says("well")), [FileServer()], settings=settings) as service:
        assert (await discovered(service)).status_code == 200
        redis.kill()
        for answer in (await discovered(service), await operation(service, "read_file")):
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert '"away"' in answer.text
        assert (await service.http.post("/engine/chat", json=chat_body())).status_code == 503
        assert (await service.health())["storage"]["degraded"]["places"] == "closed"
        metrics = await service.metrics()
        assert 'wicketgate_storage_without_total{mode="closed",state="places"} 3.0' in metrics
        assert 'wicketgate_refused_total{kind="calls",scope="away"} 2.0' in metrics
        redis.start()
        await until(lambda: discovered(service), lambda answer: answer.status_code != 503)
        await until(service.health, lambda health: not health["storage"]["degraded"])
        assert (await service.chat())[-1][0] == "done"
