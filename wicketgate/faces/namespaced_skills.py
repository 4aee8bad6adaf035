"""Skills of the namespaced face: which of a server's there are for a caller, and which files belong to them (ROUTE-58
to ROUTE-64).

Their URIs are those of resources. What is held, or hidden by a rule about the skill, is not there, and nothing in its
directory is.
"""

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from wicketgate.access.identity import Identity
from wicketgate.access.policy import Allowed
from wicketgate.catalog.skills import DIRECTORIES, SKILLS, Skill, decoded, read_skill, skill_names
from wicketgate.errors import CatalogError, SkillChanged, UpstreamUnavailable
from wicketgate.faces.uris import shown_uri
from wicketgate.fleet.features import FeatureFleet
from wicketgate.gateway.offer_screening import OfferScreening
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.gateway.skill_files import admit_file
from wicketgate.heavy_work import run_queued

Entry = Mapping[str, Any]
Place = tuple[Entry, Skill | None]
_YIELDED = 200
"""Skills or resources that are judged between two turns of the event loop."""
_SMALL = 1_000
"""Entries and files that are read on the event loop."""


@dataclass(frozen=True, slots=True)
class Shelf:
    """The skills of one listing by their directory, and the spellings by which a URI may mean one of them (ROUTE-66).

    *entries* is what it was made of. *places* are by directory; the skill of one is None where the entry breaks the
    rules. *shown* are the entries of the others by their own URIs, with the URIs that clients see. *spelt* are the
    directories by their plainest spelling."""

    entries: Sequence[Entry]
    places: Mapping[str, Place]
    shown: Mapping[str, dict[str, Any]]
    spelt: Mapping[str, frozenset[str]]
    lengths: frozenset[int]
    spelt_lengths: frozenset[int]

    def around(self, uri: str) -> Sequence[Place]:
        """The skills in whose directory *uri* lies, the innermost first."""
        return [self.places[root] for root in _directories(uri, self.lengths) if root in self.places]

    def means_another(self, uri: str) -> bool:
        """True for a URI that a server may take for one in the directory of a skill, though it is spelt otherwise."""
        if not self.places:
            return False
        plain = _plainest(uri)
        if plain is None:
            return True
        literal = {root for root in _directories(uri, self.lengths) if root in self.places}
        return any(
            self.spelt[root].isdisjoint(literal)
            for root in _directories(plain, self.spelt_lengths)
            if root in self.spelt
        )


EMPTY = Shelf((), {}, {}, {}, frozenset(), frozenset())


def shelf_of(server: str, entries: Sequence[Entry]) -> Shelf:
    """Of several entries for one directory the first that keeps the rules holds. Takes a second for very many files."""
    places: dict[str, Place] = {}
    shown: dict[str, dict[str, Any]] = {}
    spelt: dict[str, set[str]] = {}
    for entry in entries:
        root = entry["uri"].rpartition("/")[0]
        if root in places and places[root][1] is not None:
            continue
        try:
            skill = read_skill(entry)
        except CatalogError:
            skill = None
        places[root] = entry, skill
        if skill is not None:
            shown[skill.uri] = shown_entry(server, entry)
        spelt.setdefault(_plainest(root) or root, set()).add(root)
    return Shelf(
        entries,
        places,
        shown,
        {plain: frozenset(roots) for plain, roots in spelt.items()},
        frozenset(map(len, places)),
        frozenset(map(len, spelt)),
    )


def shown_entry(server: str, entry: Entry) -> dict[str, Any]:
    """An entry that keeps the rules, under the URIs that clients see."""
    shown = {**entry, "uri": shown_uri(server, entry["uri"])}
    if isinstance(resources := entry["resources"], list):
        shown["resources"] = [{**file, "uri": shown_uri(server, file["uri"])} for file in resources]
    return shown


def _directories(uri: str, lengths: frozenset[int]) -> Iterator[str]:
    """*uri* and the directories around it, the innermost first, as far as they are as long as one of *lengths*."""
    end = len(uri)
    while end > 0:
        if end in lengths:
            yield uri[:end]
        end = uri.rfind("/", 0, end)


def _plainest(uri: str) -> str | None:
    """The spelling that all spellings of *uri* have in common; None for one that goes up or stays (``..``, ``.``)."""
    text = decoded(uri).partition("?")[0].partition("#")[0].casefold()
    scheme, _, rest = text.partition(":")
    parts = [part for part in rest.split("/") if part]
    return None if "." in parts or ".." in parts else "/".join([f"{scheme}:", *parts])


class NamespacedSkills:
    """*screening* keeps out what pins and signs of suspicion hold."""

    def __init__(self, fleet: FeatureFleet, screening: OfferScreening, runtime: ProxyRuntime) -> None:
        self._fleet = fleet
        self._screening = screening
        self._runtime = runtime
        self._shelves: dict[str, Shelf] = {}

    def extensions(self) -> Mapping[str, Any]:
        """The extension, if a server declared it; with directories if one of these lists them."""
        having = [one for one in self._fleet.support().values() if one is not None and one.skills]
        if not having:
            return {}
        return {SKILLS: {DIRECTORIES: True} if any(one.directories for one in having) else {}}

    async def shown(self, server: str, entries: Sequence[Entry], identity: Identity) -> list[dict[str, Any]]:
        """Those of *entries* that this caller may have, under the URIs of this face. Raises UpstreamUnavailable."""
        shelf = await self._shelf(server, identity)
        shown = []
        for number, entry in enumerate(entries):
            if number % _YIELDED == 0:
                await asyncio.sleep(0)
            uri = entry["uri"]
            _, skill = shelf.places.get(uri.rpartition("/")[0], (None, None))
            if skill is not None and skill.uri == uri and self._allows(server, skill, identity):
                shown.append(shelf.shown[uri])
        return shown

    def may_have(self, server: str, entry: Entry, identity: Identity) -> bool:
        """True for an entry that keeps the rules of skills, and which no rule hides from this caller."""
        try:
            skill = read_skill(entry)
        except CatalogError:
            return False
        return self._allows(server, skill, identity)

    async def listed(self, server: str, uri: str, identity: Identity) -> dict[str, Any] | None:
        """The entry of the skill *uri* as it is shown, if it is in the list."""
        shelf = await self._shelf(server, identity)
        _, skill = shelf.places.get(uri.rpartition("/")[0], (None, None))
        if skill is None or skill.uri != uri or uri in await self._held(server, identity):
            return None
        return shelf.shown[uri] if self._allows(server, skill, identity) else None

    def fresh_entry(self, server: str, entry: object, uri: str, identity: Identity) -> dict[str, Any] | None:
        """The entry that a server gave for *uri*, as it is shown; None if it is held, hidden, or no such entry."""
        if not isinstance(entry, Mapping) or entry.get("uri") != uri or not self.may_have(server, entry, identity):
            return None
        return None if self._screening.holds_entry(server, entry) else shown_entry(server, entry)

    async def hides(self, server: str, uri: str, identity: Identity) -> bool:
        """True for what lies in the directory of a skill that this caller may not have: also, where skills are pinned,
        for a file that no skill lists. Another spelling of such a URI is nobody's (ROUTE-66). Raises
        UpstreamUnavailable where that cannot be found out."""
        shelf, held = await self._shelf(server, identity), await self._held(server, identity)
        return self._hides(server, uri, identity, shelf, held)

    def _hides(self, server: str, uri: str, identity: Identity, shelf: Shelf, held: Collection[str]) -> bool:
        if shelf.means_another(uri):
            return True
        around = shelf.around(uri)
        if not around:
            return False
        open_ = self._open(server, around, identity, held)
        if self._runtime.pins().pins is None:
            return not open_
        return not any(skill is not None and (skill.lists(uri) or not _is_file(skill, uri)) for skill in open_)

    async def without_hidden(
        self, server: str, resources: Sequence[Mapping[str, Any]], identity: Identity
    ) -> Sequence[Mapping[str, Any]]:
        """*resources* of a list without those in the directory of a skill that this caller may not have. Raises
        UpstreamUnavailable."""
        shelf = await self._shelf(server, identity)
        if not shelf.places:
            return resources
        held = await self._held(server, identity)
        kept = []
        for number, one in enumerate(resources):
            if number % _YIELDED == 0:
                await asyncio.sleep(0)
            if not self._hides(server, one["uri"], identity, shelf, held):
                kept.append(one)
        return kept

    async def admit(self, server: str, uri: str, result: Mapping[str, Any], identity: Identity) -> Mapping[str, Any]:
        """A read of *uri* that may be passed on. Where skills are pinned or suspicious texts are held, a file that
        differs from the entry of its skill is not; otherwise the client, which has the entry, finds that out.

        Raises SkillChanged and Forbidden.
        """
        around = (await self._shelf(server, identity)).around(uri)
        open_ = self._open(server, around, identity, await self._held(server, identity)) if around else []
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

    def _open(
        self, server: str, around: Sequence[Place], identity: Identity, held: Collection[str]
    ) -> list[Skill | None]:
        """Those of the skills that are not held, and which no rule hides."""
        return [
            skill
            for entry, skill in around
            if entry["uri"] not in held and (skill is None or self._allows(server, skill, identity))
        ]

    async def _shelf(self, server: str, identity: Identity) -> Shelf:
        """The skills that *server* lists for this caller. Raises UpstreamUnavailable where some may have to be held,
        and it lists none."""
        support = self._fleet.support().get(server)
        if support is None or not support.skills:
            return EMPTY
        listing = await self._fleet.list_all("skills", [server], identity)
        if server in listing.missing:
            if await self._fleet.is_missed_by(server, identity):
                return EMPTY
            policy = self._runtime.pins()
            if policy.pins is None and not policy.hold_suspicious:
                return EMPTY
            raise UpstreamUnavailable(f"{server} cannot list its skills at the moment, so none can be used.")
        entries = listing.items.get(server, ())
        shelf = self._shelves.get(server)
        if shelf is None or shelf.entries is not entries:
            small = len(entries) + sum(map(_files_of, entries)) <= _SMALL
            shelf = (
                shelf_of(server, entries)
                if small
                else await run_queued(partial(shelf_of, server, entries), identity.actor)
            )
            self._shelves[server] = shelf
        return shelf

    async def _held(self, server: str, identity: Identity) -> Collection[str]:
        return await self._screening.held(server, "skills", identity)

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


def _files_of(entry: Entry) -> int:
    files = entry.get("resources")
    return len(files) if isinstance(files, list) else 0
