"""An audit record as a line of JSON or of CSV (gatekit G107, G112)."""

import csv
import io
import json
from datetime import UTC, datetime
from typing import Any

from wicketgate.gateway.audit import AuditRecord

COLUMNS = (
    "timestamp", "operation", "actor", "correlation_id", "outcome", "tool_id", "server", "arguments_sha256",
    "transport", "protocol", "tool", "code", "cached", "duration_ms", "upstream_ms", "stages",
)  # fmt: skip

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def fields(record: AuditRecord) -> dict[str, Any]:
    """By column; *stages* as a list of objects."""
    return {
        "timestamp": datetime.fromtimestamp(record.at, UTC).isoformat(timespec="milliseconds"),
        "operation": record.operation,
        "actor": record.actor,
        "correlation_id": record.correlation_id,
        "outcome": record.outcome,
        "tool_id": record.tool_id,
        "server": record.server,
        "arguments_sha256": record.arguments,
        "transport": record.transport,
        "protocol": record.protocol,
        "tool": record.tool,
        "code": record.code,
        "cached": record.cached,
        "duration_ms": record.duration_ms,
        "upstream_ms": record.upstream_ms,
        "stages": [
            {
                "plugin": stage.handler,
                "phase": stage.phase,
                "outcome": stage.outcome,
                "note": stage.note,
                "ms": round(stage.seconds * 1_000, 3),
            }
            for stage in record.stages
        ],
    }


def json_line(record: AuditRecord) -> bytes:
    """ASCII on purpose: what a client chose as a name must not break the line."""
    return json.dumps(fields(record), separators=(",", ":")).encode("ascii") + b"\n"


def csv_header() -> bytes:
    return _csv(COLUMNS)


def csv_line(record: AuditRecord) -> bytes:
    values = fields(record)
    values["stages"] = json.dumps(values["stages"], separators=(",", ":")) if values["stages"] else ""
    return _csv([_harmless(values[column]) for column in COLUMNS])


def _csv(values: Any) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue().encode("utf-8", "backslashreplace")


def _harmless(value: object) -> object:
    """A text that a spreadsheet would run as a formula gets a quote in front; line ends become blanks, so that a record
    stays one line."""
    if not isinstance(value, str):
        return value
    begins = value if value[:1] in _FORMULA else value.lstrip()
    quoted = f"'{value}" if begins.startswith(_FORMULA) else value
    return " ".join(quoted.splitlines()) if quoted else quoted
