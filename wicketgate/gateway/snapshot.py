"""The catalog in force with what is known about it: the listings that it was built of, the compiled validators, and the
tools that each audience may see."""

import asyncio
from collections.abc import Mapping, Sequence

import anyio

from wicketgate.access.identity import Identity
from wicketgate.access.policy import AccessPolicy, Hidden, Rights
from wicketgate.catalog.catalog import Catalog
from wicketgate.catalog.pins import Screened
from wicketgate.catalog.selectable import SelectableItem
from wicketgate.catalog.tool_id import MAX_NEAR, ToolId, near_ids
from wicketgate.errors import HydrateFailed, SchemaInvalid
from wicketgate.fleet.member import Listing
from wicketgate.gateway.audiences import Audience, Audiences, GroupedCatalog
from wicketgate.schemas.messages import Expected
from wicketgate.schemas.validation import Admitted, Validator, compile_schema, is_bulky_json

LARGE = 500
"""Items of a catalog from which on work with all of them is done off the event loop."""
_AT_ONCE = 20_000
"""Of more, what a caller sees is worked out off the loop too, and if it is named by names of tools. Otherwise it takes
a millisecond or two."""


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
        self._audiences = Audiences()
        self._grouped: GroupedCatalog | None = None
        self._working_out = anyio.Lock()

    async def prepare(self, policy: AccessPolicy, identity: Identity, path: object) -> None:
        """Work out off the loop what takes long for a browse of *path*, or None, in a large catalog: its groups of
        tools, and cards of ``/`` for namespaces of which this caller sees a part (BROWSE-40)."""
        if len(self.catalog.items) <= LARGE:
            return
        rights = policy.rights(identity)
        known = self._audiences.get((policy, rights))
        if known is None:
            # One at a time: callers of one audience come together after a refresh.
            async with self._working_out:
                if (known := self._audiences.get((policy, rights))) is None:
                    known = await self._worked_out(policy, rights)
        if isinstance(path, str) and path in ("/", "/*") and not known.knows_root:
            async with self._working_out:
                if not known.knows_root:
                    await asyncio.to_thread(known.cards_at, ())

    def _grouped_by(self, policy: AccessPolicy) -> GroupedCatalog | None:
        """Returns the groups that are at hand, None if they are of another policy."""
        grouped = self._grouped
        return grouped if grouped is not None and grouped.policy is policy else None

    async def _worked_out(self, policy: AccessPolicy, rights: Rights) -> Audience:
        grouped = self._grouped_by(policy)
        if grouped is None:
            grouped = self._grouped = await asyncio.to_thread(GroupedCatalog, self.catalog, policy)
        if len(self.catalog.items) > _AT_ONCE or rights.reach.names:
            made = await asyncio.to_thread(grouped.audience, rights)
        else:
            made = grouped.audience(rights)
        return self._audiences.keep((policy, rights), made)

    def audience(self, policy: AccessPolicy, identity: Identity) -> Audience:
        """The audience of this caller. Worked out once for these rights under *policy*; a look-up from then on."""
        rights = policy.rights(identity)
        known = self._audiences.get((policy, rights))
        if known is None:
            grouped = self._grouped_by(policy)
            if grouped is None:
                grouped = self._grouped = GroupedCatalog(self.catalog, policy)
            known = self._audiences.keep((policy, rights), grouped.audience(rights))
        return known

    def find(self, tool_id: str, access: AccessPolicy, identity: Identity, *, for_app: bool = False) -> SelectableItem:
        """The tool, if it exists for this caller. *tool_id* may leave out the version and the hash, or be the tool's
        path, where that names one tool that the caller may see (CARD-34). *for_app*: also one that only apps may use,
        by its whole id. Raises HydrateFailed."""
        item = self.catalog.get(tool_id, for_app=for_app)
        if item is not None and not isinstance(access.decide(identity, item.names), Hidden):
            return item
        # Made of what this caller may see, so that a hidden tool and none are one answer.
        visible, named = self.audience(access, identity).visible, self.named(tool_id, access, identity)
        if len(named) == 1:
            return self.catalog.tools[named[0]]
        if named:
            reason = "Several tools have this name. Use the whole id of one of them."
            raise HydrateFailed(reason, path=tool_id, details={"did_you_mean": named[:MAX_NEAR]})
        near = near_ids(tool_id, self.catalog.tools, visible)
        details = {"did_you_mean": near} if near else None
        raise HydrateFailed("No such tool. Use tool_browse to find the ids of tools.", path=tool_id, details=details)

    def named(self, tool_id: str, access: AccessPolicy, identity: Identity) -> Sequence[ToolId]:
        """The tools that the caller may see, of those that *tool_id* names (``Catalog.named``)."""
        visible = self.audience(access, identity).visible
        return [each for each in self.catalog.named(tool_id) if visible is None or visible(each)]

    def hides(self, tool_id: str, access: AccessPolicy, identity: Identity) -> bool:
        """Returns true if *tool_id* names tools, and none that this caller may see. For the operator alone."""
        visible = self.audience(access, identity).visible
        named = [each for each in (tool_id, *self.catalog.named(tool_id)) if each in self.catalog.tools]
        return bool(named) and visible is not None and not any(map(visible, named))

    async def admit(self, item: SelectableItem, args: object, *, tolerant: bool) -> Admitted:
        """The arguments that would be sent. Raises ArgsInvalid or SchemaInvalid."""
        validator = self._validators.get(item.id) or await self._compiled(item)
        # A repair could still read arguments that fit in another way.
        if not tolerant and (admitted := validator.admit_plain(args)) is not None:
            return admitted
        if is_bulky_json(args):
            return await asyncio.to_thread(validator.admit, args, path=item.id, tolerant=tolerant)
        return validator.admit(args, path=item.id, tolerant=tolerant)

    async def expected(self, item: SelectableItem) -> Expected | None:
        """What is known of the arguments of a tool; None if its schema cannot be used."""
        try:
            return (self._validators.get(item.id) or await self._compiled(item)).expected
        except SchemaInvalid:
            return None

    def with_troubles(self, troubles: Mapping[str, str], catalog: Catalog | None = None) -> "Snapshot":
        """The same tools with other *troubles*, or in a *catalog* that finds them by other words; the compiled
        validators are kept."""
        catalog = catalog or self.catalog
        if troubles == self.troubles and catalog is self.catalog:
            return self
        other = Snapshot(catalog, self.listings, troubles, self.screened)
        other._validators = self._validators
        if catalog is self.catalog:
            other._audiences, other._grouped = self._audiences, self._grouped
        return other

    async def _compiled(self, item: SelectableItem) -> Validator:
        """Compiled at a tool's first use, kept as long as the snapshot. Raises SchemaInvalid."""
        if is_bulky_json(item.args_schema):
            validator = await asyncio.to_thread(compile_schema, item.args_schema, path=item.id)
        else:
            validator = compile_schema(item.args_schema, path=item.id)
        self._validators[item.id] = validator
        return validator
