"""The text of a browse, which a model is shown in place of its JSON: written from cards, and read back (CHAT-96).

One card a line as ``render_card`` writes it, then the hint. The same answer gives the same bytes, whether its cards
are at hand or only the JSON that a client has sent back.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from wicketgate.catalog.card import CACHE_BREAKPOINT, CardKind, ChoiceCard, card_json, render_cards
from wicketgate.catalog.tool_id import parse_tool_id
from wicketgate.errors import CatalogError

MAX_HINT_CHARS = 400

SIGNATURES = "signatures"
"""The member of a browse with a line for each tool, in code mode only (EXEC-144)."""
_SIGNATURES = "\n\nSignatures for tool_run:\n"


def browse_lines(cards: Iterable[ChoiceCard], hint: str = "") -> str:
    """The lines of *cards*, and the hint as the last line; empty if there is neither."""
    return "\n".join(text for text in (render_cards(cards), hint) if text)


def with_signatures(text: str, signatures: Iterable[str]) -> str:
    """The text of a browse with the block of signatures below it."""
    return f"{text}{_SIGNATURES}" + "\n".join(signatures)


def lines_of_json(text: str) -> str | None:
    """The lines of a browse whose JSON is *text*; None if it is not the whole JSON of one."""
    if not _BROWSE_JSON.match(text):
        return None
    try:
        body = json.loads(text)
        lines = browse_lines([_card(card) for card in body["cards"]], hint := body.get("hint", ""))
        lines = with_signatures(lines, body[SIGNATURES]) if lines and SIGNATURES in body else lines
        lines.encode()
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    is_whole = body.keys() <= {"cards", "hint", SIGNATURES} and isinstance(hint, str) and "\n" not in hint
    return lines if lines and is_whole else None


@dataclass(frozen=True, slots=True)
class CardLine:
    """The parts of a card that its line tells. *is_internal*: it is a level to browse, not a tool."""

    id: str
    namespace: str = ""
    name: str = ""
    is_internal: bool = False
    side_effects: bool = False


def read_card_lines(text: str) -> list[CardLine]:
    """The cards of a browse as a model is shown it; empty if *text* is anything else.

    Every line is a card, but for the last, which may be a hint.
    """
    found: list[CardLine] = []
    lines = text.partition(_SIGNATURES)[0].split("\n")
    for number, line in enumerate(lines, start=1):
        written = _LINE.fullmatch(line)
        card = _card_line(written) if written else None
        if card is None and (number < len(lines) or not found or len(line) > MAX_HINT_CHARS):
            return []
        if card is not None and card.id != CACHE_BREAKPOINT.id:
            found.append(card)
    return found


_BROWSE_JSON = re.compile(r'\s*\{\s*"cards"\s*:')
_LINE = re.compile(r"(\S+)(?: \[[^\]]*\])?(?: \(([^()]*)\))?(?: — .*)?")

_KINDS = get_args(CardKind)


def _card_line(written: re.Match[str]) -> CardLine | None:
    card_id, facts = written[1], (written[2] or "").split(", ")
    if card_id.startswith("/") or card_id == CACHE_BREAKPOINT.id:
        return CardLine(card_id, is_internal=True) if "internal" in facts else None
    try:
        parts = parse_tool_id(card_id)
    except CatalogError:
        return None
    return CardLine(card_id, parts.namespace, parts.name, side_effects="side effects" in facts)


def _card(body: Mapping[str, Any]) -> ChoiceCard:
    """Raises TypeError, KeyError or ValueError for anything but the JSON of a card that makes one line."""
    card = ChoiceCard(**{**body, "tags": tuple(body["tags"])})
    texts = (card.id, card.name, card.description, card.namespace, *card.tags)
    numbers = (card.cost_hint, 0.0 if card.score is None else card.score)
    if not (
        all(isinstance(text, str) and "\n" not in text for text in texts)
        and all(isinstance(number, int | float) for number in numbers)
        and card.kind in _KINDS
        and card_json(card) == body
    ):
        raise ValueError("not a card")
    return card
