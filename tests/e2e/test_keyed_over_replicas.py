"""Runs with a key at services that share a Redis (CHAT-116)."""

import asyncio
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import yaml

from tests.contract.test_coming_back import ids
from tests.e2e.test_keyed_after_a_kill import BOUND_S, ChargingModel, charge, configuration, effects
from tests.e2e.test_taken_over import READY, HoldingModel, brought_there, judge
from tests.support.process import program
from tests.support.redis import redis_server
from tests.support.requirement import requirement
from tests.support.service import KEY, frames

RUNS = 6
SAFE = ("--appendonly", "yes", "--appendfsync", "always")


@requirement("CHAT-116", "OPS-187")
async def test_a_key_at_many_processes_of_two_services_runs_once_and_all_read_the_same(tmp_path: Path) -> None:
    # A connection for each request, so that any worker may get it.
    http = httpx.AsyncClient(
        headers={"Authorization": f"Bearer {KEY}"},
        timeout=BOUND_S,
        trust_env=False,
        limits=httpx.Limits(max_keepalive_connections=0),
    )

    async def post(url: str, number: int, after: str = "") -> str:
        headers = {"Idempotency-Key": f"k{number}"} | ({"Last-Event-ID": after} if after else {})
        answer = await http.post(f"{url}/engine/chat", json=charge(number), headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.text

    async with ChargingModel() as model, http, AsyncExitStack() as stack:
        redis = stack.enter_context(redis_server(tmp_path / "redis", *SAFE))
        urls = []
        settings = configuration(tmp_path, model.url) | {"storage": {"url": redis.url}}
        config = tmp_path / "wicketgate.yaml"
        config.write_text(yaml.safe_dump(settings))
        line = ("app", "serve", "--config", str(config), "--port", "0", "--workers", "2")
        services = [await stack.enter_async_context(program(*line)) for _ in range(2)]
        for service in services:
            urls.append((await service.wait_for(READY)).group(1))
        async with asyncio.timeout(BOUND_S):
            posts = [(number, post(url, number)) for number in range(RUNS) for url in urls * 3]
            texts = await asyncio.gather(*(text for _, text in posts))
            whole = {number: text for (number, _), text in zip(posts, texts, strict=True)}
            assert all(whole[number] == text for (number, _), text in zip(posts, texts, strict=True))
            assert sorted(effects(tmp_path)) == list(range(RUNS))
            for number, text in whole.items():
                assert [event for event, _ in frames(text)] == ["tool-call", "tool-result", "text-delta", "done"]
                for at in (0, len(ids(text)) - 2):
                    rest = {await post(url, number, ids(text)[at]) for url in urls * 2}
                    assert rest == {text[text.index(f"id: {ids(text)[at + 1]}\n") :]}
        for service in services:
            assert await service.stop() == 0
            assert "storage:" not in service.stderr + service.stdout, "it keeps every promise"


@requirement("CHAT-116", "CHAT-123", "CHAT-124", "CHAT-125")
async def test_a_service_goes_on_with_the_runs_of_one_that_was_killed(tmp_path: Path) -> None:
    with redis_server(tmp_path / "redis", *SAFE) as redis:
        async with HoldingModel() as model, asyncio.timeout(2 * BOUND_S):
            config = tmp_path / "wicketgate.yaml"
            config.write_text(yaml.safe_dump(configuration(tmp_path, model.url) | {"storage": {"url": redis.url}}))
            line = ("app", "serve", "--config", str(config), "--port", "0")
            async with program(*line) as one, program(*line) as other:
                first, second = [(await each.wait_for(READY)).group(1) for each in (one, other)]
                clients = await brought_there(model, tmp_path, first)
                one.process.send_signal(signal.SIGKILL)
                await one.ended()
                model.released.set()
                await asyncio.gather(*(client.read_to_the_end(second) for client in clients.values()))
                judge(clients, model, tmp_path)
