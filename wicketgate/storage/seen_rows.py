"""Seen cards as shared stores write them, and read again with what is damaged left out."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from wicketgate.catalog.card import ChoiceCard, SeenCard, SeenCards
from wicketgate.storage.encoding import packed, unpacked

_ITSELF = 1
"""In place of a digest: the source is the card, without its score."""


def packed_card(seen: SeenCard) -> bytes:
    card = seen.card
    source = _ITSELF if isinstance(seen.source, ChoiceCard) else seen.source
    return packed([source, None if card is None else [getattr(card, name) for name in _FIELDS]])


def read_cards(rows: Iterable[tuple[str, bytes]]) -> SeenCards:
    """Returns the cards by id, without those that are damaged."""
    found = {tool_id: card for tool_id, row in rows if (card := _read(row)) is not None}
    return SeenCards(MappingProxyType(found))


def changed_cards(before: SeenCards, after: SeenCards) -> Mapping[str, bytes]:
    """Returns the rows to write, by id."""
    return {
        tool_id: packed_card(card) for tool_id, card in after.cards.items() if before.cards.get(tool_id) is not card
    }


_FIELDS = tuple(ChoiceCard.__dataclass_fields__)


def _read(row: bytes) -> SeenCard | None:
    try:
        source, values = unpacked(row)
        card = None if values is None else _card(dict(zip(_FIELDS, values, strict=True)))
    except (ValueError, TypeError, RecursionError):
        return None
    if source == _ITSELF:
        return None if card is None else SeenCard(replace(card, score=None), card)
    return SeenCard(source, card) if source is None or isinstance(source, str) else None


def _card(values: dict[str, Any]) -> ChoiceCard:
    values["tags"] = tuple(values["tags"])
    return ChoiceCard(**values)
