"""The memory of what each session has read, for access rules that use it (ACCESS-260 to ACCESS-266)."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from wicketgate.access.destinations import Destination, destinations_in, requests_among, values_in
from wicketgate.access.flow import MEMORY_S, NO_FLOW, RENEWED, CallFlow, FlowRules, Place, SessionMemory, strange_among
from wicketgate.call_state import FlowStore
from wicketgate.catalog.selectable import SelectableItem
from wicketgate.catalog.tool_id import ToolNames, namespace_of, tool_names
from wicketgate.errors import NotRecorded
from wicketgate.ports import CallContext, owner_of
from wicketgate.results.firewall import is_bulky

_UNKNOWN = ("(not known)",)
_NOT_NOTED = "What this gave could not be noted for the rules of access, so it is withheld. A call may have been made."


class Flows:
    """Computes the flow of calls, and records what they read. Used only if a rule reads ``seen`` or ``strange``."""

    def __init__(self, store: FlowStore) -> None:
        self._store = store

    async def of_call(
        self, rules: FlowRules, item: SelectableItem, args: Mapping[str, Any], context: CallContext, *, writes: bool
    ) -> CallFlow:
        """Returns what rules may ask about a call with *args*. *writes* is false if the operator, or a hint that the
        operator trusts, declares the tool read-only. Then only URLs are destinations."""
        session = _session_of(context)
        memory, left_s = await self._store.read(session)
        seen = _UNKNOWN if memory is None else tuple(memory.seen)
        if not seen:
            return CallFlow(session)
        known = memory or SessionMemory()

        def find() -> list[Destination]:
            found = destinations_in(args, rules.names_in(item.names))
            if _only_urls(rules, item, writes=writes):
                found = requests_among(found)
            return strange_among(found, rules, known.knows, context.said)

        strange = await asyncio.to_thread(find) if is_bulky([args, context.said]) else find()
        places = {each.text: place for each in strange if (place := known.place_of(each)) is not None}
        lasting = memory if left_s > MEMORY_S * RENEWED else None
        hears = context.door == "chat" or bool(context.said)
        return CallFlow(session, seen, strange, places, unknown=memory is None, memory=lasting, hears=hears)

    async def read(
        self,
        rules: FlowRules,
        names: ToolNames,
        context: CallContext,
        result: Mapping[str, Any],
        args: Mapping[str, Any],
        *,
        writes: bool,
        flow: CallFlow = NO_FLOW,
        source: str = "",
    ) -> None:
        """Records a result before the caller gets it. *source* names a resource or prompt; otherwise the tool is
        recorded. Failures and tools that may write add no known destinations, because they repeat their arguments.

        Raises NotRecorded if the result of an untrusted source cannot be recorded.
        """
        trusted, tool = rules.trusts(names), source or f"{names[0][0]}:{names[0][1][0]}"
        if trusted and (writes or result.get("isError")):
            return
        find = partial(values_in, result, args if trusted else {})
        values = await asyncio.to_thread(find) if is_bulky(result) else find()
        if trusted and not values:
            return
        if not trusted and flow.memory is not None and flow.memory.holds(tool, values):
            return

        def note(memory: SessionMemory, at: float) -> bool:
            return memory.learn(values) if trusted else memory.read(Place(tool, at, context.correlation_id), values)

        if not await self._store.change(_session_of(context), MEMORY_S, note) and not trusted:
            raise NotRecorded(_NOT_NOTED)


def label(rules: FlowRules, item: SelectableItem, *, writes: bool) -> str:
    """Describes to the operator how flow rules treat *item*."""
    source = "an untrusted source"
    if rules.trusts(item.names):
        may_write = writes and item.side_effects
        source = "trusted, but it may write, so it names no destinations" if may_write else "a trusted source"
    asked = "only URLs" if _only_urls(rules, item, writes=writes) else "all destinations"
    return f"{source}; asks for {asked} in its arguments"


def names_of_server(server: str, offer: str) -> ToolNames:
    """Returns the names of a resource, prompt or completion. Only a pattern for all tools of the server trusts it."""
    return tool_names(namespace_of(server), offer)


def _only_urls(rules: FlowRules, item: SelectableItem, *, writes: bool) -> bool:
    """Returns True if the tool only reads, so that it sends data only to URLs. *writes* as for ``of_call``."""
    return not writes or (not item.side_effects and item.server in rules.annotated)


def _session_of(context: CallContext) -> str:
    """Returns the key of the session that the client named, or else of the actor."""
    return context.session if context.named else owner_of(context.session)
