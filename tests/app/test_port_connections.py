"""Which connections are kept: the decisions alone, without a socket."""

import pytest

from app.port.connections import (
    MAX_CONNECTIONS,
    ConnectionCounts,
    ConnectionLimits,
    Connections,
    Seat,
    connection_limits,
)
from tests.support.requirement import requirement


class House:
    """Connections by name; *closed* are the names of those that gave way."""

    def __init__(self, most: int = 4, per_address: int = 4, reserve: int = 2, proxy: str = "") -> None:
        self.closed: list[str] = []
        self.seats: dict[str, Seat] = {}
        limits = ConnectionLimits(most, per_address, reserve, lambda address: address == proxy)
        self.connections = Connections(limits, ConnectionCounts())

    def enter(self, address: str, name: str, *, busy: bool = False) -> Seat:
        seat = self.seats[name] = self.connections.enter(address, lambda: self.closed.append(name))
        if busy:
            self.connections.busy(seat)
        return seat


A, B, C = "192.0.2.1", "192.0.2.2", "192.0.2.3"


@requirement("OPS-30")
def test_the_longest_idle_connection_of_the_address_that_holds_most_gives_way() -> None:
    house = House()
    for name in ("a1", "a2", "a3"):
        house.enter(A, name)
    house.enter(B, "b1")
    house.connections.busy(house.seats["a1"])
    house.connections.idle(house.seats["a1"])
    house.enter(C, "c1")
    house.enter(C, "c2")
    assert house.closed == ["a2", "a3"]
    assert house.connections.counts.open == 4
    assert house.connections.counts.cut["gave_way"] == 2


@requirement("OPS-30")
def test_an_address_that_holds_more_takes_nothing_from_one_that_holds_less() -> None:
    house = House()
    for name in ("a1", "a2", "a3"):
        house.enter(A, name, busy=True)
    house.enter(B, "b1")
    assert house.enter(A, "a4").reserved
    assert house.closed == []
    assert not house.enter(C, "c1").reserved
    assert house.closed == ["b1"]


@requirement("OPS-30")
def test_an_address_at_its_bound_gives_way_to_itself_only() -> None:
    house = House(most=10, per_address=2)
    house.enter(A, "a1", busy=True)
    house.enter(B, "b1")
    house.enter(A, "a2")
    assert not house.enter(A, "a3", busy=True).reserved
    assert house.closed == ["a2"]
    assert house.enter(A, "a4").reserved


@requirement("OPS-30")
def test_the_addresses_of_one_ipv6_network_count_as_one_and_mapped_ones_as_ipv4() -> None:
    house = House(most=10, per_address=1)
    house.enter("2001:db8::1", "six", busy=True)
    assert house.enter("2001:db8::ffff:2", "same").reserved
    assert not house.enter("2001:db8:0:1::1", "next").reserved
    house.enter("192.0.2.9", "four", busy=True)
    assert house.enter("::ffff:192.0.2.9", "mapped").reserved


@requirement("OPS-30")
def test_a_trusted_proxy_has_no_bound_of_its_own_and_gives_way_to_itself_only() -> None:
    house = House(most=3, per_address=1, proxy=A)
    for name in ("a1", "a2", "a3"):
        assert not house.enter(A, name).reserved
    assert house.enter(B, "b1").reserved
    assert not house.enter(A, "a4").reserved
    assert house.closed == ["a1"]


@requirement("OPS-31")
def test_the_oldest_of_the_reserve_gives_way_and_there_too_of_the_address_that_holds_most() -> None:
    house = House(most=1, reserve=3)
    house.enter(A, "a1", busy=True)
    for address, name in ((B, "b1"), (A, "a2"), (A, "a3"), (A, "a4"), (A, "a5")):
        assert house.enter(address, name).reserved
    assert house.closed == ["a2", "a3"]
    assert house.connections.counts.refused["unanswered"] == 2
    assert house.connections.counts.open == 4


@requirement("OPS-31")
def test_a_connection_of_the_reserve_is_served_when_there_is_room() -> None:
    house = House(most=1)
    house.enter(A, "a1", busy=True)
    waiting = house.enter(B, "b1")
    assert house.connections.promote(waiting) == "all"
    house.connections.idle(house.seats["a1"])
    assert house.connections.promote(waiting) is None
    assert (house.closed, waiting.reserved, house.connections.counts.open) == (["a1"], False, 1)


@requirement("OPS-30", "OPS-32")
def test_who_left_or_gave_way_counts_no_more_whatever_comes_after() -> None:
    house = House(most=1, per_address=1, reserve=1)
    first = house.enter(A, "a1")
    house.enter(B, "b1")
    for _ in range(2):
        house.connections.busy(first)
        house.connections.idle(first)
        house.connections.leave(first)
    assert house.connections.counts.open == 1
    house.connections.leave(house.seats["b1"])
    assert house.connections.counts.open == 0
    assert not house.enter(A, "a2").reserved
    house.connections.shed()
    house.connections.shed()
    assert house.closed == ["a1", "a2"]


@requirement("OPS-30")
@pytest.mark.parametrize(
    ("most", "files", "expected"),
    [
        (None, 256, (128, 96, 32)),
        (None, 1_024, (512, 384, 64)),
        (None, 2**63, (MAX_CONNECTIONS, 7_500, 64)),
        (None, 64, (24, 18, 8)),
        (200, 1_024, (200, 150, 64)),
        (5_000, 1_024, (928, 696, 64)),
    ],
)
def test_the_limits_stay_below_the_files_that_the_process_may_open(
    most: int | None, files: int, expected: tuple[int, int, int]
) -> None:
    limits = connection_limits(most, files, lambda address: False)
    assert (limits.most, limits.most_per_address, limits.reserve) == expected
    assert limits.most + limits.reserve < files
