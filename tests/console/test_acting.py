"""What an operator does in a browser: keys, other callers, exports, many servers (OPS-560 to OPS-566)."""

import csv
import io
import json
import re
from typing import Any

import pytest
from playwright.async_api import Page, Route, expect

from tests.console.browser import Tab
from tests.console.gate import READER, Fleet
from tests.support.requirement import requirement

FOCUSED = "document.activeElement.innerText.trim()"


@requirement("OPS-560", "OPS-561")
async def test_a_key_is_made_shown_once_suspended_and_revoked(tab: Tab, gate: Fleet) -> None:
    tab.expect("403 .*/console/api/keys")
    page = await tab.open("keys")
    await page.get_by_role("button", name="New key …").click()
    assert await page.evaluate("document.activeElement.id") == "new-id"
    await page.get_by_label("Id", exact=True).fill("ann-1")
    await page.get_by_label("Actor", exact=True).fill("ann")
    await page.get_by_label("Permissions").fill("tools:shop:*, everything:*")
    await page.get_by_role("button", name="Make the key").click()
    await expect(page.get_by_role("alert")).to_contain_text("everything:*")
    await page.get_by_label("Permissions").fill("tools:shop:*")
    await page.get_by_role("button", name="Make the key").click()
    key = await page.locator(".made code").inner_text()
    assert (await gate.http.get("/console/api/me", headers={"Authorization": f"Bearer {key}"})).json()["actor"] == "ann"
    row = page.get_by_role("row").filter(has_text="ann-1")
    await expect(row).to_contain_text("made here")
    await expect(page.locator(".made")).to_be_focused()
    await page.reload()
    await expect(page.locator(".made")).to_have_count(0)
    # Escape keeps it, and the focus comes back.
    suspend = row.get_by_role("button", name="Suspend …")
    await suspend.click()
    assert await page.evaluate(FOCUSED) == "Keep it"
    await page.keyboard.press("Escape")
    assert (await page.evaluate(FOCUSED)).startswith("Suspend …")
    await suspend.click()
    await row.get_by_role("button", name="Suspend it").click()
    await expect(row).to_contain_text("suspended")
    assert (await gate.http.get("/console/api/me", headers={"Authorization": f"Bearer {key}"})).status_code == 401
    await expect(row.get_by_role("button", name="Resume")).to_be_focused()
    await row.get_by_role("button", name="Resume").click()
    await expect(row).to_contain_text("good")
    await row.get_by_role("button", name="Revoke …").click()
    await row.get_by_role("button", name="Revoke it").click()
    await expect(page.get_by_role("row").filter(has_text="ann-1")).to_have_count(0)
    await expect(page.get_by_role("row").filter(has_text="owner")).to_contain_text("in use here")


@requirement("OPS-562")
async def test_who_may_is_asked_for_a_caller_without_a_key_here(tab: Tab, gate: Fleet) -> None:
    page = await tab.open("tools?q=refund+an+order&tab=who")
    await page.get_by_text("Another caller").click()
    await page.get_by_label("Actor").fill("corp:ann")
    await page.get_by_label("Permissions").fill("tools:odd:*")
    await page.get_by_role("button", name="Ask").click()
    await expect(page.get_by_text("corp:ann: Does not see it")).to_be_visible()
    await page.get_by_label("Permissions").fill("tools:shop:*")
    await page.get_by_role("button", name="Ask").click()
    await expect(page.get_by_text("corp:ann: Sees it")).to_be_visible()
    assert "actor=corp" in page.url


@requirement("OPS-563", "OPS-587")
async def test_calls_are_filtered_by_time_exported_and_shown_as_one_run(tab: Tab, gate: Fleet) -> None:
    for text in ("=1", "two"):
        await gate.http.post("/operations/call", json={"operation": "/shop/get_order", "input": {"order_id": text}})
    page = await tab.open("calls?operation=execute")
    await expect(page.locator(".log tbody tr").first).to_be_visible()
    rows = await page.locator(".log tbody tr").count()
    async with page.expect_download() as downloading:
        await page.get_by_role("button", name="Export as CSV").click()
    path = await (await downloading.value).path()
    exported = list(csv.DictReader(io.StringIO(path.read_text())))
    assert len(exported) >= rows
    assert {each["operation"] for each in exported} == {"execute"}
    await page.get_by_label("Until").fill("2020-01-01T00:00")
    await expect(page.get_by_role("heading", name="None")).to_be_visible()
    await page.get_by_role("button", name="Clear").click()
    await page.get_by_label("From").fill("2020-01-01T00:00")
    await page.locator(".log tbody a").first.click()
    await page.get_by_role("link", name="all of this request, in order").click()
    await expect(page.get_by_role("heading", name=re.compile("of this request, in order"))).to_be_visible()
    await expect(page.get_by_label("Any word")).to_have_value(re.compile("req_"))
    await expect(page.get_by_label("From")).to_have_value("")


@requirement("OPS-587")
async def test_a_denied_call_leads_to_the_rules_that_denied_it(tab: Tab, gate: Fleet) -> None:
    body = {"operation": "/shop/get_order", "input": {"order_id": "ord_denied"}}
    assert "FORBIDDEN" in (await gate.http.post("/operations/call", json=body)).text
    page = await tab.open("calls?outcome=denied")
    await page.locator(".log tbody a").first.click()
    await page.get_by_role("link", name="the rules of this tool for this key").click()
    await expect(page.get_by_text("args.order_id == 'ord_denied'").first).to_be_visible()


@requirement("OPS-564")
async def test_the_page_connect_names_this_gate(tab: Tab, gate: Fleet) -> None:
    page = await tab.open("connect", key=READER)
    await expect(page.locator("pre").first).to_contain_text(f"wicketgate connect claude-code --url {gate.url}")
    await page.get_by_label("Client", exact=True).select_option("cursor")
    await page.get_by_label("It sees").select_option("?tools=all")
    await expect(page.locator("pre").first).to_contain_text("connect cursor")
    entry = json.loads(await page.get_by_label("Entry of a client's file").inner_text())
    assert entry["mcpServers"]["wicketgate"]["url"] == f"{gate.url}/mcp?tools=all"


@requirement("OPS-564")
async def test_an_operator_sees_the_virtual_gates_and_connects_to_one(tab: Tab, gate: Fleet) -> None:
    page = await tab.open("connect")
    row = page.get_by_role("row").filter(has_text=f"{gate.url}/mcp/gates/desk")
    await expect(row).to_be_visible()
    assert [text.strip() for text in await row.get_by_role("cell").all_inner_texts()][::2] == ["desk", "namespaced"]
    assert (await row.get_by_role("cell").last.inner_text()).strip() == "1"
    await page.get_by_label("It sees").select_option("/gates/desk")
    await expect(page.locator("pre").first).to_contain_text(f"--url {gate.url} --gate desk --write")
    assert f"{gate.url}/mcp/gates/desk" in await page.get_by_label("Entry of a client's file").inner_text()


@requirement("OPS-565")
async def test_a_waiting_call_is_in_the_title_of_every_page(tab: Tab, gate: Fleet) -> None:
    page = await tab.open("connect")
    before = len((await gate.get("approvals"))["waiting"])
    await gate.http.post(
        "/operations/call", json={"operation": "/shop/refund_order", "input": {"order_id": "o1", "cents": 5}}
    )
    waiting = len((await gate.get("approvals"))["waiting"])
    assert waiting >= max(1, before)
    await expect(page).to_have_title(f"({waiting}) Connect · Wicketgate")
    await page.get_by_role("link", name="Chat").click()
    await expect(page).to_have_title(f"({waiting}) Chat · Wicketgate")


async def with_servers(tab: Tab, gate: Fleet, number: int, width: int = 1440) -> Page:
    """The page Gate as *number* more servers would make it; one of them is down."""
    found = await gate.get("map?path=%2F")
    columns: dict[str, list[Any]] = {name: list(values) for name, values in found["columns"].items()}
    rows, upstreams = list(found["rows"]), list(found["upstreams"])
    for at in range(number):
        name = f"server{at}"
        upstreams.append({"name": name, "kind": "http", "state": "ready", "error": "", "tools": 12})
        for part in ("read", "write"):
            first = len(columns["id"])
            for tool in range(6):
                values = {
                    "id": f"{name}:{part}{tool}#0",
                    "name": f"{part}{tool}",
                    "writes": 0,
                    "tokens": 90,
                    "about": "x",
                }
                for column, value in values.items():
                    columns[column].append(value)
            row = {"path": f"/{name}/{part}", "label": part, "upstream": len(upstreams) - 1, "leaf": False}
            rows.append({**row, "first": first, "count": 6, "tokens": 540})

    async def told(route: Route) -> None:
        body = {**found, "columns": columns, "rows": rows, "upstreams": upstreams}
        await route.fulfill(body=json.dumps(body), content_type="application/json")

    page = await tab.open("connect", width=width)
    await tab.route(page, "**/console/api/map**", told)
    await page.get_by_role("link", name="Gate", exact=True).click()
    await expect(page.locator(".row").first).to_be_visible()
    return page


@requirement("OPS-566")
@pytest.mark.parametrize("number", [9, 57])
async def test_many_servers_are_a_row_each_and_the_model_is_seen_without_scrolling(
    tab: Tab, gate: Fleet, number: int
) -> None:
    page = await with_servers(tab, gate, number)
    whole = len((await gate.get("map?path=%2F"))["upstreams"]) + number
    names = [name.strip() for name in await page.locator(".row .lab").all_inner_texts()]
    assert {f"server{at}" for at in range(number)} <= {*names}
    assert len(names) <= whole
    # Those in trouble come first.
    await expect(page.locator(".rows .ns").first).to_contain_text("broken")
    for text in ("The model sees", "browse", "view"):
        at = await page.locator(".flow text", has_text=text).first.bounding_box()
        assert at is not None and at["y"] + at["height"] < 900
    async with page.expect_response(lambda answer: answer.url.endswith("map?path=%2Fserver3")):
        await page.get_by_role("link", name="server3", exact=True).click()
    assert "path=%2Fserver3" in page.url


@requirement("OPS-566")
async def test_a_phone_says_what_the_model_sees(tab: Tab, gate: Fleet) -> None:
    page = await with_servers(tab, gate, 9, width=390)
    await expect(page.locator(".sees")).to_be_visible()
    await expect(page.locator(".sees")).to_contain_text("The model sees 3 tools")
    wide = await tab.open(width=1440)
    await expect(wide.locator(".sees")).to_be_hidden()
