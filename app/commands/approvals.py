"""``wicketgate approvals``: the calls that wait at a running service, read and decided in a terminal (OPS-340 to
OPS-342)."""

import asyncio
import json
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import click

from app.commands.groups import Group, exit_codes
from app.commands.options import with_json
from app.commands.output import printable, printable_text
from wicketgate.errors import ConfigError

if TYPE_CHECKING:  # brings an HTTP client, which the help does not need
    from app.commands.gate_client import RemoteGate

F = TypeVar("F", bound=Callable[..., Any])
Ask = Mapping[str, Any]
_PATH = "/console/api/approvals"
_FOR_CONVERSATION = "approve_for_conversation"
_codes = exit_codes({1: "the service could not be reached or refused it, or no such call waits"})


def _where(command: F) -> F:
    command = click.option("--key", envvar="WG_KEY", help="The key of the approver; or WG_KEY.")(with_json(command))
    return click.option("--url", envvar="WG_URL", required=True, help="The service; or WG_URL.")(command)


@click.group(cls=Group)
def approvals() -> None:
    """List and decide the calls that wait for an approval.

    Name the running service with --url and --key, or WG_URL and WG_KEY. The list holds the calls of the key's actor and
    those that a rule of access lets it approve; with ops:read it holds all calls.
    """


@approvals.command("list", epilog=_codes)
@_where
def list_command(url: str, key: str | None, as_json: bool) -> None:
    """List the waiting calls, oldest first."""

    async def work(gate: "RemoteGate") -> int:
        found = await gate.ask("GET", _PATH)
        if as_json:
            click.echo(_document(found))
        else:
            _print_list(found["waiting"])
        return 0

    _run(url, key, work)


@approvals.command("show", epilog=_codes)
@click.argument("id")
@_where
def show(id: str, url: str, key: str | None, as_json: bool) -> None:
    """Show one call with all of its arguments. ID may be the beginning of one."""

    async def work(gate: "RemoteGate") -> int:
        ask = await _one(gate, id)
        click.echo(_document(ask) if as_json else printable_text(_whole(ask)))
        return 0

    _run(url, key, work)


@approvals.command("approve", epilog=_codes)
@click.argument("id")
@click.option("--conversation", is_flag=True, help="Its destinations are fine for the rest of its conversation too.")
@click.option("--program", is_flag=True, help="All calls that its program waits for now, each of them once.")
@_where
def approve(id: str, conversation: bool, program: bool, url: str, key: str | None, as_json: bool) -> None:
    """Approve one call, for these arguments, once. ID may be the beginning of one."""
    decision = _FOR_CONVERSATION if conversation else "approve"

    async def work(gate: "RemoteGate") -> int:
        ids = [id]
        if program and (of := (await _one(gate, id))["program"]):
            # Those that are on the list now, and none that comes later.
            asks = (await gate.ask("GET", _PATH))["waiting"]
            ids = [ask["id"] for ask in asks if ask["program"] == of and ask["may_decide"]]
        return max([await _decide(gate, each, decision, as_json) for each in ids], default=1)

    _run(url, key, work)


@approvals.command("deny", epilog=_codes)
@click.argument("id")
@_where
def deny(id: str, url: str, key: str | None, as_json: bool) -> None:
    """Deny one call: the next same call is refused, once. ID may be the beginning of one."""
    _run(url, key, lambda gate: _decide(gate, id, "deny", as_json))


async def _decide(gate: "RemoteGate", id: str, decision: str, as_json: bool) -> int:
    ask = await _one(gate, id)
    answer = await gate.ask("POST", f"{_PATH}/{quote(ask['id'], safe='')}", {"decision": decision})
    if as_json:
        click.echo(_document(answer))
        return 0
    told = f"{ask['name']} of {ask['actor']}: {'denied' if decision == 'deny' else 'approved'}"
    if decision != "deny":
        told += "; the same call of that actor now runs once" if answer["complete"] else f"; it needs {ask['needs']}"
        if decision == _FOR_CONVERSATION:
            told += "; its destinations are fine for its conversation" if ask["strange"] else "; it has none to accept"
    click.echo(printable(told))
    return 0


async def _one(gate: "RemoteGate", id: str) -> Ask:
    """Returns the waiting call whose id begins with *id*. Raises ConfigError."""
    waiting: Sequence[Ask] = (await gate.ask("GET", _PATH))["waiting"]
    found = [ask for ask in waiting if ask["id"] == id or _short(ask) == id] or [
        ask for ask in waiting if _short(ask).startswith(id) or ask["id"].startswith(id)
    ]
    if len(found) != 1:
        what = "several waiting calls have an id that begins like this" if found else "no waiting call has this id"
        raise ConfigError(f"{what}; wicketgate approvals list shows them")
    return found[0]


def _short(ask: Ask) -> str:
    """The part of an id that differs in each call that waits."""
    return str(ask["id"]).rpartition(".")[2]


def _print_list(waiting: Sequence[Ask]) -> None:
    if not waiting:
        click.echo("No call is waiting for an approval.", err=True)
        return
    from rich.console import Console

    from app.tables import table

    rows = [
        (_short(ask), ask["name"], ask["actor"], _needs(ask), _time_left(ask), "yes" if ask["may_decide"] else "no")
        for ask in waiting
    ]
    Console(width=None if sys.stdout.isatty() else 160).print(
        table(("ID", "Tool", "Asked by", "Needs", "Time left", "You decide"), rows)
    )


def _whole(ask: Ask) -> str:
    arguments = "not shown to this key, or too large" if ask["args"] is None else json.dumps(ask["args"], indent=2)
    lines = [
        f"ID          {ask['id']}",
        f"Tool        {ask['tool_id']}",
        f"Definition  {ask['definition']}{' (the tool has changed since)' if ask['definition_changed'] else ''}",
        f"Asked by    {ask['actor']} (key {ask['key_id'] or '-'}, {ask['door'] or '-'} from {ask['source'] or '-'})",
        f"Needs       {_needs(ask)}",
        f"Time left   {_time_left(ask)}",
        f"Arguments   {arguments}",
        *(f"{'' if number else 'Why':<12}{line}" for number, line in enumerate(ask["why"].splitlines())),
    ]
    return "\n".join(lines)


def _needs(ask: Ask) -> str:
    approved = [vote["actor"] for vote in ask["votes"] if vote["decision"] == "approve"]
    needs = ask["needs"] or "its caller"
    return f"{needs} (approved: {', '.join(approved)})" if approved else needs


def _time_left(ask: Ask) -> str:
    seconds = max(0, int(ask["expires_at"] - time.time()))
    return f"{seconds // 60} min" if seconds >= 60 else f"{seconds} s"


def _document(body: Any) -> str:
    return printable(json.dumps(body))


def _run(url: str, key: str | None, work: Callable[["RemoteGate"], Coroutine[None, None, int]]) -> None:
    from app.commands.gate_client import open_remote

    async def open_and_work() -> int:
        async with open_remote(url, key) as gate:
            return await work(gate)

    sys.exit(asyncio.run(open_and_work()))
