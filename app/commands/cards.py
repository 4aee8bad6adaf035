"""The cards of ``wicketgate browse`` as people read them: best first, with ids that can be typed (OPS-113)."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from app.commands.console import console
from app.commands.output import printable
from wicketgate.catalog.shortlist import NO_CLEAR_MATCH

_MOST_FOR_ID = 48


def print_cards(cards: Sequence[Mapping[str, Any]], short_ids: Mapping[str, str], hint: str) -> None:
    """*short_ids* gives the form to type for ids that are longer than they need be."""
    out = console()
    if not cards:
        out.print(Text(printable(hint or "There is nothing here.")))
        return
    ranked = sorted(cards, key=lambda card: -(card.get("score") or 0.0))  # a stable order where there are no scores
    rows = [(str(card.get("id")), card) for card in ranked]
    shown = [(printable(short_ids.get(tool_id, tool_id)), card) for tool_id, card in rows]
    width = min(max(len(name) for name, _ in shown), _MOST_FOR_ID)
    for name, card in shown:
        line = Text.assemble((name.ljust(width), "bold"), "  ")
        room = max(out.width - len(line), 0)
        text = printable(str(card.get("description") or ""))
        facts = " (side effects)" if card.get("side_effects") else ""
        text = text if len(text) + len(facts) <= room else text[: max(room - len(facts) - 1, 0)].rstrip() + "…"
        line.append(text)
        line.append(facts, "yellow")
        out.print(line)
    if hint:
        out.print(Text(printable(hint), "dim"))
    # What is not a clear match is not proposed.
    best = "" if NO_CLEAR_MATCH in hint else next((name for name, card in shown if card.get("kind") != "internal"), "")
    if best:
        out.print(Text(f"Run one: wicketgate execute {best} '{{...}}'", "dim"))
