"""The catalog in force: upstreams are asked for their tools, a new catalog is built whole and swapped in (CARD-14,
CARD-16).

Refreshes that wait for one another are built as one. Unchanged listings change nothing.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import Any

import anyio

from wicketgate.catalog.catalog import Catalog, build_catalog
from wicketgate.catalog.definition_change import digest_or_nothing
from wicketgate.catalog.former import with_former
from wicketgate.catalog.pins import PinPolicy, Screened, screen
from wicketgate.catalog.said_words import SaidWords
from wicketgate.catalog.selectable import SOURCE_KEY, UPSTREAM_NAME_KEY
from wicketgate.catalog.skills import SkillEntry, steady
from wicketgate.errors import CatalogError, GatewayError
from wicketgate.fleet.member import Listing, Member, MultiplexUpstream
from wicketgate.gateway.offer_screening import log_screened
from wicketgate.gateway.options import HeapKeeper
from wicketgate.gateway.plugin_chain import PluginChain, PluginFailed
from wicketgate.gateway.snapshot import LARGE, Snapshot
from wicketgate.tokens import TokenCounter

log = logging.getLogger("wicketgate.catalog")

_MAX_LOGGED = 50
_MAX_SKILLS = 1_000
"""Of one server."""


@dataclass(frozen=True, slots=True)
class Naming:
    """The origin of namespaces: the tools of the upstreams in *inferred* have them from their own names (CARD-8), but
    never that of another upstream. *configured* are the names of all upstreams, also of those that are disabled."""

    inferred: frozenset[str] = frozenset()
    configured: frozenset[str] = frozenset()

    def same_for(self, other: "Naming", unnamed: Collection[str]) -> bool:
        """Returns whether both give the same namespaces; *unnamed* upstreams infer theirs."""
        infers = self.inferred or unnamed
        return self.inferred == other.inferred and (not infers or self.configured == other.configured)


@dataclass(frozen=True, slots=True)
class RefreshReport:
    """The outcome of a refresh: the number of tools in force; upstreams whose last good tools stay in use and tools
    left out, each with the reason."""

    tools: int
    stale: Mapping[str, str]
    left_out: Mapping[str, str]


class _Screening:
    """Applies one policy of pins: each listing is screened once (ACCESS-19), and of a later one what is new in it.
    Called in threads, by one at a time."""

    def __init__(self, policy: PinPolicy) -> None:
        self.policy = policy
        self._known: dict[str, tuple[Listing, Screened]] = {}

    def of(self, server: str, listing: Listing) -> Screened:
        known = self._known.get(server)
        if known is not None and known[0] is listing:
            return known[1]
        screened = screen(server, listing, self.policy, known[1] if known else None)
        self._known[server] = listing, screened
        return screened

    def skills(self, server: str, entries: Listing) -> Sequence[Any]:
        """The *entries* of skills that are not held. Their offers are reported by ``OfferScreening``."""
        return screen(f"{server}/skills", entries, self.policy).kept if entries else ()

    def of_all(self, listings: Mapping[str, Listing]) -> dict[str, Screened]:
        screened = {server: self.of(server, listing) for server, listing in listings.items()}
        self._known = {server: self._known[server] for server in listings}
        return screened


class CatalogKeeper:
    """Holds the one mutable reference: *snapshot*, replaced by assignment after a refresh has fully succeeded."""

    def __init__(
        self,
        fleet: MultiplexUpstream,
        tokens: TokenCounter,
        *,
        naming: Naming,
        heap: HeapKeeper | None,
        plugins: PluginChain | None,
        pins: PinPolicy,
        words: SaidWords,
    ) -> None:
        self._fleet = fleet
        self._tokens = tokens
        self._naming = naming
        self._heap = heap
        self._plugins = plugins
        self._screening = _Screening(pins)
        self._words = words
        self._spellings: Mapping[str, tuple[str, ...]] = {}
        self._pending: dict[str, Listing] = {}
        self._skills: Mapping[str, Listing] = {}
        # Unlike that of asyncio, not bound to the event loop where it was first waited for.
        self._building = anyio.Lock()
        self.snapshot = Snapshot(build_catalog({}, tokens), {}, {})

    @property
    def pins(self) -> PinPolicy:
        """The policy of pins in force."""
        return self._screening.policy

    async def refresh(self, upstreams: Collection[str] | None) -> RefreshReport:
        """Raises CatalogError when tools of one of *upstreams* collide; all of its last good tools stay in use then."""
        with self._heap.refreshing() if self._heap else nullcontext():
            answers, skills = await asyncio.gather(
                self._fleet.list_tools(upstreams), self._fleet.list_skills(upstreams)
            )
            failed = {name: str(answer) for name, answer in answers.items() if isinstance(answer, GatewayError)}
            fresh = {name: answer for name, answer in answers.items() if not isinstance(answer, GatewayError)}
            self._pending.update(fresh)
            async with self._building:
                has_skills = any(skills.values())
                entries = await asyncio.to_thread(_entries, skills) if has_skills else _entries(skills)
                await self._take_over(failed, entries)
            snapshot = self.snapshot
            for name, reason in failed.items():
                log.warning("upstream %s: tools not refreshed: %s", name, reason)
            collided = [snapshot.troubles[name] for name in fresh if name in snapshot.troubles]
            if collided:
                raise CatalogError(collided[0])
            return RefreshReport(len(snapshot.catalog.tools), failed, tools_left_out(snapshot.catalog))

    async def exchange(
        self,
        members: Mapping[str, Member],
        naming: Naming,
        pins: PinPolicy,
        words: SaidWords,
        also: Callable[[], None],
    ) -> None:
        """Other upstreams: the fleet has *members*, the catalog loses the tools of those that are gone, the rest is
        screened by *pins* and found by *words*, and *also* is called, all in one step. An upstream that stays under the
        same name keeps the tools it last gave until it gives others.

        Raises CatalogError when tools collide under another *naming* or other pins; then nothing has changed.
        """
        async with self._building:
            # What changes: listings of members that stay, and whether the catalog has to be built again.
            before = self.snapshot
            catalog, listings = before.catalog, {n: given for n, given in before.listings.items() if n in members}
            screening = self._screening if pins == self._screening.policy else _Screening(pins)
            as_before = naming.same_for(self._naming, self._fleet.unnamed) and screening is self._screening
            skills = {name: entries for name, entries in self._skills.items() if name in members}
            rebuilt = len(listings) < len(before.listings) or not as_before or len(skills) < len(self._skills)
            screened = before.screened
            # All that can fail or wait.
            if rebuilt:
                catalog = await asyncio.to_thread(self._built, listings, skills, catalog, naming, screening, words)
                screened = await asyncio.to_thread(screening.of_all, listings)
            elif words != self._words:
                catalog = await asyncio.to_thread(catalog.saying, words)
            # No await from here on: no call may see one of these without the others.
            self._naming, self._screening, self._words, self._skills = naming, screening, words, skills
            self._fleet.members = members
            troubles = {name: trouble for name, trouble in before.troubles.items() if name in members}
            if rebuilt:
                self.snapshot = Snapshot(catalog, listings, troubles, screened)
                log_screened(before.screened, screened)
                _log_left_out(before.catalog, catalog)
            else:
                self.snapshot = before.with_troubles(troubles, catalog)
            also()

    async def _take_over(self, failed: Mapping[str, str], fresh_skills: Mapping[str, Listing]) -> None:
        """Build with all that waits, and with *fresh_skills*. If tools collide, each upstream is taken over alone, as
        far as it goes."""
        # Some may have been taken out of the fleet while they gave their tools.
        waiting = {name: listing for name, listing in self._pending.items() if name in self._fleet.members}
        failed = {name: reason for name, reason in failed.items() if name in self._fleet.members}
        self._pending = {}
        before = self.snapshot
        troubles = {**before.troubles, **failed}
        # Off the loop: comparing and building take seconds for a large catalog, and calls go on in the meantime.
        skills = self._skills
        if any((*fresh_skills.values(), *skills.values())):
            skills = await asyncio.to_thread(self._skills_with, fresh_skills)
        if not waiting and skills is self._skills:
            self.snapshot = before.with_troubles(troubles)
            return
        changed: Mapping[str, Listing] = {}
        if any(listing is not before.listings.get(name) for name, listing in waiting.items()):
            changed = await asyncio.to_thread(_changed, waiting, before.listings)
        for name in waiting:
            troubles.pop(name, None)
        spellings = self._fleet.spellings()
        if not changed and spellings == self._spellings and skills is self._skills:
            log.debug("catalog %s: unchanged", before.catalog.version)
            self.snapshot = before.with_troubles(troubles)
            return
        # All at once first: that is one build, and tools seldom collide.
        self._spellings = spellings
        catalog, listings = before.catalog, dict(before.listings)
        if skills is not self._skills:
            try:
                catalog = await asyncio.to_thread(self._built, listings, skills, catalog)
            except CatalogError as error:
                log.error("skills not refreshed: %s", error)
                skills = self._skills
        try:
            catalog = await asyncio.to_thread(self._built, {**listings, **changed}, skills, catalog)
            listings.update(changed)
        except CatalogError as error:
            if len(changed) <= 1:
                troubles.update(dict.fromkeys(changed, str(error)))
            else:
                for name, listing in changed.items():
                    try:
                        catalog = await asyncio.to_thread(self._built, {**listings, name: listing}, skills, catalog)
                        listings[name] = listing
                    except CatalogError as collision:
                        troubles[name] = str(collision)
        self._skills = skills
        await self._put_in_force(catalog, listings, troubles)

    def _skills_with(self, fresh: Mapping[str, Listing]) -> Mapping[str, Listing]:
        """The skills in force with *fresh* ones of their servers; the same object if none differs."""
        differing = {
            name: entries
            for name, entries in fresh.items()
            if name in self._fleet.members and entries != self._skills.get(name, [])
        }
        return {**self._skills, **differing} if differing else self._skills

    async def _put_in_force(
        self, catalog: Catalog, listings: Mapping[str, Listing], troubles: Mapping[str, str]
    ) -> None:
        before = self.snapshot
        screened = await asyncio.to_thread(self._screening.of_all, listings)
        self.snapshot = Snapshot(catalog, listings, troubles, screened)
        log_screened(before.screened, screened)
        _log_left_out(before.catalog, catalog)
        log.info("catalog %s: %d tools of %d upstreams", catalog.version, len(catalog.tools), len(listings))
        if self._heap and catalog is not before.catalog and len(catalog.items) > LARGE:
            self._heap.settle()

    def _built(
        self,
        listings: Mapping[str, Listing],
        skills: Mapping[str, Listing],
        previous: Catalog,
        naming: Naming | None = None,
        screening: _Screening | None = None,
        words: SaidWords | None = None,
    ) -> Catalog:
        """Run in a thread. Without *naming*, *screening* and *words*, those in force are used."""
        naming, screening = naming or self._naming, screening or self._screening
        # Before the plugins: what is compared with a pin is what the upstream declared.
        listings = {name: screening.of(name, listing).kept for name, listing in listings.items()}
        if self._plugins is not None:
            try:
                listings = {
                    name: _with_sources(self._plugins.on_tools(name, listing), listing)
                    for name, listing in listings.items()
                }
            except PluginFailed as failure:
                raise CatalogError(failure.message) from None
        shown: dict[str, Listing] = dict(listings)
        for name, entries in skills.items():
            shown[name] = [*shown.get(name, ()), *screening.skills(name, entries)]
        return build_catalog(
            shown,
            self._tokens,
            previous=previous,
            infer=naming.inferred,
            unnamed=self._fleet.unnamed,
            taken=naming.configured,
            words=self._words if words is None else words,
            spellings=self._spellings,
        )


def _entries(answers: Mapping[str, Listing | GatewayError]) -> dict[str, Listing]:
    """The skills of those that gave them, each as it is pinned; the last good ones of the others stay in use."""
    found: dict[str, Listing] = {}
    for name, answer in answers.items():
        if isinstance(answer, GatewayError):
            log.warning("upstream %s: skills not refreshed: %s", name, answer)
        else:
            found[name] = [SkillEntry(steady(one)) for one in answer[:_MAX_SKILLS] if isinstance(one, Mapping)]
            if len(answer) > _MAX_SKILLS:
                log.warning("upstream %s: it lists %d skills, of which %d are used", name, len(answer), _MAX_SKILLS)
    return found


def _with_sources(shown: Listing, declared: Listing) -> Listing:
    """*shown* with the digest of the declared definition in each that a plugin changed (ACCESS-52).

    A server may give several tools under one name; then the digest covers them all.
    """
    untouched = set(map(id, declared))
    if all(id(tool) in untouched for tool in shown):
        return shown
    sources: dict[str, str] = {}
    for tool in declared:
        name = tool.get("name") if isinstance(tool, Mapping) else None
        if isinstance(name, str):
            sources[name] = sources.get(name, "") + digest_or_nothing(tool)
    return [tool if id(tool) in untouched else _with_source(tool, sources) for tool in shown]


def _with_source(tool: Any, sources: Mapping[str, str]) -> Any:
    if not isinstance(tool, Mapping):
        return tool
    meta = tool.get("_meta")
    kept: Mapping[str, Any] = meta if isinstance(meta, Mapping) else {}
    own_name = kept.get(UPSTREAM_NAME_KEY, tool.get("name"))
    source = sources.get(own_name, "") if isinstance(own_name, str) else ""
    return {**tool, "_meta": {**kept, SOURCE_KEY: source}}


def tools_left_out(catalog: Catalog) -> dict[str, str]:
    """Tools that some caller or other cannot find, and why: those without a card by id (CARD-24), those that are no
    tools by their place in the upstream's list."""
    uncarded = {tool_id: f"not browsed, only called: {reason}" for tool_id, reason in catalog.quarantine.items()}
    return {**uncarded, **{f"{s.server}[{s.index}]": s.reason for s in catalog.skipped}}


def _log_left_out(before: Catalog, now: Catalog) -> None:
    if now is before:
        return
    left_out = tools_left_out(now)
    for tool, reason in islice(left_out.items(), _MAX_LOGGED):
        log.warning("tool left out: %s: %s", tool, reason)
    if len(left_out) > _MAX_LOGGED:
        log.warning("tool left out: %d more", len(left_out) - _MAX_LOGGED)


def _changed(waiting: Mapping[str, Listing], in_force: Mapping[str, Listing]) -> dict[str, Listing]:
    """The listings that differ from those in force, with the definitions of these where they are as they were."""
    taken = {name: with_former(listing, in_force.get(name, ())) for name, listing in waiting.items()}
    return {name: listing for name, listing in taken.items() if name not in in_force or listing is not in_force[name]}
