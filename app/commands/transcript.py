"""A chat in a terminal: the answer on stdout, each call and each failure in one short line on stderr (OPS-136)."""

import json
from collections.abc import Mapping
from typing import Any

import click
from rich.text import Text

from app.commands.console import console
from app.commands.output import printable, printable_text

_MOST_CALL = 80
_MOST_FAILURE = 400


class Transcript:
    """Shows the events of one run. A line that is open, since its text has not ended, is ended before another one."""

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
    """Returns error and message of a failure of ours; any other text as it is."""
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
