"""FeatureFleet: lists of many servers as one, each failing alone (ROUTE-9, ROUTE-10)."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from tests.support.clock import Clock
from tests.support.requirement import requirement
from wicketgate.access.identity import Identity
from wicketgate.errors import RateLimited, UpstreamError, UpstreamUnavailable
from wicketgate.fleet.features import (
    FRESH_S,
    FeatureChange,
    FeatureFleet,
    FeatureKind,
    FeatureList,
    Features,
    FeatureSupport,
    ListChanged,
    ResourceChanged,
)
from wicketgate.login.user_credentials import GrantName
from wicketgate.ports import CallContext

CONTEXT = CallContext(Identity("owner", ("*",)), "trace", "session")
BOUND_S = 30.0
EVERYTHING = FeatureSupport(True, True, True, True)


class Scripted:
    """Implements Features: gives *items*, or raises them."""

    accounts = None

    def __init__(self, items: Sequence[Any] | Exception, support: FeatureSupport | None = EVERYTHING) -> None:
        self.items = items
        self.support = support
        self.listings = 0
        self.followed: frozenset[str] = frozenset()
        self.tell: Callable[[FeatureChange], None] = lambda change: None
        self.release = asyncio.Event()
        self.release.set()

    async def list_all(self, kind: FeatureKind, account: GrantName | None = None) -> FeatureList:
        self.listings += 1
        await self.release.wait()
        if isinstance(self.items, Exception):
            raise self.items
        return FeatureList(self.items)

    async def request(
        self, method: str, params: Mapping[str, Any], context: CallContext, timeout_s: float
    ) -> Mapping[str, Any]:
        await self.release.wait()
        return {"asked": params}

    def follow(self, uris: frozenset[str], actor: str = "") -> None:
        self.followed = uris

    def watch(self, heard: Callable[[FeatureChange], None]) -> None:
        self.tell = heard


def fleet_of(clock: Callable[[], float] = Clock(0.0), **servers: Features) -> FeatureFleet:  # noqa: B008
    return FeatureFleet(lambda: servers, clock, timeout_s=1)


NOTE = {"uri": "demo://note", "name": "note"}


@requirement("ROUTE-9", "ROUTE-10")
async def test_a_server_that_fails_or_lies_or_has_no_such_list_costs_the_others_nothing() -> None:
    fleet = fleet_of(
        good=Scripted([NOTE, "no item", {"uri": 5}, {}, {"uri": "x" * 9_000}]),
        broken=Scripted(UpstreamError("list broke.")),
        away=Scripted(UpstreamUnavailable("away is not connected."), support=None),
        toolsonly=Scripted(RuntimeError("never asked"), FeatureSupport()),
    )
    listing = await fleet.list_all("resources", ["good", "broken", "away", "toolsonly", "unheard-of"])
    assert listing.items == {"good": [NOTE]}
    assert listing.missing == {"broken": "list broke.", "away": "away is not connected."}
    alone = await fleet_of(broken=Scripted(UpstreamError("list broke."))).list_all("prompts", ["broken"])
    assert (alone.items, alone.missing) == ({}, {"broken": "list broke."})


@requirement("ROUTE-11")
async def test_a_list_is_asked_for_once_until_it_is_old_or_said_to_have_changed() -> None:
    clock, server = Clock(0.0), Scripted([NOTE])
    fleet = fleet_of(clock, a=server)

    async def listings() -> int:
        await asyncio.gather(*(fleet.list_all("resources", ["a"]) for _ in range(5)))
        return server.listings

    assert [await listings(), await listings()] == [1, 1]
    clock.now = FRESH_S + 1
    assert await listings() == 2
    server.tell(ListChanged("resources"))
    assert await listings() == 3
    server.items = UpstreamError("broken")
    server.tell(ListChanged("resources"))
    await listings()
    failed = server.listings
    server.items = [NOTE]
    assert await listings() > failed
    assert (await fleet.list_all("resources", ["a"])).items == {"a": [NOTE]}


@requirement("ROUTE-11")
async def test_who_leaves_while_a_list_is_read_takes_it_from_nobody() -> None:
    server = Scripted([NOTE])
    server.release.clear()
    fleet = fleet_of(a=server)
    leaving, staying = (asyncio.create_task(fleet.list_all("resources", ["a"])) for _ in range(2))
    while not server.listings:
        await asyncio.sleep(0)
    leaving.cancel()
    server.release.set()
    assert (await staying).items == {"a": [NOTE]}


@requirement("ROUTE-9")
async def test_a_server_that_hangs_keeps_nobody_from_the_lists_of_the_others() -> None:
    hangs, well = Scripted([NOTE]), Scripted([NOTE])
    hangs.release.clear()
    fleet = FeatureFleet(lambda: {"hangs": hangs, "well": well}, Clock(0.0), timeout_s=1, patience_s=0.05)
    listing = await fleet.list_all("resources", ["hangs", "well"])
    assert (listing.items, list(listing.missing)) == ({"well": [NOTE]}, ["hangs"])
    hangs.release.set()
    while (listing := await fleet.list_all("resources", ["hangs", "well"])).missing:
        await asyncio.sleep(0)
    assert hangs.listings == 1


async def test_requests_go_to_their_server_alone() -> None:
    fleet = fleet_of(a=Scripted([]))
    assert await fleet.request("a", "resources/read", {"uri": "x"}, CONTEXT) == {"asked": {"uri": "x"}}
    with pytest.raises(UpstreamUnavailable):
        await fleet.request("gone", "resources/read", {}, CONTEXT)


@requirement("ROUTE-11")
async def test_a_resource_is_followed_as_long_as_somebody_wants_it_also_at_who_comes_later() -> None:
    servers: dict[str, Features] = {}
    fleet = FeatureFleet(lambda: servers, Clock(0.0), timeout_s=1)
    heard: list[tuple[str, FeatureChange]] = []
    fleet.watch(lambda name, change: heard.append((name, change)))
    fleet.follow("a", "x", "alice")
    fleet.follow("a", "x", "alice")
    first = servers["a"] = Scripted([])
    fleet.attend()
    assert first.followed == {"x"}
    fleet.unfollow("a", "x", "alice")
    assert first.followed == {"x"}
    second = servers["a"] = Scripted([])
    fleet.attend()
    second.tell(ResourceChanged("x"))
    first.tell(ResourceChanged("x"))  # it was replaced
    assert heard == [("a", ResourceChanged("x"))]
    fleet.unfollow("a", "x", "alice")
    assert second.followed == frozenset()


@requirement("ACCESS-72")
def test_the_resources_of_a_server_that_are_followed_are_shared_among_actors() -> None:
    fleet = FeatureFleet(dict, Clock(0.0), timeout_s=1)

    def takes(actor: str, prefix: str) -> int:
        for number in range(2_000):
            try:
                fleet.follow("a", f"{prefix}{number}", actor)
            except RateLimited:
                return number
        raise AssertionError("there is no bound")

    assert takes("alice", "made-up-") == 800
    fleet.follow("a", "made-up-0", "alice")  # on a second stream
    assert takes("bob", "real-") > 100
    assert takes("carol", "other-") > 0
    # What is given back is there for others.
    for number in range(800):
        fleet.unfollow("a", f"made-up-{number}", "alice")
    fleet.unfollow("a", "made-up-0", "alice")
    assert takes("bob", "real-again-") > 500


@requirement("FACE-45")
async def test_a_resource_whose_address_is_longer_than_any_that_is_listed_is_not_followed() -> None:
    server = Scripted([])
    fleet = fleet_of(a=server)
    fleet.follow("a", "x" * 8_192, "owner")
    with pytest.raises(RateLimited, match="8192 characters"):
        fleet.follow("a", "x" * 8_193, "owner")
    assert server.followed == {"x" * 8_192}


async def test_at_the_end_no_listing_goes_on_and_who_waits_is_answered() -> None:
    hanging = Scripted([{"uri": "file:///a"}])
    hanging.release.clear()
    fleet = fleet_of(hanging=hanging)
    waiting = asyncio.create_task(fleet.list_all("resources", ["hanging"]))
    async with asyncio.timeout(BOUND_S):
        while not hanging.listings:
            await asyncio.sleep(0)
        await fleet.aclose()
        listing = await waiting
    assert listing.items == {}
    assert listing.missing == {"hanging": "hanging is being closed; its resources were not listed."}
    await fleet.aclose()
