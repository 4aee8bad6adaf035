"""The cost of ``tool_execute`` itself: in process, over a stub upstream, whole and part by part."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import count, islice
from typing import Any

from app.metrics import Metrics
from bench.execute_upstream import SCHEMA, TOOL, text_of
from bench.table import NONE, figure, percentile, table
from wicketgate.access.identity import Identity
from wicketgate.faces.gateway import GatewayFace
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.ports import Artifact, CallContext
from wicketgate.results.bulk import utf8
from wicketgate.results.firewall import is_bulky, seal_result
from wicketgate.schemas.validation import compile_schema
from wicketgate.storage.artifacts import StoredArtifacts
from wicketgate.storage.memory import MemoryStore
from wicketgate.tokens import shipped_token_counter
from wicketgate.upstreams.embedded import StubUpstream

_CONTEXT = CallContext(Identity("bench", ("tools:*",)), "bench", "bench")
_DEFINITION = {"name": TOOL, "description": "Fill a page with text.", "inputSchema": SCHEMA}
ROUNDS = 5
_CALLS_CHARS = 2**25
_MAX_CALLS = 2_000

Work = Callable[[int], Awaitable[object]]
"""One call, told its number, which no other has."""


async def measure_parts(
    sizes: Mapping[str, int], callers: Sequence[int], rounds: int = ROUNDS, max_calls: int = _MAX_CALLS
) -> list[dict[str, Any]]:
    """One row an operation, size and number of callers at once; microseconds a call, medians over *rounds*."""
    rows = []
    numbers = count()
    for size, chars in sizes.items():
        calls = max(1, min(max_calls, _CALLS_CHARS // chars))
        works = await _works(chars)
        for at_once in callers:
            taken: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
            for each in range(rounds + 1):
                for name, work in works.items():
                    # The first round only warms up.
                    used = await _timed(work, calls if each else at_once, at_once, numbers)
                    if each:
                        taken[name].append(used)
            rows += [
                {
                    "size": size,
                    "callers": at_once,
                    "operation": name,
                    "cpu_us": percentile([cpu for cpu, _ in of], 50),
                    "wall_us": percentile([wall for _, wall in of], 50),
                }
                for name, of in taken.items()
            ]
    return rows


async def _works(chars: int) -> dict[str, Work]:
    """Each operation by its name, those of a call in the order in which it does them."""

    async def answer(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        return {"content": [{"type": "text", "text": text_of(**arguments)}], "isError": False}

    tokens = shipped_token_counter()
    stub = _Forgetful([_DEFINITION], answer)
    runtime = ProxyRuntime(stub, cache_stable=True)
    await runtime.refresh_catalog()
    (tool_id,) = runtime.catalog().items
    face = GatewayFace(runtime, meter=Metrics())
    validator = compile_schema(SCHEMA, path=tool_id)
    store = StoredArtifacts(MemoryStore())
    result = await answer(TOOL, {"number": 0, "chars": chars}, _CONTEXT)
    data = utf8(result["content"][0]["text"])

    def args(number: int) -> dict[str, Any]:
        return {"number": number, "chars": chars}

    async def direct(number: int) -> object:
        return await stub.call_tool(TOOL, args(number), _CONTEXT, 30)

    async def admit(number: int) -> object:
        return validator.admit_plain(args(number)) or validator.admit(args(number), path=tool_id, tolerant=False)

    async def weigh(number: int) -> object:
        return is_bulky(result)

    async def seal(number: int) -> object:
        return seal_result(result, tool_id, TOOL, tokens)

    async def thread(number: int) -> object:
        return await asyncio.to_thread(int)

    async def put(number: int) -> object:
        return await store.put("bench", Artifact(f"text:{number}", "text/plain", "full text", data))

    async def execute(number: int) -> object:
        return await runtime.execute(tool_id, args(number), _CONTEXT)

    async def tool_execute(number: int) -> object:
        done = await face.call("tool_execute", {"tool_id": tool_id, "args": args(number)}, _CONTEXT)
        if done.structured.get("status") != "ok":
            raise RuntimeError(f"tool_execute failed: {done.text:.300}")
        return done

    works: dict[str, Work] = {"direct": direct, "validate": admit, "weigh": weigh, "seal": seal}
    if is_bulky(result):
        works["hop to a thread"] = thread
    return {**works, "store": put, "runtime.execute": execute, "face.call": tool_execute}


class _Forgetful(StubUpstream):
    """The stub without its list of calls, which would grow with the benchmark."""

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], context: CallContext, timeout_s: float
    ) -> Mapping[str, Any]:
        try:
            return await super().call_tool(name, arguments, context, timeout_s)
        finally:
            self.calls.clear()


async def _timed(work: Work, calls: int, at_once: int, numbers: Iterator[int]) -> tuple[float, float]:
    """CPU and wall microseconds a call, all threads counted."""
    mine = iter(list(islice(numbers, calls)))

    async def caller() -> None:
        for number in mine:
            await work(number)

    cpu, wall = time.process_time(), time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(at_once)))
    return (time.process_time() - cpu) / calls * 1e6, (time.perf_counter() - wall) / calls * 1e6


def shown_parts(rows: Sequence[Mapping[str, Any]]) -> str:
    """An operation a line, a size and number of callers a column."""
    columns = list(dict.fromkeys((row["size"], row["callers"]) for row in rows))
    cells = {(row["operation"], row["size"], row["callers"]): row["cpu_us"] for row in rows}
    operations = list(dict.fromkeys(row["operation"] for row in rows))
    return table(
        ["", *(f"{size}, {callers}" for size, callers in columns)],
        [
            [name, *(figure(cells[name, *at]) if (name, *at) in cells else NONE for at in columns)]
            for name in operations
        ],
    )
