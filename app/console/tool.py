"""One tool as the console shows it: card, definition, pin, policy, its last calls; and the tools that are quarantined
(OPS-230, OPS-231).

It runs by the caller's own permissions, like any other call (OPS-232, OPS-233).
"""

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from time import perf_counter
from typing import Any, NamedTuple

from app.console.live import call_news
from wicketgate.access.identity import Identity
from wicketgate.catalog.card import render_card
from wicketgate.catalog.definition_change import compact_json, digest_or_nothing
from wicketgate.catalog.pins import Held, address_of
from wicketgate.catalog.selectable import SelectableItem
from wicketgate.errors import GatewayError, HydrateFailed, UpstreamUnavailable
from wicketgate.faces.long_calls import execution_result
from wicketgate.faces.meta_tool import CONNECTING, dry_run_result, failure, json_result
from wicketgate.gate import Gate
from wicketgate.gateway.calls import CalledTool, DryRun
from wicketgate.gateway.explain import explain
from wicketgate.ports import CallContext
from wicketgate.results.firewall import is_bulky
from wicketgate.tokens import estimate_tokens

MOST_HELD = 200
_MOST_CHARS = 256 * 1024
"""Of one value, such as a definition, as JSON: a larger one is left out."""
_MOST_RECENT = 20
_MOST_KEYS = 200
_MOST_EXAMPLES = 20
_ABOUT_CHARS = 2_000


def whole_tool(
    gate: Gate,
    tool_id: str,
    context: CallContext,
    key: str = "",
    of: Identity | None = None,
    *,
    everything: bool,
    may_accept: bool,
) -> Mapping[str, Any]:
    """All that is known of the tool, if it exists for this caller. *everything*: also of a tool that does not; its pin;
    and why *of*, the holder of *key*, or the caller may use it. Raises HydrateFailed."""
    runtime = gate.runtime
    catalog, visible = runtime.catalog(), runtime.visible(context)
    hidden = everything and tool_id in catalog.tools and visible is not None and not visible(tool_id)
    whole = tool_id if hidden else runtime.whole_id(tool_id, context)
    item = catalog.get(whole)
    if item is None:
        raise HydrateFailed("No tool has this id.", path=tool_id)
    line = render_card(catalog.card(whole)) if whole in catalog.items else ""
    facts = catalog.hydrate(whole)
    of_tool = gate.records.traffic.tool(whole)
    recent = list(islice(_recent(gate, whole, None if everything else context.identity.actor), _MOST_RECENT))
    return {
        "id": whole,
        "name": item.name,
        "namespace": item.namespace,
        "upstream": item.server,
        "upstream_name": item.upstream_name,
        "path": catalog.graph.path_of(whole) if whole in catalog.items else "",
        "kind": item.kind,
        "hidden": hidden,
        "title": item.title or "",
        "description": item.description[: _ABOUT_CHARS * 10],
        "writes": item.side_effects,
        "no_card": catalog.quarantine.get(whole, ""),
        "card": {"text": line, "tokens": runtime.tokens.count(line) if line else 0},
        "definition_tokens": estimate_tokens(catalog.chars_of(whole)),
        "input_schema": bounded(dict(facts.args_schema)),
        "output_schema": bounded(facts.output_schema and dict(facts.output_schema)),
        "annotations": bounded(item.definition.get("annotations")),
        "examples": bounded(list(facts.examples[:_MOST_EXAMPLES])),
        "definition": bounded(dict(item.definition)),
        "traffic": (of_tool.calls, of_tool.failed, of_tool.median_ms) if everything else None,
        "recent": recent,
        "pin": _pin(gate, item, may_accept=may_accept) if everything else None,
        "policy": _policy(gate, whole, context, key, of) if everything else None,
    }


def bounded(value: Any) -> Any:
    """*value*, or None if it is too large to be shown."""
    if value is None:
        return None
    try:
        return value if len(compact_json(value)) <= _MOST_CHARS else None
    except (ValueError, RecursionError):
        return None


def _recent(gate: Gate, tool_id: str, actor: str | None) -> Iterator[Mapping[str, Any]]:
    for kept in gate.records.traffic.records():
        record = kept.record
        if record.operation == "execute" and record.tool_id == tool_id and actor in (None, record.actor):
            yield call_news(record)


def _pin(gate: Gate, item: SelectableItem, *, may_accept: bool) -> dict[str, Any]:
    """The accepted definition beside the one in use. Those in use are as they were accepted, or were never held."""
    policy = gate.runtime.pins()
    pinned = (policy.pins or {}).get(item.server, {}).get(item.upstream_name)
    screened = gate.runtime.screened().get(item.server)
    signs = screened.flagged.get(item.upstream_name, ()) if screened else ()
    state = "suspicious" if signs else "accepted" if pinned else "none" if policy.pins is None else "new"
    definition = _declared_by_name(gate, (item.server,))[item.server].get(item.upstream_name)
    return {
        "state": state,
        "signs": list(signs),
        "trusted": bool(pinned and pinned.trusted),
        "file": policy.pins is not None,
        "digest": digest_or_nothing(definition) if definition is not None else "",
        "may_accept": may_accept and policy.pins is not None and state in ("new", "suspicious"),
    }


def _policy(gate: Gate, tool_id: str, context: CallContext, key: str, of: Identity | None) -> dict[str, Any]:
    """The policy on the tool for *of*, otherwise the holder of *key*; of an unknown one, for the caller. Raises
    HydrateFailed."""
    keys = [each for each in gate.keys.accepted() if not each.suspended]
    identity = of or next((each.identity for each in keys if key and each.id == key), context.identity)
    runtime = gate.runtime
    usable, lines = explain(
        runtime.catalog(),
        runtime.access,
        tool_id,
        identity,
        "",
        runtime.screened(),
        runtime.declared(),
        flow_label=runtime.flow_label,
    )
    return {
        "key": identity.key_id,
        "actor": identity.actor,
        "usable": usable,
        "lines": list(lines),
        "keys": [{"id": each.id, "actor": each.identity.actor} for each in keys[:_MOST_KEYS]],
    }


async def held_tools(gate: Gate, wanted: str = "", *, may_accept: bool) -> Mapping[str, Any]:
    """The tools and other offers that are quarantined or suspicious, with the reasons; at most MOST_HELD.

    *wanted*: one of them, as ``source:name``, with its definition.
    """
    found = [each for each in _held(gate) if not wanted or f"{each.source}:{each.name}" == wanted]
    rows = await asyncio.to_thread(_rows, gate, found[:MOST_HELD], may_accept=may_accept, whole=bool(wanted))
    return {"held": rows, "more": max(0, len(found) - MOST_HELD)}


class _Screened(NamedTuple):
    """A tool or another offer. *held* is None for a suspicious one that is in use."""

    source: str
    name: str
    held: Held | None
    signs: tuple[str, ...]


def _held(gate: Gate) -> Iterator[_Screened]:
    for source, screened in sorted(gate.runtime.screened().items()):
        for name, held in sorted(screened.held.items()):
            yield _Screened(source, name, held, screened.flagged.get(name, ()))
        for name, signs in sorted(screened.flagged.items()):
            if name not in screened.held:
                yield _Screened(source, name, None, signs)


def _rows(gate: Gate, told: Sequence[_Screened], *, may_accept: bool, whole: bool) -> list[dict[str, Any]]:
    pinned, declared = gate.runtime.pins().pins is not None, _declared_by_name(gate, {each.source for each in told})
    found = []
    for source, name, held, signs in told:
        definition = declared[source].get(name)
        change = held.change if held else None
        about = definition.get("description") if definition else None
        found.append(
            {
                "source": source,
                "name": name,
                "held": held is not None,
                "reason": held.reason if held else "suspicious",
                "explanation": held.explanation if held else "; ".join(signs),
                "impact": change.impact if change else None,
                "diff": list(change.lines) if change else [],
                "signs": list(signs),
                "about": about[:_ABOUT_CHARS] if isinstance(about, str) else "",
                "digest": digest_or_nothing(definition) if definition is not None else "",
                "may_accept": may_accept and pinned and definition is not None,
                "definition": bounded(definition) if whole else None,
            }
        )
    return found


def _declared_by_name(gate: Gate, sources: Collection[str]) -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    """Definitions as their upstreams gave them; none of offers that are no tools, which are not kept. Of several tools
    of one name, the first."""
    listings = gate.runtime.declared()
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for source in sources:
        address, by_name = address_of(source), found.setdefault(source, {})
        for definition in listings.get(source, ()):
            name = definition.get(address) if isinstance(definition, Mapping) else None
            if isinstance(name, str):
                by_name.setdefault(name, definition)
    return found


async def run_tool(gate: Gate, tool_id: str, args: object, context: CallContext, *, dry_run: bool) -> Mapping[str, Any]:
    """The envelope, or the failure in its place, as ``tool_execute`` gives them, with what was sent to the server and
    what came back."""
    made: list[CalledTool] = []
    began = perf_counter()
    try:
        if not gate.lifecycle.started():
            raise UpstreamUnavailable(CONNECTING)
        await gate.runtime.browsing.prepare(context)
        ended = await gate.runtime.execute(tool_id, args, context, dry_run=dry_run, show=made.append)
        result = dry_run_result(ended) if isinstance(ended, DryRun) else execution_result(ended)
    except GatewayError as error:
        result = failure(error)
    took = perf_counter() - began
    call = made[0] if made else None
    return {
        "is_error": result.is_error,
        "envelope": result.structured,
        "text": result.shown,
        "tokens": gate.runtime.tokens.count(result.shown),
        "request": call and bounded({"name": call.item.upstream_name, "arguments": dict(call.args)}),
        "response": await _response(call),
        "called": call is not None,
        "duration_ms": round(took * 1_000, 3),
        "correlation_id": context.correlation_id,
    }


async def _response(call: CalledTool | None) -> Any:
    if call is None:
        return None
    result = dict(call.result)
    return await asyncio.to_thread(bounded, result) if is_bulky(result) else bounded(result)


async def view_part(gate: Gate, handle: str, selector: object, context: CallContext) -> Mapping[str, Any]:
    """A part of an artifact, as ``tool_view`` gives it; pictures and sounds only as what they are."""
    try:
        view = await gate.runtime.view(handle, selector, context)
    except GatewayError as error:
        result = failure(error)
    else:
        body = {"handle": handle, "selector": selector, "content": view.content, "total": view.total}
        result = json_result(body if view.next is None else {**body, "next": view.next})
    return {"is_error": result.is_error, "view": result.structured, "text": result.shown}
