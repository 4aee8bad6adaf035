"""Reasons, for an operator, why a tool is visible, hidden, denied, waits for approval, is quarantined or not found.

They never reach a client, because they say what exists.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from wicketgate.access.identity import Identity
from wicketgate.access.policy import AccessPolicy, Allowed, Decision, Denied, Hidden, NeedsApproval
from wicketgate.catalog.catalog import Catalog
from wicketgate.catalog.learned_words import Learned, words_to_learn
from wicketgate.catalog.pins import Screened
from wicketgate.catalog.selectable import SelectableItem
from wicketgate.catalog.tool_id import near_ids

_RANKED = 50


def explain(
    catalog: Catalog,
    access: AccessPolicy,
    wanted: str,
    identity: Identity,
    query: str = "",
    screened: Mapping[str, Screened] | None = None,
    declared: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    learned: Learned | None = None,
    flow_label: Callable[[SelectableItem], str] = lambda item: "",
) -> tuple[bool, Sequence[str]]:
    """Returns True if *wanted* (an id, ``namespace:name`` or an upstream's own name) may be called, and the reasons.

    With *query*, the lines include its rank in a browse of these words. *screened* gives by upstream the tools that
    were held back, *declared* the tools that it listed. *learned* words rank for this caller too. *flow_label*
    describes how flow rules treat a tool.
    """
    # Tools of this name; without one, the reason why there is none.
    items = [item for item in catalog.tools.values() if _is(wanted, item)]
    if not items:
        return False, list(_absent(catalog, wanted, screened or {}, declared or {}))
    # The decision on each, the rules behind it, and its rank.
    lines: list[str] = []
    usable = True
    for item in items:
        decision = access.decide(identity, item.names)
        usable = usable and not isinstance(decision, Hidden)
        lines.append(f"{item.id}: {_words(decision)}")
        lines += [f"  {line}" for line in _why(access, item, identity)]
        if flow := flow_label(item):
            lines.append(f"  flow: {flow}")
        if item.id in catalog.quarantine:
            lines.append(f"  not browsed, only called, by anybody: {catalog.quarantine[item.id]}")
        if query and not isinstance(decision, Hidden):
            lines.append(f"  {_rank(catalog, access, item, identity, query, learned)}")
            lines += [f"  {line}" for line in _learned(learned, item, query)]
    return usable, lines


def _is(wanted: str, item: SelectableItem) -> bool:
    names = (f"{namespace}:{name}" for namespace, own in item.names for name in own)
    return wanted == item.upstream_name or wanted in names or _is_id(wanted, item.id)


def _is_id(wanted: str, tool_id: str) -> bool:
    bare = tool_id.partition("#")[0]
    return wanted in (tool_id, bare, bare.partition("@")[0])


def _absent(
    catalog: Catalog,
    wanted: str,
    screened: Mapping[str, Screened],
    declared: Mapping[str, Sequence[Mapping[str, Any]]],
) -> Iterator[str]:
    bare = wanted.partition("#")[0].partition("@")[0]
    # Held back by pins.
    for server, screen in screened.items():
        for name, held in screen.held.items():
            if bare in (name, f"{server}:{name}"):
                yield f"{server}:{name}: quarantined for all callers: {held.explanation}"
                return
    # Left out by the catalog, or no tool.
    for tool_id in catalog.subscriptions:
        if _is_id(wanted, tool_id):
            yield f"{tool_id}: not callable: a subscription, whose answers are a stream"
            return
    for app_tool in catalog.app_tools:
        if _is_id(wanted, app_tool):
            yield f"{app_tool}: hidden from models: its server keeps it for pages of MCP Apps (namespaced face only)"
            return
    # Listed by its upstream, and not in the catalog.
    for server, tools in declared.items():
        for given in (tool.get("name") for tool in tools if isinstance(tool, Mapping)):
            if isinstance(given, str) and bare in (given, f"{server}:{given}"):
                yield (
                    f"{server}:{given}: hidden from all callers: {server} lists it, but a plugin removes it, or its "
                    "definition cannot be used (see wicketgate check)"
                )
                return
    # Unknown.
    yield f"{wanted}: no upstream lists a tool of this name, or the one that does is not connected"
    near = near_ids(wanted, catalog.tools, None)
    if near:
        yield f"  did you mean {', '.join(near)}?"


def _why(access: AccessPolicy, item: SelectableItem, identity: Identity) -> Iterator[str]:
    for namespace, own in item.names:
        permission = f"tools:{namespace}:{own[0]}"
        if not identity.allows(permission):
            yield f"needs the permission {permission}, which {identity.actor} does not hold"
            return
        yield f"{identity.actor} holds the permission {permission}"
    default = _words(access.decision_without_rules)
    steps = access.steps(identity, item.names)
    names = {step.name for step in steps}
    plain = names <= {f"{item.namespace}:{item.name}"}
    # A tool whose names meet different rules has a series of steps for each; the strictest outcome counts.
    for name, of_name in groupby(steps, lambda step: step.name):
        shown, last = "" if plain else f"as {name}: ", ""
        for step in of_name:
            condition, last = f" when {step.when}" if step.when else "", step.when
            # A hidden outcome names its rule already.
            reason = step.outcome.reason.removeprefix(f"{step.rule}: ") if isinstance(step.outcome, Hidden) else ""
            outcome = f"refused ({reason})" if reason else _words(step.outcome)
            yield f"{shown}{step.rule}{condition}: {outcome}"
        if last:
            yield f"{shown}otherwise: {default}"
    if len(names) > 1:
        yield "the strictest of these counts"
    if not steps:
        yield "no access rule matches it" if default == "visible" else f"no access rule matches it: {default}"


def _words(decision: Decision) -> str:
    match decision:
        case Allowed():
            return "visible"
        case NeedsApproval() as asks:
            return f"visible; each call needs {asks}"
        case Hidden(reason):
            return f"hidden: {reason}"
        case Denied(reason):
            return f"denied: {reason}"


def _learned(learned: Learned | None, item: SelectableItem, query: str) -> Iterator[str]:
    found = [word for word in words_to_learn(query) if learned is not None and item.id in learned.weights(word)]
    if found:
        yield f"learned from executions: {', '.join(found)}"


def _rank(
    catalog: Catalog,
    access: AccessPolicy,
    item: SelectableItem,
    identity: Identity,
    query: str,
    learned: Learned | None,
) -> str:
    tools = ((each.id, each.names) for each in catalog.tools.values())
    visible = access.seen(access.rights(identity), access.grouped(tools)).test()
    ranked = [tool_id for tool_id, _ in catalog.router.route(query, _RANKED, visible, learned=learned)]
    if item.id in ranked:
        return f"query {query!r}: place {ranked.index(item.id) + 1}"
    if item.id in catalog.quarantine:
        return f"query {query!r}: not ranked, because it has no card"
    if len(ranked) == _RANKED:
        return f"query {query!r}: not among the first {_RANKED}"
    return f"query {query!r}: not ranked, because none of its words is in the tool's name, description or arguments"
