"""Skills of the namespaced face: which of a server's there are for a caller, and which files belong to them (ROUTE-58
to ROUTE-64).

Their URIs are those of resources. What is held, or hidden by a rule about the skill, is not there, and nothing in its
directory is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wicketgate.access.identity import Identity
from wicketgate.access.policy import Allowed
from wicketgate.catalog.skills import DIRECTORIES, SKILLS, Skill, read_skill, skill_names
from wicketgate.errors import CatalogError, SkillChanged, UpstreamUnavailable
from wicketgate.faces.uris import shown_uri
from wicketgate.fleet.features import FeatureFleet
from wicketgate.gateway.offer_screening import OfferScreening
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.gateway.skill_files import admit_file

Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Shelf:
    """The skills of one listing by their directory. *entries* is what it was made of; *skill* of a place is None where
    the entry breaks the rules."""

    entries: Sequence[Entry]
    places: Mapping[str, tuple[Entry, Skill | None]]

    def around(self, uri: str) -> Sequence[tuple[Entry, Skill | None]]:
        """The skills in whose directory *uri* lies, the innermost first."""
        found = []
        root = uri
        while root:
            if (place := self.places.get(root)) is not None:
                found.append(place)
            root = root.rpartition("/")[0]
        return found


_EMPTY = _Shelf((), {})


class NamespacedSkills:
    """*screening* keeps out what pins and signs of suspicion hold."""

    def __init__(self, fleet: FeatureFleet, screening: OfferScreening, runtime: ProxyRuntime) -> None:
        self._fleet = fleet
        self._screening = screening
        self._runtime = runtime
        self._shelves: dict[str, _Shelf] = {}

    def extensions(self) -> Mapping[str, Any]:
        """The extension, if a server declared it; with directories if one of these lists them."""
        having = [one for one in self._fleet.support().values() if one is not None and one.skills]
        if not having:
            return {}
        return {SKILLS: {DIRECTORIES: True} if any(one.directories for one in having) else {}}

    def shown(self, server: str, entries: Sequence[Entry], identity: Identity) -> list[dict[str, Any]]:
        """Those of *entries* that this caller may have, under the URIs of this face."""
        return [_shown(server, entry) for entry in entries if self.may_have(server, entry, identity)]

    def may_have(self, server: str, entry: Entry, identity: Identity) -> bool:
        """True for an entry that keeps the rules of skills, and which no rule hides from this caller."""
        try:
            skill = read_skill(entry)
        except CatalogError:
            return False
        return self._allows(server, skill, identity)

    async def listed(self, server: str, uri: str, identity: Identity) -> dict[str, Any] | None:
        """The entry of the skill *uri* as it is shown, if it is in the list."""
        for entry, skill in await self._around(server, uri):
            if entry["uri"] == uri and skill is not None and not await self._held(server, uri):
                return _shown(server, entry) if self._allows(server, skill, identity) else None
        return None

    def fresh_entry(self, server: str, entry: object, uri: str, identity: Identity) -> dict[str, Any] | None:
        """The entry that a server gave for *uri*, as it is shown; None if it is held, hidden, or no such entry."""
        if not isinstance(entry, Mapping) or entry.get("uri") != uri or not self.may_have(server, entry, identity):
            return None
        return None if self._screening.holds_entry(server, entry) else _shown(server, entry)

    async def hides(self, server: str, uri: str, identity: Identity) -> bool:
        """True for what lies in the directory of a skill that this caller may not have: also, where skills are pinned,
        for a file that no skill lists. Raises UpstreamUnavailable where that cannot be found out."""
        around = await self._around(server, uri)
        if not around:
            return False
        open_ = await self._open(server, around, identity)
        if self._runtime.pins().pins is None:
            return not open_
        return not any(skill is not None and (skill.lists(uri) or not _is_file(skill, uri)) for skill in open_)

    async def without_hidden(
        self, server: str, resources: Sequence[Mapping[str, Any]], identity: Identity
    ) -> Sequence[Mapping[str, Any]]:
        """*resources* of a list without those in the directory of a skill that this caller may not have."""
        shelf = await self._shelf(server)
        closed = [f"{root}/" for root, place in shelf.places.items() if not await self._open(server, [place], identity)]
        if not closed:
            return resources
        return [
            one
            for one in resources
            if not any(map(one["uri"].startswith, closed)) or not await self.hides(server, one["uri"], identity)
        ]

    async def admit(self, server: str, uri: str, result: Mapping[str, Any], identity: Identity) -> Mapping[str, Any]:
        """A read of *uri* that may be passed on. Where skills are pinned or suspicious texts are held, a file that
        differs from the entry of its skill is not; otherwise the client, which has the entry, finds that out.

        Raises SkillChanged and Forbidden.
        """
        open_ = await self._open(server, await self._around(server, uri), identity)
        skill = next((skill for skill in open_ if skill is not None and skill.lists(uri)), None)
        if skill is None:
            return result
        policy = self._runtime.pins()
        try:
            return await admit_file(skill, server, uri, result, policy)
        except SkillChanged:
            self._fleet.forget(server)
            if policy.pins is not None or policy.hold_suspicious:
                raise
            return result

    async def _open(
        self, server: str, around: Sequence[tuple[Entry, Skill | None]], identity: Identity
    ) -> list[Skill | None]:
        """Those of the skills that are not held, and which no rule hides."""
        return [
            skill
            for entry, skill in around
            if not await self._held(server, entry["uri"]) and (skill is None or self._allows(server, skill, identity))
        ]

    async def _around(self, server: str, uri: str) -> Sequence[tuple[Entry, Skill | None]]:
        return (await self._shelf(server)).around(uri)

    async def _shelf(self, server: str) -> _Shelf:
        """The skills that *server* lists. Raises UpstreamUnavailable where some may have to be held, and it lists
        none."""
        support = self._fleet.support().get(server)
        if support is None or not support.skills:
            return _EMPTY
        listing = await self._fleet.list_all("skills", [server])
        if server in listing.missing:
            policy = self._runtime.pins()
            if policy.pins is None and not policy.hold_suspicious:
                return _EMPTY
            raise UpstreamUnavailable(f"{server} does not list its skills at the moment, so none can be used.")
        entries = listing.items.get(server, ())
        shelf = self._shelves.get(server)
        if shelf is None or shelf.entries is not entries:
            shelf = self._shelves[server] = _shelf_of(entries)
        return shelf

    async def _held(self, server: str, uri: str) -> bool:
        return await self._screening.holds(server, "skills", uri)

    def _allows(self, server: str, skill: Skill, identity: Identity) -> bool:
        return isinstance(self._runtime.access.rules_on(identity, skill_names(skill, server)), Allowed)


def shown_children(server: str, resources: Sequence[object]) -> list[dict[str, Any]]:
    """The children of a directory under the URIs of this face; what has no URI is left out."""
    return [
        {**child, "uri": shown_uri(server, child["uri"])}
        for child in resources
        if isinstance(child, Mapping) and isinstance(child.get("uri"), str)
    ]


def _is_file(skill: Skill, uri: str) -> bool:
    """False for a directory of *skill*: its own, or one that a listed file lies in."""
    below = f"{uri}/"
    return uri != skill.root and not any(file.uri.startswith(below) for file in (skill.files or {}).values())


def _shelf_of(entries: Sequence[Entry]) -> _Shelf:
    places: dict[str, tuple[Entry, Skill | None]] = {}
    for entry in entries:
        try:
            skill = read_skill(entry)
        except CatalogError:
            skill = None
        places.setdefault(entry["uri"].rpartition("/")[0], (entry, skill))
    return _Shelf(entries, places)


def _shown(server: str, entry: Entry) -> dict[str, Any]:
    shown = {**entry, "uri": shown_uri(server, entry["uri"])}
    if isinstance(resources := entry["resources"], list):
        shown["resources"] = [{**file, "uri": shown_uri(server, file["uri"])} for file in resources]
    return shown
