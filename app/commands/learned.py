"""``wicketgate learned``: list and forget the words that led to tools (OPS-53, OPS-54)."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import click

from app.commands.output import count, printable
from wicketgate.catalog.learned_words import ToolWords
from wicketgate.config.runtime import make_redis_link, make_store
from wicketgate.config.settings import Settings
from wicketgate.errors import ConfigError
from wicketgate.ports import LearnedStore
from wicketgate.storage.learned_words import StoredLearnedWords

Row = tuple[str, str, ToolWords]

_LEAST_SHOWN = 0.05


def list_learned(settings: Settings, actor: str | None, tool: str | None, *, as_json: bool) -> None:
    """Prints what was learned, as it counts today. Raises ConfigError."""
    rows, now = asyncio.run(_read(settings, actor, tool))
    entries = [_entry(row, now) for row in rows]
    if as_json:
        click.echo(json.dumps(entries, indent=2))
        return
    if not entries:
        click.echo("No learned words match." if actor or tool else "No words have been learned yet.", err=True)
    for entry in entries:
        words = ", ".join(f"{word} {count:g}" for word, count in entry["words"].items()) or "no words of its own"
        click.echo(printable(f"{entry['actor']}  {entry['tool']}  {count(entry['runs'], 'run')}: {words}"))


def reset_learned(settings: Settings, actor: str | None, tool: str | None, *, sure: bool) -> int:
    """Forgets what was learned. Services that use the file notice it within seconds. Returns the exit code:
    1 if the question was answered with no. Raises ConfigError."""
    rows, _ = asyncio.run(_read(settings, actor, tool))
    if not rows:
        click.echo("There is nothing to forget.", err=True)
        return 0
    tools, actors = len({tool_id for _, tool_id, _ in rows}), len({name for name, _, _ in rows})
    question = f"Forget the words of {count(tools, 'tool')}, from {count(actors, 'actor')}?"
    if not sure and not click.confirm(question, err=True):
        click.echo("Nothing was forgotten.", err=True)
        return 1
    gone = asyncio.run(_forget(settings, rows, everything=actor is None and tool is None))
    click.echo(f"{count(gone, 'entry', 'entries')} forgotten")
    return 0


async def _read(settings: Settings, actor: str | None, tool: str | None) -> tuple[list[Row], float]:
    async with _opened(settings) as store:
        if store is None:
            return [], 0.0
        found = await store.learn((), 0)
        if found is None:
            raise ConfigError(f"{settings.storage.shown} cannot be read at the moment")
        rows = [row for row in found.rows if actor in (None, row[0]) and (tool is None or _is(tool, row[1]))]
        return sorted(rows, key=lambda row: row[:2]), store.now()


async def _forget(settings: Settings, rows: Sequence[Row], *, everything: bool) -> int:
    async with _opened(settings) as store:
        if store is None:
            return 0
        if everything:
            return await store.reset()
        return sum([await store.reset(actor, tool_id) for actor, tool_id, _ in rows])


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[LearnedStore | None]:
    """The store of the configuration; None if its file was never made."""
    redis, file = make_redis_link(settings), settings.storage.sqlite_file
    if redis is None and file is None:
        raise ConfigError(
            "storage.url is memory://, so what was learned is in the memory of the service, and a restart forgets it. "
            "To store and list it, name a file: sqlite:///var/wicketgate.db"
        )
    if file is not None and not file.exists():
        yield None
        return
    store = make_store(settings.storage, redis=redis)
    try:
        yield StoredLearnedWords(store, shared=True)
    finally:
        await store.aclose()
        if redis is not None:
            await redis.aclose()


def _is(wanted: str, tool_id: str) -> bool:
    """True for the id, with its hash and version or without."""
    bare = tool_id.partition("#")[0]
    return wanted in (tool_id, bare, bare.partition("@")[0])


def _entry(row: Row, now: float) -> dict[str, Any]:
    actor, tool_id, words = row
    kept = words.kept(now)
    counts = sorted(words.counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return {
        "actor": actor,
        "tool": tool_id,
        "runs": round(words.runs * kept, 1),
        "words": {word: round(count * kept, 1) for word, count in counts if count * kept >= _LEAST_SHOWN},
    }
