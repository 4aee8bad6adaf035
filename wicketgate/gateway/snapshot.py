"""The state in force at one moment: a catalog, its listings, compiled validators, and what each audience may see.

A call works on the snapshot that was in force when it began.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from wicketgate.access.identity import Identity
from wicketgate.access.policy import AccessPolicy, Hidden, Rights
from wicketgate.catalog.catalog import Catalog
from wicketgate.catalog.pins import Screened
from wicketgate.catalog.selectable import SelectableItem
from wicketgate.catalog.tool_id import near_ids
from wicketgate.errors import HydrateFailed
from wicketgate.fleet.multiplex import Listing
from wicketgate.schemas.validation import Admitted, Validator, compile_schema, is_bulky_json

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
