"""``wicketgate lock``: write, show and accept the pins of tool definitions (ACCESS-22)."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import click

from app.commands.check import connected, without_audit
from app.commands.groups import did_you_mean, near
from app.commands.output import count, quarantine_lines
from wicketgate.catalog.pins import Declared, Difference, Pins, accept, differences, pin_all
from wicketgate.config.lock_file import changing, read_lock, write_lock
from wicketgate.config.settings import PinSettings, Settings
from wicketgate.errors import ConfigError


def lock(
    settings: Settings, path: Path, *, diff: bool, chosen: Sequence[str], everything: bool, as_json: bool = False
) -> int:
    """Returns the exit code: 1 if a difference was not accepted, or an upstream did not give its tools."""
    if path.exists():
        read_lock(path)  # a file that cannot be read is told before anything is connected
    declared, silent = asyncio.run(_declared(settings))
    for name in silent:
        what = name.partition("/")[2] or "tools"
        click.echo(f"{name}: gave no {what}; its pins stay as they are", err=True)
    # Read again, because the console may have accepted more in the meantime.
    with changing(path):
        pins = read_lock(path) if path.exists() else None
        if pins is None and not diff:
            if chosen:
                raise ConfigError(f"There is no {path} yet. Make it with: wicketgate lock --config FILE --lock {path}")
            return _write_first(path, declared, silent, as_json=as_json)
        pins = pins or {}
        found = _with_gone_upstreams(settings, pins, differences(pins, declared))
        taken = _chosen(found, chosen, everything, [upstream.name for upstream in settings.upstreams])
        if taken:
            write_lock(path, accept(pins, declared, taken, trusted=lambda each: _named(each, chosen)))
    # Report what is left.
    open_ones = [each for each in found if each not in taken]
    if as_json:
        _print_json(path, pinned=None, accepted=[each.tool for each in taken], differences=open_ones, silent=silent)
        return 1 if open_ones or silent else 0
    if taken:
        click.echo(f"{path}: {count(len(taken), 'difference')} accepted")
    for line in quarantine_lines(open_ones):
        click.echo(line)
    if not found:
        click.echo(f"{path}: every tool is as accepted")
    elif open_ones and not diff:
        click.echo(f"Accept with: wicketgate lock --accept {open_ones[0].tool} (or --all)", err=True)
    return 1 if open_ones or silent else 0


async def _declared(settings: Settings) -> tuple[Declared, list[str]]:
    """Returns what the upstreams declare, with no pins applied, and the names of the sources that gave nothing."""
    async with connected(without_audit(settings).model_copy(update={"pins": PinSettings()})) as gate:
        declared = dict(gate.runtime.declared())
        silent = [name for name in gate.fleet.statuses() if name not in declared]
        offers, missing = await gate.runtime.declared_offers()
        # An upstream that is down is reported once.
        silent += [source for source in missing if source.partition("/")[0] not in silent]
        return {**declared, **offers}, silent


def _write_first(path: Path, declared: Declared, silent: Sequence[str], *, as_json: bool) -> int:
    pins = pin_all(declared)
    write_lock(path, pins)
    suspicious = [each for each in differences(pins, declared) if each.kind == "suspicious"]
    if as_json:
        pinned = {source: sorted(names) for source, names in pins.items()}
        _print_json(path, pinned=pinned, accepted=[], differences=suspicious, silent=silent)
        return 1 if silent else 0
    tools = {source: pinned for source, pinned in pins.items() if "/" not in source}
    others = sum(map(len, pins.values())) - sum(map(len, tools.values()))
    also = f", and {count(others, 'other offer')}" if others else ""
    click.echo(
        f"{path}: {count(sum(map(len, tools.values())), 'tool')} of {count(len(tools), 'upstream')} pinned{also}"
    )
    for line in quarantine_lines(suspicious):
        click.echo(line)
    return 1 if silent else 0


def _print_json(
    path: Path,
    *,
    pinned: Mapping[str, Sequence[str]] | None,
    accepted: Sequence[str],
    differences: Sequence[Difference],
    silent: Sequence[str],
) -> None:
    document = {
        "lock": str(path),
        "pinned": pinned,
        "accepted": list(accepted),
        "differences": [
            {
                "tool": each.tool,
                "kind": each.kind,
                "reason": each.held.explanation if each.held else "",
                "change": list(each.held.change.lines) if each.held and each.held.change else [],
                "signs": list(each.signs),
            }
            for each in differences
        ],
        "silent": list(silent),
    }
    click.echo(json.dumps(document, indent=2))


def _with_gone_upstreams(settings: Settings, pins: Pins, found: Sequence[Difference]) -> list[Difference]:
    configured = {upstream.name for upstream in settings.upstreams}
    gone = [
        Difference(server, name, "gone")
        for server in pins
        if server.partition("/")[0] not in configured
        for name in pins[server]
    ]
    return [*found, *gone]


def _chosen(
    found: Sequence[Difference], chosen: Sequence[str], everything: bool, upstreams: Sequence[str]
) -> list[Difference]:
    for pattern in chosen:
        if not any(_fits(each, pattern) for each in found):
            server = pattern.partition(":")[0].partition("/")[0]
            if server not in upstreams and not any(sign in server for sign in "*?[") and near(server, upstreams):
                raise ConfigError(f"No upstream is called {server}.{did_you_mean(server, upstreams)}")
            meant = did_you_mean(pattern, [each.tool for each in found])
            raise ConfigError(f"No difference matches {pattern}.{meant} See: wicketgate lock --diff")
    return [each for each in found if (everything and each.kind != "suspicious") or _named(each, chosen)]


def _named(difference: Difference, chosen: Sequence[str]) -> bool:
    return any(_fits(difference, pattern) for pattern in chosen)


def _fits(difference: Difference, pattern: str) -> bool:
    return pattern == difference.tool or fnmatchcase(difference.tool, pattern)
