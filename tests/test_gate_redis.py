"""Gates that share a Redis: what one keeps the other has, and what is told of the Redis."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from app.cli import cli
from tests.support.redis import PASSWORD, RedisServer, redis_server
from tests.support.requirement import requirement
from tests.support.service import OPERATOR_KEY, FileServer, running_service
from wicketgate.access.identity import Identity
from wicketgate.catalog.learned_words import Lesson
from wicketgate.config.runtime import make_redis_link, make_store
from wicketgate.config.settings import Settings
from wicketgate.gate import Gate
from wicketgate.ports import CallContext
from wicketgate.storage.fail_modes import USUAL
from wicketgate.storage.learned_words import StoredLearnedWords

pytestmark = pytest.mark.usefixtures("patient_stores")


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis"), "--requirepass", PASSWORD) as server:
        yield server


def storage(redis: RedisServer, database: int = 0) -> dict[str, Any]:
    return {"storage": {"url": f"redis://:{PASSWORD}@127.0.0.1:{redis.port}/{database}"}}


@requirement("EXEC-51")
async def test_a_handle_of_one_gate_is_viewed_at_another(redis: RedisServer) -> None:
    ann = CallContext(Identity("ann", ("tools:*",)), "trace", "session")
    bob = CallContext(Identity("bob", ("tools:*",)), "trace", "session")
    settings = Settings.model_validate({"auth": {"seal_keys": ["k" * 32]}, **storage(redis)})
    async with Gate(settings, upstreams=[FileServer()]) as one, Gate(settings, upstreams=[FileServer()]) as other:
        await one.wait_ready()
        await other.wait_ready()
        (tool,) = (item.id for item in one.runtime.catalog().tools.values() if item.upstream_name == "read_file")
        done = await one.surface.call("tool_execute", {"tool_id": tool, "args": {"path": "x" * 4_000}}, ann)
        (kept,) = done.structured["artifacts"]
        wanted = {"handle": kept["handle"], "selector": {"type": "head"}}
        assert "contents of x" in str((await other.surface.call("tool_view", wanted, ann)).structured)
        assert "VIEW_FAILED" in str((await other.surface.call("tool_view", wanted, bob)).structured)


@requirement("OPS-161", "OPS-162", "OPS-160", "OPS-191", "OPS-192")
async def test_operators_are_told_how_the_redis_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    operator = {"Authorization": f"Bearer {OPERATOR_KEY}"}
    with redis_server(tmp_path, "--requirepass", PASSWORD) as server:
        settings = {"storage": {**storage(server)["storage"], "fail": {"quotas": "closed"}}}
        async with running_service(upstreams=[FileServer()], settings=settings) as service:
            told = (await service.http.get("/readyz", headers=operator)).json()["storage"]
            assert (told["kind"], told["away"], told["degraded"]) == ("redis", "", {})
            assert "appendonly yes" in told["shortfalls"][0]
            assert "wicketgate_storage_away 0.0" in await metrics(service.http)
            server.kill()
            while "wicketgate_storage_away 1.0" not in await metrics(service.http):
                await service.app.state.gate.runtime.learning.load()
            answer = await service.http.get("/readyz", headers=operator)
            assert (answer.status_code, answer.json()["storage"]["away"]) == (200, "cannot be reached")
            assert answer.json()["storage"]["degraded"] == {**USUAL, "quotas": "closed"}
            gate = service.app.state.gate
            (tool,) = (item.id for item in gate.runtime.catalog().tools.values() if item.upstream_name == "read_file")
            ann = CallContext(Identity("ann", ("tools:*",)), "trace", "session")
            done = await gate.surface.call("tool_execute", {"tool_id": tool, "args": {"path": "x" * 4_000}}, ann)
            assert done.structured is not None and done.structured["status"] == "partial"
            assert 'wicketgate_storage_without_total{mode="partial",state="artifacts"} 1.0' in await metrics(
                service.http
            )
    assert PASSWORD not in caplog.text


async def metrics(http: httpx.AsyncClient) -> str:
    return (await http.get("/metrics", headers={"Authorization": f"Bearer {OPERATOR_KEY}"})).text


@requirement("OPS-161", "OPS-162", "OPS-164", "OPS-187", "OPS-192")
def test_check_tells_what_redis_does_not_promise(redis: RedisServer, tmp_path: Path) -> None:
    file = tmp_path / "wicketgate.yaml"
    file.write_text(f"storage: {{url: '{storage(redis)['storage']['url']}'}}\n")
    told = " ".join(CliRunner().invoke(cli, ["check", "--config", str(file)]).output.split())
    warning = "a restart of Redis may bring back used approvals and forget runs with a key, which then run again"
    assert f"storage: warning: {warning}: set appendonly yes" in told
    assert "storage: while it cannot be used (storage.fail): claims, approvals, runs: refused; quotas," in told
    file.write_text(f"storage: {{url: 'redis://:{PASSWORD}@127.0.0.1:1'}}\n")
    away = CliRunner().invoke(cli, ["check", "--config", str(file)])
    assert away.exit_code == 1
    assert "storage: redis://127.0.0.1:1 cannot be reached" in " ".join(away.output.split())
    assert PASSWORD not in away.output


@requirement("OPS-165", "OPS-160")
async def test_learned_words_in_redis_are_listed_and_forgotten(redis: RedisServer, tmp_path: Path) -> None:
    settings = Settings.model_validate(storage(redis, 1))
    link = make_redis_link(settings)
    assert link is not None
    store = StoredLearnedWords(make_store(settings.storage, redis=link), shared=True)
    assert await store.learn([Lesson("ann", "media:search@1", ("film",))], 0) is not None
    await link.aclose()
    file = tmp_path / "wicketgate.yaml"
    file.write_text(f"storage: {{url: '{settings.storage.url}'}}\n")

    async def run(*words: str) -> str:
        import asyncio

        result = await asyncio.to_thread(CliRunner().invoke, cli, ["learned", *words, "--config", str(file)])
        assert result.exit_code == 0, result.output
        return result.stdout

    assert await run("list") == "ann  media:search@1  1 run: film 1\n"
    assert await run("reset", "--yes") == "1 entry forgotten\n"
    assert await run("list") == ""


@requirement("OPS-160")
def test_the_password_of_the_url_is_a_secret() -> None:
    settings = Settings.model_validate({"storage": {"url": "redis://gate:s%40fe-word@host/1"}})
    assert "s@fe-word" in settings.secrets()
    assert settings.storage.shown == "redis://host:6379/1"
    assert "fe-word" not in repr(settings)
