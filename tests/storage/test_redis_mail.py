"""The ways between replicas over a real Redis."""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.storage.peers_contract import BOUND_S, Make, PeersContract, outlives_its_asker, shout
from tests.storage.test_redis_stores import keys_without_an_end
from tests.support.redis import RedisServer
from tests.support.requirement import requirement
from wicketgate.peers import NotReached
from wicketgate.storage.redis import mail
from wicketgate.storage.redis.client import RedisLink
from wicketgate.storage.redis.mail import MailPeers
from wicketgate.storage.redis.url import read_url

pytestmark = pytest.mark.usefixtures("patient_stores")


async def unread(link: RedisLink, peers: MailPeers) -> int:
    count: int = await link.run(lambda client: client.xlen(peers._mailbox(peers.own_id)))
    return count


async def set_everywhere(link: RedisLink, name: str, value: int) -> None:
    nodes = {"target_nodes": "primaries"} if link.place.kind == "cluster" else {}
    await link.run(lambda client: client.config_set(name, value, **nodes))


@requirement("OPS-200")
class TestMailPeers(PeersContract):
    @pytest.fixture
    def make(self, link: RedisLink) -> Make:
        return lambda: MailPeers(link)

    @requirement("OPS-163", "OPS-201")
    async def test_what_was_read_is_removed_and_all_lapses(self, link: RedisLink) -> None:
        one, other = MailPeers(link), MailPeers(link)
        other.answer("shout", shout)
        async with one.answering():
            async with other.answering():
                await one.ask(other.own_id, "shout", {"say": b"x" * 100_000})
                assert await keys_without_an_end(link) == []
                async with asyncio.timeout(BOUND_S):
                    while await unread(link, one) or await unread(link, other):
                        await asyncio.sleep(0.01)
            left = await link.run(lambda c: c.exists(other._mark(other.own_id), other._mailbox(other.own_id)))
            assert left == 0

    @requirement("FACE-124")
    async def test_an_answer_may_outlive_an_asker_that_is_lost(self, link: RedisLink) -> None:
        one, other = MailPeers(link), MailPeers(link)

        def lose() -> None:
            other._doubt()
            other._sure_from = float("-inf")

        await outlives_its_asker(one, other, lose)

    @requirement("OPS-198")
    async def test_an_answer_that_is_lost_on_its_way_is_waited_for_no_longer(
        self, link: RedisLink, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(mail, "_ASK_AGAIN_S", 0.05)
        one, other = MailPeers(link), MailPeers(link)

        async def lost(*args: object) -> None:
            """Sends nothing: what Redis has acknowledged, it has lost."""

        async def answer(payload: Mapping[str, Any]) -> Mapping[str, Any]:
            for channel in other._channels.values():
                monkeypatch.setattr(channel, "send", lost)
                monkeypatch.setattr(other, "_end", lost)
            return {}

        real_end = other._end
        other.answer("lost", answer)
        async with one.answering(), other.answering(), asyncio.timeout(BOUND_S):
            asking = asyncio.create_task(one.ask(other.own_id, "lost", {}, BOUND_S))
            async with asyncio.timeout(BOUND_S):
                while other._end == real_end or other._channels:
                    await asyncio.sleep(0.001)
            monkeypatch.setattr(other, "_end", real_end)
            with pytest.raises(NotReached) as missed:
                await asking
            assert not missed.value.gone

    @requirement("OPS-201")
    async def test_nobody_is_taken_for_dead_while_redis_takes_no_writes(
        self, link: RedisLink, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one, other = MailPeers(link), MailPeers(link)
        with monkeypatch.context() as soon:
            soon.setattr(mail, "THERE_S", 0.05)
            await other._renew()
        async with one.answering(), asyncio.timeout(BOUND_S):
            try:
                await set_everywhere(link, "min-replicas-to-write", 1)
                await one._renew()
                while await link.run(lambda client: client.exists(other._mark(other.own_id))):
                    await asyncio.sleep(0.01)
                with pytest.raises(NotReached) as away:
                    await one.alive(other.own_id)
                assert not away.value.gone
            finally:
                await set_everywhere(link, "min-replicas-to-write", 0)
            await one._renew()
            with pytest.raises(NotReached):
                await one.alive(other.own_id)
            one._sure_from = float("-inf")
            assert not await one.alive(other.own_id)


@requirement("OPS-201")
async def test_an_outage_of_redis_is_no_end_of_a_process_and_an_answer_outlives_it(tmp_path: Path) -> None:
    server = RedisServer(tmp_path / "redis")
    server.start()
    links = [RedisLink(read_url(server.url)) for _ in range(2)]
    one, other = map(MailPeers, links)
    begun, go = asyncio.Event(), asyncio.Event()

    async def wait(payload: Mapping[str, Any]) -> Mapping[str, Any]:
        begun.set()
        await go.wait()
        return {"came": True}

    other.answer("wait", wait)
    other.answer("shout", shout)
    try:
        async with AsyncExitStack() as stack:
            for link in links:
                await stack.enter_async_context(link.running())
            for peers in (one, other):
                await stack.enter_async_context(peers.answering())
            asking = asyncio.create_task(one.ask(other.own_id, "wait", {}, BOUND_S))
            async with asyncio.timeout(BOUND_S):
                await begun.wait()
            server.kill()
            for ask in (one.ask(other.own_id, "shout", {"say": "x"}), one.alive(other.own_id)):
                with pytest.raises(NotReached) as away:
                    await ask
                assert not away.value.gone
            # Started again without its keys: nobody may be taken for dead now.
            server.start()
            go.set()
            async with asyncio.timeout(BOUND_S):
                while True:
                    try:
                        assert await one.ask(other.own_id, "shout", {"say": "x"}) == {"said": "xx"}
                        break
                    except NotReached as unknown:
                        assert not unknown.gone
            with pytest.raises(NotReached) as lost:
                await asking
            assert not lost.value.gone
    finally:
        server.kill()
