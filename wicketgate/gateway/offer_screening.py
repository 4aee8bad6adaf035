"""Pins and signs of suspicion for what a server offers besides tools (ACCESS-57 to ACCESS-59), and the log lines about
definitions that are held back, suspicious or removed (ACCESS-19).

Prompts, resources, templates, skills and instructions are sources of definitions of their own, named ``rec/prompts``
and so on next to the tools of ``rec``. A held definition does not exist for callers.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, get_args

from wicketgate.access.identity import Identity
from wicketgate.catalog.pins import Declared, Held, PinPolicy, Screened, screen
from wicketgate.catalog.skills import steady
from wicketgate.errors import GatewayError, UpstreamUnavailable
from wicketgate.fleet.features import ADDRESS, FeatureChange, FeatureFleet, FeatureKind, FeatureListing, ListChanged
from wicketgate.task_end import cancel_all, hold

KINDS: tuple[FeatureKind, ...] = get_args(FeatureKind)
INSTRUCTIONS = "instructions"

Item = Mapping[str, Any]


class OfferScreening:
    """Applies the policy of the moment, which *policy* gives, to the lists of *fleet*. Each list is screened once for a
    policy."""

    def __init__(self, fleet: FeatureFleet, policy: Callable[[], PinPolicy]) -> None:
        self._fleet = fleet
        self._policy = policy
        self._known: dict[str, tuple[object, PinPolicy, Screened]] = {}
        self._looking: set[asyncio.Task[None]] = set()
        fleet.watch(self._changed)

    async def aclose(self) -> None:
        await cancel_all(self._looking)

    async def list_all(
        self, kind: FeatureKind, servers: Collection[str], identity: Identity | None = None
    ) -> FeatureListing:
        """As ``FeatureFleet.list_all``, without what is held."""
        listing = await self._fleet.list_all(kind, servers, identity)
        kept: dict[str, Sequence[Item]] = {}
        for server, items in listing.items.items():
            held = (await self._screened(server, kind, items)).held
            kept[server] = [item for item in items if item[ADDRESS[kind]] not in held] if held else items
        return FeatureListing(kept, listing.missing, listing.fresh_ms)

    async def holds(self, server: str, kind: FeatureKind, address: str, identity: Identity) -> bool:
        """True if the item is held. Raises UpstreamUnavailable where that cannot be found out."""
        return address in await self.held(server, kind, identity)

    async def held(self, server: str, kind: FeatureKind, identity: Identity) -> Collection[str]:
        """The addresses of the items that are held, of those that this caller's account is shown: none without one,
        by whom nothing can be used. Raises UpstreamUnavailable where that cannot be found out."""
        policy = self._policy()
        if policy.pins is None and not policy.hold_suspicious:
            return ()
        listing = await self._fleet.list_all(kind, [server], identity)
        if server in listing.missing:
            if await self._fleet.is_missed_by(server, identity):
                return ()
            raise UpstreamUnavailable(f"{server} does not list its {kind} at the moment, so none can be used.")
        return (await self._screened(server, kind, listing.items.get(server, ()))).held

    def holds_entry(self, server: str, entry: Item) -> bool:
        """True if a skill that is in no list is held, by its *entry*."""
        return bool(screen(f"{server}/skills", [steady(entry)], self._policy()).held)

    def instructions(self) -> dict[str, str]:
        """By server, its instructions, if they are taken and not held."""
        given = {name: support.instructions for name, support in self._fleet.support().items() if support}
        return {server: text for server, text in given.items() if text and not self._instructed(server, text).held}

    def screened(self) -> dict[str, Screened]:
        """By source, what was found in the lists that were read so far."""
        self.instructions()
        servers = self._fleet.support()
        return {source: known[2] for source, known in self._known.items() if source.partition("/")[0] in servers}

    async def declared(self) -> tuple[Declared, Mapping[str, str]]:
        """By source, all definitions as the servers of the moment give them; and by source why they are missing."""
        support = self._fleet.support()
        declared: dict[str, Sequence[Any]] = {}
        missing: dict[str, str] = {}
        for kind in KINDS:
            listing = await self._fleet.list_all(kind, support)
            for server, one in support.items():
                source = f"{server}/{kind}"
                if server in listing.missing:
                    missing[source] = listing.missing[server]
                elif server in listing.items or one is not None:
                    items = listing.items.get(server, ())
                    await self._screened(server, kind, items)
                    declared[source] = _accepted(kind, items)
        for server, one in support.items():
            if one is not None:
                declared[f"{server}/{INSTRUCTIONS}"] = _as_definitions(one.instructions)
        return declared, missing

    async def _screened(self, server: str, kind: FeatureKind, items: Sequence[Item]) -> Screened:
        source = f"{server}/{kind}"
        policy, known = self._policy(), self._known.get(source)
        if known is not None and known[0] is items and known[1] == policy:
            return known[2]
        # Off the loop: a list of 10,000 items takes a quarter of a second.
        screened = await asyncio.to_thread(lambda: screen(source, _accepted(kind, items), policy))
        return self._note(source, items, policy, screened)

    def _instructed(self, server: str, text: str) -> Screened:
        source = f"{server}/{INSTRUCTIONS}"
        policy, known = self._policy(), self._known.get(source)
        if known is not None and known[0] == text and known[1] == policy:
            return known[2]
        return self._note(source, text, policy, screen(source, _as_definitions(text), policy))

    def _note(self, source: str, given: object, policy: PinPolicy, screened: Screened) -> Screened:
        before = self._known.get(source)
        self._known[source] = given, policy, screened
        log_screened({source: before[2]} if before else {}, {source: screened}, noun="offer")
        return screened

    def _changed(self, server: str, change: FeatureChange) -> None:
        """Look at a list that changed, so that what is held is known before a client asks."""
        policy = self._policy()
        if not isinstance(change, ListChanged) or (policy.pins is None and not policy.hold_suspicious):
            return
        kinds: tuple[FeatureKind, ...] = (
            ("prompts",) if change.kind == "prompts" else ("resources", "templates", "skills")
        )
        for kind in kinds:
            hold(asyncio.get_running_loop().create_task(self._look(server, kind)), self._looking)

    async def _look(self, server: str, kind: FeatureKind) -> None:
        try:
            await self.list_all(kind, [server])
        except GatewayError:
            return


def _accepted(kind: FeatureKind, items: Sequence[Item]) -> list[Item]:
    """*items* as a person accepts them."""
    return list(map(steady, items)) if kind == "skills" else list(map(_steady, items))


def _as_definitions(instructions: str) -> list[Item]:
    return [{"name": INSTRUCTIONS, "description": instructions}] if instructions else []


def _steady(item: Item) -> Item:
    """*item* without the time of the last change, which is no part of what a person accepts."""
    annotations = item.get("annotations")
    if not isinstance(annotations, Mapping) or "lastModified" not in annotations:
        return item
    rest = {key: value for key, value in annotations.items() if key != "lastModified"}
    return {
        **{key: value for key, value in item.items() if key != "annotations"},
        **({"annotations": rest} if rest else {}),
    }


log = logging.getLogger("wicketgate.pins")

_MAX_LOGGED = 20
_MAX_LINES = 12


def log_screened(before: Mapping[str, Screened], now: Mapping[str, Screened], *, noun: str = "tool") -> None:
    """Log the news about the sources that changed: of each kind, the first twenty. *noun* is what they are."""
    for server, screened in now.items():
        known = before.get(server, Screened())
        if screened is known:
            continue
        held = [(name, each) for name, each in screened.held.items() if known.held.get(name) != each]
        for name, each in held[:_MAX_LOGGED]:
            log.warning("%s quarantined: %s:%s: %s", noun, server, name, _with_difference(each))
        flagged = [(name, signs) for name, signs in screened.flagged.items() if known.flagged.get(name) != signs]
        for name, signs in flagged[:_MAX_LOGGED]:
            log.warning("suspicious %s: %s:%s: %s", noun, server, name, "; ".join(signs))
        gone = [name for name in screened.gone if name not in known.gone]
        for name in gone[:_MAX_LOGGED]:
            log.warning("pinned %s is missing: %s:%s", noun, server, name)
        unsaid = sum(max(0, len(found) - _MAX_LOGGED) for found in (held, flagged, gone))
        if unsaid:
            log.warning(
                "%s: %d more %ss are quarantined, suspicious or missing; see wicketgate check", server, unsaid, noun
            )


def _with_difference(held: Held) -> str:
    lines = held.change.lines[:_MAX_LINES] if held.change else ()
    return "\n  ".join((held.explanation, *lines))
