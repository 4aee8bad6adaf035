"""Servers that operators have switched or reconnected, at all processes that share a store (OPS-294, OPS-295, OPS-354).

A row for each switched server is the truth, until the configuration is applied again at any process. The news ask all
processes to look at it. Each writes its own outcome beside it.
"""

import asyncio
import hashlib
import json
import logging
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from wicketgate.config.reload import Applied
from wicketgate.config.settings.upstreams import UpstreamSettings
from wicketgate.errors import ConfigError
from wicketgate.storage.core import sound
from wicketgate.storage.encoding import hashed, packed, unpacked
from wicketgate.storage.news import Facts, News
from wicketgate.storage.store import LOOK_S, Conflict, Drop, Kind, Op, Put, Row, Store, StoreUnavailable

log = logging.getLogger("wicketgate.console")

_SWITCH = Kind("switch", listed=True)
_OUTCOME = Kind("switch_outcome", listed=True)
_AT_ONCE = 64

Act = Literal["enable", "disable", "reconnect"]
_NOTES: dict[Act, Literal["enabled", "disabled", "reconnect"]] = {
    "enable": "enabled",
    "disable": "disabled",
    "reconnect": "reconnect",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The last act of an operator at one process. If it was not *done*, the log there has the reason."""

    process: str
    act: Act
    done: bool


@dataclass(frozen=True, slots=True)
class _Switch:
    name: str
    enabled: bool
    configured: str
    """A fingerprint of the server's configuration where it was switched."""


class Switches:
    """Switches servers of *applied* as the rows in *store* say. *process* is the id of this process; *note* is called
    with each server that was changed here, and how."""

    def __init__(
        self,
        applied: Applied,
        store: Store,
        news: News,
        process: str,
        note: Callable[[str, Literal["enabled", "disabled", "reconnect"]], object],
    ) -> None:
        self._applied = applied
        self._store = store
        self._news = news
        self._process = process
        self._note = note
        self._keeps_rows = False
        news.on("switch", self._heard_switch, self._missed)
        news.on("switches_reset", self._heard_reset)
        news.on("reconnect", self._heard_reconnect)

    async def switch(self, name: str, *, enabled: bool) -> bool:
        """Enables or disables the configured upstream *name* at all processes. Returns false if it is so already at all
        of them. Raises KeyError and ConfigError, then nothing has changed; and StoreUnavailable, then it is done here
        alone."""
        act: Act = "enable" if enabled else "disable"
        if not await self._do(name, act):
            row = await self._store.get(_SWITCH, hashed(name))
            there = None if row is None else self._read(row)
            as_wanted = name not in self._applied.switched if there is None else there.enabled == enabled
            if as_wanted and all(each.done for each in await self.outcomes(name)):
                return False
        put = Put(_SWITCH, hashed(name), packed([name, enabled, self._fingerprint(name)]))
        await self._store.step([put, self._outcome(name, act), *self._news.ops("switch", server=name)])
        return True

    async def reconnect(self, name: str) -> bool:
        """Gives the configured upstream *name* a new session at all processes. Returns false if it is disabled here.
        Raises as ``switch`` does."""
        if not await self._do(name, "reconnect"):
            return False
        await self._store.step([self._outcome(name, "reconnect"), *self._news.ops("reconnect", server=name)])
        return True

    async def outcomes(self, name: str) -> Sequence[Outcome]:
        """Returns the last outcome for *name* at each process that lives. Raises StoreUnavailable."""
        rows = await self._store.of_owner(_OUTCOME, hashed(name))
        found = [each for row in rows if (each := self._read_outcome(row)) is not None]
        return [each for each in found if each.process == self._process or await self._store.alive(each.process)]

    async def reset(self) -> None:
        """Forgets what was switched, at all processes: the configuration was applied again."""
        if self._keeps_rows:
            return
        try:
            rows = [(kind, row.key) for kind in (_SWITCH, _OUTCOME) for row in await self._store.of_owner(kind, None)]
            for start in range(0, len(rows), _AT_ONCE):
                await self._store.step([Drop(*each) for each in rows[start : start + _AT_ONCE]])
        except StoreUnavailable as error:
            log.error("other processes keep the state set in the console: %s", error)
            return
        if rows:
            await self._news.tell("switches_reset")

    def keep_rows(self) -> None:
        """Lets a reload keep what is switched at other processes, until ``take_over``: for a process that starts, and
        may read its configuration again at once."""
        self._keeps_rows = True

    async def take_over(self) -> None:
        """Switches what is switched at processes that live, if the server is configured alike here and there. Removes
        what ended processes have left. Waits while the store is unavailable."""
        while True:
            try:
                await self._take_over()
                self._keeps_rows = False
                return
            except StoreUnavailable:
                await asyncio.sleep(LOOK_S)

    async def _take_over(self) -> None:
        alive, servers = dict[str, bool](), set[str]()
        for row in await self._store.of_owner(_OUTCOME, None):
            process = row.key.rpartition(".")[2]
            if process not in alive:
                alive[process] = process != self._process and await self._store.alive(process)
            if alive[process]:
                servers.add(row.owner)
            elif process != self._process:
                await self._store.step([Drop(_OUTCOME, row.key)])
        for row in await self._store.of_owner(_SWITCH, None):
            wanted = self._read(row)
            if row.key not in servers:
                with suppress(Conflict):
                    await self._store.step([Drop(_SWITCH, row.key, expect=row.version)])
            elif wanted is not None and self._fingerprint(wanted.name) == wanted.configured:
                await self._apply(wanted.name, "enable" if wanted.enabled else "disable")

    async def _heard_switch(self, facts: Facts) -> None:
        name = str(facts["server"])
        row = await self._store.get(_SWITCH, hashed(name))
        wanted = None if row is None else self._read(row)
        if wanted is not None:
            await self._apply(name, "enable" if wanted.enabled else "disable")

    async def _heard_reset(self, facts: Facts) -> None:
        kept = {row.key for row in await self._store.of_owner(_SWITCH, None)}
        for name, enabled in list(self._applied.switched.items()):
            if hashed(name) not in kept:
                await self._try(name, "disable" if enabled else "enable")

    async def _heard_reconnect(self, facts: Facts) -> None:
        if facts["by"] != self._process:
            await self._apply(str(facts["server"]), "reconnect")

    async def _missed(self, facts: Facts) -> None:
        for row in await self._store.of_owner(_SWITCH, None):
            if (wanted := self._read(row)) is not None:
                await self._apply(wanted.name, "enable" if wanted.enabled else "disable")

    async def _apply(self, name: str, act: Act) -> None:
        done = await self._try(name, act)
        await self._store.step([self._outcome(name, act, done=done)])

    async def _try(self, name: str, act: Act) -> bool:
        """Returns false if it was not possible; the log has the reason."""
        try:
            changed = await self._do(name, act)
        except (KeyError, ConfigError) as error:
            reason = error if isinstance(error, ConfigError) else "this process has no server of this name"
            log.error("upstream %s: %s, requested at another process, is not possible: %s", name, act, reason)
            return False
        return changed or act != "reconnect"

    async def _do(self, name: str, act: Act) -> bool:
        """Returns false if there was nothing to do. Raises KeyError and ConfigError."""
        if act == "reconnect":
            changed = await self._applied.renew(name)
        else:
            changed = await self._applied.switch(name, enabled=act == "enable")
        if changed:
            self._note(name, _NOTES[act])
        return changed

    def _outcome(self, name: str, act: Act, *, done: bool = True) -> Op:
        return Put(_OUTCOME, f"{hashed(name)}.{self._process}", packed([act, done]), hashed(name))

    def _fingerprint(self, name: str) -> str:
        """Changes with the configuration of the server; empty if there is none. Leaves out how it is switched here."""
        here = next((each for each in self._applied.settings.upstreams if each.name == name), None)
        if here is None:
            return ""
        return _fingerprint(here, here.enabled is not (name in self._applied.switched))

    def _read(self, row: Row) -> _Switch | None:
        """Returns None for a damaged row, which is logged."""

        def read() -> _Switch:
            name, enabled, configured = unpacked(row.data)
            if type(enabled) is not bool or not isinstance(configured, str) or hashed(name) != row.key:
                raise TypeError
            return _Switch(name, enabled, configured)

        return sound(_SWITCH.name, row.key, read)

    def _read_outcome(self, row: Row) -> Outcome | None:
        """Returns None for a damaged row, which is logged."""

        def read() -> Outcome:
            act, done = unpacked(row.data)
            if act not in _NOTES or type(done) is not bool:
                raise TypeError
            return Outcome(row.key.rpartition(".")[2], act, done)

        return sound(_OUTCOME.name, row.key, read)


def _fingerprint(upstream: UpstreamSettings, enabled: bool) -> str:
    settings = upstream.model_copy(update={"enabled": enabled}).model_dump()
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=_plain).encode("ascii")).hexdigest()


def _plain(value: object) -> object:
    # The order of a set is another one in each process.
    return sorted(map(str, value)) if isinstance(value, Set) else str(value)
