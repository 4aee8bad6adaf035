"""The contract that every RunStore keeps (storage/run_store.py): runs that are taken over from a process that is gone.

A store is tested by a class that inherits this one, beside a fixture ``hosts``.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

import pytest

from tests.storage.journal_contract import event
from tests.support.requirement import requirement
from wicketgate.engine.events import Done, Event, ToolCallEvent, encode
from wicketgate.engine.journal import Entry, lost_events
from wicketgate.models.provider import TextDelta, Usage
from wicketgate.storage.run_store import NewEvents, Part, RunStore

DONE = encode(Done("stop", Usage()))


class Hosts(Protocol):
    """Processes that share one store."""

    def process(self) -> RunStore:
        """The store as one more process has it. Closed with the fixture."""
        ...

    async def lapse(self) -> None:
        """Return when every lease that was not renewed since the call has lapsed."""
        ...


def entries(first: int, *events: bytes) -> Sequence[Entry]:
    return [Entry(first + number, each) for number, each in enumerate(events)]


async def claimed(store: RunStore, name: str = "a", part: bytes = b"zero") -> None:
    assert await store.claim(name, f"run {name}", f"digest {name}", "b\ud800b", part) is None


class RunStoreContract:
    @requirement("CHAT-123")
    async def test_a_run_is_taken_with_all_that_is_needed_to_go_on(self, hosts: Hosts) -> None:
        gone, here = hosts.process(), hosts.process()
        await claimed(gone)
        assert await gone.claim_call("a", "c1")
        assert await gone.claim_call("a", "c2\ud800")
        first = NewEvents(entries(1, event(1), event(2)), ["c1"], [Part(1, 2, b"\x00one")])
        assert await gone.append({"a": first}) == []
        assert await gone.append({"a": NewEvents(entries(3, event(3)), [], [Part(2, 3, b"two" * 9_999)])}) == []
        assert await here.take("a") is None
        assert await here.lapsed(9) == {}
        await hosts.lapse()
        found = await here.find("a")
        assert found is not None
        assert (found.lapsed, found.ended, found.lost) == (True, False, False)
        assert await here.lapsed(9) == {"a": False}
        orphan = await here.take("a")
        assert orphan is not None
        assert (orphan.run_id, orphan.digest, orphan.owner) == ("run a", "digest a", "b\ud800b")
        assert (orphan.last, orphan.last_event, orphan.unfinished) == (3, event(3), ["c2\ud800"])
        assert orphan.parts == [Part(0, 0, b"zero"), Part(1, 2, b"\x00one"), Part(2, 3, b"two" * 9_999)]
        assert 0 <= orphan.lapsed_s < 60
        # From now on it is a run of this process, which adds to it and ends it.
        found = await here.find("a")
        assert found is not None
        assert (found.lapsed, found.ended, found.lost) == (False, False, True)
        assert not await here.claim_call("a", "c1"), "a claim is never given back"
        assert await here.claim_call("a", "c3")
        assert await here.append({"a": NewEvents(entries(4, DONE), ["c3"])}) == []
        await here.end("a")
        read = await gone.read("a", 2)
        assert read is not None
        assert (read[0].ended, read[1]) == (True, entries(3, event(3), DONE))

    @requirement("CHAT-124")
    async def test_one_of_many_takes_a_run_and_its_former_process_changes_nothing_any_more(self, hosts: Hosts) -> None:
        still = hosts.process()
        await claimed(still)
        await still.append({"a": NewEvents(entries(1, event(1)), [])})
        await hosts.lapse()
        others = [hosts.process() for _ in range(4)]
        taken = await asyncio.gather(*(other.take("a") for other in others))
        assert [orphan is not None for orphan in taken].count(True) == 1
        assert await still.append({"a": NewEvents(entries(2, event(2)), [], [Part(1, 2, b"one")])}) == ["a"]
        assert not await still.claim_call("a", "c1")
        await claimed(still, "b")
        assert await still.renew() == ["a"]
        await still.end("a")
        assert await still.renew() == []
        assert await still.take("a") is None
        read = await others[0].read("a", 0)
        assert read is not None
        assert (read[0].ended, read[1]) == (False, entries(1, event(1)))

    @requirement("CHAT-129")
    async def test_a_run_that_is_released_can_be_taken_at_once_and_is_its_process_s_no_more(self, hosts: Hosts) -> None:
        ends, here = hosts.process(), hosts.process()
        await claimed(ends)
        await claimed(ends, "b")
        await ends.append({"a": NewEvents(entries(1, event(1)), [], [Part(1, 1, b"one")])})
        await here.release("a")
        assert await here.lapsed(9) == {}, "it is not its own"
        await ends.release("a")
        assert await ends.renew() == []
        assert await here.lapsed(9) == {"a": True}
        found = await here.find("a")
        assert found is not None
        assert (found.lapsed, found.ended) == (True, False)
        await ends.end("a")
        orphan = await here.take("a")
        assert orphan is not None
        assert (orphan.last, orphan.parts) == (1, [Part(0, 0, b"zero"), Part(1, 1, b"one")])
        assert orphan.lapsed_s < 60
        assert await here.append({"a": NewEvents(entries(2, DONE), [])}) == []
        await here.end("a")
        assert await here.lapsed(9) == {}

    @requirement("CHAT-124")
    async def test_a_run_whose_process_is_back_is_not_taken(self, hosts: Hosts) -> None:
        slow, here = hosts.process(), hosts.process()
        await claimed(slow)
        await claimed(slow, "b")
        await hosts.lapse()
        assert await slow.lapsed(9) == {}, "of its own runs a process knows better"
        assert await slow.renew() == []
        assert await here.lapsed(9) == {}
        assert await here.take("a") is None
        assert await slow.append({"b": NewEvents(entries(1, event(1)), [])}) == []

    @requirement("CHAT-124")
    async def test_a_run_that_was_taken_can_be_taken_again(self, hosts: Hosts) -> None:
        first, second, third = hosts.process(), hosts.process(), hosts.process()
        await claimed(first)
        await hosts.lapse()
        assert await second.take("a") is not None
        await second.append({"a": NewEvents(entries(1, event(1)), [], [Part(1, 1, b"one")])})
        await hosts.lapse()
        orphan = await third.take("a")
        assert orphan is not None
        assert (orphan.last, orphan.parts) == (1, [Part(0, 0, b"zero"), Part(1, 1, b"one")])

    @requirement("CHAT-123")
    async def test_parts_are_not_added_twice_and_may_come_without_events(self, hosts: Hosts) -> None:
        gone, here = hosts.process(), hosts.process()
        await claimed(gone, part=b"")
        new = NewEvents(entries(1, event(1)), [], [Part(0, 0, b"zero"), Part(1, 1, b"one")])
        for _ in range(2):
            assert await gone.append({"a": new}) == []
        assert await gone.append({"a": NewEvents([], [], [Part(2, 1, b"two")])}) == []
        await hosts.lapse()
        orphan = await here.take("a")
        assert orphan is not None
        assert orphan.parts == [Part(0, 0, b"zero"), Part(1, 1, b"one"), Part(2, 1, b"two")]

    @requirement("CHAT-112")
    async def test_a_run_that_is_taken_and_ended_says_what_was_lost(self, hosts: Hosts) -> None:
        gone, here = hosts.process(), hosts.process()
        await claimed(gone)
        await gone.claim_call("a", "c1")
        await hosts.lapse()
        assert await here.take("a") is not None
        await here.end("a")
        read = await here.read("a", 0)
        assert read is not None
        assert (read[0].ended, read[0].lost, read[1]) == (True, True, entries(1, *lost_events(["c1"])))
        assert await here.lapsed(9) == {}
        assert await hosts.process().take("a") is None

    @requirement("CHAT-160")
    @pytest.mark.parametrize(
        ("event", "claimed_id", "code"),
        [
            (ToolCallEvent("c1", "t", {}), None, b"tool_error"),
            (TextDelta("x"), "c1", b"tool_error"),
            (TextDelta("x"), None, b"provider_error"),
        ],
    )
    async def test_the_error_of_a_lost_run_names_what_was_under_way(
        self, hosts: Hosts, event: Event, claimed_id: str | None, code: bytes
    ) -> None:
        gone, here = hosts.process(), hosts.process()
        await claimed(gone)
        if claimed_id is not None:
            await gone.claim_call("a", claimed_id)
        await gone.append({"a": NewEvents(entries(1, encode(event)), [])})
        await hosts.lapse()
        assert await here.take("a") is not None
        await here.end("a")
        read = await here.read("a", 0)
        assert read is not None
        assert b'"code":"%b"' % code in read[1][-1].event

    @requirement("CHAT-124")
    async def test_those_come_first_whose_lease_lapsed_first(self, hosts: Hosts) -> None:
        gone, here = hosts.process(), hosts.process()
        for name in ("a", "b", "c"):
            await claimed(gone, name)
        await gone.append({"a": NewEvents(entries(1, DONE), [])})
        await gone.end("a")
        await hosts.lapse()
        assert await here.lapsed(1) != {}
        assert sorted(await here.lapsed(9)) == ["b", "c"]

    @requirement("CHAT-115")
    async def test_it_is_known_since_when_nobody_reads_elsewhere(self, hosts: Hosts) -> None:
        here, there = hosts.process(), hosts.process()
        await claimed(here)
        assert await here.attended_s("a") == float("-inf")
        await there.attend("a", 5.0)
        assert 0 < await here.attended_s("a") <= 5.0
        await there.attend("a", -2.0)
        assert -60 < await here.attended_s("a") <= -2.0
