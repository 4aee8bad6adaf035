"""The catalog in force: upstreams are asked for their tools, a new catalog is built whole and swapped in (CARD-14,
CARD-16).

Refreshes that wait for one another are built as one. Unchanged listings change nothing. The snapshot in force holds the
catalog with its listings, the compiled validators, and the tools that each audience may see.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import anyio

from wicketgate.access.identity import Identity
from wicketgate.access.policy import AccessPolicy, Hidden, Rights
from wicketgate.catalog.catalog import Catalog, build_catalog
from wicketgate.catalog.pins import Held, PinPolicy, Screened, screen
from wicketgate.catalog.selectable import UPSTREAM_NAME_KEY, SelectableItem
from wicketgate.catalog.tool_id import near_ids
from wicketgate.errors import CatalogError, GatewayError, HydrateFailed
from wicketgate.fleet.member import Listing, Member, MultiplexUpstream
from wicketgate.gateway.options import HeapKeeper
from wicketgate.gateway.plugin_chain import PluginChain, PluginFailed
from wicketgate.schemas.validation import Admitted, Validator, compile_schema, is_bulky_json
from wicketgate.tokens import TokenCounter

_MAX_AUDIENCES = 256


@dataclass(frozen=True, slots=True)
class Audience:
    """Callers with the same rights. *visible* is None when these cover every tool. *definition_chars*: the length of
    the definitions of all visible tools."""

    visible: Callable[[str], bool] | None
    definition_chars: int


class Snapshot:
    """*troubles* says by upstream why its tools are not fresh: it did not give them, or they collided with others.
    *listings* are as the upstreams declared them; *screened* says what of them was held back."""

    def __init__(
        self,
        catalog: Catalog,
        listings: Mapping[str, Listing],
        troubles: Mapping[str, str],
        screened: Mapping[str, Screened] | None = None,
    ) -> None:
        self.catalog = catalog
        self.listings = listings
        self.troubles = troubles
        self.screened = screened or {}
        self._validators: dict[str, Validator] = {}
        self._audiences: OrderedDict[tuple[AccessPolicy, Rights], Audience] = OrderedDict()

    def audience(self, policy: AccessPolicy, identity: Identity) -> Audience:
        """The audience of this caller. Worked out once for these rights under *policy*; a look-up from then on."""
        rights = policy.rights(identity)
        known = self._audiences.get((policy, rights))
        if known is None:
            known = self._audiences[policy, rights] = self._work_out(policy, rights)
            if len(self._audiences) > _MAX_AUDIENCES:
                self._audiences.popitem(last=False)
        return known

    def find(self, tool_id: str, access: AccessPolicy, identity: Identity) -> SelectableItem:
        """The tool, if it exists for this caller. Raises HydrateFailed."""
        item = self.catalog.get(tool_id)
        if item is None or isinstance(access.decide(identity, item.namespace, item.name), Hidden):
            # Made of what this caller may see, so that a hidden tool and none are one answer.
            near = near_ids(tool_id, self.catalog.items, self.audience(access, identity).visible)
            details = {"did_you_mean": near} if near else None
            raise HydrateFailed(
                "No such tool. Use tool_browse to find the ids of tools.", path=tool_id, details=details
            )
        return item

    async def admit(self, item: SelectableItem, args: object, *, tolerant: bool) -> Admitted:
        """The arguments that would be sent. Raises ArgsInvalid or SchemaInvalid."""
        validator = self._validators.get(item.id) or await self._compiled(item)
        if is_bulky_json(args):
            return await asyncio.to_thread(validator.admit, args, path=item.id, tolerant=tolerant)
        return validator.admit(args, path=item.id, tolerant=tolerant)

    def with_troubles(self, troubles: Mapping[str, str]) -> "Snapshot":
        """The same catalog with other *troubles*; the compiled validators are kept."""
        if troubles == self.troubles:
            return self
        other = Snapshot(self.catalog, self.listings, troubles, self.screened)
        other._validators = self._validators
        return other

    async def _compiled(self, item: SelectableItem) -> Validator:
        """Compiled at a tool's first use, kept as long as the snapshot. Raises SchemaInvalid."""
        if is_bulky_json(item.args_schema):
            validator = await asyncio.to_thread(compile_schema, item.args_schema, path=item.id)
        else:
            validator = compile_schema(item.args_schema, path=item.id)
        self._validators[item.id] = validator
        return validator

    def _work_out(self, policy: AccessPolicy, rights: Rights) -> Audience:
        if rights.everything:
            return Audience(None, self.catalog.definition_chars())
        tools = ((item.id, item.namespace, item.name) for item in self.catalog.items.values())
        visible = policy.visible(rights, tools).__contains__
        return Audience(visible, self.catalog.definition_chars(visible))


log = logging.getLogger("wicketgate.catalog")
pins_log = logging.getLogger("wicketgate.pins")

_LARGE = 500
_MAX_LOGGED = 20
_MAX_LINES = 12


@dataclass(frozen=True, slots=True)
class RefreshReport:
    """The outcome of a refresh: the number of tools in force; upstreams whose last good tools stay in use and tools
    left out, each with the reason."""

    tools: int
    stale: Mapping[str, str]
    left_out: Mapping[str, str]


class _Screening:
    """Applies one policy of pins: each listing is screened once (ACCESS-19). Called in threads, by one at a time."""

    def __init__(self, policy: PinPolicy) -> None:
        self.policy = policy
        self._known: dict[str, tuple[Listing, Screened]] = {}

    def of(self, server: str, listing: Listing) -> Screened:
        known = self._known.get(server)
        if known is not None and known[0] is listing:
            return known[1]
        screened = screen(server, listing, self.policy)
        self._known[server] = listing, screened
        return screened

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
        inferred: Collection[str] = (),
        heap: HeapKeeper | None = None,
        plugins: PluginChain | None = None,
        pins: PinPolicy | None = None,
    ) -> None:
        self._fleet = fleet
        self._tokens = tokens
        self._inferred = frozenset(inferred)
        self._heap = heap
        self._plugins = plugins
        self._screening = _Screening(pins or PinPolicy())
        self._pending: dict[str, Listing] = {}
        # Unlike that of asyncio, not bound to the event loop where it was first waited for.
        self._building = anyio.Lock()
        self.snapshot = Snapshot(build_catalog({}, tokens), {}, {})

    async def refresh(self, upstreams: Collection[str] | None) -> RefreshReport:
        """Raises CatalogError when tools of one of *upstreams* collide; all of its last good tools stay in use then."""
        with self._heap.refreshing() if self._heap else nullcontext():
            answers = await self._fleet.list_tools(upstreams)
            failed = {name: str(answer) for name, answer in answers.items() if isinstance(answer, GatewayError)}
            fresh = {name: answer for name, answer in answers.items() if not isinstance(answer, GatewayError)}
            self._pending.update(fresh)
            async with self._building:
                await self._take_over(failed)
            snapshot = self.snapshot
            for name, reason in failed.items():
                log.warning("upstream %s: tools not refreshed: %s", name, reason)
            collided = [snapshot.troubles[name] for name in fresh if name in snapshot.troubles]
            if collided:
                raise CatalogError(collided[0])
            return RefreshReport(len(snapshot.catalog.items), failed, tools_left_out(snapshot.catalog))

    async def exchange(
        self, members: Mapping[str, Member], inferred: Collection[str], pins: PinPolicy, also: Callable[[], None]
    ) -> None:
        """Other upstreams: the fleet has *members*, the catalog loses the tools of those that are gone, the rest is
        screened by *pins*, and *also* is called, all in one step. An upstream that stays under the same name keeps the
        tools it last gave until it gives others.

        Raises CatalogError when tools collide under other *inferred* namespaces or pins; then nothing has changed.
        """
        async with self._building:
            # What changes: listings of members that stay, and whether the catalog has to be built again.
            before, names = self.snapshot, frozenset(inferred)
            catalog, listings = before.catalog, {n: given for n, given in before.listings.items() if n in members}
            screening = self._screening if pins == self._screening.policy else _Screening(pins)
            as_before = names == self._inferred and screening is self._screening
            rebuilt = len(listings) < len(before.listings) or not as_before
            screened = before.screened
            # All that can fail or wait.
            if rebuilt:
                catalog = await self._build(listings, catalog, names, screening)
                screened = await asyncio.to_thread(screening.of_all, listings)
            # No await from here on: no call may see one of these without the others.
            self._inferred, self._screening = names, screening
            self._fleet.members = members
            troubles = {name: trouble for name, trouble in before.troubles.items() if name in members}
            if rebuilt:
                self.snapshot = Snapshot(catalog, listings, troubles, screened)
                _log_screened(before.screened, screened)
            else:
                self.snapshot = before.with_troubles(troubles)
            also()

    async def _take_over(self, failed: Mapping[str, str]) -> None:
        """Build with all that waits. If tools collide, each upstream is taken over alone, as far as it goes."""
        # Some may have been taken out of the fleet while they gave their tools.
        waiting = {name: listing for name, listing in self._pending.items() if name in self._fleet.members}
        failed = {name: reason for name, reason in failed.items() if name in self._fleet.members}
        self._pending = {}
        before = self.snapshot
        troubles = {**before.troubles, **failed}
        if not waiting:
            self.snapshot = before.with_troubles(troubles)
            return
        # Off the loop: comparing and building take up to a second for a large catalog, and calls go on meanwhile.
        changed = await asyncio.to_thread(_changed, waiting, before.listings)
        for name in waiting:
            troubles.pop(name, None)
        if not changed:
            log.info("catalog %s: unchanged", before.catalog.version)
            self.snapshot = before.with_troubles(troubles)
            return
        # All at once first: that is one build, and tools seldom collide.
        catalog, listings = before.catalog, dict(before.listings)
        try:
            catalog = await self._build({**listings, **changed}, catalog)
            listings.update(changed)
        except CatalogError as error:
            if len(changed) == 1:
                troubles[next(iter(changed))] = str(error)
            else:
                for name, listing in changed.items():
                    try:
                        catalog = await self._build({**listings, name: listing}, catalog)
                        listings[name] = listing
                    except CatalogError as collision:
                        troubles[name] = str(collision)
        await self._put_in_force(catalog, listings, troubles)

    async def _put_in_force(
        self, catalog: Catalog, listings: Mapping[str, Listing], troubles: Mapping[str, str]
    ) -> None:
        before = self.snapshot
        screened = await asyncio.to_thread(self._screening.of_all, listings)
        self.snapshot = Snapshot(catalog, listings, troubles, screened)
        _log_screened(before.screened, screened)
        for tool, reason in tools_left_out(catalog).items():
            log.warning("tool left out: %s: %s", tool, reason)
        log.info("catalog %s: %d tools of %d upstreams", catalog.version, len(catalog.items), len(listings))
        if self._heap and catalog is not before.catalog and len(catalog.items) > _LARGE:
            self._heap.settle()

    async def _build(
        self,
        listings: Mapping[str, Listing],
        previous: Catalog,
        inferred: Collection[str] | None = None,
        screening: _Screening | None = None,
    ) -> Catalog:
        infer = self._inferred if inferred is None else inferred
        return await asyncio.to_thread(self._built, listings, previous, infer, screening or self._screening)

    def _built(
        self, listings: Mapping[str, Listing], previous: Catalog, inferred: Collection[str], screening: _Screening
    ) -> Catalog:
        # Before the plugins: what is compared with a pin is what the upstream declared.
        listings = {
            name: _under_their_own_names(screening.of(name, listing).kept) for name, listing in listings.items()
        }
        if self._plugins is not None:
            try:
                listings = {name: self._plugins.on_tools(name, listing) for name, listing in listings.items()}
            except PluginFailed as failure:
                raise CatalogError(failure.message) from None
        return build_catalog(listings, self._tokens, previous=previous, infer=inferred)


def _under_their_own_names(listing: Listing) -> Listing:
    """*listing* without the mark of a renamed tool: only a plugin may set it, never a server."""
    if not any(map(_renames, listing)):
        return listing
    return [
        {**tool, "_meta": {key: value for key, value in tool["_meta"].items() if key != UPSTREAM_NAME_KEY}}
        if _renames(tool)
        else tool
        for tool in listing
    ]


def _renames(tool: Mapping[str, Any]) -> bool:
    meta = tool.get("_meta") if isinstance(tool, Mapping) else None
    return isinstance(meta, Mapping) and UPSTREAM_NAME_KEY in meta


def tools_left_out(catalog: Catalog) -> dict[str, str]:
    """Tools that cannot be shown, and why: by id, or by place in the upstream's list if it has not even an id."""
    return {**catalog.quarantine, **{f"{s.server}[{s.index}]": s.reason for s in catalog.skipped}}


def _changed(waiting: Mapping[str, Listing], in_force: Mapping[str, Listing]) -> dict[str, Listing]:
    return {name: listing for name, listing in waiting.items() if in_force.get(name) != listing}


def _log_screened(before: Mapping[str, Screened], now: Mapping[str, Screened]) -> None:
    """Log the news about the upstreams that changed: of each kind, the first twenty tools."""
    for server, screened in now.items():
        known = before.get(server, Screened())
        if screened is known:
            continue
        held = [(name, each) for name, each in screened.held.items() if known.held.get(name) != each]
        for name, each in held[:_MAX_LOGGED]:
            pins_log.warning("tool quarantined: %s:%s: %s", server, name, _with_difference(each))
        flagged = [(name, signs) for name, signs in screened.flagged.items() if known.flagged.get(name) != signs]
        for name, signs in flagged[:_MAX_LOGGED]:
            pins_log.warning("suspicious tool: %s:%s: %s", server, name, "; ".join(signs))
        gone = [name for name in screened.gone if name not in known.gone]
        for name in gone[:_MAX_LOGGED]:
            pins_log.warning("pinned tool is gone: %s:%s", server, name)
        unsaid = sum(max(0, len(found) - _MAX_LOGGED) for found in (held, flagged, gone))
        if unsaid:
            pins_log.warning(
                "%s: %d more tools are quarantined, suspicious or gone; see wicketgate check", server, unsaid
            )


def _with_difference(held: Held) -> str:
    lines = held.change.lines[:_MAX_LINES] if held.change else ()
    return "\n  ".join((held.explanation, *lines))
