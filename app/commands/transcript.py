"""The terminal output of browse and chat (OPS-113, OPS-136).

Browse prints cards, best first, with short ids. Chat prints the answer to stdout, and one short line to stderr for each
call and each failure.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click
from rich.text import Text

from app.commands.output import console, printable, printable_text
from wicketgate.catalog.shortlist import NO_CLEAR_MATCH

_MOST_CALL = 80
_MOST_FAILURE = 400


class ChatLines:
    """Shows the events of one run. Ends a line of text that is still open before it begins a new one."""

    def __init__(self) -> None:
        self._open = False
        self._err = console(stderr=True)

    def show(self, name: str, data: Mapping[str, Any]) -> None:
        match name:
            case "text-delta":
                text = printable_text(data["content"])
                click.echo(text, nl=False)
                self._open = not text.endswith("\n") if text else self._open
            case "tool-call":
                self._end_line()
                self._err.print(Text(f"[{_short(_call(data['name'], data['arguments']), _MOST_CALL - 2)}]", "dim"))
            case "tool-result" if "error" in data:
                self._end_line()
                self._err.print(Text(f"[failed: {_short(_failure(data['error']), _MOST_FAILURE)}]", "yellow"))
            case "done":
                self._end_line()
                if data["finish_reason"] != "stop":
                    click.echo(f"[{data['finish_reason']}]")
            case "error":
                self._end_line()
                click.echo(printable(f"{data['code']}: {data['message']}"), err=True)

    def _end_line(self) -> None:
        if self._open:
            click.echo()
            self._open = False


def _call(name: str, arguments: Any) -> str:
    """The tool that is run stands by its short id: the line is for people."""
    parts = [name]
    if isinstance(arguments, Mapping) and isinstance(arguments.get("tool_id"), str):
        parts.append(arguments["tool_id"].partition("#")[0].partition("@")[0])
        arguments = arguments.get("args", {})
    return " ".join([*parts, json.dumps(arguments, ensure_ascii=False)])


def _failure(error: str) -> str:
    """Returns error and message of one of our failures; any other text unchanged."""
    try:
        body = json.loads(error)
    except (ValueError, RecursionError):
        return error
    if isinstance(body, Mapping) and "error" in body and "message" in body:
        return f"{body['error']}: {body['message']}"
    return str(body["summary"]) if isinstance(body, Mapping) and body.get("summary") else error


def _short(text: str, most: int) -> str:
    line = printable(" ".join(text.split()))
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


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
