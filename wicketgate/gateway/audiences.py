"""The view of callers with the same rights on one catalog, and how much of it is kept (BROWSE-75, BROWSE-76)."""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from itertools import compress

from wicketgate.access.policy import AccessPolicy, Rights
from wicketgate.access.tool_groups import NONE, PARTLY, WHOLE, Seen
from wicketgate.catalog.card import ChoiceCard
from wicketgate.catalog.catalog import Catalog
from wicketgate.catalog.graph import is_root
from wicketgate.catalog.tool_id import Visible

_MOST_RIGHTS = 4_096
_MOST_BYTES = 64 * 1024 * 1024
_BYTES_OF_ID = 50
"""Of an id in a set: the text is the catalog's."""
_MOST_CARDS = 20_000
_MOST_ROOT_CARDS = 8_000_000
"""8 bytes each: the cards themselves are shared."""


class GroupedCatalog:
    """The tools of *catalog* in the groups of *policy*, and what is known of each group, for all audiences."""

    def __init__(self, catalog: Catalog, policy: AccessPolicy) -> None:
        tools = ((item.id, item.names) for item in (*catalog.tools.values(), *catalog.app_tools.values()))
        self.catalog = catalog
        self.policy = policy
        self.groups = policy.grouped(tools)
        number = self.groups.number
        self._chars = [0] * len(self.groups.groups)
        for tool_id in catalog.items:
            self._chars[number[tool_id]] += catalog.chars_of(tool_id)
        self._places = [
            (namespace, tuple(sorted({number[tool_id] for tool_id in place.branch.tool_ids})), card)
            for (namespace, place), card in zip(catalog.graph.namespaces.items(), catalog.cards_at(()), strict=True)
        ]
        self._by_namespace = {namespace: groups for namespace, groups, _ in self._places}
        self._roots: OrderedDict[Seen, tuple[ChoiceCard, ...]] = OrderedDict()
        self._partial_card = lru_cache(maxsize=_MOST_CARDS)(self._make_partial_card)

    def audience(self, rights: Rights) -> "Audience":
        """Returns the audience of a holder of *rights*. Cost: O(groups), or O(namespaces in the permissions)."""
        made = Audience(self, None if rights.everything else self.policy.seen(rights, self.groups))
        # Worked out here, which may be a thread.
        _ = made.definition_chars
        return made

    def chars(self, seen: Seen) -> int:
        """The length of the definitions of all tools that are seen."""
        whole = sum(compress(self._chars, map(WHOLE.__eq__, seen.flags)))
        return whole + sum(self.catalog.chars_of(each) for each in seen.some if each in self.catalog.items)

    def knows_root(self, seen: Seen) -> bool:
        """Returns whether ``root`` is a look-up."""
        return seen in self._roots

    def root(self, seen: Seen) -> tuple[ChoiceCard, ...]:
        """The cards of ``/``, in their order; kept for as many as were asked last."""
        if (known := self._roots.get(seen)) is not None:
            with suppress(KeyError):  # another thread may have dropped it in the meantime
                self._roots.move_to_end(seen)
            return known
        made = self._roots[seen] = self._make_root(seen)
        if len(self._roots) * (len(self._places) + 1) > _MOST_ROOT_CARDS and len(self._roots) > 1:
            self._roots.popitem(last=False)
        return made

    def _make_root(self, seen: Seen) -> tuple[ChoiceCard, ...]:
        """A card of a namespace of which all is seen is the catalog's own."""
        flags, cards = seen.flags, list[ChoiceCard]()
        for namespace, groups, card in self._places:
            if len(groups) == 1 and (flag := flags[groups[0]]) != PARTLY:
                if flag == WHOLE:
                    cards.append(card)
                continue
            own = bytes(flags[each] for each in groups)
            if own.count(WHOLE) == len(own):
                cards.append(card)
            elif own.count(NONE) < len(own) and (partial := self._partial(seen, namespace, own)) is not None:
                cards.append(partial)
        return tuple(cards)

    def namespaces(self, seen: Seen) -> list[str]:
        """The namespaces of what is seen. Cost: O(namespaces, and ids that are seen by name)."""
        named, flags = {each.partition(":")[0] for each in seen.some}, seen.flags
        return [
            namespace
            for namespace, groups, _ in self._places
            if namespace in named or any(flags[each] == WHOLE for each in groups)
        ]

    def sees_parts(self, seen: Seen) -> bool:
        """Returns whether some namespace is seen in part, so that its card is of its own."""
        flags = seen.flags
        return any(
            flags[groups[0]] == PARTLY or (len(groups) > 1 and len({flags[each] for each in groups}) > 1)
            for _, groups, _ in self._places
        )

    def _partial(self, seen: Seen, namespace: str, own: bytes) -> ChoiceCard | None:
        ids = self.catalog.graph.namespaces[namespace].branch.tool_ids if seen.some else ()
        some = tuple(each for each in ids if each in seen.some)
        return self._partial_card(namespace, own, some)

    def _make_partial_card(self, namespace: str, own: bytes, some: tuple[str, ...]) -> ChoiceCard | None:
        """None if no tool with a card is seen."""
        flags, number = dict(zip(self._by_namespace[namespace], own, strict=True)), self.groups.number
        if WHOLE not in own and not some:
            return None
        named = frozenset(some)
        return self.catalog.namespace_card(namespace, lambda each: flags[number[each]] == WHOLE or each in named)


class Audience:
    """Callers that see the same tools of one catalog: *seen*, None where their rights cover every tool. *visible* is
    the test of ids, None likewise."""

    def __init__(self, grouped: GroupedCatalog, seen: Seen | None) -> None:
        self.seen = seen
        self.visible: Visible | None = None if seen is None else seen.test()
        self._grouped = grouped

    @cached_property
    def definition_chars(self) -> int:
        """The length of the definitions of all visible tools."""
        return self._grouped.catalog.definition_chars() if self.seen is None else self._grouped.chars(self.seen)

    @cached_property
    def has_own_cards(self) -> bool:
        """Returns whether ``/`` has cards that are not the catalog's: they take long to make."""
        return self.seen is not None and self._grouped.sees_parts(self.seen)

    @property
    def knows_root(self) -> bool:
        """Returns whether the cards of ``/`` are at hand, or soon made."""
        return self.seen is None or not self.has_own_cards or self._grouped.knows_root(self.seen)

    @property
    def size_bytes(self) -> int:
        return 0 if self.seen is None else len(self.seen.flags) + _BYTES_OF_ID * len(self.seen.some)

    def namespaces(self) -> list[str]:
        return (
            list(self._grouped.catalog.graph.namespaces) if self.seen is None else self._grouped.namespaces(self.seen)
        )

    def cards_at(self, path: Sequence[str]) -> tuple[ChoiceCard, ...]:
        """The cards of what stands at *path*. Raises PathNotFound."""
        if self.seen is None or not is_root(path):
            return self._grouped.catalog.cards_at(path, self.visible)
        return self._grouped.root(self.seen)


class Audiences:
    """The audiences of one catalog by rights. Those that see the same tools are one object, whatever their rights.

    Kept are as many as take *most_bytes* together, used last, and at least one.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._by_rights: OrderedDict[Hashable, Audience] = OrderedDict()
        # With the number of rights that have each.
        self._same: dict[Seen | None, tuple[Audience, int]] = {}
        self._bytes = 0

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
        audience, users = self._same.get(made.seen, (made, 0))
        self._same[made.seen] = audience, users + 1
        self._bytes += 0 if users else made.size_bytes
        self._by_rights[rights] = audience
        while (self._bytes > self._most_bytes or len(self) > _MOST_RIGHTS) and len(self) > 1:
            self._forget(self._by_rights.popitem(last=False)[1])
        return audience

    def _forget(self, audience: Audience) -> None:
        users = self._same[audience.seen][1] - 1
        if users:
            self._same[audience.seen] = audience, users
        else:
            del self._same[audience.seen]
            self._bytes -= audience.size_bytes
