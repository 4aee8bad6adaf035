"""Places at an upstream: never more than allowed, none lost, and fair among actors (UP-17)."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.requirement import requirement
from wicketgate.fleet.slots import CallSlots, SlotRefused


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


class Crowd:
    """Calls by actor on *slots*, each holding its place until it is let go."""

    def __init__(self, slots: CallSlots) -> None:
        self.slots = slots
        self.order: list[str] = []
        self.calls: list[tuple[str, asyncio.Task[None], asyncio.Event]] = []

    def come(self, actor: str) -> asyncio.Task[None]:
        go = asyncio.Event()
        task = asyncio.create_task(self._call(actor, go))
        self.calls.append((actor, task, go))
        return task

    async def _call(self, actor: str, go: asyncio.Event) -> None:
        if not self.slots.enter(actor):
            await self.slots.wait(actor)
        self.order.append(actor)
        try:
            await go.wait()
        finally:
            self.slots.leave(actor)

    async def end(self) -> None:
        for _, task, _ in self.calls:
            task.cancel()
        await asyncio.gather(*(task for _, task, _ in self.calls), return_exceptions=True)


@requirement("UP-17", "UP-18")
@given(
    most=st.integers(1, 4),
    most_waiting=st.integers(0, 5),
    steps=st.lists(
        st.tuples(
            st.sampled_from(["come", "finish", "cancel", "hand over"]),
            st.integers(0, 50),
            st.sampled_from(["at once", "one tick", "settled"]),
        ),
        max_size=60,
    ),
)
def test_no_place_is_lost_or_given_twice_whatever_comes_and_goes(
    most: int, most_waiting: int, steps: list[tuple[str, int, str]]
) -> None:
    async def play() -> None:
        slots = CallSlots(most, most_waiting)
        crowd = Crowd(slots)
        for step, number, pause in steps:
            alive = [call for call in crowd.calls if not call[1].done()]
            if step == "come" or not alive:
                crowd.come("abc"[number % 3])
            else:
                _, task, go = alive[number % len(alive)]
                if step == "cancel":
                    task.cancel()
                else:
                    go.set()
                if step == "hand over":
                    # After one tick its place may be given to a call that has not woken yet.
                    await asyncio.sleep(0)
                    alive[(number + 1) % len(alive)][1].cancel()
            # Without a pause several things happen before a task runs.
            if pause == "one tick":
                await asyncio.sleep(0)
            elif pause == "settled":
                await settle()
                assert slots.running <= most
                assert slots.waiting <= most_waiting
                assert slots.running == most or not slots.waiting, "a place is free and somebody waits"
        await settle()
        left = sum(not task.done() for _, task, _ in crowd.calls)
        assert slots.running + slots.waiting == left
        await crowd.end()
        assert (slots.running, slots.waiting) == (0, 0)

    asyncio.run(play())


@requirement("UP-17", "UP-18")
async def test_an_actor_with_many_calls_does_not_keep_another_waiting_behind_them() -> None:
    crowd = Crowd(CallSlots(2, 100))
    for _ in range(20):
        crowd.come("many")
    crowd.come("few")
    await settle()
    crowd.calls[0][2].set()
    await settle()
    assert crowd.order == ["many", "many", "few"]
    for _, _, go in crowd.calls:
        go.set()
    await asyncio.gather(*(task for _, task, _ in crowd.calls))
    assert Counter(crowd.order) == {"many": 20, "few": 1}


async def test_two_crowds_take_turns() -> None:
    crowd = Crowd(CallSlots(1, 100))
    for actor in ("a", "a", "a", "b", "b", "b"):
        crowd.come(actor)
    await settle()
    for number in range(6):
        assert len(crowd.order) == number + 1
        running = [call for call in crowd.calls if not call[1].done()]
        next(call for call in running if call[0] == crowd.order[-1])[2].set()
        await settle()
    assert crowd.order == ["a", "b", "a", "b", "a", "b"]


@requirement("UP-17", "UP-18")
async def test_a_full_queue_takes_room_from_whoever_waits_most_and_refuses_who_has_an_equal_share() -> None:
    crowd = Crowd(CallSlots(1, 4))
    many = [crowd.come("many") for _ in range(5)]
    await settle()
    few = [crowd.come("few") for _ in range(3)]
    await settle()
    refused = [task for task in (*many, *few) if task.done()]
    assert refused == [many[3], many[4], few[2]]
    for task in refused:
        with pytest.raises(SlotRefused):
            await task
    await crowd.end()


@requirement("UP-17")
async def test_room_is_not_taken_where_that_would_only_turn_the_shares_round() -> None:
    crowd = Crowd(CallSlots(1, 3))
    many = [crowd.come("many") for _ in range(4)]
    await settle()
    few = [crowd.come("few") for _ in range(2)]
    await settle()
    refused = [task for task in (*many, *few) if task.done()]
    assert refused == [many[3], few[1]], "two of one and one of the other wait"
    for task in refused:
        with pytest.raises(SlotRefused):
            await task
    await crowd.end()


@requirement("UP-17")
async def test_a_call_cancelled_in_the_tick_in_which_it_got_a_place_passes_it_on() -> None:
    slots = CallSlots(1, 4)
    assert slots.enter("a")
    cancelled, next_one = asyncio.create_task(slots.wait("b")), asyncio.create_task(slots.wait("c"))
    await settle()
    slots.leave("a")
    assert (slots.running, slots.waiting) == (1, 1), "given to b, who has not woken"
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    async with asyncio.timeout(30):
        await next_one
    assert (slots.running, slots.waiting) == (1, 0)
    slots.leave("c")
    assert slots.running == 0


@requirement("UP-17")
async def test_a_call_cancelled_in_the_tick_in_which_it_was_turned_away_gives_back_no_place() -> None:
    slots = CallSlots(1, 4)
    assert slots.enter("a")
    waiting = asyncio.create_task(slots.wait("b"))
    await settle()
    slots.close()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (slots.running, slots.waiting) == (1, 0)


async def test_closed_places_turn_away_who_waits_and_leave_alone_who_runs() -> None:
    slots = CallSlots(1, 4)
    crowd = Crowd(slots)
    runs, waits = crowd.come("a"), crowd.come("b")
    await settle()
    slots.close()
    with pytest.raises(SlotRefused):
        await waits
    with pytest.raises(SlotRefused):
        await crowd.come("c")
    assert not runs.done()
    await crowd.end()


async def test_more_places_are_given_out_at_once() -> None:
    slots = CallSlots(1, 10)
    crowd = Crowd(slots)
    for _ in range(4):
        crowd.come("a")
    await settle()
    slots.resize(3, 10)
    await settle()
    assert (slots.running, slots.waiting) == (3, 1)
    await crowd.end()


@requirement("UP-60")
async def test_one_actor_cannot_hold_all_slots() -> None:
    crowd = Crowd(CallSlots(10, 20))
    bobs = [crowd.come("bob") for _ in range(12)]
    await settle()
    assert (crowd.slots.running, crowd.slots.waiting) == (8, 4)
    # Others start at once, although calls of bob wait.
    crowd.come("alice")
    await settle()
    assert crowd.order == ["bob"] * 8 + ["alice"]
    # What bob gives back is bob's again within the share.
    bobs[0].cancel()
    await settle()
    assert crowd.order[9:] == ["bob"]
    assert (crowd.slots.running, crowd.slots.waiting) == (9, 3)
    # The last slot is not, but anybody else's.
    crowd.come("carol")
    crowd.come("bob")
    await settle()
    assert crowd.order[10:] == ["carol"]
    assert (crowd.slots.running, crowd.slots.waiting) == (10, 4)
    await crowd.end()
    assert (crowd.slots.running, crowd.slots.waiting) == (0, 0)
