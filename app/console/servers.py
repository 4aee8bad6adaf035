"""The servers behind a gate, as its operator sees them, and what the operator does to them (OPS-240 to OPS-245)."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from itertools import islice
from typing import Any, Literal

from app.console.map import kinds_of
from wicketgate.config.settings.upstreams import UpstreamSettings
from wicketgate.errors import ConfigError
from wicketgate.fleet.edge import KnownSecrets
from wicketgate.fleet.member import MAX_QUEUED, Member, MemberState
from wicketgate.gate import Gate
from wicketgate.gateway.catalog_keeper import tools_left_out
from wicketgate.log_text import Redactor
from wicketgate.net.outgoing import shown_origin
from wicketgate.ports import CallContext, HasLeftOut, HasNotes, UpstreamStatus
from wicketgate.storage.store import StoreUnavailable

log = logging.getLogger("wicketgate.console")

MOST_SERVERS = 500
_MOST_NAMED = 20
_MOST_TARGET_CHARS = 200
_MOST_LINE_CHARS = 400

Action = Literal["reconnect", "enable", "disable"]
ACTIONS: tuple[Action, ...] = ("reconnect", "enable", "disable")

_DONE: Mapping[Action, str] = {
    "reconnect": "reconnected",
    "enable": "enabled until the next reload",
    "disable": "disabled until the next reload",
}


class NotPossible(Exception):
    """The operator's wish cannot be met. *status* is 400, 403, 404, 409 or 503; the text is for the operator."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def list_servers(gate: Gate) -> Mapping[str, Any]:
    """Returns the first MOST_SERVERS servers, those first that need someone, and the number of the others."""
    told = _Told(gate)
    configured = {upstream.name: upstream for upstream in gate.settings.upstreams}
    names = [*gate.fleet.members, *(name for name in configured if name not in gate.fleet.members)]
    servers = [told.server(name, configured.get(name)) for name in names[:MOST_SERVERS]]
    return {
        "servers": sorted(servers, key=_urgency),
        "more": max(0, len(names) - MOST_SERVERS),
        "now": gate.records.traffic.now(),
    }


async def whole_server(gate: Gate, name: str) -> Mapping[str, Any] | None:
    """Returns all that is known of one server; None if there is none of this name. *outcomes* is None if the store is
    unavailable."""
    settings = next((upstream for upstream in gate.settings.upstreams if upstream.name == name), None)
    if settings is None and name not in gate.fleet.members:
        return None
    outcomes: list[dict[str, Any]] | None = None
    with suppress(StoreUnavailable):
        outcomes = [asdict(each) for each in await gate.switches.outcomes(name)]
    told = _Told(gate)
    facts = {**told.server(name, settings), **told.details(name, settings)}
    return {"now": gate.records.traffic.now(), "outcomes": outcomes, **facts}


def _urgency(server: Mapping[str, Any]) -> tuple[int, str]:
    bad = server["enabled"] and (server["state"] == "down" or server["error"] or server["breaker"] != "closed")
    order = 0 if bad else 1 if server["held"] else 3 if not server["enabled"] else 2
    return order, server["name"]


class _Told:
    """The facts that are the same for all servers of one answer."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._kinds = kinds_of(gate.settings)
        self._redact = Redactor(gate.settings.secrets())
        self._troubles = gate.runtime.troubles()
        catalog = gate.runtime.catalog()
        self._tools = Counter(item.server for item in catalog.tools.values())
        self._held = Counter[str]()
        for source, screened in gate.runtime.screened().items():
            self._held[source.partition("/")[0]] += len(screened.held)
        self._left_out: dict[str, list[str]] = {}
        for tool, reason in tools_left_out(catalog).items():
            item = catalog.items.get(tool)
            server = item.server if item is not None else tool.rpartition("[")[0]
            self._left_out.setdefault(server, []).append(f"{tool}: {reason}")

    def server(self, name: str, settings: UpstreamSettings | None) -> dict[str, Any]:
        member = self._gate.fleet.members.get(name)
        state = member.state() if member is not None else None
        log_of = self._gate.records.server_logs.of(name) if settings is not None else None
        return {
            "name": name,
            "kind": self._kinds.get(name, "embedded"),
            "target": self._target(settings, member),
            "configured": settings is not None,
            "enabled": member is not None,
            "switched": name in self._gate.applied.switched,
            "required": settings.required if settings is not None else False,
            **_state(state, self._troubles.get(name, "")),
            "tools": self._tools[name],
            "held": self._held[name],
            "places": {
                "taken": state.in_flight if state is not None else 0,
                "most": settings.max_concurrent if settings is not None else None,
                "queued": state.queued if state is not None else 0,
                "most_queued": MAX_QUEUED if settings is not None else None,
            },
            "ticks": [] if log_of is None else [(event.at, event.kind) for event in log_of.events],
        }

    def details(self, name: str, settings: UpstreamSettings | None) -> dict[str, Any]:
        member = self._gate.fleet.members.get(name)
        if settings is None:
            return {"events": [], "stderr": None, "stderr_lines": 0, **self._remarks(name, member)}
        known, mask = self._gate.records.server_logs.of(name), _mask(settings, member)
        return {
            "events": [{"at": event.at, "kind": event.kind, "why": event.why} for event in reversed(known.events)],
            "stderr": [self._redact(mask(line)) for line in known.lines] if settings.command else None,
            "stderr_lines": known.wrote,
            **self._remarks(name, member),
        }

    def _remarks(self, name: str, member: Member | None) -> dict[str, Any]:
        notes = member.upstream.notes if member and isinstance(member.upstream, HasNotes) else ()
        return {"left_out": self._lines(self._left_out_of(name, member)), "notes": self._lines(notes)}

    def _left_out_of(self, name: str, member: Member | None) -> Iterator[str]:
        if member is not None and isinstance(member.upstream, HasLeftOut):
            yield from member.upstream.left_out
        yield from self._left_out.get(name, ())

    def _lines(self, lines: Iterable[str]) -> list[str]:
        return [self._redact(line)[:_MOST_LINE_CHARS] for line in islice(lines, _MOST_NAMED)]

    def _target(self, settings: UpstreamSettings | None, member: Member | None) -> str:
        """The host, the program with its arguments, the document or the function; without what may be a secret."""
        if settings is None:
            return ""
        if settings.command:
            text = " ".join(settings.command)
        elif settings.url:
            text = shown_origin(settings.url)
        elif settings.openapi:
            text = shown_origin(settings.openapi) or settings.openapi
        else:
            text = settings.python
        return self._redact(_mask(settings, member)(text))[:_MOST_TARGET_CHARS]


def _mask(settings: UpstreamSettings, member: Member | None) -> Callable[[str], str]:
    return member.masked if member is not None else KnownSecrets(settings.secrets()).mask_cut


_DISABLED = MemberState(UpstreamStatus("waiting"), "closed", 0, 0, None, 0, 0, 0, 0)


def _state(state: MemberState | None, trouble: str) -> dict[str, Any]:
    trouble, shown = (trouble, state) if state is not None else ("", _DISABLED)
    return {
        "state": "disabled" if state is None else shown.status.phase,
        "error": shown.status.report or trouble,
        "last_error": shown.status.last_error,
        "stale": bool(trouble) or shown.status.phase == "down",
        "asleep": shown.status.asleep,
        "connections": shown.connections,
        "connected_s": None if shown.connected_s is None else round(shown.connected_s, 1),
        "breaker": shown.breaker,
        "breaker_opened": shown.breaker_opened,
        "held_off": shown.held_off,
        "turned_away": shown.turned_away,
    }


class Operating:
    """Lets operators change servers, at all processes."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def operate(self, name: str, action: Action, context: CallContext) -> str:
        """Does *action* to the server, and records it. Returns what was done; the other processes follow. Raises
        NotPossible."""
        gate = self._gate
        configured = any(upstream.name == name for upstream in gate.settings.upstreams)
        if not configured and name in gate.fleet.members:
            raise NotPossible(
                409, "This server was passed in by the program that runs the gate, which alone can change it."
            )
        if not configured:
            raise NotPossible(404, "There is no server of this name.")
        done = _DONE[action]
        try:
            if not await self._do(name, action):
                already = "It is disabled; enable it first." if action == "reconnect" else f"It is {action}d already."
                raise NotPossible(409, already)
        except KeyError:
            raise NotPossible(404, "There is no server of this name.") from None
        except ConfigError as error:
            log.error("upstream %s: %s is not possible: %s", name, action, error)
            gate.records.events.operated("server", context, name, f"{action}: not applied", "failed")
            raise NotPossible(409, "It was not done: the log of the gate says why. All stays as it was.") from None
        except StoreUnavailable as error:
            log.error("upstream %s: %s took effect at this process only: %s", name, action, error)
            done += "; at this process alone, because the store is unavailable: do it again later"
        gate.records.events.operated("server", context, name, done)
        return done

    async def _do(self, name: str, action: Action) -> bool:
        """Returns false if there was nothing to do. Raises KeyError, ConfigError and StoreUnavailable."""
        if action == "reconnect":
            return await self._gate.switches.reconnect(name)
        return await self._gate.switches.switch(name, enabled=action == "enable")
