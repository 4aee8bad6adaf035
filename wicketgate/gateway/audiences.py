"""The view of callers with the same rights on one catalog, and how much of it is kept (BROWSE-75, BROWSE-76)."""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from functools import cached_property

from wicketgate.catalog.card import ChoiceCard
from wicketgate.catalog.catalog import Catalog
from wicketgate.catalog.graph import is_root
from wicketgate.catalog.tool_id import Visible

_MOST_RIGHTS = 4_096
_MOST_IDS = 2_000_000
"""Some 50 bytes each."""


class Audience:
    """Callers that see the tools *ids* of one catalog; None where their rights cover every tool. *visible* is the test
    of it, None likewise."""

    def __init__(self, catalog: Catalog, ids: frozenset[str] | None) -> None:
        self.ids = ids
        self.visible: Visible | None = None if ids is None else ids.__contains__
        self._catalog = catalog
        self._root: tuple[ChoiceCard, ...] | None = None

    @cached_property
    def definition_chars(self) -> int:
        """The length of the definitions of all visible tools."""
        return self._catalog.definition_chars(self.visible)

    @property
    def knows_root(self) -> bool:
        """Returns whether the cards of ``/`` are at hand."""
        return self.visible is None or self._root is not None

    def cards_at(self, path: Sequence[str]) -> tuple[ChoiceCard, ...]:
        """The cards of what stands at *path*. Those of ``/`` are made once, for there can be thousands (BROWSE-40).
        Raises PathNotFound."""
        if not is_root(path) or self.visible is None:
            return self._catalog.cards_at(path, self.visible)
        if self._root is None:
            self._root = self._catalog.cards_at(path, self.visible)
        return self._root


class Audiences:
    """The audiences of one catalog by rights. Those that see the same tools are one object, whatever their rights.

    Kept are as many as have *most_ids* ids together, used last, and at least one. So thousands of callers with a few
    tools each have room, and a few hundred that see nearly all of ten thousand.
    """

    def __init__(self, most_ids: int = _MOST_IDS) -> None:
        self._most_ids = most_ids
        self._by_rights: OrderedDict[Hashable, Audience] = OrderedDict()
        # With the number of rights that have each.
        self._same: dict[frozenset[str] | None, tuple[Audience, int]] = {}
        self._ids = 0

    def __len__(self) -> int:
        return len(self._by_rights)

    def get(self, rights: Hashable) -> Audience | None:
        found = self._by_rights.get(rights)
        if found is not None:
            self._by_rights.move_to_end(rights)
        return found

    def keep(self, rights: Hashable, made: Audience) -> Audience:
        """Returns *made*, or the audience that sees the same tools and was there before."""
        if (known := self._by_rights.get(rights)) is not None:
            return known
        audience, users = self._same.get(made.ids, (made, 0))
        self._same[made.ids] = audience, users + 1
        self._ids += 0 if users else len(made.ids or ())
        self._by_rights[rights] = audience
        while (self._ids > self._most_ids or len(self) > _MOST_RIGHTS) and len(self) > 1:
            self._forget(self._by_rights.popitem(last=False)[1])
        return audience

    def _forget(self, audience: Audience) -> None:
        users = self._same[audience.ids][1] - 1
        if users:
            self._same[audience.ids] = audience, users
        else:
            del self._same[audience.ids]
            self._ids -= len(audience.ids or ())
