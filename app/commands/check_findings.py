"""The findings of ``wicketgate check``: what is there, what is missing, and how it is shown (OPS-105, OPS-106).

Faults come last in a terminal: there the eye is, however many tools stand above.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import time
from typing import Any

from rich.table import Table
from rich.text import Text

from app.commands.check_model import ModelTrial
from app.commands.check_progress import STATES
from app.commands.console import console, table
from app.commands.output import gap_lines, printable, screened_lines
from wicketgate.access.approvers import Need, can_be_met
from wicketgate.access.issuers import IssuerState
from wicketgate.catalog.card import one_line
from wicketgate.catalog.catalog import Catalog
from wicketgate.catalog.written_words import gaps
from wicketgate.config.plugins import plugin_lines
from wicketgate.config.settings import Settings
from wicketgate.config.settings_file import careless_lines, no_upstreams_line
from wicketgate.config.words_file import read_words
from wicketgate.gate import Gate
from wicketgate.gateway.upstream_reports import UpstreamReport
from wicketgate.ports import CallContext, HasLeftOut, HasNotes

_SHOWN_TOOLS = 20
_SHOWN_LEFT_OUT = 20
_WIDTH = 120
"""Of a line that is not for a terminal."""
_SHORTEST = 20
"""Characters of a description that are worth showing."""


@dataclass(frozen=True, slots=True)
class FoundUpstream:
    """*tools* are ids with descriptions; *left_out* has a line for each definition that gives no tool; *held* is the
    number of definitions that are quarantined."""

    name: str
    state: str
    error: str
    seconds: float | None
    tools: Sequence[tuple[str, str]]
    left_out: Sequence[str]
    held: int


@dataclass(frozen=True, slots=True)
class Findings:
    """*faults* are the lines that make the check fail, *notes* the others. Careless settings do not: some are right
    behind a proxy or in a closed network, which the check cannot know."""

    upstreams: Sequence[FoundUpstream]
    keys: Sequence[Mapping[str, Any]]
    notes: Sequence[str]
    faults: Sequence[str]
    summary: Sequence[str]
    issuers: Sequence[IssuerState] = ()
    models: Sequence[ModelTrial] = ()
    careless: Sequence[str] = ()

    def with_models(self, trials: Sequence[ModelTrial]) -> "Findings":
        failed = [trial.line for trial in trials if not trial.ok]
        return replace(self, models=trials, faults=[*self.faults, *failed])

    def as_dict(self) -> dict[str, Any]:
        """Stable keys, described in docs/guide/terminal.md."""
        return {
            "ok": not self.faults,
            "upstreams": [
                {
                    "name": each.name,
                    "state": each.state,
                    "error": each.error,
                    "seconds": None if each.seconds is None else round(each.seconds, 3),
                    "tools": [{"id": tool_id, "description": text} for tool_id, text in each.tools],
                    "left_out": list(each.left_out),
                    "quarantined": each.held,
                }
                for each in self.upstreams
            ],
            "models": [trial.as_dict() for trial in self.models],
            "keys": list(self.keys),
            "issuers": [
                {"name": each.name, "issuer": each.issuer, "keys": each.keys, "error": each.trouble}
                for each in self.issuers
            ],
            "notes": list(self.notes),
            "careless": list(self.careless),
            "faults": list(self.faults),
            "summary": self.summary[0],
        }


async def find(
    settings: Settings, gate: Gate, reports: Mapping[str, UpstreamReport], unanswered: Mapping[str, str]
) -> Findings:
    """Collects what the open *gate* knows; *reports* are those of its upstreams, *unanswered* says why one that waits
    for a first account is not there."""
    runtime, catalog = gate.runtime, gate.runtime.catalog()
    statuses, screened, troubles = gate.fleet.statuses(), runtime.screened(), runtime.troubles()
    offers, _ = await runtime.declared_offers()
    held = Counter({server: len(each.held) for server, each in screened.items()})
    # Each upstream.
    upstreams: list[FoundUpstream] = []
    faults: list[str] = []
    notes: list[str] = []
    for name, status in statuses.items():
        trouble = status.report or troubles.get(name, "")
        member = gate.fleet.members[name].upstream
        seen = list(member.left_out) if isinstance(member, HasLeftOut) else []
        found = FoundUpstream(
            name,
            status.phase,
            trouble,
            reports[name].seconds if name in reports else None,
            [(item.id, one_line(item.description[:1_000])) for item in catalog.tools.values() if item.server == name],
            seen,
            sum(count for source, count in held.items() if source.partition("/")[0] == name),
        )
        upstreams.append(found)
        if name in unanswered:
            faults.append(f"{name}: {unanswered[name]}")
        if status.phase == "waiting":
            notes.append(f"{name}: {trouble}; {_first_account(settings, name)}")
        elif status.phase != "ready" or trouble:
            faults.append(f"{name}: {status.phase}{f' ({trouble})' if trouble else ''}")
        elif not found.tools:
            others = [source.partition("/")[2] for source, given in offers.items() if source.startswith(f"{name}/")]
            given = [kind for kind in others if offers[f"{name}/{kind}"] and kind != "instructions"]
            if given:
                notes.append(f"{name}: no tools, but {' and '.join(given)}")
            else:
                faults.append(f"{name}: ready, but without a tool that can be used: {_why_none(gate, name, found)}")
        if isinstance(member, HasNotes):
            notes += [f"{name}: {note}" for note in member.notes]
        if not trouble and status.connections > 1:
            notes.append(f"{name}: connected {status.connections} times; before: {status.last_error}")
    # Definitions that give no tool, and those that are held back.
    faults += [f"left out: {each.server}[{each.index}]: {each.reason}" for each in catalog.skipped]
    faults += [f"left out: {each.name}: {reason}" for each in upstreams for reason in each.left_out]
    faults += [f"not browsed: {tool}: {reason}" for tool, reason in catalog.quarantine.items()]
    lines = list(screened_lines(screened))
    if held.total():
        faults += lines
    else:
        notes += lines
    for server in {each.server for each in catalog.skipped}:
        reasons = [f"[{each.index}]: {each.reason}" for each in catalog.skipped if each.server == server]
        upstreams = [
            replace(each, left_out=[*each.left_out, *reasons]) if each.name == server else each for each in upstreams
        ]
    notes += _forwarding(settings)
    notes += _without_approvers(settings, gate)
    # The issuers of tokens.
    issuers = gate.issuers.states()
    faults += [f"issuer {each.name} ({each.issuer}): {each.trouble}" for each in issuers if each.trouble]
    faults += [
        f"issuer {each.name} ({each.issuer}): it has no key that can be used" for each in issuers if each.keys == 0
    ]
    # The gate as a whole.
    keys = list(_keys(settings, gate))
    disabled = [upstream.name for upstream in settings.upstreams if not upstream.enabled]
    notes = [
        *(f"{name}: disabled" for name in disabled),
        *notes,
        *(f"left aside: {tool}: a subscription, which no tool call can carry" for tool in catalog.subscriptions),
        *(f"hidden from models: {tool}: for pages of MCP Apps only" for tool in catalog.app_tools),
        *(f"no tool matches: {pattern}" for pattern in runtime.unmatched()),
        *_without_words(settings, catalog, [name for name in statuses if name not in runtime.declared()]),
        *(f"key: {key['id']} ({_whose(key)}): {key['tools']} of {len(catalog.tools)} tools" for key in keys),
        *(f"issuer: {each.name} ({each.issuer}): {each.keys} keys" for each in issuers if each.keys),
        *plugin_lines(settings.plugins),
        *(f"warning: {note}" for note in gate.key_notes()),
        *(f"storage: warning: {line}" for line in gate.storage_state().shortfalls),
        *_without_store(gate),
    ]
    if away := gate.storage_state().away:
        faults.append(f"storage: {settings.storage.shown} {away}")
    if not statuses:
        faults.append(no_upstreams_line(settings))
    elif not catalog.tools and not faults and all(each.state != "waiting" for each in upstreams):
        faults.append("there is no tool to call at all")
    down = [each.name for each in upstreams if each.state != "ready"]
    counts = _summary(catalog, upstreams, connected=len(upstreams) - len(down), held=held.total())
    stale = [name for name in troubles if name not in down]
    more = [f"not in use: the tools that {', '.join(stale)} lists now"] if stale else []
    careless = list(map(printable, careless_lines(settings)))
    lines_of_notes, lines_of_faults = list(map(printable, notes)), list(map(printable, faults))
    return Findings(upstreams, keys, lines_of_notes, lines_of_faults, [counts, *more], issuers, careless=careless)


def show(findings: Findings, *, everything: bool) -> None:
    """Prints the tools of each upstream, what is worth a note, a table, and last the faults and the counts."""
    out = console()
    if not out.is_terminal:
        out.width = _WIDTH
    # Tools, by upstream. Each id begins with its name; its state stands in the table.
    for each in findings.upstreams:
        shown = each.tools if everything else each.tools[:_SHOWN_TOOLS]
        longest = max((len(tool_id) for tool_id, _ in shown), default=0)
        for tool_id, description in shown:
            out.print(_tool_line(tool_id, description, longest, out.width))
        if len(shown) < len(each.tools):
            out.print(Text(f"  ... {len(each.tools) - len(shown)} more; wicketgate check --all lists them", "dim"))
    for note in findings.notes:
        out.print(Text(note))
    # The tables.
    if findings.upstreams:
        out.print()
        out.print(_upstream_table(findings.upstreams))
    if findings.models:
        out.print(
            table(
                ("model", "setting", "state", "seconds", ""),
                [
                    (trial.model or trial.provider, trial.setting, trial.state, f"{trial.seconds:.1f}", trial.note)
                    for trial in findings.models
                ],
            ),
        )
    # Careless settings, then the faults.
    for line in findings.careless:
        out.print(Text(f"careless: {line}", "yellow"))
    faults = findings.faults if everything else list(_shortened(findings.faults))
    for fault in faults:
        out.print(Text(fault, "red"))
    for line in findings.summary:
        out.print(Text(line, "bold"))


def _tool_line(tool_id: str, description: str, longest: int, width: int) -> Text:
    line = Text(f"  {tool_id}")
    room = width - max(len(line), longest + 2) - 2
    if description and room >= _SHORTEST:
        text = printable(description)
        line.append(" " * (max(longest + 2 - len(line), 0) + 2))
        line.append(text if len(text) <= room else text[: room - 1].rstrip() + "…", "dim")
    return line


def _upstream_table(upstreams: Sequence[FoundUpstream]) -> Table:
    made = table(("upstream", "state", "tools", "left out", "seconds"), ())
    for each in upstreams:
        made.add_row(
            Text(each.name),
            Text(each.state, STATES[each.state]),
            Text(str(len(each.tools))),
            Text(str(len(each.left_out) + each.held)),
            Text("-" if each.seconds is None else f"{each.seconds:.1f}"),
        )
    for column in made.columns[2:]:
        column.justify = "right"
    return made


def _shortened(faults: Sequence[str]) -> Iterator[str]:
    """Yields the faults; of one server's definitions that were left out, the first few and the number of the rest."""
    seen: Counter[str] = Counter()
    for fault in faults:
        if fault.startswith("left out: "):
            server = fault.removeprefix("left out: ").partition(":")[0].partition("[")[0]
            seen[server] += 1
            if seen[server] > _SHOWN_LEFT_OUT:
                continue
        yield fault
    for server, count in seen.items():
        if count > _SHOWN_LEFT_OUT:
            yield f"left out: {server}: {count - _SHOWN_LEFT_OUT} more; wicketgate check --all lists them"


def _without_store(gate: Gate) -> Iterator[str]:
    """The meaning of ``storage.fail`` where there is a store that may be away."""
    if gate.storage_state().kind != "memory":
        yield f"storage: while it cannot be used (storage.fail): {gate.storage.fail.summary()}"


def _why_none(gate: Gate, name: str, found: FoundUpstream) -> str:
    if found.left_out:
        return f"all {len(found.left_out)} that it declares were left out"
    listed = len(gate.runtime.declared().get(name, ()))
    if not listed:
        return "it lists none"
    return f"it lists {listed}, and all are left out, quarantined or hidden by a plugin"


def _without_words(settings: Settings, catalog: Catalog, silent: Sequence[str]) -> Iterator[str]:
    """Yields the tools whose words are not those of their definitions."""
    if settings.browse.words_file is not None:
        found = gaps(read_words(Path(settings.browse.words_file)), catalog.items.values(), silent)
        yield from (f"wicketgate words: {line}" for line in gap_lines(found))


def _summary(catalog: Catalog, upstreams: Sequence[FoundUpstream], *, connected: int, held: int) -> str:
    counts = [
        f"{connected} of {len(upstreams)} upstreams connected",
        f"{len(catalog.tools)} tools",
        f"{sum(len(each.left_out) for each in upstreams) + held} left out",
        *([f"{len(catalog.quarantine)} not browsed"] if catalog.quarantine else []),
        *([f"{len(catalog.subscriptions)} left aside"] if catalog.subscriptions else []),
    ]
    return ", ".join(counts)


def _first_account(settings: Settings, name: str) -> str:
    """Says what a server that waits has its tools from."""
    for upstream in settings.upstreams:
        if upstream.name == name and upstream.credentials == "exchange":
            issuer = settings.exchanged_issuer(upstream)
            of = f"of issuer {issuer.name}" if issuer is not None else "of an issuer"
            keys = "" if upstream.connects_users else ", and keys cannot call it: they have nothing to exchange"
            return f"its tools are those of the first caller with a token {of}{keys}"
    return "its tools are those of the first account that a caller connects"


def _whose(key: Mapping[str, Any]) -> str:
    return f"{key['actor']}, roles {', '.join(key['roles'])}" if key["roles"] else str(key["actor"])


def _forwarding(settings: Settings) -> Iterator[str]:
    """Yields a line for each server that may use more of a client than answers of its person."""
    said = {"sampling": "the models of clients (sampling)", "roots": "the names of clients' folders (roots)"}
    for upstream in settings.upstreams:
        if upstream.enabled and upstream.forward:
            used = " and ".join(said[name] for name in dict.fromkeys(upstream.forward))
            yield f"{upstream.name}: may use {used} during calls: forward"


def _without_approvers(settings: Settings, gate: Gate) -> Iterator[str]:
    """Yields a line for each rule whose calls would wait for approvers that there cannot be."""
    now = time()
    keys = [key.identity for key in gate.accepted_keys() if key.fault(now) in (None, "not_yet_valid")]
    for number, rule in enumerate(settings.access):
        need = rule.rule().approval
        if isinstance(need, Need) and not can_be_met(
            need, keys, gate.issuers.all, gate.issuers.gateway, gate.approvals.persons
        ):
            who = "nobody" if need.count == 1 else f"no {need.count} actors"
            yield f"warning: access[{number}] ({rule.match}): {who} can approve its calls as {need.by}"


def _keys(settings: Settings, gate: Gate) -> Iterator[Mapping[str, Any]]:
    """Yields the number of tools that exist for each key."""
    tools = gate.runtime.catalog().tools
    for key in settings.auth.keys:
        visible = gate.runtime.visible(CallContext(key.hashed().identity, "-", "-"))
        shown = len(tools) if visible is None else sum(map(visible, tools))
        yield {"id": key.id, "actor": key.actor, "roles": list(key.roles), "tools": shown}
