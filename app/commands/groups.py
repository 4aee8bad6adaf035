"""Groups of commands as people meet them: sections of the help, the nearest name, and exit codes told (OPS-111,
OPS-112, OPS-115)."""

import difflib
import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import click

_CODES = {0: "success", 1: "refused or failed", 2: "a mistake in the command line"}
_MAX_NEAR = 3
_WHOLE = 200
"""Characters of a first sentence: it is wrapped, not cut."""


def exit_codes(codes: Mapping[int, str] | None = None) -> str:
    """The end of a command's help. *codes* says what 0, 1 and 2 mean for it, where that is more than usual."""
    told = "; ".join(f"{code} {meaning}" for code, meaning in {**_CODES, **(codes or {})}.items())
    return f"Exit codes: {told}."


def near(wanted: str, known: Sequence[str]) -> list[str]:
    """Returns the names that *wanted* may have been meant for, nearest first."""
    begun = [name for name in known if len(wanted) > 2 and name.startswith(wanted)]
    return list(dict.fromkeys([*begun, *difflib.get_close_matches(wanted, known, _MAX_NEAR)]))[:_MAX_NEAR]


def did_you_mean(wanted: str, known: Sequence[str]) -> str:
    """Returns a question to add to a message, or an empty text where nothing is near."""
    found = near(wanted, known)
    return f" Did you mean {' or '.join(found)}?" if found else ""


class NearChoice(click.Choice[str]):
    """A choice whose refusal names the nearest value."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        # Many values before the nearest one would hide it.
        meant = did_you_mean(str(value), [str(choice) for choice in self.choices])
        return f"{str(value)!r} is not known.{meant}" if meant else super().get_invalid_choice_message(value, ctx)


class Group(click.Group):
    """A group that names the nearest command. Each command's help ends with exit codes: its own, or the usual ones."""

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        if cmd.epilog is None and not isinstance(cmd, click.Group):
            cmd.epilog = exit_codes()
        super().add_command(cmd, name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        wanted = args[0]
        if self.get_command(ctx, wanted) is None and not wanted.startswith("-") and not ctx.resilient_parsing:
            commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
            known = [name for name, command in commands.items() if command is not None and not command.hidden]
            raise click.UsageError(f"No such command {wanted!r}.{did_you_mean(wanted, known)}", ctx)
        return super().resolve_command(ctx, args)


class TaskGroup(Group):
    """The outermost group. *sections* gives the commands of the help by task, in order; those that are in no section
    come last. *modules* maps a command to ``module:command``, relative to this package; each is imported at its first
    use."""

    def __init__(
        self, *args: Any, sections: Mapping[str, Sequence[str]], modules: Mapping[str, str] | None = None, **more: Any
    ) -> None:
        super().__init__(*args, **more)
        self.sections = sections
        self._modules = modules or {}

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self._modules and cmd_name not in self.commands:
            module, _, command = self._modules[cmd_name].partition(":")
            self.add_command(getattr(import_module(module, __package__), command))
        return super().get_command(ctx, cmd_name)

    def list_commands(self, ctx: click.Context) -> list[str]:
        known = sorted({*self.commands, *self._modules})
        ordered = [name for names in self.sections.values() for name in names if name in known]
        return [*ordered, *(name for name in known if name not in ordered)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        names = self.list_commands(ctx)
        placed = {name for section in self.sections.values() for name in section}
        sections = {**self.sections, "Others": [name for name in names if name not in placed]}
        width = max((len(name) for name in names), default=0)
        for title, section in sections.items():
            rows = []
            for name in section:
                command = self.get_command(ctx, name)
                if command is not None and not command.hidden:
                    short = command.get_short_help_str(limit=_WHOLE)
                    rows.append((name.ljust(width), short))
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def usage_hint(error: click.ClickException) -> str:
    """Returns what may be meant where a configuration, or an option, stands in the wrong place; otherwise nothing."""
    command = error.ctx.command if isinstance(error, click.UsageError) and error.ctx is not None else None
    if isinstance(error, click.NoSuchOption) and isinstance(command, click.Group):
        return "Put options after the command: wicketgate COMMAND --option"
    file = _EXTRA_FILE.search(error.message)
    if command is not None and file and any(parameter.name == "config" for parameter in command.params):
        return f"Is it the configuration? Then write --config {file[1]}"
    return ""


_EXTRA_FILE = re.compile(r"unexpected extra argument \((\S+\.(?:ya?ml|json))\)")
