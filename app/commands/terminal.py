"""``wicketgate browse | execute | view | chat``: the runtime and the engine from a terminal."""

import asyncio
import json
import os
import secrets
import sys
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from app.commands.groups import exit_codes
from app.commands.options import asked_url, parse_identity, with_config, with_identity
from app.commands.output import count, printable, printable_text
from wicketgate.config.settings import Settings
from wicketgate.config.settings_file import load_settings
from wicketgate.daemon_threads import DaemonThreads
from wicketgate.errors import HydrateFailed

if TYPE_CHECKING:  # brings an HTTP client, which most commands do not need
    from app.commands.gate_client import AskedGate, ToolAnswer

_MOST_TYPED = 65_536

F = TypeVar("F", bound=Callable[..., Any])

_as_json = click.option("--json", "as_json", is_flag=True, help="Print the structured answer, and nothing else.")
_codes = exit_codes({1: "the gate could not be reached, or the call was refused or failed"})


def _where(command: F) -> F:
    """Adds the options that choose the gate: one started here from a configuration, or a running service."""
    command = click.option("--key", envvar="WG_KEY", help="The key for --url; or WG_KEY.")(with_identity(command))
    command = click.option("--url", envvar="WG_URL", help="Use the service at this URL instead; or WG_URL.")(command)
    return with_config(command)


@click.command(epilog=_codes)
@click.argument("what")
@click.option(
    "--top-k",
    type=click.IntRange(1, 50),
    help="The most cards to show for words.  [default: depends on their scores]",
)
@_as_json
@_where
def browse(what: str, top_k: int | None, as_json: bool, **where: Any) -> None:
    """Find tools by words, or by a path.

    'wicketgate browse /' lists the namespaces. In a terminal the best tool comes first, and ids are as short as
    'wicketgate execute' accepts them. Into a pipe it writes the text that a model reads.

    \b
    wicketgate browse "find a customer"
    """
    arguments: dict[str, Any] = {"path": what} if what.startswith("/") else {"query": what}
    if top_k is not None:
        arguments["top_k"] = top_k
    _run(where, lambda gate: _browse(gate, arguments, as_json))


@click.command(epilog=_codes)
@click.argument("tool_id")
@click.argument("args", default="{}")
@click.option("--dry-run", is_flag=True, help="Only check the arguments; nothing is called.")
@_as_json
@_where
def execute(tool_id: str, args: str, dry_run: bool, as_json: bool, **where: Any) -> None:
    """Run the tool TOOL_ID with ARGS, a JSON object.

    You may omit the #hash of the id if the rest names one tool. With '-' as ARGS, they are read from stdin.

    \b
    wicketgate execute --config wicketgate.yaml shop:search_customers '{"words": "Ada"}'
    """
    text = sys.stdin.read() if args == "-" else args
    arguments = {"tool_id": tool_id, "args": _json(text, "ARGS", '{"name": "value"}'), "dry_run": dry_run}
    _run(where, lambda gate: _show(gate, "tool_execute", arguments, as_json))


@click.command(epilog=_codes)
@click.argument("handle")
@click.argument("selector", default='{"type": "head", "chars": 2000}')
@_as_json
@_where
def view(handle: str, selector: str, as_json: bool, **where: Any) -> None:
    """Read part of the artifact HANDLE.

    SELECTOR is a JSON object; without it the first 2,000 characters are shown.

    Without --url this finds artifacts of earlier commands only if 'storage' is a file: memory ends with its process.
    """
    arguments = {"handle": handle, "selector": _json(selector, "SELECTOR", '{"type": "head", "chars": 2000}')}
    _run(where, lambda gate: _show(gate, "tool_view", arguments, as_json))


@click.command(epilog=_codes)
@click.argument("message", required=False)
@_as_json
@_where
def chat(message: str | None, as_json: bool, **where: Any) -> None:
    """Talk to the engine: one MESSAGE, or a conversation.

    Without MESSAGE each line of stdin is a message; an empty line ends the conversation. The answer goes to stdout, the
    tool calls to stderr. With --json every event is one line.
    """
    _run(where, lambda gate: _converse(gate, message, as_json))


async def _browse(gate: "AskedGate", arguments: Mapping[str, Any], as_json: bool) -> int:
    if as_json or not sys.stdout.isatty():
        return await _show(gate, "tool_browse", arguments, as_json)
    answer = await gate.call("tool_browse", arguments)
    if answer.is_error:
        _print_error(answer)
        return 1
    from app.commands.transcript import print_cards

    cards = answer.structured.get("cards") or []
    tools = [str(card.get("id")) for card in cards if card.get("kind") != "internal"]
    print_cards(cards, await gate.short_ids(tools), str(answer.structured.get("hint", "")))
    return 0


async def _show(gate: "AskedGate", tool: str, arguments: Mapping[str, Any], as_json: bool) -> int:
    answer = await gate.call(tool, arguments)
    if as_json:
        click.echo(_line(answer.structured))
    elif answer.is_error and "error" in answer.structured:
        _print_error(answer)
    elif tool == "tool_execute":
        click.echo(printable_text(json.dumps(answer.structured, ensure_ascii=False, indent=2)))
    elif tool == "tool_view":
        content = str(answer.structured.get("content", answer.text))
        # Unchanged for a file or a program.
        click.echo(printable_text(content) if sys.stdout.isatty() else content)
    else:
        click.echo(printable_text(answer.text))
    return 1 if answer.is_error else 0


def _print_error(answer: "ToolAnswer") -> None:
    body = answer.structured
    details = dict(body.get("details") or {})
    # The words are meant for a model.
    message = str(body.get("message")).replace("tool_browse", "wicketgate browse")
    line = f"{body.get('error')}: {message}"
    if body.get("error") == HydrateFailed.code:
        none = f"no such tool: {body.get('path')}; wicketgate browse WORDS finds ids"
        line = f"wicketgate: {none if message.startswith('No') else message}"
    click.echo(printable(line), err=True)
    near = details.pop("did_you_mean", None)
    if near:
        click.echo(
            printable(f"Did you mean {' or '.join(map(str, near if isinstance(near, list) else [near]))}?"), err=True
        )
    if details:
        click.echo(printable_text(json.dumps(details, ensure_ascii=False, indent=2)), err=True)


async def _converse(gate: "AskedGate", message: str | None, as_json: bool) -> int:
    from app.commands.transcript import ChatLines

    asking = DaemonThreads(1, "question")  # a Ctrl-C does not wait for the line that nobody will type
    conversation, messages = f"cli_{secrets.token_hex(8)}", list[dict[str, str]]()
    once, failed = message is not None, False
    while True:
        # The next message: the given one, or one from the terminal.
        text = message if message is not None else await asking.run(_ask)
        message = None
        if not text:
            return 1 if failed else 0
        messages.append({"role": "user", "content": text})
        metadata = {"correlation_id": f"cli_{secrets.token_hex(8)}", "conversation_id": conversation}
        # One run: print its events, keep its text for the conversation.
        texts: list[str] = []
        failed, transcript = False, ChatLines()
        async for name, data in gate.chat({"messages": messages, "metadata": metadata}):
            failed = failed or name == "error"
            if name == "text-delta":
                texts.append(data["content"])
            if as_json:
                click.echo(_line({"event": name, "data": data}))
            else:
                transcript.show(name, data)
        messages.append({"role": "assistant", "content": "".join(texts)})
        if once:
            return 1 if failed else 0


def _ask() -> str:
    if sys.stdin.isatty():
        # Not through sys.stdin, whose lock the end of the process would wait for. A terminal gives one line at a time.
        click.echo("> ", nl=False, err=True)
        return os.read(sys.stdin.fileno(), _MOST_TYPED).decode("utf-8", "replace").strip()
    try:
        return click.prompt(">", prompt_suffix=" ", default="", show_default=False, err=True).strip()
    except (EOFError, click.Abort):
        return ""


def _line(body: Mapping[str, Any]) -> str:
    return printable(json.dumps(body, ensure_ascii=False))


def _json(text: str, what: str, example: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        at = f" (line {error.lineno}, column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
        raise click.UsageError(f"{what} is not JSON{at}; it looks like '{example}', in single quotes") from None


def _run(where: Mapping[str, Any], work: Callable[["AskedGate"], Coroutine[None, None, int]]) -> None:
    from app.commands.gate_client import open_gate

    # Choose the gate.
    config, url = where["config"], asked_url(where["url"])
    if not url and config is None:
        raise click.UsageError(
            "./wicketgate.yaml does not exist: start a gate with --config FILE, or ask a running one with --url URL"
        )
    identity = parse_identity(where["actor"], where["permissions"], where["roles"])
    settings = Settings() if url else load_settings(config)
    if not url:
        click.echo(f"Connecting to {count(len(settings.upstreams), 'upstream')} ...", err=True)

    async def open_and_work() -> int:
        async with open_gate(settings, identity, url, where["key"]) as gate:
            return await work(gate)

    sys.exit(asyncio.run(open_and_work()))
