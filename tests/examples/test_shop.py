import csv
import io
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from jsonschema import Draft202012Validator
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, TextContent

from examples.shop.server import make_server
from examples.shop.stock import make_shop
from tests.support.requirement import requirement

ROOT = Path(__file__).resolve().parents[2]
BOUND_S = 30.0


@pytest.fixture
async def shop() -> AsyncIterator[Client]:
    async with Client(make_server(make_shop())) as client:
        yield client


def text_of(result: CallToolResult) -> str:
    [block] = result.content
    assert isinstance(block, TextContent)
    return block.text


async def call(shop: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await shop.call_tool(tool, arguments)
    assert not result.is_error, text_of(result)
    assert isinstance(result.structured_content, dict)
    return result.structured_content


async def refusal(shop: Client, tool: str, **arguments: Any) -> str:
    result = await shop.call_tool(tool, arguments)
    assert result.is_error
    return text_of(result)


async def test_some_seventy_tools_stand_in_clusters_of_several(shop: Client) -> None:
    names = [tool.name for tool in (await shop.list_tools()).tools]
    nouns = ("order", "customer", "product", "inventory", "shipment", "return", "invoice", "supplier", "report")
    clusters = Counter(noun for name in names for noun in nouns if noun in name.split("_")[1].rstrip("s") + name)
    assert 60 <= len(names) == len(set(names)) <= 80
    assert all(clusters[noun] >= 5 for noun in nouns), clusters


async def test_every_schema_is_closed_valid_and_of_an_object(shop: Client) -> None:
    for tool in (await shop.list_tools()).tools:
        Draft202012Validator.check_schema(tool.input_schema)
        assert tool.input_schema["type"] == "object", tool.name
        assert tool.input_schema["additionalProperties"] is False, tool.name
        assert tool.description, tool.name
        assert tool.output_schema is None or tool.output_schema["type"] == "object", tool.name


async def test_every_required_argument_that_is_an_id_shows_an_example_that_fits(shop: Client) -> None:
    shown = 0
    for tool in (await shop.list_tools()).tools:
        for name in tool.input_schema.get("required", []):
            schema = tool.input_schema["properties"][name]
            if name.endswith("_id"):
                shown += 1
                assert schema["description"], tool.name
                Draft202012Validator(schema).validate(schema["examples"][0])
    assert shown > 20


async def test_hints_say_which_tools_only_read_and_which_destroy(shop: Client) -> None:
    hints = {tool.name: tool.annotations for tool in (await shop.list_tools()).tools}
    for name, hint in hints.items():
        assert hint is not None, name
        reads = name.startswith(("list_", "get_", "search_", "export_", "count_", "report_", "check_"))
        assert hint.read_only_hint is (reads or name.startswith(("find_", "compare_"))), name
        if name.startswith(("cancel_", "delete_", "remove_")):
            assert hint.destructive_hint is True, name


async def test_no_tool_that_only_reads_changes_anything() -> None:
    state, untouched = make_shop(), make_shop()
    async with Client(make_server(state)) as shop:
        for tool in (await shop.list_tools()).tools:
            if tool.annotations is not None and tool.annotations.read_only_hint:
                properties: Mapping[str, Any] = tool.input_schema["properties"]
                given = {
                    name: properties[name].get("examples", ["ada"])[0] for name in tool.input_schema.get("required", [])
                }
                result = await shop.call_tool(tool.name, given)
                assert not result.is_error, (tool.name, text_of(result))
    assert state == untouched


async def test_two_starts_show_the_same_shop() -> None:
    assert make_shop() == make_shop()


async def test_the_first_data_holds_together() -> None:
    shop = make_shop()
    for order in shop.orders.values():
        assert order.customer_id in shop.customers
        assert order.total_cents == sum(item.quantity * item.unit_price_cents for item in order.items)
        assert all(item.product_id in shop.products for item in order.items)
    assert {shipment.order_id for shipment in shop.shipments.values()} <= set(shop.orders)
    assert {one.order_id for one in shop.returns.values()} <= set(shop.orders)
    assert all(product.supplier_id in shop.suppliers for product in shop.products.values())
    assert all(pieces >= 0 for pieces in shop.stock.values())


async def test_cancelling_an_order_is_seen_afterwards_and_works_only_once(shop: Client) -> None:
    before = await call(shop, "get_order", order_id="ord_0012")
    product = before["items"][0]["product_id"]
    pieces = (await call(shop, "get_inventory", product_id=product))["by_warehouse"]["north"]

    cancelled = await call(shop, "cancel_order", order_id="ord_0012")

    assert (before["status"], cancelled["status"]) == ("paid", "cancelled")
    assert await call(shop, "get_order", order_id="ord_0012") == cancelled
    after = (await call(shop, "get_inventory", product_id=product))["by_warehouse"]["north"]
    assert after == pieces + before["items"][0]["quantity"]
    assert "ord_0012 is cancelled" in await refusal(shop, "cancel_order", order_id="ord_0012")


async def test_a_new_order_is_the_newest_of_its_customer_and_takes_its_pieces(shop: Client) -> None:
    stock = await call(shop, "get_inventory", product_id="prod_0001")
    order = await call(shop, "create_order", customer_id="cust_0007", product_id="prod_0001", quantity=2)
    listed = await call(shop, "list_customer_orders", customer_id="cust_0007", limit=1)
    assert listed["orders"][0]["id"] == order["id"] == "ord_1501"
    assert (await call(shop, "get_inventory", product_id="prod_0001"))["total"] == stock["total"] - 2
    too_many = await refusal(shop, "create_order", customer_id="cust_0007", product_id="prod_0001", quantity=1000)
    assert "Only" in too_many


async def test_an_order_is_sent_arrives_and_comes_back(shop: Client) -> None:
    order = await call(shop, "get_order", order_id="ord_0024")
    shipment = await call(shop, "create_shipment", order_id="ord_0024", carrier="swift")
    assert (await call(shop, "get_order", order_id="ord_0024"))["status"] == "shipped"
    await call(shop, "update_shipment_status", shipment_id=shipment["id"], status="delivered")
    assert (await call(shop, "get_order", order_id="ord_0024"))["status"] == "delivered"
    item = order["items"][0]
    back = {"order_id": "ord_0024", "product_id": item["product_id"], "reason": "damaged"}
    opened = await call(shop, "create_return", **back, quantity=item["quantity"])
    assert opened["status"] == "requested"
    assert "0 pieces" in await refusal(shop, "create_return", **back)
    assert "not approved" in await refusal(shop, "close_return", return_id=opened["id"])
    await call(shop, "approve_return", return_id=opened["id"])
    assert (await call(shop, "close_return", return_id=opened["id"]))["status"] == "closed"


async def test_a_discount_lowers_an_open_order_once_and_only_while_it_is_valid(shop: Client) -> None:
    total = (await call(shop, "get_order", order_id="ord_0036"))["total_cents"]
    assert "not valid" in await refusal(shop, "update_order_discount", order_id="ord_0036", code="SPRING10")
    lowered = await call(shop, "update_order_discount", order_id="ord_0036", code="SUMMER15")
    assert lowered["total_cents"] == total * 85 // 100
    assert "already" in await refusal(shop, "update_order_discount", order_id="ord_0036", code="SUMMER15")


async def test_moved_pieces_are_neither_lost_nor_doubled(shop: Client) -> None:
    before = await call(shop, "get_inventory", product_id="prod_0002")
    move = {"product_id": "prod_0002", "source": "south", "target": "harbour", "quantity": 1}
    after = await call(shop, "move_inventory", **move)
    assert after["total"] == before["total"]
    assert after["by_warehouse"]["harbour"] == before["by_warehouse"]["harbour"] + 1
    assert "Only" in await refusal(shop, "move_inventory", **{**move, "quantity": 1000})
    assert await call(shop, "get_inventory", product_id="prod_0002") == after


async def test_a_purchase_fills_the_warehouse_when_it_is_received(shop: Client) -> None:
    purchase = await call(shop, "create_purchase", product_id="prod_0005", quantity=7)
    before = await call(shop, "get_inventory", product_id="prod_0005")
    await call(shop, "mark_purchase_received", purchase_id=purchase["id"], warehouse="south")
    assert (await call(shop, "get_inventory", product_id="prod_0005"))["total"] == before["total"] + 7
    assert "received" in await refusal(shop, "cancel_purchase", purchase_id=purchase["id"])


async def test_a_customer_with_open_orders_cannot_be_deleted_and_one_without_can(shop: Client) -> None:
    assert "open orders" in await refusal(shop, "delete_customer", customer_id="cust_0001")
    place = {"city": "Graz", "country": "AT"}
    new = await call(shop, "create_customer", name="Zoe Zander", email="zoe@example.com", **place)
    taken = await refusal(shop, "create_customer", name="Zoe", email="zoe@example.com", **place)
    assert "zoe@example.com exists" in taken
    assert await call(shop, "delete_customer", customer_id=new["id"]) == {"deleted": new["id"]}
    assert f"no customer {new['id']}" in await refusal(shop, "get_customer", customer_id=new["id"])


async def test_an_invoice_is_reminded_of_three_times_at_most_until_it_is_paid(shop: Client) -> None:
    for _ in range(3):
        await call(shop, "send_invoice_reminder", invoice_id="inv_0017")
    assert "three reminders" in await refusal(shop, "send_invoice_reminder", invoice_id="inv_0017")
    assert (await call(shop, "mark_invoice_paid", invoice_id="inv_0017"))["status"] == "paid"
    assert "is paid" in await refusal(shop, "cancel_invoice", invoice_id="inv_0017")


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("get_order", {"order_id": "ord_9999"}, "There is no order ord_9999."),
        ("get_order", {}, "Field required"),
        ("get_order", {"order_id": "12"}, "should match pattern"),
        ("get_order", {"id": "ord_0001"}, "get_order has no argument 'id'. Its arguments: order_id."),
        ("list_orders", {"limit": 0}, "greater than or equal to 1"),
        ("list_orders", {"status": "lost"}, "Input should be"),
    ],
)
async def test_a_wrong_argument_is_refused_with_its_reason(
    shop: Client, tool: str, arguments: dict[str, Any], said: str
) -> None:
    text = await refusal(shop, tool, **arguments)
    assert said in text
    assert "Traceback" not in text


async def test_pages_of_a_list_follow_each_other_without_gap_or_overlap(shop: Client) -> None:
    whole = await call(shop, "list_orders", status="placed", limit=100)
    first = await call(shop, "list_orders", status="placed", limit=5)
    second = await call(shop, "list_orders", status="placed", limit=5, offset=5)
    assert first["orders"] + second["orders"] == whole["orders"][:10]
    assert first["total"] == len(whole["orders"])


@requirement("EXEC-18")
async def test_the_exports_are_large_enough_to_be_kept_out_of_a_context(shop: Client) -> None:
    orders = await shop.call_tool("export_orders", {})
    rows = list(csv.DictReader(io.StringIO(text_of(orders))))
    assert len(text_of(orders)) > 100_000
    assert orders.structured_content is None
    assert [row["id"] for row in rows] == list(make_shop().orders)
    catalog = await shop.call_tool("export_product_catalog", {})
    assert len(text_of(catalog)) > 20_000
    assert json.loads(text_of(catalog)) == catalog.structured_content


async def test_the_reports_add_up_to_the_same_revenue(shop: Client) -> None:
    by_month = await call(shop, "report_sales_by_month")
    by_country = await call(shop, "report_sales_by_country")
    assert sum(by_month["figures"].values()) == sum(by_country["figures"].values()) > 0
    best = await call(shop, "report_best_customers", top=3)
    assert list(best["figures"].values()) == sorted(best["figures"].values(), reverse=True)
    assert len(best["figures"]) == 3


@contextmanager
def shop_process(*options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "examples.shop", *options],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )
    assert process.stdout is not None
    with process:
        try:
            yield process, process.stdout.readline()
        finally:
            process.kill()


async def test_the_process_serves_both_eras_and_says_where() -> None:
    modes: tuple[Literal["auto", "legacy"], ...] = ("auto", "legacy")
    with shop_process("--port", "0") as (_, line):
        assert line.startswith("shop listening on http://127.0.0.1:")
        for mode in modes:
            async with Client(streamable_http_client(line.split()[-1]), mode=mode) as client:
                counted = await client.call_tool("count_orders", {})
                assert counted.structured_content is not None
                assert counted.structured_content["total"] == 1500


async def test_the_process_ends_when_its_stdin_closes_even_with_a_client_connected() -> None:
    with shop_process("--port", "0", "--until-stdin-closes") as (process, line):
        async with Client(streamable_http_client(line.split()[-1]), mode="legacy") as client:
            await client.list_tools()
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(BOUND_S) == 0
            assert process.stderr is not None
            assert process.stderr.read() == ""


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process_without_a_traceback(stop: signal.Signals) -> None:
    with shop_process("--port", "0") as (process, line):
        assert line
        process.send_signal(stop)
        process.wait(BOUND_S)
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_a_reader_who_has_gone_ends_the_process_without_a_traceback() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "examples.shop", "--port", "0"]
    ended = subprocess.run(command, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, timeout=BOUND_S, check=False)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_a_taken_port_is_told_in_one_line() -> None:
    with shop_process("--port", "0") as (_, line):
        port = line.split(":")[2].split("/")[0]
        with shop_process("--port", port) as (second, nothing):
            assert (nothing, second.wait(BOUND_S)) == ("", 1)
            assert second.stderr is not None
            assert second.stderr.read() == f"shop: port {port} is taken\n"
