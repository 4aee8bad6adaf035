"""Gates that share a store count, keep and remember together; while it is away each does so alone, and none waits."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.redis import RedisServer, redis_server
from tests.support.requirement import requirement
from wicketgate.access.identity import Identity
from wicketgate.config.settings import Settings
from wicketgate.errors import Forbidden, GatewayError, RateLimited
from wicketgate.gate import Gate
from wicketgate.ports import CallContext, session_key
from wicketgate.storage.redis.client import RedisAway
from wicketgate.upstreams.embedded import StubUpstream

pytestmark = pytest.mark.usefixtures("patient_stores")

BOUND_S = 40.0
MARKER = "__cache_breakpoint__"
ANN = CallContext(Identity("ann", ("tools:*",)), "trace", session_key("test", "ann", "s"), cache_stable=True)
BEST_FIRST = replace(ANN, cache_stable=False)
READ_ONLY = {"readOnlyHint": True}
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
            chosen = Settings.model_validate({"storage": storage, **settings})
            gate = await stack.enter_async_context(Gate(chosen, upstreams=[shop]))
            made.append(Replica(gate, shop))
        for each in made:
            await each.gate.wait_ready()
        yield made


async def until(reached: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not await reached():
            await asyncio.sleep(0.02)


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(params=["redis", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path, redis: RedisServer) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/both.db"
    # A database of its own for each test.
    request.node.session.stash[DATABASES] = database = request.node.session.stash.get(DATABASES, 0) + 1
    return f"{redis.url}/{database}"


DATABASES = pytest.StashKey[int]()


@requirement("ACCESS-93")
async def test_exactly_as_many_calls_run_as_the_quota_allows_whichever_gate_they_come_to(url: str) -> None:
    async with replicas(url, quota={"per_actor": 20, "per_tool": {"shop:*": 30}}, **CACHED) as (one, other):
        assert await one.gate.runtime.execute(one.id_of(), {}, ANN, dry_run=True)
        ran = await asyncio.gather(one.ran(30), other.ran(30))
        assert (sum(ran), len(one.shop.calls) + len(other.shop.calls)) == (20, 20)
        refused = await other.run()
        assert isinstance(refused, RateLimited)
        assert refused.details is not None
        assert (refused.details["scope"], refused.details["limit"]) == ("actor", 20)
        assert 60 - BOUND_S < refused.details["retry_after_s"] <= 60
        # Other limits, by a reload: what was counted counts on.
        more = {"storage": {"url": url}, "quota": {"per_actor": 25, "per_tool": {"shop:*": 22}}}
        changes = await other.gate.apply(Settings.model_validate({**CACHED, **more}))
        assert changes.waiting == ()
        assert await other.ran(10) == 2


@requirement("EXEC-54")
async def test_what_one_gate_was_given_another_gives_again_until_either_refreshes(url: str) -> None:
    async with replicas(url, **CACHED) as (one, other):
        first = await one.run(q="x")
        assert first == "find_film 1"
        assert [await each.run(q="x") for each in (one, other, one)] == [first] * 3
        assert other.shop.calls == []
        await other.gate.runtime.refresh_catalog()
        assert await one.run(q="x") == "find_film 2"
        assert await other.run(q="x") == "find_film 2"


@requirement("BROWSE-71", "BROWSE-72")
async def test_cards_stay_as_they_were_at_any_gate_and_after_a_restart(url: str) -> None:
    async with replicas(url) as (one, other):
        text, names = await one.shown("film")
        assert names == ["film_actors", "find_film"]
        again, more = await other.shown("lists films and orders")
        assert again.startswith(text)
        assert more == ["film_actors", "find_film", MARKER, "list_orders"]
    async with replicas(url, 1) as (after,):
        assert (await after.shown("film"))[0] == text


@requirement("ACCESS-94", "EXEC-55", "BROWSE-73")
async def test_while_redis_is_away_each_gate_goes_on_alone_and_redis_learns_of_it_afterwards(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        async with replicas(server.url, quota={"per_tool": {"shop:find_film": 20}}, **CACHED) as (one, other):
            assert await one.ran(5) == 5
            text, _ = await one.shown("film")
            kept = await one.run("list_orders", q="x")
            server.kill()
            # What this gate let through before counts; the cards stay as they were.
            assert await one.ran(30) == 15
            again, names = await one.shown("lists films and orders")
            assert again.startswith(text)
            assert names[-2:] == [MARKER, "list_orders"]
            meanwhile = await one.run("list_orders", q="x")
            assert meanwhile != kept
            assert await one.run("list_orders", q="x") == meanwhile
            degraded = one.gate.storage_state().degraded
            assert degraded["quotas"] == degraded["seen_cards"] == degraded["cached_results"] == "open"
            assert one.gate.storage.refused, "most were refused at once, and waited for nothing"
            # This Redis comes back empty, and is given what was counted and shown while it was away.
            server.start()

            async def counted() -> bool:
                return bool(await keys(other, "quota")) and bool(await keys(other, "seen"))

            await until(counted)
            assert await other.ran(30) == 5
            assert (await other.shown("lists films and orders"))[1] == ["film_actors", "find_film", "list_orders"]
            assert (await other.shown("lists films and orders"))[0].startswith(text.splitlines()[0])
            assert await one.ran(1) == 0
            await until(lambda: answered(one))


async def keys(replica: Replica, kind: str) -> list[bytes]:
    link = replica.gate._redis
    assert link is not None

    async def look(client: Any) -> list[bytes]:
        return [name async for name in client.scan_iter(f"wg1:{kind}:*")]

    try:
        return await link.run(look)
    except RedisAway:
        return []


async def answered(replica: Replica) -> bool:
    await replica.run("list_orders", q="x")
    await replica.shown("film")
    return not set(replica.gate.storage_state().degraded) & {"quotas", "seen_cards", "cached_results"}


@requirement("ACCESS-94")
async def test_with_closed_quotas_nothing_that_has_one_runs_until_redis_is_back(tmp_path: Path) -> None:
    closed = {"fail": {"quotas": "closed", "cached_results": "closed", "seen_cards": "closed"}}
    with redis_server(tmp_path) as server:
        quota = {"per_tool": {"shop:find_film": 20}}
        async with replicas(server.url, 1, quota=quota, storage=closed, **CACHED) as (one,):
            assert await one.ran(1) == 1
            server.kill()
            refused = [await one.run() for _ in range(3)]
            assert [type(each).__mro__[1] for each in refused] == [Forbidden] * 3
            assert len(one.shop.calls) == 1
            # What has no quota runs, and is not given again.
            assert [await one.run("list_orders") for _ in range(2)] == ["list_orders 2", "list_orders 3"]
            assert MARKER not in (await one.shown("film"))[1]
            assert MARKER not in (await one.shown("lists films and orders"))[1]
            server.start()

            async def runs() -> bool:
                return isinstance(await one.run(), str)

            await until(runs)


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
                    return any(b"rows" in name for name in await keys(one, "learned"))

                await until(written)
        if mode == "open":
            async with replicas(server.url, 1) as (after,):
                browse = await after.gate.runtime.browse_query("blockbusters", 5, BEST_FIRST)
                assert [card.name for card in browse.cards] == ["list_orders"]
