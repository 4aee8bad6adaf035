"""The library without a service: definitions, results, a session file and a prompt. Run it from the checkout:

.venv/bin/python examples/mcp_adapter_demo.py
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wicketgate import (
    CallContext,
    ContextManager,
    ItemKind,
    Phase,
    ProxyRuntime,
    StubUpstream,
    load_mcp_session_jsonl,
    make_choice_cards,
    mcp_result_to_envelope,
    mcp_tool_to_selectable,
)

SESSION = Path(__file__).with_name("data") / "mcp_session.jsonl"

TOOLS = [
    {
        "name": "invoices.search",
        "description": "Find invoices by their status.",
        "inputSchema": {
            "type": "object",
            "properties": {"status": {"type": "string", "enum": ["open", "paid"]}},
            "required": ["status"],
        },
        "annotations": {"readOnlyHint": True},
    },
    {
        "name": "invoices.remind",
        "description": "Send the customer of an invoice a reminder.",
        "inputSchema": {"type": "object", "properties": {"number": {"type": "string"}}, "required": ["number"]},
    },
    {
        "name": "weather.forecast",
        "description": "The weather of the next days in a city.",
        "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
]


async def answer(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
    """Stands in for a tool server. A list of invoices is long: it will not reach the prompt."""
    rows = [f"INV-{number},{arguments.get('status', 'open')}" for number in range(2041, 2541)]
    return {"content": [{"type": "text", "text": "\n".join(["number,status", *rows])}]}


def definitions_and_results() -> None:
    print("== Definitions become items and cards")
    items = [mcp_tool_to_selectable(tool) for tool in TOOLS]
    for card in make_choice_cards(items, scores={items[0].id: 0.9, items[2].id: 0.4}, max_cards=2):
        print(f"{card.id}: {card.description}")

    print("\n== A result becomes an envelope")
    result = {"content": [{"type": "text", "text": "2 invoices"}], "structuredContent": {"count": 2}}
    envelope, binaries, full_text = mcp_result_to_envelope(result, "invoices.search")
    print(envelope.status, envelope.summary, envelope.facts, sorted(binaries), len(full_text))


async def browse_execute_view() -> None:
    print("\n== Browse, execute, view")
    runtime = ProxyRuntime(StubUpstream(TOOLS, answer))
    await runtime.refresh_catalog()
    (best, *_) = (await runtime.browse_query("find open invoices")).cards
    executed = await runtime.execute(best.id, {"status": "open"})
    print(best.id, "->", executed.envelope.summary.splitlines()[0])
    (artifact,) = executed.envelope.artifacts
    view = await runtime.view(artifact.handle, {"type": "rows", "start": 498, "end": 500})
    print(f"{artifact.handle} has {view.total} rows, the last:", view.content.splitlines()[-1])


def session_and_prompt() -> None:
    print("\n== A session becomes a prompt")
    manager = ContextManager()
    for item in load_mcp_session_jsonl(SESSION):
        if item.kind == ItemKind.tool_result and len(item.text) > 2000:
            manager.ingest_tool_result(
                tool_call_id=item.parent_id or item.id, raw_output=item.text, tool_name="invoices.search"
            )
        else:
            manager.ingest(item)
    pack = manager.build_sync(phase=Phase.answer, query="invoice status", budget_tokens=300)
    print(pack.prompt)
    print(f"\n{pack.tokens} tokens; left out: {', '.join(pack.left_out)}")
    for artifact in pack.artifacts:
        view = manager.view(artifact.handle, {"type": "grep", "pattern": "INV-2050"})
        print(f"{artifact.handle}: {view.content}")


if __name__ == "__main__":
    definitions_and_results()
    asyncio.run(browse_execute_view())
    session_and_prompt()
