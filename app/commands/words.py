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
from wicketgate.catalog.selectable import SelectableItem
from wicketgate.catalog.written_words import MAX_ANSWER_CHARS, batches, common_terms, gaps, question, read_answer
from wicketgate.catalog.written_words import tool_name as name
from wicketgate.config.engine import make_provider
from wicketgate.config.settings import Settings
from wicketgate.config.upstreams import outgoing_rules
from wicketgate.config.words_file import read_words, write_words
from wicketgate.errors import ConfigError, EngineError
from wicketgate.log_text import MASK, Redactor
from wicketgate.models.provider import ModelRequest, Provider, TextDelta


async def words(settings: Settings, *, diff: bool, model: str | None = None) -> int:
    """Returns the exit code: 1 if a tool is without words in the end, or with *diff* if anything differs."""
    path = Path(settings.browse.words_file or "wicketgate.words")
    written = read_words(path)  # before anything is connected, so that a malformed file is reported at once
    choice = settings.model if model is None else settings.model.model_copy(update={"model": model, "fallbacks": ()})
    if choice.provider == "scripted" and not diff:
        raise ConfigError("model.provider is scripted, which writes no words; set it to that of a real model")
    # The tools, without the words in force: there may be no file yet.
    quiet = settings.browse.model_copy(update={"words_file": None})
    async with connected(without_audit(settings).model_copy(update={"browse": quiet})) as gate:
        items, declared = gate.runtime.catalog().items.values(), gate.runtime.declared()
        silent = [server for server in gate.fleet.statuses() if server not in declared]
    for server in silent:
        click.echo(f"{server}: returned no tools; their words stay unchanged", err=True)
    found = gaps(written, items, silent)
    asked = [gap.item for gap in found if gap.item is not None]
    if diff or not found:
        click.echo("\n".join(gap_lines(found)) or f"{path}: every tool has words of its definition")
        return 1 if found or silent else 0
    # Each answer is in the file before the next request.
    gone = {gap.tool for gap in found if gap.kind == "gone"}
    written = {digest: said for digest, said in written.items() if said.tool not in gone}
    write_words(path, written)
    common, redact, missing = common_terms(items), Redactor(settings.secrets()), len(asked)
    provider = make_provider(choice, outgoing_rules(settings))
    try:
        for batch in batches(asked):
            new = read_answer(redact(await _answer(provider, batch)).replace(MASK, " "), batch, common)
            renewed = {said.tool for said in new.values()}
            written = {digest: said for digest, said in written.items() if said.tool not in renewed} | new
            write_words(path, written)
            missing -= len(new)
            for item in batch:
                click.echo(printable(f"{name(item)}: {'written' if item.digest in new else 'not answered'}"), err=True)
    except EngineError as failure:
        error, mend = explain_failure("model", choice, failure)
        click.echo(f"model ({choice.model}): {bounded_line(redact(error))}. {mend}", err=True)
    finally:
        await provider.aclose()
    click.echo(f"{path}: words of {len(asked) - missing} definitions written, {missing} without an answer")
    return 1 if missing or silent else 0


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
