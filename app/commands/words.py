"""``wicketgate words``: everyday words of each tool, written once by the configured model (BROWSE-100, OPS-465 to
OPS-467)."""

import secrets
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

import click

from app.commands.check import connected, without_audit
from app.commands.check_model import explain_failure
from app.commands.output import bounded_line, gap_lines, printable
from wicketgate.catalog.catalog import Catalog
from wicketgate.catalog.selectable import SelectableItem
from wicketgate.catalog.written_words import (
    MAX_ANSWER_CHARS,
    ToolSaid,
    WordsGap,
    batches,
    common_terms,
    gaps,
    question,
    read_answer,
    tool_name,
)
from wicketgate.config.engine import make_provider
from wicketgate.config.settings import Settings
from wicketgate.config.upstreams import outgoing_rules
from wicketgate.config.words_file import read_words, write_words
from wicketgate.errors import ConfigError, EngineError
from wicketgate.log_text import MASK, Redactor
from wicketgate.models.provider import ModelRequest, Provider, TextDelta


async def words(settings: Settings, path: Path, *, diff: bool, model: str | None = None) -> int:
    """Returns the exit code: 1 if a tool is without words in the end, or with *diff* if anything differs."""
    if settings.model.provider == "scripted" and not diff:
        raise ConfigError("model.provider is scripted, which writes no words; set it to that of a real model")
    written = read_words(path)  # before anything is connected, so that a malformed file is reported at once
    quiet = settings.browse.model_copy(update={"words_file": None})
    async with connected(without_audit(settings).model_copy(update={"browse": quiet})) as gate:
        catalog, declared = gate.runtime.catalog(), gate.runtime.declared()
        silent = [name for name in gate.fleet.statuses() if name not in declared]
    for name in silent:
        click.echo(f"{name}: gave no tools; their words stay unchanged", err=True)
    found = gaps(written, catalog.items.values(), silent)
    if diff:
        for line in gap_lines(found):
            click.echo(line)
    elif found:
        gone = {each.tool for each in found if each.kind == "gone"}
        written = {digest: said for digest, said in written.items() if said.tool not in gone}
        return 1 if await _write(settings, model, catalog, found, written, path) or silent else 0
    if not found:
        click.echo(f"{path}: every tool has words of its definition")
    return 1 if found or silent else 0


async def _write(
    settings: Settings,
    model: str | None,
    catalog: Catalog,
    found: Sequence[WordsGap],
    written: dict[str, ToolSaid],
    path: Path,
) -> bool:
    """Asks for the words of each tool in *found*, and writes the file after each answer. Returns whether any tool is
    without an answer."""
    choice = settings.model if model is None else settings.model.model_copy(update={"model": model, "fallbacks": ()})
    provider, redact = make_provider(choice, outgoing_rules(settings)), Redactor(settings.secrets())
    items = [each.item for each in found if each.item is not None]
    common = common_terms(catalog.items.values())
    unanswered, asked = len(items), 0
    try:
        write_words(path, written)
        for batch in batches(items):
            answer = redact(await _answer(provider, batch)).replace(MASK, " ")
            new = read_answer(answer, batch, common)
            names = {said.tool for said in new.values()}
            written = {digest: said for digest, said in written.items() if said.tool not in names} | new
            write_words(path, written)
            asked, unanswered = asked + len(batch), unanswered - len(new)
            for item in batch:
                if item.digest not in new:
                    click.echo(printable(f"{tool_name(item)}: the answer has no words for it"), err=True)
            click.echo(f"{asked} of {len(items)} tools asked about", err=True)
    except EngineError as failure:
        error, mend = explain_failure("model", choice, failure)
        click.echo(f"model ({choice.model}): {bounded_line(redact(error))}. {mend}", err=True)
    finally:
        await provider.aclose()
    click.echo(f"{path}: words of {len(items) - unanswered} definitions written")
    if unanswered:
        click.echo(f"{unanswered} tools have none; the same command asks about these again", err=True)
    return unanswered > 0


async def _answer(provider: Provider, batch: Sequence[SelectableItem]) -> str:
    """The model's text, as far as it is read. Raises EngineError."""
    text = ""
    request = ModelRequest([{"role": "user", "content": question(batch)}], (), f"words_{secrets.token_hex(8)}")
    async with aclosing(provider.stream(request)) as stream:
        async for events in stream:
            text += "".join(event.content for event in events if isinstance(event, TextDelta))
            if len(text) > MAX_ANSWER_CHARS:
                break
    return text
