"""Two gates over a Redis that loses all that it has, while both run: nothing needs a restart (CHAT-130)."""

import asyncio

from tests.contract.replicas import SEAL
from tests.contract.test_calls_under_way import operation
from tests.contract.test_coming_back import post, reading
from tests.support.redis import RedisServer
from tests.support.requirement import requirement
from tests.support.script import ScriptModel, says
from tests.support.service import BOUND_S, FileServer, frames, running_service
from wicketgate.models.provider import TextDelta


@requirement("CHAT-130")
async def test_gates_go_on_when_redis_has_lost_everything(redis: RedisServer) -> None:
    go_on = asyncio.Event()
    model = ScriptModel([[TextDelta("one")], go_on, *says("two")], says("new"))
    settings = {
        **SEAL,
        "storage": {"url": redis.url},
        "quota": {"per_actor": 3},
        "engine": {"max_streams_per_actor": 2},
    }
    async with (
        running_service(model, [FileServer()], settings=settings) as here,
        running_service(model, [FileServer()], settings=settings) as there,
        asyncio.timeout(BOUND_S),
    ):
        for gate in (here, there, here):
            assert (await operation(gate, "read_file")).status_code == 200
        async with reading(here, b"one") as (read, rest):
            redis.flush()
            assert "new" in (await post(there, {"Idempotency-Key": "fresh"})).text
            go_on.set()
            text = (read + b"".join([piece async for piece in rest])).decode()
        assert frames(text)[-1][0] == "error"
        assert len(model.requests) == 2
        # Quotas begin anew, once for both.
        statuses = [(await operation(gate, "read_file")).status_code for gate in (here, there) * 2]
        assert statuses == [200, 200, 200, 429]
        for gate in (here, there):
            assert not gate.app.state.gate.shared.state().away
