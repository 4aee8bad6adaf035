"""Tokens that a model reads of results: ``make bench-results`` (docs/benchmarks.md).

Each call runs once at the servers of the demo. *raw* is the text that the server sent, or its structured content if it
sent no text; *page* is what a model is shown through ``tool_execute``, and *json* what a program gets.
"""

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.table import Table, markdown
from examples.demo import CONFIG, shop
from wicketgate.access.identity import LOCAL
from wicketgate.config.settings_file import load_settings
from wicketgate.faces.surface import SurfaceResult
from wicketgate.gate import Gate
from wicketgate.ports import CallContext
from wicketgate.results.bulk import json_bytes
from wicketgate.tokens import shipped_token_counter

SMALL = 400
"""The sum covers results of at most this many tokens."""

_TOKYO = {"timezone": "Asia/Tokyo"}
_HERE = {"repo_path": "."}
CALLS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("time:get_current_time", _TOKYO),
    ("time:get_current_time", {"timezone": "Europe/Berlin"}),
    ("time:convert_time", {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}),
    ("time:convert_time", {"source_timezone": "UTC", "time": "99:00", "target_timezone": "Asia/Tokyo"}),
    ("git:git_status", _HERE),
    ("git:git_branch", {**_HERE, "branch_type": "local"}),
    ("git:git_log", {**_HERE, "max_count": 1}),
    ("git:git_log", {**_HERE, "max_count": 5}),
    ("git:git_diff_unstaged", _HERE),
    ("git:git_show", {**_HERE, "revision": "HEAD~3"}),
    ("shop:get_order", {"order_id": "ord_0012"}),
    ("shop:get_customer", {"customer_id": "cust_0007"}),
    ("shop:get_customer", {"customer_id": "cust_9999"}),
    ("shop:list_customer_orders", {"customer_id": "cust_0007"}),
    ("shop:get_inventory", {"product_id": "prod_0003"}),
    ("shop:get_product", {"product_id": "prod_0003"}),
    ("shop:count_orders", {}),
    ("shop:list_shipment_carriers", {}),
    ("shop:export_orders", {}),
)


async def measure() -> list[tuple[str, int, int, int]]:
    """Returns tool, raw, page and JSON tokens of each call that the catalog has a tool for."""
    count = shipped_token_counter().count
    rows: list[tuple[str, int, int, int]] = []
    gate = Gate(load_settings(CONFIG))
    namespaced = gate.faces["namespaced"].surface
    async with gate:
        await gate.wait_ready()
        for tool, arguments in CALLS:
            context = CallContext(LOCAL, "bench", "bench")
            own = await namespaced.call(tool.replace(":", "__"), arguments, context)
            shown = await gate.surface.call("tool_execute", {"tool_id": tool, "args": dict(arguments)}, context)
            if "error" not in shown.structured:
                rows.append((tool, count(raw(own)), count(shown.shown), count(shown.text)))
    return rows


def raw(result: SurfaceResult) -> str:
    """The text of a server's own result."""
    assert result.as_it_came is not None
    texts = [part["text"] for part in result.as_it_came.get("content", ()) if part.get("type") == "text"]
    structured = result.as_it_came.get("structuredContent")
    return "\n".join(texts) if texts or structured is None else (json_bytes(structured) or b"").decode()


def main() -> None:
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    with shop() as url:
        os.environ["SHOP_URL"] = url
        rows = asyncio.run(measure())
    small = [row for row in rows if row[1] <= SMALL]
    worst = max(page - own for _, own, page, _ in small)
    sums = [sum(column) for column in zip(*(row[1:] for row in small), strict=True)]
    cells = [[str(cell) for cell in row] for row in (*rows, (f"{len(small)} of at most {SMALL} tokens, in sum", *sums))]
    note = f"The page of a result of at most {SMALL} tokens costs at most {worst:+} tokens more than the raw result."
    print(markdown(Table("Tokens of results", ("result", "raw", "page", "json"), cells, (note,))))


if __name__ == "__main__":
    main()
