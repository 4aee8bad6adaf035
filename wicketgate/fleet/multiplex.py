"""The fleet: many upstreams, each failing alone (S1 "MultiplexUpstream", S2 "Multi-Server Operations")."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from wicketgate.errors import CatalogError, GatewayError, UpstreamUnavailable
from wicketgate.fleet.member import Member, MemberState
from wicketgate.ports import Upstream, UpstreamStatus

Listing = Sequence[Mapping[str, Any]]


class MultiplexUpstream:
    """Upstreams by name. A call goes to the one that owns the tool; a listing asks them all at once.

    Which they are may change while it is in use: *members* is replaced whole, by one assignment.
    """

    def __init__(self, upstreams: Sequence[Upstream | Member]) -> None:
        """An upstream that is not a Member yet becomes one, with the default limits.

        An upstream without a name gets one by its place; the namespaces of its tools are inferred from their names.
        """
        members = [one if isinstance(one, Member) else Member(one) for one in upstreams]
        self.unnamed = frozenset(f"upstream{place}" for place, one in enumerate(members, start=1) if not one.name)
        for place, member in enumerate(members, start=1):
            member.name = member.name or f"upstream{place}"
        self.members = by_name(members)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.members)

    def statuses(self) -> dict[str, UpstreamStatus]:
        return {name: member.upstream.status for name, member in self.members.items()}

    def states(self) -> dict[str, MemberState]:
        return {name: member.state() for name, member in self.members.items()}

    async def list_tools(self, names: Collection[str] | None = None) -> dict[str, Listing | GatewayError]:
        """Definitions by upstream name; an upstream that fails gives its error, the others their tools."""
        chosen = [member for name, member in self.members.items() if names is None or name in names]
        listings = await asyncio.gather(*map(_list_one, chosen))
        return {member.name: listing for member, listing in zip(chosen, listings, strict=True)}

    def member(self, server: str) -> Member:
        """Raises UpstreamUnavailable for a server that is not there."""
        member = self.members.get(server)
        if member is None:
            raise UpstreamUnavailable(f"Unknown server '{server}'.")
        return member


def by_name(members: Sequence[Member]) -> Mapping[str, Member]:
    """Raises CatalogError when two have the same name."""
    found = {member.name: member for member in members}
    if len(found) != len(members):
        raise CatalogError("two upstreams have the same name")
    return found


async def _list_one(member: Member) -> Listing | GatewayError:
    try:
        return await member.list_tools()
    except GatewayError as error:
        return error
