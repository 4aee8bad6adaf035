"""The limit of an actor over two real processes of one Redis or Cluster, and after a kill (ACCESS-97, ACCESS-98)."""

import asyncio
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest
import yaml

from tests.support.process import Program, program
from tests.support.redis import PASSWORD, redis_cluster, redis_server
from tests.support.requirement import requirement
from tests.support.service import KEY
from wicketgate.access.identity import hash_key

BOUND_S = 40.0
CHAT = {"messages": [{"role": "user", "content": "hi"}], "metadata": {"correlation_id": "r1"}}


async def never_answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


@requirement("ACCESS-97", "ACCESS-98", "OPS-330")
@pytest.mark.parametrize("kind", ["single", "cluster"])
async def test_an_actor_has_its_streams_over_all_replicas_and_those_of_a_killed_one_again(
    kind: str, tmp_path: Path
) -> None:
    keys = [{"id": name, "sha256": hash_key(f"{KEY}{name}"), "actor": name} for name in ("ann", "bob")]
    async with AsyncExitStack() as stack:
        if kind == "single":
            url = stack.enter_context(redis_server(tmp_path / "redis")).url
        else:
            url = stack.enter_context(redis_cluster(tmp_path / "redis", password=PASSWORD)).url
        model = await asyncio.start_server(never_answers, "127.0.0.1", 0)
        stack.callback(model.close)
        port = model.sockets[0].getsockname()[1]
        config = tmp_path / "wicketgate.yaml"
        settings = {
            "auth": {"keys": [key | {"permissions": ["tools:*"]} for key in keys]},
            "storage": {"url": url},
            "model": {"provider": "openai-chat", "base_url": f"http://127.0.0.1:{port}/v1", "model": "m"},
            "engine": {"max_streams_per_actor": 2},
            "upstreams": [{"name": "none", "command": ["true"], "enabled": False}],
        }
        config.write_text(yaml.safe_dump(settings))
        gates = [
            await stack.enter_async_context(program("app", "serve", "--config", str(config), "--port", "0"))
            for _ in range(2)
        ]
        one, other = [await stack.enter_async_context(await client(gate)) for gate in gates]

        async def opened(http: httpx.AsyncClient, actor: str) -> int:
            """The status of a stream, which stays open."""
            headers = {"Authorization": f"Bearer {KEY}{actor}"}
            request = http.build_request("POST", "/engine/chat", json=CHAT, headers=headers)
            response = await http.send(request, stream=True)
            stack.push_async_callback(response.aclose)
            return response.status_code

        async with asyncio.timeout(BOUND_S):
            assert [await opened(one, "ann"), await opened(other, "ann")] == [200, 200]
            assert [await opened(one, "ann"), await opened(other, "ann")] == [429, 429]
            assert [await opened(one, "bob"), await opened(other, "bob")] == [200, 200]
            gates[0].process.send_signal(signal.SIGKILL)
            while (status := await opened(other, "ann")) == 429:
                await asyncio.sleep(0.1)
            assert status == 200
            assert await opened(other, "ann") == 429
        gates[1].process.send_signal(signal.SIGKILL)


async def client(gate: Program) -> httpx.AsyncClient:
    url = (await gate.wait_for(r"ready on (http://127\.0\.0\.1:\d+)")).group(1)
    return httpx.AsyncClient(base_url=url, timeout=BOUND_S, trust_env=False)
