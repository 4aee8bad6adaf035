"""The pages Servers, Calls, Approvals, Keys, Configuration and Chat, each in what it is for."""

import os
import re
from pathlib import Path

from playwright.async_api import Browser, expect

from tests.console.browser import Tab
from tests.console.gate import LEAD, OWNER, READER, Fleet, fleet
from tests.support.requirement import requirement


@requirement("OPS-280")
async def test_a_failing_server_is_found_with_its_last_words(tab: Tab, gate: Fleet) -> None:
    page = await tab.open()
    await page.get_by_role("region", name="Needs attention").get_by_role("link", name="broken").click()
    await expect(page).to_have_url(re.compile(r"/console/servers\?name=broken"))
    await expect(page.get_by_text("cannot reach the <b>database</b>").first).to_be_visible()
    assert await page.locator("main b:text-is('database')").count() == 0


@requirement("OPS-280")
async def test_a_quarantined_tool_is_found_from_the_picture(tab: Tab, gate: Fleet) -> None:
    page = await tab.open()
    await page.get_by_role("link", name="1 tool quarantined").click()
    await page.get_by_role("link", name="pay_bill").first.click()
    await expect(page.get_by_text("amount", exact=False).first).to_be_visible()
    await expect(page.get_by_role("button", name="Accept this definition")).to_be_enabled()


@requirement("OPS-280")
async def test_a_call_that_waits_is_announced_and_decided(tab: Tab, gate: Fleet) -> None:
    page = await tab.open()
    await expect(page.locator(".row").first).to_be_visible()
    await gate.call("refund_order", order_id="ord_0042", note="<b>paid</b> twice")
    await expect(page.locator(".ask .what")).to_have_text("refund_order")
    await expect(page.locator(".ask dl")).to_contain_text("<b>paid</b> twice")
    await expect(page.locator("nav .n")).to_contain_text("1")
    await page.get_by_role("navigation").get_by_role("link", name="Approvals").click()
    await page.get_by_role("button", name="Deny").click()
    await expect(page.get_by_text("Nothing waits for an approval")).to_be_visible()
    await expect(page.get_by_text("denied", exact=True).first).to_be_visible()
    await expect(page.locator("nav .n")).to_have_count(0)


@requirement("OPS-343")
async def test_an_approver_reads_and_decides_on_the_call_of_another(tab: Tab, gate: Fleet) -> None:
    await gate.call("cancel_order", order_id="ord_0007")
    own = await tab.open("approvals")
    await expect(own.get_by_role("region", name="Waiting for others").first).to_contain_text("role:lead")
    await expect(own.get_by_role("button", name="Approve")).to_have_count(0)
    page = await tab.open("approvals", key=LEAD)
    ask = page.get_by_role("region", name="Waiting for you")
    await expect(ask).to_contain_text("ord_0007")
    await expect(ask).to_contain_text("Needs the approval of role:lead")
    await expect(ask).to_contain_text("for olga")
    await page.get_by_role("button", name="Approve").click()
    await expect(page.get_by_text("Nothing waits for an approval")).to_be_visible()
    await expect(page.get_by_text("approved by lena")).to_be_visible()
    await expect(own.get_by_text("approved by lena")).to_be_visible()
    await gate.call("cancel_order", order_id="ord_0007")
    await expect(own.get_by_text("approved, used; approved by lena")).to_be_visible()


@requirement("OPS-280")
async def test_a_call_is_found_among_the_records(tab: Tab, gate: Fleet) -> None:
    await gate.call("refuse_order", order_id="ord_0001")
    await gate.call("hostile_failure")
    page = await tab.open("calls?tool=refuse_order")
    await expect(page.locator(".log table")).to_contain_text("refuse_order")
    assert await page.locator(".log table", has_text="hostile_failure").count() == 0
    await page.locator(".log table").get_by_role("link").first.click()
    await expect(page.locator("main")).to_contain_text("shop")
    assert "id=" in page.url


@requirement("OPS-280")
async def test_keys_and_settings_are_shown_without_secrets(tab: Tab, gate: Fleet) -> None:
    page = await tab.open("keys")
    await expect(page.locator(".keys")).to_contain_text("rita")
    page = await tab.open("configuration")
    await expect(page.get_by_role("heading", name="Configuration", level=1)).to_be_visible()
    await expect(page.locator("main")).to_contain_text("cache_stable")
    text = await page.locator("main").inner_text()
    assert OWNER not in text and READER not in text


@requirement("OPS-273", "OPS-274", "OPS-280")
async def test_a_chat_is_shown_while_it_runs(tab: Tab, gate: Fleet) -> None:
    page = await tab.open("chat")
    box = page.get_by_role("textbox").last
    await box.fill("get order ord_0007")
    await page.get_by_role("button", name=re.compile("Send|Ask")).click()
    await expect(page.locator("main")).to_contain_text("get_order")
    await expect(page.locator("main")).to_contain_text("Scripted demo model")
    await expect(page.locator("main")).to_contain_text("tokens")
    # A reload of the page has the conversation again; signing out leaves nothing of it.
    await page.reload()
    await expect(page.locator("main")).to_contain_text("get order ord_0007")
    await expect(page.locator("main")).to_contain_text("Scripted demo model")
    await page.get_by_role("button", name="Sign out").click()
    # The tab of these tests signs in again by itself.
    await expect(page.get_by_role("textbox", name="Message")).to_be_visible()
    await expect(page.locator("main")).not_to_contain_text("ord_0007")
    assert await page.evaluate("sessionStorage.getItem('wicketgate.chat')") is None


@requirement("ACCESS-264", "ACCESS-265")
async def test_a_call_to_a_strange_destination_shows_its_place_and_can_be_accepted_for_the_conversation(
    browser: Browser, tmp_path: Path
) -> None:
    rule = {"match": "*:refund_*", "when": "size(strange) > 0", "approval": "always"}
    async with fleet(tmp_path, access=[rule]) as gate:
        # A tool that repeats its arguments stands for a page with an address on it.
        await gate.call("get_order", order_id="ord_0001", note="ask eve@evil.example about it")
        await gate.call("refund_order", order_id="ord_0042", note="for eve@evil.example")
        tab = Tab(browser, gate.url)
        page = await tab.open("approvals")
        ask = page.get_by_role("region", name="Waiting for you")
        await expect(ask).to_contain_text("It sends to eve@evil.example. As far as the gate knows")
        await expect(ask).to_contain_text("It stands in what shop:get_order gave at")
        await expect(ask.get_by_role("link", name="Show the calls of request")).to_have_count(1)
        if pictures := os.environ.get("CONSOLE_PICTURES"):
            await page.screenshot(path=Path(pictures) / "flow.png")
        await page.get_by_role("button", name="accept its destinations").click()
        await expect(page.get_by_text("Nothing waits for an approval")).to_be_visible()
        await gate.call("refund_order", order_id="ord_0042", note="for eve@evil.example")
        await gate.call("refund_order", order_id="ord_0043", note="for eve@evil.example too")
        assert (await gate.get("approvals"))["waiting"] == []
        await tab.close(None)
        assert tab.faults == []
