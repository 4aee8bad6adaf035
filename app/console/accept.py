"""A definition accepted by an operator: written to the lock file, and in force (OPS-250, OPS-251)."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from app.console.servers import NotPossible
from wicketgate.catalog.definition_change import digest_or_nothing
from wicketgate.catalog.pins import Declared, accept, address_of, differences
from wicketgate.config.lock_file import changing, read_lock, write_lock
from wicketgate.errors import ConfigError
from wicketgate.gate import Gate
from wicketgate.gateway.audit import AuditOutcome
from wicketgate.ports import CallContext
from wicketgate.storage.news import Facts

log = logging.getLogger("wicketgate.console")

_DIGEST_SHOWN = 12
_NO_FILE = (
    "The configuration names no lock file, so nothing can be accepted. Make one with wicketgate lock, and name it in "
    "pins.file."
)
_DIFFERS = "The definition is not the one that was shown. Look at it again."
_NOTHING = "This definition is unchanged, or no longer exists."
_FAILED = "It was not accepted: the log of the gate says why. All stays as it was."
_NOT_IN_FORCE = "It stands in the lock file, but is not in force yet: the log of the gate says why."


class Accepting:
    """Accepts one definition after the other."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._turn = asyncio.Lock()
        gate.shared.news.on("accepted", self._heard)

    async def accept(self, source: str, name: str, digest: str, context: CallContext) -> None:
        """Accepts the definition *name* of *source*, such as ``rec`` or ``rec/prompts``, if *digest* is still that of
        it, and puts it in force here; the other processes follow. An empty one takes away the pin of what is gone. The
        acceptance is recorded. Raises NotPossible."""
        file = self._gate.settings.pins.file
        if file is None:
            raise NotPossible(409, _NO_FILE)
        async with self._turn:
            declared = await self._declared(source)
            try:
                kind = await asyncio.to_thread(partial(accept_one, Path(file), declared, source, name, digest))
            except ConfigError as error:
                log.error("%s:%s was not accepted: %s", source, name, error)
                self._record(source, name, "not accepted", context, failed=True)
                raise NotPossible(409, _FAILED) from None
            what = f"{kind}, accepted as {digest[:_DIGEST_SHOWN]}" if digest else f"{kind}, its pin taken away"
            self._record(source, name, what, context)
            try:
                await self._gate.applied.read_pins()
            except ConfigError as error:
                log.error("%s:%s was accepted, but is not in force: %s", source, name, error)
                raise NotPossible(409, _NOT_IN_FORCE) from None
        log.info("%s:%s was accepted in the console", source, name)
        await self._gate.shared.news.tell("accepted", source=source, name=name, digest=digest)

    async def _heard(self, facts: Facts) -> None:
        """Puts in force here what another process has accepted. Writes the lock file of this process too, if it is
        another file than that of the other process."""
        if facts["by"] == self._gate.shared.process.id:
            return
        source, name, digest = str(facts["source"]), str(facts["name"]), str(facts["digest"])
        file = self._gate.settings.pins.file
        if file is None:
            log.error("%s:%s was accepted elsewhere: %s", source, name, _NO_FILE)
            return
        try:
            async with self._turn:
                pins = await asyncio.to_thread(read_lock, Path(file))
                pin = pins.get(source, {}).get(name)
                if (pin.sha256 if pin is not None else "") != digest:
                    declared = await self._declared(source)
                    await asyncio.to_thread(partial(accept_one, Path(file), declared, source, name, digest))
                await self._gate.applied.read_pins()
        except (ConfigError, NotPossible) as error:
            log.error("%s:%s was accepted elsewhere, but is not in force here: %s", source, name, error)

    async def _declared(self, source: str) -> Declared:
        """The definitions that the upstream of *source* declares now, if it is there. Raises NotPossible."""
        declared: Mapping[str, Sequence[Any]] = self._gate.runtime.declared()
        if "/" in source:
            declared, _ = await self._gate.runtime.declared_offers()
        if source not in declared:
            raise NotPossible(404, "There is no source of this name that has given its definitions.")
        return {source: declared[source]}

    def _record(self, source: str, name: str, detail: str, context: CallContext, *, failed: bool = False) -> None:
        server = source.partition("/")[0]
        outcome: AuditOutcome = "failed" if failed else "allowed"
        self._gate.records.events.operated("accept", context, server, detail, outcome, tool_id=f"{source}:{name}")


def accept_one(path: Path, declared: Declared, source: str, name: str, digest: str) -> str:
    """Writes the lock file. Returns how the definition differed. Raises NotPossible and ConfigError."""
    with changing(path):
        pins = read_lock(path)
        found = [each for each in differences(pins, declared) if each.name == name]
        if not found:
            raise NotPossible(409, _NOTHING)
        if _digests(declared[source], address_of(source), name) != ({digest} if digest else set()):
            raise NotPossible(409, _DIFFERS)
        # Trusted: one is accepted by its name, by a person who was shown its signs.
        write_lock(path, accept(pins, declared, found, trusted=lambda difference: True))
    return found[0].kind


def _digests(listing: Sequence[Any], address: str, name: str) -> set[str]:
    """Those of all definitions of this name; an empty one stands for what cannot be accepted."""
    found = [each for each in listing if isinstance(each, Mapping) and each.get(address) == name]
    return {digest_or_nothing(each) for each in found}
