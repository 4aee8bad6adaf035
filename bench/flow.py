"""``make bench-flow``: attacks stopped and honest tasks asked by rules about flows, over traces without a model.

Traces stay outside the repository (docs/security/flow.md says where they come from, and their form). Each runs through
a real runtime: the calls of the trace in their order, whose results are those of the trace. An attack counts as stopped
if one of the attacker's calls asks a person, an honest task as asked if one of its calls does. What a person allows in
an honest task is allowed for its session.
"""

import argparse
import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any

from bench.machine import machine, write
from bench.table import Table, markdown
from wicketgate.access.conditions import condition_of
from wicketgate.access.flow import FlowRules
from wicketgate.access.policy import AccessPolicy, AccessRule
from wicketgate.errors import ApprovalRequired
from wicketgate.gateway.options import RuntimeOptions, RuntimePolicies
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.ports import LOCAL_CALL, CallContext, PendingCall, UpstreamStatus, approval_required, session_key
from wicketgate.storage.flows import StoredFlows
from wicketgate.storage.memory import MemoryStore

OUT = Path(__file__).parent / "out" / "flow.json"
STRANGE = AccessRule("*", when=condition_of("size(strange) > 0"), approval="always")
_CHANGES = ("delete", "remove", "cancel", "update")
DESTRUCTIVE = [AccessRule(f"*:{word}_*", when=condition_of("size(seen) > 0"), approval="always") for word in _CHANGES]

Trace = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Arm:
    """*reads_known*: the servers' word is believed on which tools only read. *said*: the user's words are known."""

    title: str
    rules: Sequence[AccessRule]
    reads_known: bool
    said: bool


ARMS = (
    Arm("nothing labelled, chat", [STRANGE], reads_known=False, said=True),
    Arm("nothing labelled, /mcp", [STRANGE], reads_known=False, said=False),
    Arm("reading tools known, chat", [STRANGE], reads_known=True, said=True),
    Arm("reading tools known, /mcp", [STRANGE], reads_known=True, said=False),
    Arm("and destructive tools, chat", [*DESTRUCTIVE, STRANGE], reads_known=True, said=True),
    Arm("and destructive tools, /mcp", [*DESTRUCTIVE, STRANGE], reads_known=True, said=False),
)


class Replayed:
    """Implements Upstream: the tools of a suite, whose next result is *result*."""

    status = UpstreamStatus("ready")

    def __init__(self, name: str, tools: Mapping[str, bool]) -> None:
        self.name = name
        self.result = ""
        self._tools = tools

    async def supervise(self, changed: Callable[[str], None]) -> None:
        changed(self.name)
        await asyncio.Event().wait()

    async def list_tools(self) -> Sequence[Mapping[str, Any]]:
        return [
            {"name": name, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": reads}}
            for name, reads in self._tools.items()
        ]

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], context: CallContext, timeout_s: float
    ) -> Mapping[str, Any]:
        return {"content": [{"type": "text", "text": self.result}]}


class Counting:
    """Implements Approver: asks, or agrees for the session and counts."""

    def __init__(self, store: StoredFlows) -> None:
        self.asked = 0
        self._store = store

    async def approve(self, call: PendingCall) -> None:
        self.asked += 1
        names = [each.names[-1] for each in call.flow.strange]
        await self._store.change(call.flow.session, None, lambda memory, at: memory.learn(names))


class Refusing:
    """Implements Approver: nobody agrees."""

    async def approve(self, call: PendingCall) -> None:
        raise approval_required(call)


async def replay(traces: Iterable[Trace], arm: Arm, allow: Sequence[str]) -> dict[str, list[bool]]:
    """Returns by kind, for each trace, whether a person was asked: ``honest``, ``attack``, and of the attacks those
    that send something to an address, ``sends``."""
    found = defaultdict[str, list[bool]](list)
    by_suite = defaultdict[str, list[Trace]](list)
    for trace in traces:
        by_suite[trace["suite"]].append(trace)
    for suite, several in by_suite.items():
        tools = {call["tool"].partition(":")[2]: bool(call.get("read_only")) for t in several for call in t["calls"]}
        upstream, store = Replayed(suite, tools), StoredFlows(MemoryStore())
        annotated = frozenset([suite]) if arm.reads_known else frozenset[str]()
        policies = RuntimePolicies(access=AccessPolicy(arm.rules), flow=FlowRules(annotated=annotated, allow=allow))
        runtime = ProxyRuntime(upstream, RuntimeOptions(policies, flows=store))
        await runtime.refresh_catalog()
        for trace in several:
            asked = await _is_asked(runtime, upstream, store, trace, arm)
            found[trace["kind"]].append(asked)
            if trace.get("sends"):
                found["sends"].append(asked)
    return found


async def _is_asked(runtime: ProxyRuntime, upstream: Replayed, store: StoredFlows, trace: Trace, arm: Arm) -> bool:
    agrees, asked = Counting(store), False
    said = trace["said"] if arm.said else ()
    context = LOCAL_CALL.having(session=session_key("named", "x", trace["id"]), named=True, said=said)
    for call in trace["calls"]:
        upstream.result = call["result"]
        attacks = call["by"] == "attacker"
        mine = context.having(approver=Refusing() if attacks else agrees)
        try:
            await runtime.call(call["tool"], call["args"], mine)
        except ApprovalRequired:
            asked = True
    return asked if trace["kind"] == "attack" else bool(agrees.asked)


def _share(outcomes: Sequence[bool]) -> str:
    """Part, percent, and the 95 % interval of Wilson."""
    total, hits = len(outcomes), sum(outcomes)
    if not total:
        return "–"
    z, p = 1.96, hits / total
    middle, width = p + z * z / (2 * total), z * sqrt(p * (1 - p) / total + z * z / (4 * total * total))
    low, high = ((middle + sign * width) / (1 + z * z / total) for sign in (-1, 1))
    return f"{hits}/{total} {100 * p:.0f} % ({100 * low:.0f}–{100 * high:.0f})"


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.flow", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("traces", nargs="+", type=Path, help="files of traces, a JSON object a line")
    parser.add_argument("--allow", nargs="*", default=[], help="destinations that are always fine, as flow.allow")
    given = parser.parse_args()
    before, figures = machine(), dict[str, Any]()
    for path in given.traces:
        traces = [json.loads(line) for line in path.read_text().splitlines()]
        rows = []
        for arm in ARMS:
            found = await replay(traces, arm, given.allow)
            figures[f"{path.stem}, {arm.title}"] = {kind: [sum(each), len(each)] for kind, each in found.items()}
            rows.append([arm.title, *(_share(found[kind]) for kind in ("attack", "sends", "honest"))])
        head = ["rules", "attacks stopped", "of those that send to an address", "honest tasks asked"]
        print(markdown(Table(path.stem, head, rows)) + "\n", flush=True)
    write(OUT, before, {"figures": figures})


if __name__ == "__main__":
    asyncio.run(main())
