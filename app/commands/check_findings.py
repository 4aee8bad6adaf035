"""The findings of ``wicketgate check``: what is there, what is missing, and how it is shown (OPS-105, OPS-106).

Faults come last in a terminal: there the eye is, however many tools stand above.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import time
from typing import Any

from rich.table import Table
from rich.text import Text

from app.commands.check_model import ModelTrial
from app.commands.output import console, count, gap_lines, printable, screened_lines
from app.tables import table
from wicketgate.access.approvers import Need, can_be_met
from wicketgate.access.issuers import IssuerState
from wicketgate.catalog.card import one_line
from wicketgate.catalog.catalog import Catalog
from wicketgate.catalog.pins import Screened
from wicketgate.catalog.written_words import gaps
from wicketgate.config.plugins import plugin_lines
from wicketgate.config.settings import Settings
from wicketgate.config.settings_file import careless_lines, no_upstreams_line
from wicketgate.config.words_file import read_words
from wicketgate.gate import Gate
from wicketgate.gateway.upstream_reports import UpstreamReport
from wicketgate.ports import CallContext, HasLeftOut, HasNotes

STATES = {"ready": "green", "down": "red", "connecting": "yellow", "waiting": "yellow"}
"""The state of an upstream, and its colour."""

_SHOWN_TOOLS = 20
_SHOWN_LEFT_OUT = 20
_WIDTH = 120
"""Of a line that is not for a terminal."""
_SHORTEST = 20
"""Characters of a description that are worth showing."""


@dataclass(frozen=True, slots=True)
class FoundUpstream:
    """*tools* have id and description; *left_out* has a line for each definition that gives no tool; *quarantined* is
    the number of definitions that are held back. The names are those of ``--json``."""

    name: str
    state: str
    error: str
    seconds: float | None
    tools: Sequence[Mapping[str, str]]
    left_out: Sequence[str]
    quarantined: int


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
            "upstreams": [asdict(each) for each in self.upstreams],
            "models": [asdict(trial) for trial in self.models],
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


@dataclass(frozen=True, slots=True)
class _View:
    """Everything that ``check`` reads from the open *gate*. *offers* counts prompts, resources and templates by
    ``server/kind``."""

    settings: Settings
    gate: Gate
    catalog: Catalog
    upstreams: Sequence[FoundUpstream]
    unanswered: Mapping[str, str]
    screened: Mapping[str, Screened]
    offers: Mapping[str, Any]
    keys: Sequence[Mapping[str, Any]]

    @property
    def held(self) -> int:
        return sum(len(each.held) for each in self.screened.values())

    def other_offers(self, name: str) -> list[str]:
        kinds = [source.partition("/")[2] for source in self.offers if source.startswith(f"{name}/")]
        return [kind for kind in kinds if self.offers[f"{name}/{kind}"] and kind != "instructions"]


async def find(
    settings: Settings, gate: Gate, reports: Mapping[str, UpstreamReport], unanswered: Mapping[str, str]
) -> Findings:
    """Collects what the open *gate* knows. *reports* are those of its upstreams; *unanswered* gives the reason by the
    name of each upstream that waits for a first account and does not answer."""
    view = await _look(settings, gate, reports, unanswered)
    notes = [printable(line) for check in _NOTES for line in check(view)]
    faults = [printable(line) for check in _FAULTS for line in check(view)]
    if not view.upstreams:
        faults.append(printable(no_upstreams_line(settings)))
    elif not view.catalog.tools and not faults and all(each.state != "waiting" for each in view.upstreams):
        faults.append("no upstream has a tool to call")
    down = [each.name for each in view.upstreams if each.state != "ready"]
    stale = [name for name in gate.runtime.troubles() if name not in down]
    more = [f"not in use: the tools that {', '.join(stale)} lists now"] if stale else []
    counts = _summary(view, connected=len(view.upstreams) - len(down))
    careless = list(map(printable, careless_lines(settings)))
    issuers = gate.keys.issuers.states()
    return Findings(view.upstreams, view.keys, notes, faults, [counts, *more], issuers, careless=careless)


async def _look(
    settings: Settings, gate: Gate, reports: Mapping[str, UpstreamReport], unanswered: Mapping[str, str]
) -> _View:
    runtime, catalog, statuses = gate.runtime, gate.runtime.catalog(), gate.fleet.statuses()
    troubles, screened = runtime.troubles(), runtime.screened()
    offers, _ = await runtime.declared_offers()
    upstreams = [
        FoundUpstream(
            name,
            status.phase,
            status.report or troubles.get(name, ""),
            round(reports[name].seconds, 3) if name in reports else None,
            [
                {"id": item.id, "description": one_line(item.description[:1_000])}
                for item in catalog.tools.values()
                if item.server == name
            ],
            [*_left_out(gate, name), *(f"[{x.index}]: {x.reason}" for x in catalog.skipped if x.server == name)],
            sum(len(each.held) for source, each in screened.items() if source.partition("/")[0] == name),
        )
        for name, status in statuses.items()
    ]
    return _View(settings, gate, catalog, upstreams, unanswered, screened, offers, list(_keys(settings, gate)))


def _left_out(gate: Gate, name: str) -> Sequence[str]:
    upstream = gate.fleet.members[name].upstream
    return upstream.left_out if isinstance(upstream, HasLeftOut) else ()


def _upstream_notes(view: _View) -> Iterator[str]:
    sandboxes = {each.name: view.settings.sandbox_of(each) for each in view.settings.upstreams if each.command}
    if any(sandboxes.values()):
        yield from (f"{name}: sandbox: {box.told() if box else 'none'}" for name, box in sandboxes.items())
    statuses = view.gate.fleet.statuses()
    for each in view.upstreams:
        status, upstream = statuses[each.name], view.gate.fleet.members[each.name].upstream
        if each.state == "waiting":
            yield f"{each.name}: {each.error}; {_first_account(view.settings, each.name)}"
        elif each.state == "ready" and not each.error and not each.tools and view.other_offers(each.name):
            yield f"{each.name}: no tools, but {' and '.join(view.other_offers(each.name))}"
        if isinstance(upstream, HasNotes):
            yield from (f"{each.name}: {note}" for note in upstream.notes)
        if not each.error and status.connections > 1:
            yield f"{each.name}: connected {status.connections} times; before: {status.last_error}"


def _upstream_faults(view: _View) -> Iterator[str]:
    for each in view.upstreams:
        if each.name in view.unanswered:
            yield f"{each.name}: {view.unanswered[each.name]}"
        if each.state == "waiting":
            continue
        if each.state != "ready" or each.error:
            yield f"{each.name}: {each.state}{f' ({each.error})' if each.error else ''}"
        elif not each.tools and not view.other_offers(each.name):
            yield f"{each.name}: ready, but without a tool that can be used: {_why_none(view.gate, each)}"


def _left_out_faults(view: _View) -> Iterator[str]:
    yield from (f"left out: {each.server}[{each.index}]: {each.reason}" for each in view.catalog.skipped)
    for each in view.upstreams:
        yield from (f"left out: {each.name}: {reason}" for reason in _left_out(view.gate, each.name))


def _issuer_faults(view: _View) -> Iterator[str]:
    states = view.gate.keys.issuers.states()
    yield from (f"issuer {each.name} ({each.issuer}): {each.trouble}" for each in states if each.trouble)
    none = "it has no key that can be used"
    yield from (f"issuer {each.name} ({each.issuer}): {none}" for each in states if each.keys == 0)


def _storage_faults(view: _View) -> Iterator[str]:
    if away := view.gate.shared.state().away:
        yield f"storage: {view.settings.storage.shown} {away}"


def _storage_notes(view: _View) -> Iterator[str]:
    state = view.gate.shared.state()
    yield from (f"storage: warning: {line}" for line in state.shortfalls)
    if state.kind != "memory":
        yield f"storage: while it cannot be used (storage.fail): {view.gate.shared.measures.fail.summary()}"


def _catalog_notes(view: _View) -> Iterator[str]:
    catalog = view.catalog
    yield from (f"left aside: {tool}: a subscription, whose answers are a stream" for tool in catalog.subscriptions)
    yield from (f"hidden from models: {tool}: for pages of MCP Apps only" for tool in catalog.app_tools)
    yield from (f"no tool matches: {pattern}" for pattern in view.gate.runtime.changes.unmatched())


def _flow_notes(view: _View) -> Iterator[str]:
    tools = view.catalog.tools.values()
    labels = Counter((item.server, label) for item in tools if (label := view.gate.runtime.flow_label(item)))
    for (server, label), number in labels.items():
        yield f"{server}: {count(number, 'tool')}: {label}"


def _caller_notes(view: _View) -> Iterator[str]:
    for key in view.keys:
        whose = f"{key['actor']}, roles {', '.join(key['roles'])}" if key["roles"] else key["actor"]
        yield f"key: {key['id']} ({whose}): {key['tools']} of {len(view.catalog.tools)} tools"
    states = view.gate.keys.issuers.states()
    yield from (f"issuer: {each.name} ({each.issuer}): {each.keys} keys" for each in states if each.keys)


def show(findings: Findings, *, everything: bool) -> None:
    """Prints the tools of each upstream, what is worth a note, a table, and last the faults and the counts."""
    out = console()
    if not out.is_terminal:
        out.width = _WIDTH
    # Tools, by upstream. Each id begins with its name; its state stands in the table.
    for each in findings.upstreams:
        shown = each.tools if everything else each.tools[:_SHOWN_TOOLS]
        longest = max((len(tool["id"]) for tool in shown), default=0)
        for tool in shown:
            out.print(_tool_line(tool["id"], tool["description"], longest, out.width))
        if len(shown) < len(each.tools):
            out.print(Text(f"  ... {len(each.tools) - len(shown)} more; wicketgate check --all lists them", "dim"))
    for note in findings.notes:
        out.print(Text(note))
    # The tables.
    if findings.upstreams:
        out.print()
        out.print(_upstream_table(findings.upstreams))
    if findings.models:
        out.print(table(("model", "setting", "state", "seconds", ""), map(_model_row, findings.models)))
    # Careless settings, then the faults.
    for line in findings.careless:
        out.print(Text(f"careless: {line}", "yellow"))
    faults = findings.faults if everything else list(_shortened(findings.faults))
    for fault in faults:
        out.print(Text(fault, "red"))
    for line in findings.summary:
        out.print(Text(line, "bold"))


def _model_row(trial: ModelTrial) -> tuple[str, ...]:
    state = ("ok", f"{trial.seconds:.1f}", trial.mend) if trial.ok else ("failed", f"{trial.seconds:.1f}", "")
    return (trial.model or trial.provider, trial.setting, *state)


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
            Text(str(len(each.left_out) + each.quarantined)),
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
    for server, number in seen.items():
        if number > _SHOWN_LEFT_OUT:
            yield f"left out: {server}: {number - _SHOWN_LEFT_OUT} more; wicketgate check --all lists them"


def _why_none(gate: Gate, found: FoundUpstream) -> str:
    if found.left_out:
        return f"all {len(found.left_out)} that it declares were left out"
    listed = len(gate.runtime.declared().get(found.name, ()))
    if not listed:
        return "it lists none"
    return f"it lists {listed}, and all are left out, quarantined or hidden by a plugin"


def _missing_words(view: _View) -> Iterator[str]:
    """Yields the tools whose written words do not fit their definitions."""
    if view.settings.browse.words_file is not None:
        silent = [each.name for each in view.upstreams if each.name not in view.gate.runtime.declared()]
        found = gaps(read_words(Path(view.settings.browse.words_file)), view.catalog.items.values(), silent)
        yield from (f"wicketgate words: {line}" for line in gap_lines(found))


def _summary(view: _View, *, connected: int) -> str:
    catalog, left_out = view.catalog, sum(len(each.left_out) for each in view.upstreams) + view.held
    counts = [
        f"{connected} of {len(view.upstreams)} upstreams connected",
        f"{len(catalog.tools)} tools",
        f"{left_out} left out",
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
            keys = (
                ""
                if upstream.connects_users
                else ", and callers with keys cannot use it, because they have no token to exchange"
            )
            return f"its tools are those of the first caller with a token {of}{keys}"
    return "its tools are those of the first account that a caller connects"


def _forwarding(view: _View) -> Iterator[str]:
    """Yields a line for each server that may use more of a client than its person's answers."""
    said = {"sampling": "the models of clients (sampling)", "roots": "the names of clients' folders (roots)"}
    for upstream in view.settings.upstreams:
        if upstream.enabled and upstream.forward:
            used = " and ".join(said[name] for name in dict.fromkeys(upstream.forward))
            yield f"{upstream.name}: may use {used} during calls: forward"


def _without_approvers(view: _View) -> Iterator[str]:
    """Yields a line for each rule that has no possible approver."""
    gate, now = view.gate, time()
    keys = [key.identity for key in gate.keys.accepted() if key.fault(now) in (None, "not_yet_valid")]
    for number, rule in enumerate(view.settings.access):
        need = rule.rule().approval
        if isinstance(need, Need) and not can_be_met(
            need, keys, gate.keys.issuers.all, gate.keys.issuers.gateway, gate.approvals.persons
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


_Check = Callable[[_View], Iterable[str]]

_NOTES: Sequence[_Check] = (
    lambda view: (f"{upstream.name}: disabled" for upstream in view.settings.upstreams if not upstream.enabled),
    _upstream_notes,
    lambda view: () if view.held else screened_lines(view.screened),
    _forwarding,
    _without_approvers,
    _catalog_notes,
    _missing_words,
    _flow_notes,
    _caller_notes,
    lambda view: plugin_lines(view.settings.plugins),
    lambda view: (f"warning: {note}" for note in view.gate.keys.notes()),
    _storage_notes,
)
_FAULTS: Sequence[_Check] = (
    _upstream_faults,
    _left_out_faults,
    lambda view: (f"not browsed: {tool}: {reason}" for tool, reason in view.catalog.quarantine.items()),
    lambda view: screened_lines(view.screened) if view.held else (),
    _issuer_faults,
    _storage_faults,
)
"""The checks, in the order of their lines. Every fault makes the check fail."""
