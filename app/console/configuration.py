"""The configuration in force and the keys, to be read only: secrets as the names of their variables, or ``set``
(OPS-252, OPS-249)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any

from pydantic import BaseModel, SecretStr
from pydantic_core import PydanticUndefined

from wicketgate.access.identity import LOCAL, HashedKey
from wicketgate.config.settings import Settings, UpstreamSettings
from wicketgate.config.settings.base import is_secret_name
from wicketgate.fleet.edge import KnownSecrets
from wicketgate.gate import Gate
from wicketgate.gateway.catalog_keeper import tools_left_out
from wicketgate.log_text import Redactor
from wicketgate.ports import LOCAL_CALL

MOST_KEYS = 1_000
_MOST_ROWS = 3_000
_MOST_LINES = 50
_MOST_CHARS = 400
_SHORTEST_NAMED = 6
_SET = "set"
_DEPTH = 8
_IN_PLACE_OF_HASHES = "shown on the page Keys"

Row = dict[str, Any]


def whole_configuration(gate: Gate) -> Mapping[str, Any]:
    settings, state = gate.settings, gate.shared.state()
    shown = _Shown(settings, gate.applied.waiting)
    sections = [{"name": name, "rows": list(rows)} for name, rows in shown.sections()]
    redact, catalog = Redactor(settings.secrets()), gate.runtime.catalog()
    left_out = [f"{tool}: {reason}" for tool, reason in islice(tools_left_out(catalog).items(), _MOST_LINES)]
    return {
        "file": None if settings.from_file is None else str(settings.from_file),
        "loaded_at": gate.loaded_at,
        "since": gate.records.traffic.since,
        "sections": sections,
        "cut": shown.cut,
        "waiting": list(gate.applied.waiting),
        "switched": dict(gate.applied.switched),
        "storage": {
            "kind": state.kind,
            "shown": redact(settings.storage.shown),
            "away": redact(state.away),
            "shortfalls": list(state.shortfalls),
        },
        "catalog": {"version": catalog.version, "tools": len(catalog.tools)},
        "unmatched": [redact(each)[:_MOST_CHARS] for each in gate.runtime.changes.unmatched()[:_MOST_LINES]],
        "left_out": [redact(each)[:_MOST_CHARS] for each in left_out],
        "key_notes": gate.keys.notes()[:_MOST_LINES],
        "gates": [
            {"name": name, "face": each.face, "tools": _tools_through(gate, name)}
            for name, each in islice(settings.gates.items(), _MOST_LINES)
        ],
    }


def _tools_through(gate: Gate, name: str) -> int:
    """Counts the tools of a virtual gate for a caller who may use all."""
    visible = gate.runtime.visible(LOCAL_CALL.having(identity=replace(LOCAL, gate=name)))
    return sum(visible is None or visible(tool_id) for tool_id in gate.runtime.catalog().tools)


class _Shown:
    """The values of *settings* as text. *cut*: there are more."""

    def __init__(self, settings: Settings, waiting: Sequence[str]) -> None:
        self._settings = settings
        self._waiting = frozenset(waiting)
        self._redact = Redactor(settings.secrets())
        # Longest first, so that a value that holds another is named whole.
        self._named = sorted(settings.from_variables.items(), key=lambda each: (-len(each[0]), each[0]))
        self._left = _MOST_ROWS
        self.cut = False

    def sections(self) -> Iterator[tuple[str, list[Row]]]:
        for name, field in type(self._settings).model_fields.items():
            if not field.exclude:
                yield name, list(self._bounded(self._section(name, getattr(self._settings, name), field.default)))

    def _bounded(self, rows: Iterator[Row]) -> Iterator[Row]:
        for row in rows:
            if not self._left:
                self.cut = True
                return
            self._left -= 1
            yield row

    def _section(self, name: str, value: Any, default: Any) -> Iterator[Row]:
        if name == "upstreams":
            for upstream in value:
                yield from self._upstream(f"{name}.{upstream.name}", upstream)
            return
        yield from self._rows(name, value, default, self._text, _DEPTH)

    def _upstream(self, path: str, upstream: UpstreamSettings) -> Iterator[Row]:
        """The values that are not as they would be by themselves: there may be hundreds of them."""
        text = partial(self._text, mask=KnownSecrets(upstream.secrets()).mask)
        rows = self._rows(path, upstream, None, text, _DEPTH)
        yield from (row for row in rows if not row["default"] and row["path"] != f"{path}.name")

    def _rows(self, path: str, value: Any, default: Any, text: Callable[[str, Any], str], depth: int) -> Iterator[Row]:
        name = path.rpartition(".")[2]
        if path == "auth.keys":
            yield self._row(path, f"{len(value)}, {_IN_PLACE_OF_HASHES}", not value)
        elif path == "storage.url":
            yield self._row(path, text(name, self._settings.storage.shown), value == default)
        elif isinstance(value, BaseModel) and depth:
            for key, field in type(value).model_fields.items():
                usual = field.get_default(call_default_factory=True)
                given = getattr(default, key) if isinstance(default, type(value)) else usual
                yield from self._rows(f"{path}.{key}", getattr(value, key), given, text, depth - 1)
        elif isinstance(value, Mapping) and value and depth:
            for key, each in value.items():
                yield from self._rows(f"{path}.{str(key)[:_MOST_CHARS]}", each, PydanticUndefined, text, depth - 1)
        elif isinstance(value, tuple | list) and value and depth and isinstance(value[0], BaseModel | Mapping):
            for place, each in enumerate(value):
                yield from self._rows(f"{path}[{place}]", each, PydanticUndefined, text, depth - 1)
        else:
            yield self._row(path, text(name, value), value == default)

    def _row(self, path: str, value: str, default: bool) -> Row:
        waits = path in self._waiting or ".".join(path.split(".")[:2]) in self._waiting
        waits = waits or path.partition(".")[0].partition("[")[0] in self._waiting
        return {"path": path[:_MOST_CHARS], "value": value[:_MOST_CHARS], "default": default, "waits": waits}

    def _text(self, name: str, value: Any, mask: Callable[[str], str] = str) -> str:
        match value:
            case None:
                return "not set"
            case bool():
                return "true" if value else "false"
            case SecretStr():
                return self._secret(value.get_secret_value())
            case datetime():
                return value.isoformat()
            case int() | float():
                return f"{value:g}" if isinstance(value, float) else str(value)
            case tuple() | list() | frozenset() | set():
                return ", ".join(self._text(name, each, mask) for each in islice(value, _MOST_LINES)) or "none"
            case Mapping():
                return "none" if not value else f"{len(value)} values"
            case _:
                text = str(value)
        if is_secret_name(name) and text and not isinstance(value, BaseModel):
            return self._secret(text)
        return self._redact(mask(self._with_names(text))) if text else "empty"

    def _secret(self, text: str) -> str:
        """The names of the variables that it is made of; nothing of the rest."""
        if not text:
            return "empty"
        named = self._with_names(text)
        names = [f"${{{name}}}" for _, name in self._named if f"${{{name}}}" in named]
        return " ".join(names) if named != text and names else _SET

    def _with_names(self, text: str) -> str:
        for value, name in self._named:
            if value and (value == text or (len(value) >= _SHORTEST_NAMED and value in text)):
                text = text.replace(value, f"${{{name}}}")
        return text


def list_keys(gate: Gate) -> Mapping[str, Any]:
    """Returns the keys that callers hold, without their hashes, in the order of their ids."""
    now, life = gate.records.traffic.now(), gate.keys.life()
    keys = sorted(gate.keys.accepted(), key=lambda key: key.id)
    return {
        "keys": [
            {**_key(each, now, life[each.id].last_used), "made_here": gate.keys.is_made(each)}
            for each in keys[:MOST_KEYS]
        ],
        "more": max(0, len(keys) - MOST_KEYS),
        "since": gate.records.traffic.since,
        "now": now,
    }


def _key(key: HashedKey, now: float, last_used: float | None) -> Mapping[str, Any]:
    return {
        "id": key.id,
        "actor": key.identity.actor,
        "permissions": list(key.identity.permissions),
        "roles": list(key.identity.roles),
        "not_before": key.not_before,
        "expires_at": key.expires_at,
        "last_used": last_used,
        "state": key.fault(now) or "good",
    }
