"""The tokens that a model reads for one task: by calls, one a turn, and by a program (``python -m bench.programs``).

The task: read the orders of a page, look up the customer of each late one, and say how many there are by city. The
model is a script that makes no mistake. Each turn reads the definitions of the tools and the whole conversation; no
prompt cache, and finding the tools is not counted.
"""

import asyncio
import json
from typing import Any

from bench.table import Table, markdown
from wicketgate.faces.gateway import TOOLS, WITH_RUN
from wicketgate.faces.surface import SurfaceTool
from wicketgate.gate import Gate
from wicketgate.ports import LOCAL_CALL
from wicketgate.tokens import shipped_token_counter
from wicketgate.tools import ToolRegistry

_count = shipped_token_counter().count
_LATE = (1, 2, 4, 9, 19, 49)
_NOTE = "Left at the door of the neighbour, who was not at home either."
TASK = "How many late orders of page 1 are there in each city?"
PROGRAM = """late = [order for order in tool("orders:list_orders", page=1) if order["status"] == "late"]
cities = {}
for order in late:
    city = tool("orders:get_customer", id=order["customer"])["city"]
    cities[city] = cities.get(city, 0) + 1
cities"""


def orders(late: int) -> ToolRegistry:
    """Tools whose first page has 60 orders, of which *late* are late."""
    registry = ToolRegistry()

    @registry.tool(read_only=True)
    def list_orders(page: int) -> list[dict[str, Any]]:
        """List the orders of a page."""
        status = ["late"] * late + ["ok"] * (60 - late)
        return [{"id": each, "customer": each, "status": status[each], "note": _NOTE} for each in range(60)]

    @registry.tool(read_only=True)
    def get_customer(id: int) -> dict[str, Any]:
        """One customer."""
        city = ("Porto", "Gent", "Graz")[id % 3]
        return {"id": id, "name": f"Customer {id}", "city": city, "email": f"c{id}@example.org", "note": _NOTE}

    return registry


class Conversation:
    def __init__(self, tools: tuple[SurfaceTool, ...]) -> None:
        self._fixed = sum(_count(json.dumps([t.name, t.description, t.input_schema])) for t in tools)
        self._context = _count(TASK)
        self.turns = self.read = 0

    def turn(self, written: str = "", result: str = "") -> None:
        """One turn of the model, which reads everything before it, and what it adds."""
        self.turns += 1
        self.read += self._fixed + self._context
        self._context += _count(written) + _count(result)

    @property
    def end(self) -> int:
        return self._fixed + self._context


async def measured(late: int) -> tuple[Conversation, Conversation]:
    """Returns the conversations by calls and by a program; both have the same answer."""
    settings = {"code_mode": {"enabled": True}}
    async with Gate(settings, tools=orders(late)) as gate:
        by_calls, by_program = Conversation(TOOLS), Conversation(WITH_RUN)
        calls = [("orders:list_orders", {"page": 1})]
        calls += [("orders:get_customer", {"id": each}) for each in range(late)]
        for tool_id, args in calls:
            asked = {"tool_id": tool_id.replace("orders:", "local:"), "args": args}
            result = await gate.surface.call("tool_execute", asked, LOCAL_CALL)
            assert not result.is_error
            by_calls.turn(json.dumps(asked), result.shown)
        by_calls.turn()
        code = PROGRAM.replace("orders:", "local:")
        result = await gate.surface.call("tool_run", {"code": code}, LOCAL_CALL)
        assert sum(json.loads(result.shown).values()) == late
        by_program.turn(json.dumps({"code": PROGRAM}), result.shown)
        by_program.turn()
    return by_calls, by_program


async def table() -> Table:
    rows = []
    for late in _LATE:
        calls, program = await measured(late)
        read = f"{calls.read:,}", f"{program.read:,}"
        rows.append((str(late + 1), str(calls.turns), *read, f"{calls.end:,}", f"{program.end:,}"))
    head = ("calls", "turns by calls", "read by calls", "by a program, 2 turns", "context at the end", "by a program")
    definition = WITH_RUN[-1]
    tokens = _count(json.dumps([definition.name, definition.description, definition.input_schema]))
    return Table("Tokens that a model reads", head, rows, [f"tool_run has {tokens} tokens of definition"])


if __name__ == "__main__":
    print(markdown(asyncio.run(table())))
