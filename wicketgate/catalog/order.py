"""Puts cards in order: best first (S0 §2.5), or so that a prompt cache keeps its prefix (S0 §5)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from wicketgate.catalog.card import ChoiceCard, build_card
from wicketgate.catalog.selectable import SelectableItem
from wicketgate.catalog.tokens import TokenCounter
from wicketgate.catalog.tool_id import ToolId
from wicketgate.token_table import shipped_token_counter

CACHE_BREAKPOINT = ChoiceCard(
    id="__cache_breakpoint__",
    name="__cache_breakpoint__",
    description="",
    tags=(),
    kind="internal",
    namespace="",
    has_schema=False,
)


@dataclass(frozen=True, slots=True)
class SeenCards:
    """The tools that a session has browsed or hydrated: by id the card as it was first sent.

    None stands for a card that was not sent yet.
    """

    cards: Mapping[str, ChoiceCard | None] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(self.cards)

    def hydrated(self, tool_id: str) -> "SeenCards":
        """With one tool that was hydrated with success (S0 §5.5); its card is frozen when it is first sent."""
        return self if tool_id in self.cards else self._with({tool_id: None})

    def _with(self, cards: Mapping[str, ChoiceCard | None]) -> "SeenCards":
        return SeenCards(MappingProxyType({**self.cards, **cards}))


def cache_order(seen: SeenCards, cards: Iterable[ChoiceCard]) -> tuple[tuple[ChoiceCard, ...], SeenCards]:
    """The cards in sending order, and what the session has then seen (S0 §5.1).

    Cards seen before come first, as they were first sent; then the marker, if there is something on both sides of
    it; then the new ones. Each part is ascending by id: rank is read from the score. *cards* are already chosen, so
    nothing is cut here.
    """
    by_id = {card.id: card for card in cards}
    prefix = [seen.cards[card_id] or by_id[card_id] for card_id in sorted(by_id.keys() & seen.cards.keys())]
    suffix = [by_id[card_id] for card_id in sorted(by_id.keys() - seen.cards.keys())]
    marker = [CACHE_BREAKPOINT] if prefix and suffix else []
    sent = (*prefix, *suffix)
    unfrozen = {card.id: card for card in sent if seen.cards.get(card.id) is None}
    return (*prefix, *marker, *suffix), seen._with(unfrozen) if unfrozen else seen


def make_choice_cards(
    items: Iterable[SelectableItem],
    *,
    scores: Mapping[str, float] | Mapping[ToolId, float] | None = None,
    max_cards: int | None = None,
    tokens: TokenCounter | None = None,
) -> list[ChoiceCard]:
    """Returns the cards of *items*, at most *max_cards*, each of at most 80 tokens; equal input gives equal bytes.

    With *scores* by id, the highest comes first, equal ones by id, and items without a score last. Without them the
    order of *items* stays. Only the cards that are returned are built. Raises CatalogError when one of them cannot
    fit; ``Catalog(items).all()`` has none of those.
    """
    if max_cards is not None and max_cards < 0:
        raise ValueError("max_cards must not be negative")
    chosen: Sequence[SelectableItem] = list(items)
    rated: Mapping[Any, float] = scores or {}
    if scores is not None:
        chosen = sorted(chosen, key=lambda item: (item.id not in rated, -rated.get(item.id, 0.0), item.id))
    counter = tokens or shipped_token_counter()
    return [build_card(item, counter, rated.get(item.id)) for item in chosen[:max_cards]]
