"""The list of calls that wait, by a clock of the test's own (OPS-253 to OPS-257)."""

import itertools

from tests.support.requirement import requirement
from wicketgate.engine.waiting_calls import MOST, MOST_DECIDED, MOST_OF_ACTOR, Change, WaitingCall, WaitingCalls


class Desk:
    def __init__(self) -> None:
        self.time = 1_000.0
        self.told: list[tuple[str, Change]] = []
        self._numbers = itertools.count()
        self.list = WaitingCalls(lambda: self.time)
        self.list.listen(lambda call, change: self.told.append((call.id, change)))

    def ask(self, actor: str = "ann", tool: str = "shop:refund#1", *, arguments: str = "", chat: bool = True) -> str:
        number = next(self._numbers)
        id = f"w{number}"
        self.list.add(
            WaitingCall(
                id, f"apr_{id}", actor, tool, "d", arguments or id, {}, (), self.time, self.time + 60, from_chat=chat
            )
        )
        return id

    def of(self, actor: str) -> int:
        return sum(each.actor == actor for each in self.list.waiting())


def ids(calls: list[WaitingCall]) -> list[str]:
    return [each.id for each in calls]


@requirement("OPS-253")
async def test_the_list_is_bounded_for_each_actor_and_in_all() -> None:
    at = Desk()
    mine = [at.ask() for _ in range(MOST_OF_ACTOR + 1)]
    assert ids(at.list.waiting()) == mine[1:]
    assert at.told[-2:] == [(mine[0], "expired"), (mine[-1], "new")]
    for number in range(MOST):
        at.ask(f"actor {number}")
    assert len(at.list.waiting()) == MOST
    # Whoever held most has made room.
    assert at.of("ann") <= 1
    assert at.of(f"actor {MOST - 1}") == 1
    at.list.close()


@requirement("OPS-253")
async def test_the_same_call_without_a_client_that_could_decide_is_listed_once() -> None:
    at = Desk()
    first = at.ask(arguments="same", chat=False)
    at.ask(arguments="same", chat=False)
    assert ids(at.list.waiting()) == [first]
    assert len(at.list.waiting()) == 1
    at.ask(arguments="same")
    assert len(at.list.waiting()) == 2
    at.list.close()


@requirement("OPS-257")
async def test_what_has_expired_leaves_the_list_and_stands_no_more() -> None:
    at = Desk()
    left, approved = at.ask(), at.ask(arguments="x")
    call = at.list.find(approved)
    assert call is not None
    at.list.decide(call, "approve", stands=True)
    at.time += 60
    assert at.list.waiting() == []
    assert list(at.list.standing("ann", call.tool_id, "x")) == []
    assert at.told[-1] == (left, "expired")
    at.list.close()


@requirement("OPS-257")
async def test_the_last_decisions_are_kept_newest_first() -> None:
    at = Desk()
    for _ in range(MOST_DECIDED + 1):
        call = at.list.find(at.ask())
        assert call is not None
        at.list.decide(call, "deny", stands=False)
    decided = at.list.decided()
    assert (len(decided), decided[0].id, decided[-1].id) == (MOST_DECIDED, f"w{MOST_DECIDED}", "w1")
    at.list.close()
