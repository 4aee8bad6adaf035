"""The shell of the console in a browser: signing in, addresses, colours, and a gate that goes away."""

import asyncio
import re

from playwright.async_api import Browser, Page, Route, expect

from tests.console.browser import Tab
from tests.console.gate import OWNER, READER, Fleet
from tests.support.requirement import requirement
from tests.support.service import BOUND_S

UNAUTHORIZED = "status of 401"


async def sign_in(page: Page, key: str) -> None:
    await page.get_by_label("Key").fill(key)
    await page.get_by_role("button", name="Sign in").click()


async def on_page(page: Page, name: str) -> None:
    await expect(page.get_by_role("navigation").locator("[aria-current=page]")).to_have_text(re.compile(f"^{name}"))


@requirement("OPS-325")
async def test_the_frame_is_there_without_a_script_and_no_module_waits_for_another(tab: Tab) -> None:
    tab.expect("^csp for .*js$")  # modules, which such a page does not load
    bare = await tab.open(java_script_enabled=False)
    await expect(bare.get_by_role("banner")).to_have_text("Wicketgate")
    page = await tab.open("tools")
    await on_page(page, "Tools")
    await expect(page.get_by_role("heading", level=1)).to_be_visible()
    named = "[...document.querySelectorAll('script[src], link')].map((each) => each.src || each.href)"
    loaded = "performance.getEntriesByType('resource').map((each) => each.name).filter((name) => /m?js$/.test(name))"
    assert set(await page.evaluate(loaded)) <= set(await page.evaluate(named))


@requirement("OPS-281")
async def test_a_key_signs_in_for_the_life_of_the_tab(tab: Tab) -> None:
    page = await tab.open(key=None)
    await expect(page).to_have_title("Sign in · Wicketgate")
    await expect(page.get_by_label("Key")).to_be_focused()
    await sign_in(page, OWNER)
    await expect(page.locator(".who b")).to_have_text("olga")
    await page.reload()
    await expect(page.locator(".who b")).to_have_text("olga")
    # It is in this tab alone: in no cookie, no address, no storage that others read.
    assert await page.context.cookies() == []
    assert OWNER not in page.url
    assert OWNER not in await page.evaluate("JSON.stringify({...localStorage})")
    other = await page.context.new_page()
    await other.goto(page.url)
    await expect(other.get_by_label("Key")).to_be_visible()
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_label("Key")).to_be_visible()
    await page.reload()
    await expect(page.get_by_label("Key")).to_be_visible()


@requirement("OPS-281")
async def test_a_wrong_key_is_said_to_be_wrong(tab: Tab) -> None:
    tab.expect(UNAUTHORIZED)
    page = await tab.open(key=None)
    await sign_in(page, "wg_nobody_0123456789")
    await expect(page.get_by_role("alert")).to_have_text("This key is not valid, or no longer.")
    await sign_in(page, OWNER)
    await expect(page.locator(".who b")).to_have_text("olga")


@requirement("OPS-281")
async def test_a_used_link_says_so_and_its_code_leaves_the_address(tab: Tab) -> None:
    tab.expect(UNAUTHORIZED, "status of 404")
    page = await tab.open("#code=nothing", key=None)
    await expect(page.get_by_label("Key")).to_be_visible()
    assert "code" not in page.url


@requirement("OPS-281")
async def test_a_caller_sees_the_pages_that_it_may(tab: Tab) -> None:
    page = await tab.open(key=READER)
    await expect(page.locator(".who b")).to_have_text("rita")
    names = await page.get_by_role("navigation").get_by_role("link").all_inner_texts()
    assert [name.strip() for name in names] == ["Gate", "Tools", "Chat", "Calls", "Approvals", "Connect"]


@requirement("OPS-282")
async def test_each_place_has_an_address_and_back_works(tab: Tab, gate: Fleet) -> None:
    page = await tab.open("?path=/shop")
    await expect(page.locator(".crumbs")).to_contain_text("shop")
    await page.get_by_role("navigation").get_by_role("link", name="Tools").click()
    await on_page(page, "Tools")
    await expect(page).to_have_url(f"{gate.url}/console/tools")
    # A reader of a screen is taken to the new heading.
    await expect(page.get_by_role("heading", level=1)).to_be_focused()
    await page.go_back()
    await on_page(page, "Gate")
    await expect(page.locator(".crumbs")).to_contain_text("shop")
    await page.go_forward()
    await on_page(page, "Tools")


@requirement("OPS-282")
async def test_the_whole_shell_is_used_by_keyboard(tab: Tab) -> None:
    page = await tab.open()
    await expect(page.locator(".row").first).to_be_visible()
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="To the content")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator("main")).to_be_focused()
    await page.get_by_role("link", name="Tools").focus()
    await page.keyboard.press("Enter")
    await on_page(page, "Tools")


@requirement("OPS-283")
async def test_colours_follow_the_system_until_they_are_chosen(tab: Tab) -> None:
    page = await tab.open(color_scheme="dark")
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    dark = await page.evaluate(ground)
    await page.get_by_role("button", name="Light colours").click()
    await expect(page.get_by_role("button", name="Dark colours")).to_be_visible()
    light = await page.evaluate(ground)
    assert dark != light
    await page.reload()
    await expect(page.get_by_role("button", name="Dark colours")).to_be_visible()
    assert await page.evaluate(ground) == light


@requirement("OPS-284")
async def test_a_page_outlives_its_gate(tab: Tab, gate: Fleet) -> None:
    tab.expect("ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE", "ERR_INCOMPLETE_CHUNKED")
    page = await tab.open()
    await expect(page.locator(".row").first).to_be_visible()
    await gate.call("get_order", order_id="ord_0001")
    await expect(page.locator(".live li").first).to_contain_text("get_order")
    await gate.stop()
    await expect(page.get_by_text("The gate does not answer")).to_be_visible()
    assert await page.locator(".row").count() > 2, "what was known stays"
    await gate.start()
    await expect(page.get_by_text("The gate does not answer")).to_have_count(0)
    await expect(page.locator(".figs dd").first).to_have_text("0")
    await gate.call("print_invoice")
    await expect(page.locator(".live li").first).to_contain_text("print_invoice")


async def test_an_answer_that_waits_at_the_end_of_a_test_ends_with_its_tab(browser: Browser, gate: Fleet) -> None:
    tab = Tab(browser, gate.url)
    page = await tab.open()
    asked, kept, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def never(route: Route) -> None:
        asked.set()
        try:
            await kept.wait()
        finally:
            ended.set()

    await tab.route(page, "**/console/api/events", never)
    await page.reload()
    await asyncio.wait_for(asked.wait(), BOUND_S)
    await tab.close(None)
    assert ended.is_set()
