"""The pages Servers, Calls, Keys and Configuration, in a browser."""

import json
import re
from pathlib import Path

from playwright.async_api import Browser, Dialog, Page, Route, expect

from tests.console.browser import Tab
from tests.console.gate import READER, Fleet, fleet
from tests.e2e.test_programs_after_a_kill import call
from tests.support.requirement import requirement


@requirement("OPS-275")
async def test_a_failing_server_is_first_with_its_last_words_as_text(tab: Tab) -> None:
    page = await tab.open("servers")
    await expect(page.locator("h1")).to_have_text("1 of 3 servers needs attention")
    await expect(page.locator(".pick .nm").first).to_have_text("broken")
    await expect(page.locator(".detail .name")).to_have_text("broken")
    await expect(page.locator(".detail .fail")).to_contain_text("it ended with code 3")
    await expect(page.locator(".words")).to_contain_text("cannot reach the <b>database</b>")
    await expect(page.locator(".words b")).to_have_count(0)
    assert await page.locator(".slim tr").count() >= 1


@requirement("OPS-275")
async def test_a_server_is_disabled_once_it_was_said_twice_and_enabled_again(tab: Tab, gate: Fleet) -> None:
    page = await tab.open("servers?name=broken")
    await page.get_by_role("button", name="Disable …").click()
    await page.get_by_role("button", name="Keep it").click()
    await page.get_by_role("button", name="Disable …").click()
    await page.get_by_role("button", name="Disable it").click()
    await expect(page.get_by_text("disabled until the next reload", exact=True)).to_be_visible()
    await expect(page.get_by_text("after the next reload or restart")).to_be_visible()
    await expect(page.get_by_text("disabled at 1", exact=True)).to_be_visible()
    await page.get_by_role("button", name="Enable until the next reload").click()
    await expect(page.get_by_role("button", name="Reconnect")).to_be_visible()
    await page.get_by_role("button", name="Reconnect").click()
    await expect(page.get_by_text("reconnected", exact=True)).to_be_visible()
    details = [each["detail"] for each in (await gate.get("calls?operation=server"))["calls"]]
    assert details[:3] == ["reconnected", "enabled until the next reload", "disabled until the next reload"]


@requirement("OPS-295")
async def test_a_server_shows_what_each_process_has_done_of_the_last_act(tab: Tab) -> None:
    outcomes = [("a", "disable", True), ("b", "disable", True), ("c", "enable", True), ("<b>d</b>", "disable", False)]
    shown: list[object] = [
        [{"process": process, "act": act, "done": done} for process, act, done in outcomes],
        None,
    ]

    async def told(route: Route) -> None:
        found = await (await route.fetch()).json()
        await route.fulfill(body=json.dumps({**found, "outcomes": shown[0]}), content_type="application/json")

    page = await tab.open("servers?name=shop")
    await tab.route(page, "**/console/api/servers/shop", told)
    await page.reload()
    line = "disabled at 2, enabled at 1, not possible at 1: the log of <b>d</b> says why"
    await expect(page.get_by_text(line, exact=True)).to_be_visible()
    del shown[0]
    await page.reload()
    await expect(page.get_by_text("what the other processes did is not known")).to_be_visible()


@requirement("OPS-276")
async def test_calls_are_filtered_by_the_address_and_opened(tab: Tab, gate: Fleet) -> None:
    await gate.call("get_order", order_id="o1")
    await gate.call("get_order", order_id="o1", key=READER)
    page = await tab.open("calls")
    await page.get_by_label("Actor").fill("rita")
    await expect(page.locator(".log tbody .actor", has_text="olga")).to_have_count(0)
    await expect(page.locator(".log tbody .actor", has_text="rita").first).to_be_visible()
    await expect(page).to_have_url(re.compile("actor=rita"))
    await page.locator(".log a", has_text="get_order").first.click()
    await expect(page.locator(".detail .name")).to_have_text("get_order")
    await expect(page.locator(".spent .whole")).to_be_visible()
    await expect(page).to_have_url(re.compile("actor=rita"))
    await page.go_back()
    await expect(page.locator(".detail")).to_have_count(0)
    await page.get_by_label("Any word").fill("nothing of this kind")
    await expect(page.get_by_text("No record fits these filters.")).to_be_visible()
    await page.get_by_role("button", name="Clear").click()
    await expect(page.locator(".log tbody .actor", has_text="olga").first).to_be_visible()


@requirement("OPS-276")
async def test_a_caller_without_permission_has_its_own_calls_and_no_desk(tab: Tab, gate: Fleet) -> None:
    await gate.call("get_order", order_id="o1", key=READER)
    page = await tab.open("calls", key=READER)
    await expect(page.locator("h1")).to_have_text("Your calls")
    await expect(page.locator(".log")).to_be_visible()
    await expect(page.locator(".log .actor")).to_have_count(0)
    assert await page.locator(".nav a", has_text="Servers").count() == 0


@requirement("OPS-276")
async def test_hostile_names_are_text(tab: Tab, gate: Fleet) -> None:
    dialogs: list[str] = []
    page = await tab.open(f"calls?id={await gate.a_call()}")
    page.on("dialog", lambda dialog: _note(dialogs, dialog))
    await expect(page.locator(".detail .name")).to_be_visible()
    await expect(page.locator("main img, main script, main iframe")).to_have_count(0)
    await _no_hidden_characters(page)
    await page.goto(f"{gate.url}/console/calls?q=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E")
    await expect(page.get_by_text("No record fits these filters.")).to_be_visible()
    assert dialogs == []


def _note(dialogs: list[str], dialog: Dialog) -> None:
    dialogs.append(dialog.message)


async def _no_hidden_characters(page: Page) -> None:
    text = await page.inner_text("main")
    assert not [char for char in text if char in "\x1b\u202e\u202c\u200b"]


@requirement("OPS-277")
async def test_keys_and_settings_are_shown_without_what_proves_them(tab: Tab, gate: Fleet) -> None:
    page = await tab.open("keys")
    await expect(page.locator("h1")).to_have_text("3 keys")
    assert "sha256" not in await page.inner_text("body")
    await page.get_by_role("link", name="Configuration").click()
    await expect(page.locator(".rows").first).to_be_visible()
    await expect(page.get_by_text("3, shown on the page Keys")).to_be_visible()
    await expect(page.get_by_text("max_body_bytes")).to_have_count(0)
    await page.get_by_label("Defaults too").check()
    await expect(page.get_by_text("max_body_bytes")).to_be_visible()
    await page.get_by_label("Setting or value").fill("fleet.py")
    await expect(page.locator(".rows > div")).to_have_count(2)


@requirement("OPS-278")
async def test_what_is_held_back_is_found_from_its_server_and_accepted(browser: Browser, tmp_path: Path) -> None:
    async with fleet(tmp_path) as gate:
        tab = Tab(browser, gate.url)
        page = await tab.open("servers?name=shop")
        await page.locator(".detail").get_by_role("link", name="1 definition").click()
        await page.locator(".res a", has_text="pay_bill").click()
        await page.get_by_role("button", name="Accept this definition").click()
        await expect(page.get_by_text("It is not quarantined, and not suspicious, any more.")).to_be_visible()
        assert "pay_bill" not in str(await gate.get("held"))
        (record,) = (await gate.get("calls?operation=accept"))["calls"]
        assert record["tool_id"] == "shop:pay_bill"
        await tab.close(None)
        assert tab.faults == []


@requirement("OPS-555")
async def test_what_was_spent_is_a_chart_and_a_table(tab: Tab) -> None:
    days = [{"day": f"2026-11-{day}", "cost": day / 4} for day in range(10, 20)]
    row = {
        "turns": 3,
        "calls": 12,
        "prompt_tokens": 5_000,
        "cached_tokens": 40,
        "completion_tokens": 600,
        "cost": 36.25,
    }
    asked: list[str] = []

    async def told(route: Route) -> None:
        asked.append(route.request.url.partition("?")[2].partition("&")[0])
        found = {
            "by": "actor",
            "since": "2026-11-10",
            "priced": True,
            "rows": [{"name": "<b>ann</b>", **row}],
            "days": days,
        }
        await route.fulfill(body=json.dumps(found), content_type="application/json")

    page = await tab.open("spending")
    await expect(page.locator(".lede")).to_contain_text("counted by the providers")
    await tab.route(page, "**/console/api/spending**", told)
    await page.get_by_label("Sums by").select_option("model")
    await expect(page.locator("td .nm", has_text="<b>ann</b>")).to_be_visible()
    await expect(page.locator("td .nm")).to_have_count(1)
    await expect(page.locator("tbody td").last).to_have_text("36.25")
    await expect(page.locator(".days rect")).to_have_count(10)
    await expect(page.locator(".days rect title").last).to_have_text("2026-11-19: 4.75")
    assert asked == ["by=model"]
    assert "by=model" in page.url


@requirement("OPS-555")
async def test_spending_is_not_for_readers_without_the_right(tab: Tab) -> None:
    page = await tab.open("gate", key=READER)
    await expect(page.get_by_role("link", name="Calls")).to_be_visible()
    await expect(page.get_by_role("link", name="Spending")).to_have_count(0)


@requirement("EXEC-150", "EXEC-151")
async def test_programs_are_shown_with_their_text_and_one_click_approves_the_calls_that_are_shown(
    browser: Browser, tmp_path: Path
) -> None:
    code = '[tool("shop:refund_order", order_id=each) for each in ("ord_0001", "ord_0002")]'
    async with fleet(tmp_path, code_mode={"enabled": True}) as gate:
        assert (await call(gate.http, "tool_run", code=code))["status"] == "waiting"
        assert (await gate.get("programs", READER))["programs"] == []
        tab = Tab(browser, gate.url)
        page = await tab.open("approvals")
        programs = page.get_by_role("region", name="Programs")
        await programs.locator("summary").click()
        await expect(programs).to_contain_text(code)
        await page.get_by_role("button", name="Approve these 2 calls of its program").first.click()
        await expect(programs).to_contain_text("ended")
        await expect(page.get_by_text("Nothing waits for an approval")).to_be_visible()
        assert await tab.close(None) == []
