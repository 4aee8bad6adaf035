"""The audit as a caller may read it: what is kept in memory, then what the audit database has (OPS-246 to OPS-248)."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from app.console.live import Readable, name_of
from wicketgate.gate import Gate
from wicketgate.gateway.audit import AuditRecord
from wicketgate.storage.audit_file import fields
from wicketgate.storage.audit_read import NotRead, Row, Wanted, timestamp

MAX_LIMIT = 200
MAX_CHARS = 200
"""Of one filter."""
_MOST_OF_CALL = 20
_MOST_STAGES = 100
_ROUNDS = 3
_AFTER_S = 0.001

_CALL_ID = re.compile(r"[0-9A-Za-z._:-]{1,128}", re.ASCII)
_IN_MEMORY = re.compile(r"m([0-9]{1,15})")
_OLDER = re.compile(r"s([0-9T:.+-]{10,40})_([0-9A-Za-z._:-]{0,128})", re.ASCII)

FILTERS = ("tool", "server", "actor", "outcome", "code", "operation", "q")


class BadCursor(Exception):
    """The cursor was not issued by this gate."""


@dataclass(frozen=True, slots=True)
class Filters:
    """*texts* by the names of FILTERS: *tool* and *q* are parts of a text, *q* of any; the others are exact. The
    *outcome* ``error`` is that of calls whose tool answered with an error. *actor_only*: of this actor alone.
    *readable* is the test of each record."""

    texts: Mapping[str, str]
    since: float | None
    until: float | None
    actor_only: str | None
    readable: Readable

    def fits(self, record: AuditRecord) -> bool:
        if not self.readable(record.actor, record.tool_id, record.server):
            return False
        if (self.since is not None and record.at < self.since) or (self.until is not None and record.at > self.until):
            return False
        return all(_TESTS[name](record, text) for name, text in self.texts.items())

    def wanted(self, before: tuple[str, str] | None, until: float | None) -> Wanted:
        """The same for the database."""
        exact = {"phase": "end"}
        for name in ("server", "actor", "code", "operation"):
            if name in self.texts:
                exact[name] = self.texts[name]
        if (outcome := self.texts.get("outcome")) is not None:
            exact["tool" if outcome == "error" else "outcome"] = outcome
        if self.actor_only is not None:
            exact["actor"] = self.actor_only
        bounds = [bound for bound in (self.until, until) if bound is not None]
        return Wanted(
            exact,
            self.texts.get("tool", ""),
            self.texts.get("q", ""),
            self.since,
            min(bounds, default=None),
            before,
        )

    @property
    def nobody(self) -> bool:
        """True if the caller asks for the records of someone else."""
        return self.actor_only is not None and self.texts.get("actor", self.actor_only) != self.actor_only


def _outcome_fits(record: AuditRecord, text: str) -> bool:
    return record.tool == "error" if text == "error" else record.outcome == text


def _text_fits(record: AuditRecord, text: str) -> bool:
    low = text.lower()
    searched = (record.tool_id, record.server, record.actor, record.code, record.detail)
    return any(low in each.lower() for each in (*searched, record.correlation_id, record.call_id))


_TESTS: Mapping[str, Callable[[AuditRecord, str], bool]] = {
    "tool": lambda record, text: text.lower() in record.tool_id.lower(),
    "server": lambda record, text: record.server == text,
    "actor": lambda record, text: record.actor == text,
    "outcome": _outcome_fits,
    "code": lambda record, text: record.code == text,
    "operation": lambda record, text: record.operation == text,
    "q": _text_fits,
}


async def list_calls(gate: Gate, filters: Filters, cursor: str, limit: int, reader: str) -> Mapping[str, Any]:
    """Returns *limit* records at most for the actor *reader*, the newest first, and a cursor to go on. Raises BadCursor
    and ReadingsFull."""
    in_memory, before = _read_cursor(cursor)
    if filters.nobody:
        return {"calls": [], "next_cursor": None, "older": "none"}
    shown: list[dict[str, Any]] = []
    if before is None:
        fitting = (kept for kept in gate.records.traffic.records(in_memory) if filters.fits(kept.record))
        kept = list(islice(fitting, limit + 1))
        shown = [_of_record(each.record) for each in kept[:limit]]
        if len(kept) > limit:
            return {"calls": shown, "next_cursor": f"m{kept[limit - 1].number}", "older": "memory"}
    if gate.records.reader is None:
        return {"calls": shown, "next_cursor": None, "older": "none"}
    # What the memory has is not repeated.
    known, until = _known(gate)
    if len(shown) >= limit and until is not None:
        return {"calls": shown, "next_cursor": f"s{timestamp(until + _AFTER_S)}_", "older": "sql"}
    try:
        rows, before = await _read_older(gate, filters, before, until, known, limit - len(shown), reader)
    except NotRead:
        return {"calls": shown, "next_cursor": None, "older": "unread"}
    shown += [_of_row(row) for row in rows]
    following = None if before is None else f"s{before[0]}_{before[1]}"
    return {"calls": shown, "next_cursor": following, "older": "none" if following is None else "sql"}


async def _read_older(
    gate: Gate,
    filters: Filters,
    before: tuple[str, str] | None,
    until: float | None,
    known: frozenset[str],
    limit: int,
    reader: str,
) -> tuple[list[Row], tuple[str, str] | None]:
    """Returns *limit* rows at most, and the place after the last one; None if there are no more. Raises NotRead and
    ReadingsFull."""
    assert gate.records.reader is not None
    found: list[Row] = []
    for _ in range(_ROUNDS):
        rows = await gate.records.reader.read(filters.wanted(before, until), MAX_LIMIT, reader)
        for row in rows:
            if len(found) >= limit:
                return found, before
            before = str(row["timestamp"]), str(row["call_id"])
            seen = _mark(before[0], str(row["operation"]), before[1]) in known
            if not seen and filters.readable(_text(row["actor"]), _text(row["tool_id"]), _text(row["server"])):
                found.append(row)
        if len(rows) < MAX_LIMIT:
            return found, None
    return found, before


def _known(gate: Gate) -> tuple[frozenset[str], float | None]:
    """The marks of the records in memory, and the moment after which there are only these: what is older had ended
    when the oldest of them did."""
    records = [kept.record for kept in gate.records.traffic.records()]
    marks = frozenset(_mark(timestamp(each.at), each.operation, each.call_id) for each in records)
    oldest = records[-1] if records else None
    return marks, None if oldest is None else oldest.at + oldest.duration_ms / 1_000


def _mark(at: str, operation: str, call_id: str) -> str:
    return f"{operation} {call_id or at}"


def _read_cursor(cursor: str) -> tuple[int | None, tuple[str, str] | None]:
    if not cursor:
        return None, None
    if found := _IN_MEMORY.fullmatch(cursor):
        return int(found[1]), None
    if found := _OLDER.fullmatch(cursor):
        return None, (found[1], found[2])
    raise BadCursor


async def one_call(gate: Gate, call_id: str, readable: Readable, reader: str) -> Mapping[str, Any] | None:
    """Returns all records of one call, the first one first, and where its time went; None if there are none that the
    caller, the actor *reader*, may see. Raises ReadingsFull."""
    if not _CALL_ID.fullmatch(call_id):
        return None
    marks, found = set[tuple[str, str]](), list[dict[str, Any]]()

    def take(record: dict[str, Any]) -> None:
        mark = record["operation"], record["phase"]
        if mark not in marks and readable(record["actor"], record["tool_id"], record["server"]):
            marks.add(mark)
            found.append(record)

    for kept in gate.records.traffic.records():
        if kept.record.call_id == call_id:
            take(_of_record(kept.record))
    unread = False
    if gate.records.reader is not None:
        try:
            for row in await gate.records.reader.read(Wanted({"call_id": call_id}), _MOST_OF_CALL, reader):
                take(_of_row(row))
        except NotRead:
            unread = True
    if not found:
        return None
    found.sort(key=lambda each: (each["phase"] != "intent", each["at"]))
    end = next((each for each in reversed(found) if each["phase"] == "end" and each["duration_ms"]), found[-1])
    plugins_ms = round(sum(stage["ms"] for stage in end["stages"]), 3)
    server_ms, whole_ms = end["upstream_ms"], end["duration_ms"]
    return {
        "records": found,
        "unread": unread,
        "times": {
            "whole_ms": whole_ms,
            "server_ms": server_ms,
            "plugins_ms": plugins_ms,
            "gate_ms": max(0.0, round(whole_ms - server_ms - plugins_ms, 3)),
        },
    }


def _of_record(record: AuditRecord) -> dict[str, Any]:
    return {**_of_row(fields(record)), "at": record.at}


def _of_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A record as the pages have it. A row may be of another version, or of another hand."""
    texts = {name: _text(row.get(name)) for name in _TEXTS}
    return {
        **texts,
        "at": _moment(row.get("timestamp")),
        "name": name_of(texts["tool_id"]),
        "arguments": _text(row.get("arguments_sha256")),
        "cached": bool(row.get("cached")),
        "duration_ms": _number(row.get("duration_ms")),
        "upstream_ms": _number(row.get("upstream_ms")),
        "stages": [_stage(each) for each in islice(_list(row.get("stages")), _MOST_STAGES)],
    }


_TEXTS = (
    *("operation", "actor", "correlation_id", "outcome", "tool_id", "server", "transport", "protocol", "tool", "code"),
    *("key_id", "source", "call_id", "phase", "approval", "detail", "gate"),
)


def _stage(stage: Any) -> dict[str, Any]:
    given: Mapping[str, Any] = stage if isinstance(stage, Mapping) else {}
    texts = {name: _text(given.get(name)) for name in ("plugin", "phase", "outcome", "note")}
    return {**texts, "ms": _number(given.get("ms"))}


def _text(value: Any) -> str:
    return value[:1_000] if isinstance(value, str) else ""


def _number(value: Any) -> float:
    return round(float(value), 3) if isinstance(value, int | float) else 0.0


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _moment(text: Any) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except (TypeError, ValueError):
        return 0.0
