"""Gates that share a store count and learn together; while it is unavailable each does so alone, and none waits."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.redis import redis_server
from tests.support.requirement import requirement
from tests.support.until import until
from wicketgate.access.identity import Identity
from wicketgate.config.settings import Settings
from wicketgate.errors import GatewayError, RateLimited
from wicketgate.gate import Gate
from wicketgate.ports import CallContext, session_key
from wicketgate.storage import quotas
from wicketgate.storage.learned_words import StoredLearnedWords
from wicketgate.upstreams.embedded import StubUpstream

pytestmark = pytest.mark.usefixtures("patient_stores", "long_windows")

BOUND_S = 40.0
WINDOW_S = 30 * 86_400.0
"""No test meets the end of a bucket, whatever the clock."""
MARKER = "__cache_breakpoint__"
ANN = CallContext(Identity("ann", ("tools:*",)), "trace", session_key("test", "ann", "s"), cache_stable=True)
BEST_FIRST = replace(ANN, cache_stable=False)
READ_ONLY = {"readOnlyHint": True}
SEAL = {"auth": {"seal_keys": ["k" * 40]}}
CACHED: dict[str, Any] = {
    "upstreams": [{"name": "shop", "command": ["unused"], "cache": {"tools": ["*"], "ttl_s": 600}}]
}


class Shop(StubUpstream):
    """Tools that change nothing; each answer has its number."""

    def __init__(self) -> None:
        tools = [
            {
                "name": name,
                "description": text,
                "inputSchema": {"type": "object"},
                "annotations": {"readOnlyHint": True},
            }
            for name, text in {
                "find_film": "Finds a film.",
                "film_actors": "Lists the actors of a film.",
                "list_orders": "Lists orders.",
            }.items()
        ]
        super().__init__(tools, self._answer, name="shop")

    async def _answer(self, name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        return {"content": [{"type": "text", "text": f"{name} {len(self.calls)}"}]}


class Replica:
    def __init__(self, gate: Gate, shop: Shop) -> None:
        self.gate = gate
        self.shop = shop

    def id_of(self, name: str = "find_film") -> str:
        (found,) = (item.id for item in self.gate.runtime.catalog().items.values() if item.upstream_name == name)
        return found

    async def run(self, name: str = "find_film", **args: Any) -> GatewayError | str:
        """The text of the answer, or the refusal."""
        try:
            result = await self.gate.runtime.call(self.id_of(name), args, BEST_FIRST)
        except GatewayError as error:
            return error
        return str(result["content"][0]["text"])

    async def ran(self, times: int) -> int:
        """The number of calls that were run, of as many at once; the others are over the quota."""
        # Arguments of its own, because another gate would give again what one of them was given.
        outcomes = await asyncio.gather(*(self.run(n=n, at=id(self)) for n in range(times)))
        assert {type(each) for each in outcomes} <= {str, RateLimited}
        return sum(isinstance(each, str) for each in outcomes)

    async def shown(self, query: str) -> tuple[str, list[str]]:
        """The text of a browse in cache-stable order, without the hint, and the names of its cards."""
        browse = await self.gate.runtime.browse_query(query, 5, ANN)
        return browse.text.rpartition("\n")[0], [card.name for card in browse.cards]


@asynccontextmanager
async def replicas(url: str, number: int = 2, **settings: Any) -> AsyncIterator[list[Replica]]:
    made = []
    async with AsyncExitStack() as stack:
        storage = {"url": url, **settings.pop("storage", {})}
        for _ in range(number):
            shop = Shop()
            chosen = Settings.model_validate({**SEAL, "storage": storage, **settings})
            gate = await stack.enter_async_context(Gate(chosen, upstreams=[shop]))
            made.append(Replica(gate, shop))
        for each in made:
            await each.gate.wait_ready()
        yield made


@pytest.fixture
def long_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "WINDOW_S", WINDOW_S)


@requirement("ACCESS-93")
async def test_exactly_as_many_calls_run_as_the_quota_allows_whichever_gate_they_come_to(redis_url: str) -> None:
    async with replicas(redis_url, quota={"per_actor": 20, "per_tool": {"shop:*": 30}}, **CACHED) as (one, other):
        assert await one.gate.runtime.execute(one.id_of(), {}, ANN, dry_run=True)
        ran = await asyncio.gather(one.ran(30), other.ran(30))
        assert (sum(ran), len(one.shop.calls) + len(other.shop.calls)) == (20, 20)
        refused = await other.run()
        assert isinstance(refused, RateLimited)
        assert refused.details is not None
        assert (refused.details["scope"], refused.details["limit"]) == ("actor", 20)
        assert 0 < refused.details["retry_after_s"] <= 2 * WINDOW_S + 1
        # Other limits, by a reload: what was counted counts on.
        more = {"storage": {"url": redis_url}, "quota": {"per_actor": 25, "per_tool": {"shop:*": 22}}}
        changes = await other.gate.apply(Settings.model_validate({**SEAL, **CACHED, **more}))
        assert changes.waiting == ()
        assert await other.ran(10) == 2


@requirement("EXEC-54", "BROWSE-71")
async def test_each_gate_keeps_its_own_results_and_remembers_the_cards_that_it_showed(redis_url: str) -> None:
    async with replicas(redis_url, **CACHED) as (one, other):
        assert [await each.run(q="x") for each in (one, other, one)] == ["find_film 1"] * 3
        assert (len(one.shop.calls), len(other.shop.calls)) == (1, 1)
        await other.gate.runtime.refresh_catalog()
        assert [await each.run(q="x") for each in (one, other)] == ["find_film 1", "find_film 2"]
        await one.shown("film")
        assert (await one.shown("lists films and orders"))[1] == ["film_actors", "find_film", MARKER, "list_orders"]
        assert MARKER not in (await other.shown("lists films and orders"))[1]


@requirement("ACCESS-94")
async def test_while_redis_is_unavailable_each_gate_counts_alone(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        async with replicas(server.url, quota={"per_tool": {"shop:find_film": 20}}) as (one, other):
            assert await one.ran(5) == 5
            server.kill()
            # What this gate let through before counts.
            assert await one.ran(30) == 15
            assert await other.ran(30) == 20
            assert one.gate.shared.state().degraded["quotas"] == "open"
            assert await one.ran(1) == 0
            assert one.gate.shared.measures.refused, "a later call waits for nothing"
            # This Redis comes back empty, and nothing is added to it.
            server.start()
            await until(lambda: counts_again(one))
            await one.ran(30)
            assert await other.ran(1) == 0


async def counts_again(replica: Replica) -> bool:
    await replica.run()
    return "quotas" not in replica.gate.shared.state().degraded


@requirement("BROWSE-74")
@pytest.mark.parametrize("mode", ["open", "closed"])
async def test_what_is_learned_while_redis_is_away_is_kept_and_given_to_it_afterwards(
    tmp_path: Path, mode: str
) -> None:
    with redis_server(tmp_path) as server:
        storage = {"fail": {"learned_words": mode}}
        async with replicas(server.url, 1, storage=storage) as (one,):
            learning = one.gate.runtime.learning
            server.kill()
            await one.gate.runtime.browse_query("find blockbusters of film orders", 5, BEST_FIRST)
            await one.run("list_orders")
            await learning.settle()
            assert (learning.lessons, learning.dropped) == (1, 0 if mode == "open" else 1)
            server.start()
            if mode == "open":

                async def written() -> bool:
                    rows = await StoredLearnedWords(one.gate.shared.store, shared=True).learn((), 0)
                    return rows is not None and len(rows.rows) == 1

                await until(written)
        if mode == "open":
            async with replicas(server.url, 1) as (after,):
                browse = await after.gate.runtime.browse_query("blockbusters", 5, BEST_FIRST)
                assert [card.name for card in browse.cards] == ["list_orders"]
