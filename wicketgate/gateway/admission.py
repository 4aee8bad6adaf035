"""What stands between a request and its tool: is it there, do the arguments fit, may this call be made."""

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

from wicketgate.access.identity import Identity
from wicketgate.access.policy import AccessPolicy, Denied, Hidden, NeedsApproval
from wicketgate.catalog.near import near_ids
from wicketgate.catalog.selectable import SelectableItem
from wicketgate.catalog.tool_id import parse_tool_id
from wicketgate.errors import CatalogError, Forbidden, HydrateFailed
from wicketgate.gateway.snapshot import Snapshot
from wicketgate.schemas.validation import Admitted, Validator, compile_schema, is_bulky_json

log = logging.getLogger("wicketgate.runtime")


def find_item(snapshot: Snapshot, access: AccessPolicy, tool_id: str, identity: Identity) -> SelectableItem:
    """The tool, if it exists for this caller. Raises HydrateFailed."""
    item = snapshot.catalog.get(tool_id)
    if item is None or isinstance(access.decide(identity, item.namespace, item.name), Hidden):
        # Made of what this caller may see, so that a hidden tool and none are one answer.
        near = near_ids(tool_id, snapshot.catalog.items, snapshot.audience(access, identity).visible)
        details = {"did_you_mean": near} if near else None
        raise HydrateFailed("No such tool. Use tool_browse to find the ids of tools.", path=tool_id, details=details)
    return item


def may_view(access: AccessPolicy, handle: str, identity: Identity) -> bool:
    """A handle ``<kind>:<tool id>:<digest>`` is of use to whoever may use its tool: the same actor may hold narrower
    keys."""
    try:
        parts = parse_tool_id(handle.partition(":")[2].rpartition(":")[0])
    except CatalogError:
        return False
    return not isinstance(access.decide(identity, parts.namespace, parts.name), Hidden)


async def admit(snapshot: Snapshot, item: SelectableItem, args: object, *, tolerant: bool) -> Admitted:
    """The arguments that would be sent. Raises ArgsInvalid or SchemaInvalid."""
    validator = await _validator(snapshot, item)
    if is_bulky_json(args):
        return await asyncio.to_thread(validator.admit, args, path=item.id, tolerant=tolerant)
    return validator.admit(args, path=item.id, tolerant=tolerant)


async def needs_approval(
    access: AccessPolicy, item: SelectableItem, args: Mapping[str, Any], identity: Identity
) -> bool:
    """Decided on the arguments that would be sent. Raises Forbidden."""
    decide = partial(access.decide, identity, item.namespace, item.name, args)
    # Conditions read the arguments, which takes as long as these are large.
    match await asyncio.to_thread(decide) if access.rules and is_bulky_json(args) else decide():
        case Denied(reason) | Hidden(reason):
            log.warning("%s: refused: %s", item.id, reason)
            raise Forbidden("You may use this tool, but not with these arguments.", path=item.id)
        case NeedsApproval():
            return True
        case _:
            return False


async def _validator(snapshot: Snapshot, item: SelectableItem) -> Validator:
    """Compiled at a tool's first use, kept as long as the snapshot. Raises SchemaInvalid."""
    validator = snapshot.validators.get(item.id)
    if validator is None:
        if is_bulky_json(item.args_schema):
            validator = await asyncio.to_thread(compile_schema, item.args_schema, path=item.id)
        else:
            validator = compile_schema(item.args_schema, path=item.id)
        snapshot.validators[item.id] = validator
    return validator
