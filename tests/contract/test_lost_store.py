"""Two gates over a Redis that loses all that it has, while both run: nothing needs a restart (CHAT-130)."""

import asyncio
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from tests.contract.test_calls_under_way import operation
from tests.contract.test_coming_back import KEYED, ids, post, reading
from tests.contract.test_sessions_over_replicas import Raw
from tests.support.redis import redis_server
from tests.support.requirement import requirement
from tests.support.script import ScriptModel, says
from tests.support.service import BOUND_S, FileServer, frames, running_service
from wicketgate.models.provider import TextDelta


async def marks_in(client: Redis) -> list[Any]:
    """The marks of the processes that are alive, without their mailboxes."""
    names: list[Any] = await client.keys("wg1:peer:{peers}:*")
    return [name for name in names if not name.endswith(b":mail")]


@requirement("CHAT-130", "CHAT-117")
async def test_gates_go_on_when_redis_has_lost_everything(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    model = ScriptModel([[TextDelta("one")], go_on, *says("two")], says("new"))
    with redis_server(tmp_path) as redis:
        settings = {
            "storage": {"url": redis.url},
            "quota": {"per_actor": 3},
            "engine": {"max_streams_per_actor": 2},
        }
        async with (
            running_service(model, [FileServer()], settings=settings) as here,
            running_service(model, [FileServer()], settings=settings) as there,
            asyncio.timeout(BOUND_S),
            Redis.from_url(redis.url) as client,
        ):
            for gate in (here, there, here):
                assert (await operation(gate, "read_file")).status_code == 200
            session = await Raw().open(here)
            marks = await marks_in(client)
            assert len(marks) == 2
            async with reading(here, b"one") as (read, rest):
                await client.flushall()
                # Runs and streams: a new key at another gate, and the run that goes on.
                assert "new" in (await post(there, {"Idempotency-Key": "fresh"})).text
                # The place of the stream is counted anew, for both.
                while not await client.keys("wg1:places:*of*"):
                    await asyncio.sleep(0.02)
                go_on.set()
                text = (read + b"".join([piece async for piece in rest])).decode()
            assert frames(text)[-1][0] == "done"
            again = await post(there, {**KEYED, "Last-Event-ID": ids(text)[-2]})
            assert frames(again.text)[-1] == frames(text)[-1]
            assert len(model.requests) == 2
            # Quotas begin anew, once for both.
            statuses = [(await operation(gate, "read_file")).status_code for gate in (here, there) * 2]
            assert statuses == [200, 200, 200, 429]
            # Sessions: one goes on where it was in use, and from there at the other; a new one is served by both.
            for gate in (here, there):
                assert (await session.post(gate, id=1, method="tools/list")).status_code == 200
            fresh = await Raw().open(here, there)
            assert (await fresh.post(there, id=1, method="tools/list")).status_code == 200
            # Mailboxes: each has its mark again.
            while not set(marks) <= set(await marks_in(client)):
                await asyncio.sleep(0.02)
            for gate in (here, there):
                assert not gate.app.state.gate.storage_state().away
