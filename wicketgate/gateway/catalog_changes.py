"""Changes of the catalog in force, and what follows each: watchers are notified, cached results forgotten, patterns
that match no tool looked for."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence

from wicketgate.access.policy import AccessPolicy
from wicketgate.catalog.catalog import Catalog
from wicketgate.catalog.said_words import SaidWords
from wicketgate.errors import CatalogError
from wicketgate.fleet.member import Member, MultiplexUpstream, by_name
from wicketgate.gateway.catalog_keeper import CatalogKeeper, Naming, RefreshReport
from wicketgate.gateway.options import RuntimeOptions, RuntimePolicies
from wicketgate.gateway.unmatched import Judged, Unmatched
from wicketgate.task_end import cancel_all

log = logging.getLogger("wicketgate.runtime")


class CatalogChanges:
    """*in_force* gives the rules and policies, *forget_results* drops the results that calls have cached."""

    def __init__(
        self,
        fleet: MultiplexUpstream,
        options: RuntimeOptions,
        in_force: Callable[[], tuple[AccessPolicy, RuntimePolicies]],
        forget_results: Callable[[], None],
    ) -> None:
        policies = options.policies
        self._fleet = fleet
        self._in_force = in_force
        self._forget_results = forget_results
        self._unmatched = Unmatched(options.plugins)
        self.keeper = CatalogKeeper(
            fleet,
            options.tokens,
            naming=_naming(policies, fleet.names),
            heap=options.heap,
            plugins=options.plugins,
            pins=policies.pins,
            words=SaidWords(policies.words, policies.written_words),
        )
        self._watchers: list[Callable[[], None]] = []
        self._access_watchers: list[Callable[[], None]] = []
        self._refreshing: dict[str, asyncio.Task[None]] = {}

    def watch(self, changed: Callable[[], None]) -> None:
        """Call *changed* on the event loop after each swap to another catalog."""
        self._watchers.append(changed)

    def watch_access(self, changed: Callable[[], None]) -> None:
        """Call *changed* on the event loop when callers may see other tools of a catalog than before."""
        self._access_watchers.append(changed)

    def unmatched(self) -> Sequence[str]:
        """The patterns of the operator that matched no tool at the last refresh, with their places."""
        return self._unmatched.found

    async def aclose(self) -> None:
        """End the refreshes that run beside calls."""
        await cancel_all(self._refreshing.values())

    async def refresh(self, upstreams: Collection[str] | None) -> RefreshReport:
        """As ``ProxyRuntime.refresh_catalog``."""
        before = self.keeper.snapshot.catalog
        try:
            return await self.keeper.refresh(upstreams)
        finally:
            self._notify_if_changed(before)
            self._forget_results()
            await self._look_for_unmatched()

    async def rearrange(
        self, members: Sequence[Member], policies: RuntimePolicies, step: Callable[[], None], *, rights_changed: bool
    ) -> None:
        """Serve *members* under *policies* from now on, which *step* puts in force. *rights_changed*: some caller may
        see other tools from now on. Raises CatalogError when tools would collide; then all stays as it was."""
        before = self.keeper.snapshot.catalog
        named = by_name(members)
        words = SaidWords(policies.words, policies.written_words)
        await self.keeper.exchange(named, _naming(policies, named), policies.pins, words, step)
        self._notify_if_changed(before)
        if rights_changed:
            for changed in self._access_watchers:
                changed()
        await self._look_for_unmatched()

    def refresh_soon(self, server: str) -> None:
        """Read the tools and skills of *server* again, beside what runs; once at a time."""
        if server not in self._refreshing:
            task = self._refreshing[server] = asyncio.get_running_loop().create_task(self._refresh_one(server))
            task.add_done_callback(lambda _: self._refreshing.pop(server, None))

    async def _refresh_one(self, server: str) -> None:
        try:
            await self.refresh([server])
        except CatalogError as error:
            log.error("catalog not refreshed for the skills of %s: %s", server, error)

    async def _look_for_unmatched(self) -> None:
        (access, policies), snapshot, fleet = self._in_force(), self.keeper.snapshot, self._fleet
        await self._unmatched.look(
            Judged(snapshot.catalog, snapshot.listings, policies, access, fleet.names, fleet.unnamed)
        )

    def _notify_if_changed(self, before: Catalog) -> None:
        catalog = self.keeper.snapshot.catalog
        # A catalog that finds the same tools by other words has the same items.
        if catalog.items is not before.items or catalog.app_tools != before.app_tools:
            for changed in self._watchers:
                changed()


def _naming(policies: RuntimePolicies, members: Iterable[str]) -> Naming:
    return Naming(frozenset(policies.inferred), frozenset((*policies.configured, *members)))
