"""The contract that every Journal keeps (engine/keyed_runs.py). Subclass it with a fixture ``journal``."""

import asyncio
from abc import abstractmethod

import pytest

from tests.support.requirement import requirement
from wicketgate.engine.events import encode
from wicketgate.engine.journal import EventsGone, Journal
from wicketgate.models.provider import TextDelta

BOUND_S = 30.0


def event(number: int) -> bytes:
    return b'event: tool-result\ndata: {"id":"c%d","output":""}\n\n' % number


def text(content: str) -> bytes:
    return encode(TextDelta(content))


async def read_all(journal: Journal, name: str, after: int = 0) -> list[tuple[int, bytes]]:
    """Follow to the end."""
    read: list[tuple[int, bytes]] = []
    async with asyncio.timeout(BOUND_S), journal.follow(name, after) as follower:
        while entries := await follower.next():
            read += [(entry.position, entry.event) for entry in entries]
    return read


class JournalContract:
    @abstractmethod
    def journal(self) -> Journal:
        """An empty one."""

    @requirement("CHAT-73")
    async def test_a_name_is_claimed_once(self) -> None:
        journal = self.journal()
        claims = await asyncio.gather(*(journal.claim("a", f"run{n}", f"digest{n}", "bob") for n in range(5)))
        assert [claim.mine for claim in claims].count(True) == 1
        assert {(claim.run_id, claim.digest) for claim in claims} == {("run0", "digest0")}
        assert (await journal.claim("b", "run9", "", "bob")).mine
        found = await journal.find("a")
        assert found is not None
        assert (found.run_id, found.mine) == ("run0", False)
        assert await journal.find("c") is None
        await journal.aclose()

    async def test_what_was_appended_is_read_in_order_from_any_place_and_to_the_end(self) -> None:
        journal = self.journal()
        await journal.claim("a", "run", "", "bob")
        await journal.append("a", [event(1), event(2)])
        await journal.append("a", [event(3)])
        following = asyncio.create_task(read_all(journal, "a"))
        await asyncio.sleep(0)
        await journal.append("a", [event(4)])
        await journal.end("a")
        whole = [(n, event(n)) for n in (1, 2, 3, 4)]
        assert await following == whole
        assert await read_all(journal, "a") == whole
        assert await read_all(journal, "a", 2) == whole[2:]
        assert await read_all(journal, "a", 4) == whole[3:], "the end is given again"
        await journal.aclose()

    async def test_what_never_was_cannot_be_followed(self) -> None:
        journal = self.journal()
        await journal.claim("a", "run", "", "bob")
        await journal.append("a", [event(1)])
        for name, after in (("a", 2), ("b", 0)):
            with pytest.raises(EventsGone):
                await read_all(journal, name, after)
        await journal.aclose()

    async def test_the_wait_ends_when_the_last_reader_is_gone_for_long_enough(self) -> None:
        journal = self.journal()
        await journal.claim("a", "run", "", "bob")
        async with asyncio.timeout(BOUND_S):
            async with journal.follow("a", 0):
                left = asyncio.create_task(journal.wait_unattended("a", 0.02))
                async with journal.follow("a", 0):
                    done, _ = await asyncio.wait([left], timeout=0.1)
                    assert not done
            await left
        await journal.aclose()

    @requirement("CHAT-76")
    async def test_many_readers_at_different_paces_read_the_same_bytes_and_no_text_is_lost(self) -> None:
        journal = self.journal()
        await journal.claim("a", "run", "", "bob")
        slow_may_go_on = asyncio.Event()

        async def read_slowly() -> list[tuple[int, bytes]]:
            async with journal.follow("a", 0) as follower:
                read = [(entry.position, entry.event) for entry in await follower.next()]
                await slow_may_go_on.wait()
                while entries := await follower.next():
                    read += [(entry.position, entry.event) for entry in entries]
                return read

        async with asyncio.timeout(BOUND_S):
            slow = asyncio.create_task(read_slowly())
            fast = asyncio.create_task(read_all(journal, "a"))
            for number in range(600):
                if number == 200:
                    slow_may_go_on.set()
                await journal.append("a", [event(number) if number % 100 == 0 else text(f"<{number}>")])
                if number % 50 == 0:
                    await asyncio.sleep(0)
            await journal.end("a")
            one, other = await asyncio.gather(slow, fast)
        assert one == other == await read_all(journal, "a")
        assert [position for position, _ in one] == list(range(1, len(one) + 1))
        tools = [encoded for _, encoded in one if encoded.startswith(b"event: tool")]
        assert tools == [event(number) for number in range(0, 600, 100)]
        everything = b"".join(encoded for _, encoded in one)
        assert all(b"<%d>" % number in everything for number in range(600) if number % 100)
        await journal.aclose()
