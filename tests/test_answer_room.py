"""Room for large answers: given to actors in turn, and always given back (UP-236, UP-237)."""

import asyncio

import pytest

from tests.support.requirement import requirement
from tests.support.until import settle
from wicketgate.answer_room import AnswerHold, memory_bytes, room_bytes
from wicketgate.fleet.slots import shared_slots

MiB = 1 << 20
BOUND_S = 30.0


@requirement("UP-236")
@pytest.mark.parametrize(("memory", "room"), [(0, 32), (512, 32), (1024, 64), (8192, 256)])
def test_the_room_follows_the_memory_of_the_process(memory: int, room: int) -> None:
    assert room_bytes(memory * MiB) == room * MiB
    assert memory_bytes() > 0


@requirement("UP-236", "UP-237")
async def test_one_actor_leaves_room_for_another_and_what_it_holds_comes_back() -> None:
    room = shared_slots("answers", lambda: 32 * MiB)
    bob, more, alice = AnswerHold("bob"), AnswerHold("bob"), AnswerHold("alice")
    async with asyncio.timeout(BOUND_S):
        await bob.take(16 * MiB)
        waiting = asyncio.create_task(more.take(16 * MiB))
        await settle()
        await alice.take(15 * MiB)
        assert (room.running, waiting.done()) == (31 * MiB, False)
        # A hold that is passed on is given back where it is now.
        other = AnswerHold("carl")
        other.keep(bob)
        bob.close()
        other.shrink(4 * MiB)
        assert room.running == 19 * MiB
        alice.close()
        await waiting
        more.close()
        other.close()
    assert room.running == 0


@requirement("UP-236")
async def test_a_call_that_leaves_or_is_over_holds_nothing() -> None:
    room = shared_slots("answers", lambda: 32 * MiB)
    first, second = AnswerHold("bob"), AnswerHold("bob")
    async with asyncio.timeout(BOUND_S):
        await first.take(100 * MiB)  # more than all: it counts as four fifths
        assert 0 < room.running < 32 * MiB
        left = asyncio.create_task(second.take(16 * MiB))
        await settle()
        left.cancel()
        await asyncio.gather(left, return_exceptions=True)
        late = asyncio.create_task(second.take(16 * MiB))
        await settle()
        second.close()
        first.close()
        await late
    assert (room.running, room.waiting) == (0, 0)
