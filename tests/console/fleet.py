"""The servers behind the gate that the browser is shown: ``python -ISE tests/console/fleet.py NAME``.

``shop`` has tools in clusters; ``refuse_order`` always fails, ``list_orders`` gives a long list, and ``add_tool`` adds
a tool and announces it. ``odd`` is as hostile as a server can be in texts. It imports little, as many are started.
"""

import json
import sys
from typing import Any

MARKUP = "<img src=x onerror=\"document.title='hacked'\"><script>document.title='hacked'</script><b>bold</b>"
BIDI = "\u202eevil\u202c \u2066hidden\u2069 \u200bwide\u200b"
ANSI = "\u001b[31mred\u001b[0m \u0007\u0000"
LONG = "x" * 100_000
HOSTILE = f"{MARKUP} {BIDI} {ANSI} {{{{constructor.constructor('document.title=1')()}}}} javascript:alert(1)"

ANY: dict[str, Any] = {"type": "object"}
ORDER = {
    "type": "object",
    "required": ["order_id"],
    "properties": {"order_id": {"type": "string", "description": "Such as ord_0007."}, "note": {"type": "string"}},
}


def tool(name: str, description: str = "", schema: dict[str, Any] = ANY, *, reads: bool = False) -> dict[str, Any]:
    words = description or f"{name.replace('_', ' ').capitalize()}."
    return {"name": name, "description": words, "inputSchema": schema, "annotations": {"readOnlyHint": reads}}


BILL = tool("pay_bill", "Pay a bill.")
SHOP = [
    tool("get_order", "Get one order by its id.", ORDER, reads=True),
    tool("list_orders", "List all orders, newest first.", reads=True),
    tool("cancel_order", "Cancel an order that was not sent.", ORDER),
    tool("refund_order", "Give the money of an order back.", ORDER),
    tool("refuse_order", "Refuse an order.", ORDER),
    *(tool(f"{verb}_invoice", reads=verb == "print") for verb in ("send", "print", "void", "mark")),
    *(tool(f"{verb}_customer", reads=verb == "find") for verb in ("add", "drop", "merge", "tag", "call", "find")),
    *(tool(f"{verb}_product", reads=verb == "rate") for verb in ("add", "drop", "merge", "tag", "name", "rate")),
    tool("add_tool", "Add a tool to the shop."),
    # Pinned without this argument: in quarantine.
    {**BILL, "inputSchema": {"type": "object", "required": ["amount"], "properties": {"amount": {"type": "number"}}}},
]
ODD = [
    {**tool("markup", HOSTILE), "title": HOSTILE},
    tool("long_line", f"A long line. {LONG}"),
    tool("hostile_result", "Give a hostile result."),
    tool("hostile_failure", "Fail with hostile words."),
    tool("n" * 128, "The longest name."),
    tool(
        "odd_schema", "Odd words in its schema.", {"type": "object", "properties": {MARKUP: {"description": HOSTILE}}}
    ),
]

tools = {"shop": SHOP, "odd": ODD}


def write(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def result(text: str, *, failed: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": failed}


def call(own: list[dict[str, Any]], name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    match name:
        case "list_orders":
            return result("\n".join(f"ord_{number:04} open, customer cust_{number % 70:04}" for number in range(3_000)))
        case "refuse_order":
            return result("this order cannot be refused", failed=True)
        case "hostile_result":
            return result(f"{HOSTILE}\n{LONG}\n{HOSTILE}")
        case "hostile_failure":
            return result(HOSTILE, failed=True)
        case "add_tool":
            own.append(tool(f"ship_parcel_{len(own)}"))
            write({"method": "notifications/tools/list_changed"})
    return result(f"{name}: {json.dumps(arguments)}")


def main() -> None:
    own = list(tools[sys.argv[1]])
    sys.stderr.write(f"{sys.argv[1]} is up. {HOSTILE}\n")
    sys.stderr.flush()
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        answer: dict[str, Any] = {"error": {"code": -32601, "message": "no such method"}}
        match message["method"]:
            case "initialize":
                said = {"capabilities": {"tools": {"listChanged": True}}, "serverInfo": {"name": "s", "version": "1"}}
                answer = {"result": {"protocolVersion": "2025-11-25", **said}}
            case "ping":
                answer = {"result": {}}
            case "tools/list":
                answer = {"result": {"tools": own}}
            case "tools/call":
                asked = message["params"]
                answer = {"result": call(own, asked["name"], asked.get("arguments") or {})}
        write({"id": message["id"], **answer})


if __name__ == "__main__":
    main()
