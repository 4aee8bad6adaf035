"""Reasons, for an operator, why a tool is visible, hidden, denied, waits for approval, is quarantined or not found.

They never reach a client, because they say what exists.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wicketgate.access.identity import Identity
from wicketgate.access.policy import AccessPolicy, Allowed, Decision, Denied, Hidden, NeedsApproval
from wicketgate.catalog.catalog import Catalog
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
) -> tuple[bool, Sequence[str]]:
    """Returns True if *wanted* (an id, ``namespace:name`` or an upstream's own name) may be called, and the reasons.

    With *query*, the lines include its rank in a browse of these words. *screened* gives by upstream the tools that
    were held back, *declared* the tools that it listed.
    """
    # Tools of this name; without one, the reason why there is none.
    items = [item for item in catalog.items.values() if _is(wanted, item.id, item.upstream_name)]
    if not items:
        return False, list(_absent(catalog, wanted, screened or {}, declared or {}))
    # The decision on each, the rules behind it, and its rank.
    lines: list[str] = []
    usable = True
    for item in items:
        decision = access.decide(identity, item.namespace, item.name)
        usable = usable and not isinstance(decision, Hidden)
        lines.append(f"{item.id}: {_words(decision)}")
        lines += [f"  {line}" for line in _why(access, item, identity)]
        if query and not isinstance(decision, Hidden):
            lines.append(f"  {_rank(catalog, access, item, identity, query)}")
    return usable, lines


def _is(wanted: str, tool_id: str, upstream_name: str = "") -> bool:
    bare = tool_id.partition("#")[0]
    return wanted in (tool_id, bare, bare.partition("@")[0], upstream_name)


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
                yield f"{server}:{name}: quarantined for everybody: {held.explanation}"
                return
    # Left out by the catalog, or no tool.
    for tool_id, reason in catalog.quarantine.items():
        if _is(wanted, tool_id):
            yield f"{tool_id}: quarantined for everybody: {reason}"
            return
    for tool_id in catalog.subscriptions:
        if _is(wanted, tool_id):
            yield f"{tool_id}: left aside for everybody: a subscription, which no tool call can carry"
            return
    # Listed by its upstream, and not in the catalog.
    for server, tools in declared.items():
        for given in (tool.get("name") for tool in tools if isinstance(tool, Mapping)):
            if isinstance(given, str) and bare in (given, f"{server}:{given}"):
                yield (
                    f"{server}:{given}: hidden for everybody: {server} lists it, but a plugin leaves it out, or its "
                    "definition cannot be used (see wicketgate check)"
                )
                return
    # Unknown.
    yield f"{wanted}: no upstream lists a tool of this name, or the one that does is not connected"
    near = near_ids(wanted, catalog.items, None)
    if near:
        yield f"  did you mean {', '.join(near)}?"


def _why(access: AccessPolicy, item: SelectableItem, identity: Identity) -> Iterator[str]:
    base = f"tools:{item.namespace}:{item.name}"
    if not identity.allows(base):
        yield f"needs the permission {base}, which {identity.actor} does not hold"
        return
    yield f"{identity.actor} holds the permission {base}"
    steps = access.steps(identity, item.namespace, item.name)
    for step in steps:
        condition = f" when {step.when}" if step.when else ""
        # A hidden outcome names its rule already.
        reason = step.outcome.reason.removeprefix(f"{step.rule}: ") if isinstance(step.outcome, Hidden) else ""
        outcome = f"refused ({reason})" if reason else _words(step.outcome)
        yield f"{step.rule}{condition}: {outcome}"
    if not steps:
        yield "no rule of access is about it"
    elif steps[-1].when:
        yield "otherwise: visible"


def _words(decision: Decision) -> str:
    match decision:
        case Allowed():
            return "visible"
        case NeedsApproval():
            return "visible; each call needs approval"
        case Hidden(reason):
            return f"hidden: {reason}"
        case Denied(reason):
            return f"denied: {reason}"


def _rank(catalog: Catalog, access: AccessPolicy, item: SelectableItem, identity: Identity, query: str) -> str:
    tools = ((each.id, each.namespace, each.name) for each in catalog.items.values())
    visible = access.visible(access.rights(identity), tools).__contains__
    ranked = [tool_id for tool_id, _ in catalog.router.route(query, _RANKED, visible)]
    if item.id in ranked:
        return f"query {query!r}: place {ranked.index(item.id) + 1}"
    if len(ranked) == _RANKED:
        return f"query {query!r}: not among the first {_RANKED}"
    return f"query {query!r}: unranked, since no word of it is in the tool's name, description or arguments"
