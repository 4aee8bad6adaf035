"""The skills of one listing by their directory, and the spellings by which a URI may mean one of them (ROUTE-66)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wicketgate.catalog.skills import Skill, decoded, read_skill
from wicketgate.errors import CatalogError
from wicketgate.faces.uris import shown_uri

Entry = Mapping[str, Any]
Place = tuple[Entry, Skill | None]


@dataclass(frozen=True, slots=True)
class Shelf:
    """*entries* is what it was made of. *places* are by directory; the skill of one is None where the entry breaks the
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
