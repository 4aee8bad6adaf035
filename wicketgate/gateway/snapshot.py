"""The catalog in force with what is known about it: the listings that it was built of, the compiled validators, and the
tools that each audience may see."""

import asyncio
from collections.abc import Mapping, Sequence

import anyio

from wicketgate.access.identity import Identity
from wicketgate.access.policy import AccessPolicy, Hidden, Rights, ToolGroup
from wicketgate.catalog.catalog import Catalog
from wicketgate.catalog.pins import Screened
from wicketgate.catalog.selectable import SelectableItem
from wicketgate.catalog.tool_id import MAX_NEAR, ToolId, near_ids
from wicketgate.errors import HydrateFailed
from wicketgate.fleet.member import Listing
from wicketgate.gateway.audiences import Audience, Audiences
from wicketgate.schemas.validation import Admitted, Validator, compile_schema, is_bulky_json

LARGE = 500
"""Items of a catalog from which on work with all of them is done off the event loop."""


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
        self._grouped: tuple[AccessPolicy, Sequence[ToolGroup]] | None = None
        self._working_out = anyio.Lock()

    async def prepare(self, policy: AccessPolicy, identity: Identity, path: object) -> None:
        """Work out off the loop what takes long for a browse of *path*, or None: the audience of this caller in a large
        catalog, and its cards of ``/`` (BROWSE-40). ``audience`` is a look-up then."""
        if len(self.catalog.items) <= LARGE:
            return
        rights = policy.rights(identity)
        root = isinstance(path, str) and path in ("/", "/*")
        if self._knows(policy, rights, root=root):
            return
        # One at a time: callers of one audience come together after a refresh.
        async with self._working_out:
            if self._knows(policy, rights, root=root):
                return
            known = self._audiences.get((policy, rights))
            made = await asyncio.to_thread(self._work_out, policy, rights, known)
            made = self._audiences.keep((policy, rights), made)
            if root and not made.knows_root:
                await asyncio.to_thread(made.cards_at, ())

    def audience(self, policy: AccessPolicy, identity: Identity) -> Audience:
        """The audience of this caller. Worked out once for these rights under *policy*; a look-up from then on."""
        rights = policy.rights(identity)
        known = self._audiences.get((policy, rights))
        if known is None:
            known = self._audiences.keep((policy, rights), self._work_out(policy, rights))
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

    def _knows(self, policy: AccessPolicy, rights: Rights, *, root: bool) -> bool:
        known = self._audiences.get((policy, rights))
        return known is not None and (known.knows_root or not root)

    def _work_out(self, policy: AccessPolicy, rights: Rights, known: Audience | None = None) -> Audience:
        if known is not None:
            return known
        if rights.everything:
            return Audience(self.catalog, None)
        grouped = self._grouped
        if grouped is None or grouped[0] is not policy:
            catalog = self.catalog
            tools = ((item.id, item.names) for item in (*catalog.tools.values(), *catalog.app_tools.values()))
            grouped = self._grouped = policy, policy.grouped(tools)
        audience = Audience(self.catalog, policy.visible(rights, grouped[1]))
        # Worked out here, which may be a thread: its hash, too, is kept.
        hash(audience.ids)
        _ = audience.definition_chars
        return audience
