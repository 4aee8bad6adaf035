"""The tables of ``make chaos``."""

import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from bench.chaos_callers import Load
from bench.chaos_faults import Faults
from bench.chaos_judge import DOORS, FAULTS, OUTCOMES, Ledger, Verdict, longest_gap_s
from bench.chaos_places import DRAIN_S, GRACE_S, Places
from bench.chaos_plan import KINDS, TEXTS
from bench.chaos_redis import Redis
from bench.table import Table, figure, markdown, percentile


@dataclass(frozen=True)
class Report:
    places: Places
    load: Load
    faults: Faults
    seconds: float
    verdict: Verdict
    effects: Sequence[int]
    seed: int


def tables(report: Report) -> str:
    """Load, faults and judgement, in Markdown."""
    ledger, seconds = report.load.ledger, report.seconds
    doors = [door for door in DOORS if any(one.door == door for one in ledger.told)]
    kinds = [kind for kind in OUTCOMES if any(one.outcome == kind for one in ledger.told)]
    rows = []
    for door in doors:
        told = [one for one in ledger.told if one.door == door]
        good = [one for one in told if one.outcome == "ok"]
        took = [one.took_s for one in good]
        gap = longest_gap_s([one.at_s for one in good], 0, seconds)
        counts = Counter(one.outcome for one in told)
        rows.append(
            [
                door,
                figure(len(good) / seconds),
                *(str(counts[kind]) for kind in kinds),
                figure(percentile(took, 50)),
                figure(percentile(took, 99)),
                figure(gap),
            ]
        )
    head = ["door", "answered a second", *(OUTCOMES[kind] for kind in kinds), "median, s", "p99, s", "longest gap, s"]
    held = Table(f"Load, {figure(seconds)} s, {len(ledger.told)} calls and chats", head, rows)

    brought = [[TEXTS[kind], str(report.faults.done[kind])] for kind in KINDS if report.faults.done[kind]]
    store = report.places.store
    settings = (
        f"Redis: {store.settings}" if isinstance(store, Redis) else "one SQLite file",
        f"{len(report.places.replicas)} replicas, `drain_s: {DRAIN_S:g}`, `grace_s: {GRACE_S:g}`",
        "nginx: `proxy_next_upstream error timeout` without `non_idempotent`; what gets a 503 goes to another gate",
        f"{os.cpu_count()} cores for all of it, callers too; seed {report.seed}",
    )
    faults = Table("Faults", ["fault", "times"], brought, settings)

    good_at = [one.at_s for one in ledger.told if one.outcome == "ok"]
    unknown = sum(one.outcome == "unknown" for one in ledger.told)
    judged = [[fault, str(report.verdict.counts[fault])] for fault in FAULTS]
    judged += [
        ["excused, because Redis lost all keys while they ran", str(len(report.load.ledger.excused))],
        ["effects that took place", str(len(report.effects))],
        ["tracebacks in logs", str(sum(len(each.tracebacks) for each in report.places.replicas))],
        ["told `fate unknown`", str(unknown)],
        ["chats with a key that came back after a break, times", str(ledger.came_back)],
        ["longest time without an answer to anybody, s", figure(longest_gap_s(good_at, 0, seconds))],
        ["longest silence of a chat with a key, s", figure(ledger.silence_s)],
    ]
    return "\n\n".join(map(markdown, (held, faults, Table("Judgement", ["", ""], judged))))


def story(load: Load, faults: Faults) -> str:
    """All seen so far, for whoever has to find out what went wrong: breaches, faults under way, other outcomes."""
    ledger = load.ledger
    counts = Counter((one.door, one.outcome) for one in ledger.told)
    lines = [f"{load.now_s():.1f} s, {len(ledger.told)} calls and chats"]
    lines += [f"BREACH: {fault}: {line}" for fault, line in ledger.breaches[:40]]
    lines += [f"excused: {line}" for line in ledger.excused[:40]]
    lines += [f"done: {dict(faults.done)}; under way: {', '.join(sorted(faults.under_way)) or 'nothing'}"]
    lines += [f"{count:5} {door}, {outcome}" for (door, outcome), count in sorted(counts.items())]
    for replica in faults.places.replicas:
        lines += [f"{replica.name}: {line}" for line in (*replica.exits, *replica.faults, *replica.tracebacks)]
        if replica.running is not None:
            lines.append(f"{replica.name}, the last that it wrote: {replica.running.stderr[-500:]}")
            lines.append(replica.running.stdout[-1500:])
    return "\n".join([*lines, *reasons(ledger)])


def reasons(ledger: Ledger) -> list[str]:
    """The commonest words of what was not answered, numbers left out."""
    said = Counter(
        (one.door, one.outcome, re.sub(r"\d+|[0-9a-f]{12,}", "#", one.why)[:200])
        for one in ledger.told
        if one.outcome != "ok"
    )
    return [f"{count:5} {door}, {outcome}: {why}" for (door, outcome, why), count in said.most_common(24)]


def tracebacks(report: Report) -> list[str]:
    """The commonest in the logs of all replicas."""
    found = Counter(line for replica in report.places.replicas for line in replica.tracebacks)
    return [f"{count:5} traceback: {line}" for line, count in found.most_common(10)]
