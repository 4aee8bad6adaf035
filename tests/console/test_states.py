"""What the pages show where something is missing, is gone, or has to be asked about."""

import json
import re
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, Route, expect

from tests.console.browser import Tab, violations
from tests.console.gate import OWNER, READER, Fleet, fleet
from tests.support.requirement import requirement

AWAY = "ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|ERR_INCOMPLETE_CHUNKED|503 .Service Unavailable."
# Texts of a page that are cut off at its right edge, or are not drawn at all.
LOST = """[...document.querySelectorAll("main :is(td, .row > span, .scroll, pre)")].filter((e) => {
    const at = e.getBoundingClientRect();
    if (e.matches(".vh *, .vh, .mob, details:not([open]) *")) return false;
    return !at.width || !at.height || at.right > innerWidth + 0.5
        || (e.matches(".scroll") && e.scrollWidth > e.clientWidth);
}).map((e) => `${e.className} ${e.textContent}`)"""


async def settled(page: Page, part: str) -> None:
    await expect(page.locator(part).first).to_be_visible()
    await expect(page.get_by_text("Loading …")).to_have_count(0)


@requirement("OPS-310")
@pytest.mark.parametrize(
    ("path", "part", "said"),
    [
        ("approvals", "td", ["For", "Decision", "Time left", "rita", "denied"]),
        ("keys", "td", ["Permissions", "Good until", "Last use", "ops:*"]),
        ("calls", ".log td", ["olga", "tool error"]),
        ("", ".row", ["failed", "tokens"]),
        ("tools?id={get_order}&tab=schema", ".card td", ["Such as ord_0007."]),
        ("tools?id={refuse_order}&tab=calls", ".card td", ["olga", "tool error"]),
        ("tools?q=get+order&id={get_order}&tab=why", ".why td", ["rarity", "weight", "adds"]),
    ],
)
async def test_no_column_is_lost_on_a_narrow_screen(
    tab: Tab, gate: Fleet, path: str, part: str, said: list[str]
) -> None:
    await gate.call("refuse_order", order_id="ord_0001")
    await gate.call("refund_order", READER, order_id="ord_0099")
    order = f"ord_{path}"
    await gate.call("refund_order", order_id=order, note="decided")
    waiting = (await gate.get("approvals"))["waiting"]
    handle = next(each["id"] for each in waiting if (each["args"] or {}).get("order_id") == order)
    await gate.http.post(f"/console/api/approvals/{handle}", json={"decision": "deny"})
    path = re.sub(r"\{(\w+)\}", lambda found: gate.id(found[1]).replace("#", "%23"), path)
    page = await tab.open(path, width=360, height=760)
    await settled(page, part)
    assert await page.evaluate(LOST) == []
    assert await page.evaluate("document.documentElement.scrollWidth") == 360
    # The name of a column stands in each of its cells.
    drawn = await page.evaluate(
        """[...document.querySelectorAll("main *")].map((e) => getComputedStyle(e, "::before").content).join(" ")"""
    )
    text = f"{await page.locator('main').inner_text()} {drawn}".lower()
    assert [word for word in said if word.lower() not in text] == []


@requirement("OPS-322")
async def test_a_page_looks_the_same_whichever_was_open_before(tab: Tab) -> None:
    names = ["display", "flexWrap", "marginTop", "maxHeight"]
    looks = f"(e) => JSON.stringify({names}.map((name) => getComputedStyle(e)[name]))"
    page = await tab.open("servers?name=broken")
    await settled(page, "pre.words")
    fresh = await page.locator("pre.words").evaluate(looks)
    for name in ("Tools", "Calls", "Chat", "Approvals", "Gate"):
        await page.get_by_role("navigation").get_by_role("link", name=name).click()
        await expect(page.get_by_role("navigation").locator("[aria-current=page]")).to_have_text(re.compile(name))
        await settled(page, "h1")
    await page.get_by_role("region", name="Needs attention").get_by_role("link", name="broken").click()
    await settled(page, "pre.words")
    assert await page.locator("pre.words").evaluate(looks) == fresh


@requirement("OPS-311")
async def test_a_state_has_one_word_on_all_pages(tab: Tab, gate: Fleet) -> None:
    await gate.call("refuse_order", order_id="ord_0001")
    await gate.call("refund_order", order_id="ord_0042")
    places = ("", "tools", "tools?show=held", "tools?show=held&tool=shop:pay_bill", "servers?name=shop")
    for place in places:
        page = await tab.open(place)
        await settled(page, "main :is(.trouble.held, .heldline, .plainlist, .heldtags, .kv)")
        text = (await page.locator("main").inner_text()).lower()
        assert "quarantined" in text, place
        assert not re.search("held back|to look at|not accepted", text), place
    tool = gate.id("refuse_order").replace("#", "%23")
    for place in ("", "calls", f"tools?id={tool}&tab=calls"):
        page = await tab.open(place)
        await settled(page, "main :is(.live li, .log td, .card td)")
        text = await page.locator("main :is(.live, .log, .card table)").first.inner_text()
        assert "tool error" in text, place


async def suspicious(tab: Tab, may: str = OWNER) -> Page:
    page = await tab.open("tools?show=held&tool=odd:markup", key=may)
    await expect(page.get_by_role("button", name="Accept this definition")).to_be_enabled()
    return page


@requirement("OPS-312")
async def test_a_suspicious_definition_is_accepted_after_a_question(browser: Browser, tmp_path: Path) -> None:
    async with fleet(tmp_path) as gate:
        tab = Tab(browser, gate.url)
        page = await suspicious(tab)
        button = page.get_by_role("button", name="Accept this definition")
        # All by keyboard: asked, kept, asked again, left by Escape, asked again and accepted.
        await button.press("Enter")
        question = page.get_by_role("dialog", name="Accept markup of odd?")
        await expect(question).to_contain_text("hidden characters: U+0000")
        await expect(question).to_contain_text("There is no difference to show")
        await expect(question.get_by_role("button", name="Do not accept")).to_be_focused()
        assert await violations(page) == []
        await page.keyboard.press("Enter")
        await expect(question).to_have_count(0)
        await expect(button).to_be_focused()
        await button.press("Enter")
        await page.keyboard.press("Escape")
        await expect(question).to_have_count(0)
        assert "markup" in str(await gate.get("held"))
        await button.press("Enter")
        await question.get_by_role("button", name="Accept it all the same").press("Enter")
        await expect(page.get_by_text("It is not quarantined, and not suspicious")).to_be_visible()
        assert "'name': 'markup'" not in str(await gate.get("held"))
        # Where nothing is suspicious, one click accepts.
        page = await tab.open("tools?show=held&tool=shop:pay_bill")
        await page.get_by_role("button", name="Accept this definition").click()
        await expect(page.get_by_text("It is not quarantined")).to_be_visible()
        await tab.close(None)
        assert tab.faults == []


@requirement("OPS-313")
async def test_a_call_that_waits_names_its_server_its_caller_and_its_time(tab: Tab, gate: Fleet) -> None:
    await gate.call("refund_order", order_id="ord_0042")
    page = await tab.open()
    card = page.locator(".ask")
    told = re.compile(r"on shop, for olga \(key owner\), through the console, waiting for .* s")
    await expect(card.locator(".from")).to_have_text(told)
    first = await card.locator(".from").inner_text()
    await expect(card.locator(".from")).not_to_have_text(first)
    assert (await gate.get("approvals"))["waiting"][0]["server"] == "shop"


@requirement("OPS-314")
async def test_repeated_lines_are_folded_and_the_newest_is_in_sight(tab: Tab, gate: Fleet) -> None:
    page = await tab.open("servers?name=broken")
    words = page.locator("pre.words")
    await expect(words).to_contain_text(re.compile(r"cannot reach the <b>database</b>\s*× \d+"))
    assert (await words.inner_text()).count("cannot reach") == 1
    await expect(page.locator(".slim tbody tr").first).to_contain_text(re.compile(r"× \d+"))

    async def many(route: Route) -> None:
        found = await (await route.fetch()).json()
        trace = ["Traceback", '  File "x.py"', "ValueError: no"]
        found["stderr"] = [*(f"line {number}" for number in range(40)), *trace * 3, "the last line"]
        await route.fulfill(body=json.dumps(found), content_type="application/json")

    await tab.route(page, "**/console/api/servers/broken", many)
    await page.reload()
    await expect(words).to_contain_text("the last line")
    assert (await words.inner_text()).count("Traceback") == 1
    below = "(e) => e.scrollHeight - e.clientHeight - e.scrollTop"
    assert await words.evaluate("(e) => e.scrollHeight > e.clientHeight")
    assert await words.evaluate(below) < 2


@requirement("OPS-315")
async def test_the_sign_in_page_says_how_to_get_a_key(tab: Tab) -> None:
    page = await tab.open(key=None)
    text = await page.locator("main").inner_text()
    assert "wicketgate key new" in text and "make run" in text and "#code=" in text
    assert await violations(page) == []


@requirement("OPS-316")
async def test_an_empty_chat_says_what_will_happen_and_what_to_ask(tab: Tab) -> None:
    page = await tab.open("chat")
    await expect(page.locator(".start")).to_contain_text("tool_browse")
    box = page.get_by_role("textbox", name="Message")
    first = page.locator(".start .tries button").first
    words = (await first.inner_text()).strip()
    await first.press("Enter")
    await expect(box).to_have_value(words)
    await expect(box).to_be_focused()
    # Nothing is sent by that.
    await expect(page.locator(".said li")).to_have_count(0)


@requirement("OPS-317")
async def test_a_gate_that_starts_is_waited_for_with_the_key_kept(tab: Tab) -> None:
    tab.expect("status of 503")
    page = await tab.open(key=None)
    starts = True

    async def starting(route: Route) -> None:
        if starts:
            body = json.dumps({"code": "unavailable", "message": "The service is stopping"})
            await route.fulfill(status=503, body=body, content_type="application/json")
        else:
            await route.continue_()

    await tab.route(page, "**/console/api/*", starting)
    await page.get_by_label("Key").fill(OWNER)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("The gate is starting or stopping")
    await expect(page.locator("main")).to_contain_text("goes on by itself")
    starts = False
    await expect(page.locator(".who b")).to_have_text("olga")


@requirement("OPS-317")
async def test_a_view_that_failed_comes_by_itself_when_the_gate_is_there_again(
    browser: Browser, tmp_path: Path
) -> None:
    async with fleet(tmp_path) as gate:
        tab = Tab(browser, gate.url)
        tab.expect(AWAY)
        page = await tab.open("keys")
        await settled(page, "td")
        await gate.stop()
        await expect(page.get_by_text("The gate does not answer")).to_be_visible()
        await page.get_by_role("link", name="Configuration").click()
        await expect(page.get_by_role("alert")).to_contain_text("when the gate answers")
        await gate.start()
        await settled(page, ".rows")
        await expect(page.get_by_role("alert")).to_have_count(0)
        await tab.close(None)
        assert tab.faults == []


@requirement("OPS-317")
async def test_a_chat_that_a_starting_gate_refused_is_sent_again(tab: Tab) -> None:
    tab.expect("status of 503")
    page = await tab.open("chat")
    starts = True

    async def starting(route: Route) -> None:
        if starts:
            body = json.dumps({"code": "engine_unavailable", "message": "The tools are being gathered"})
            await route.fulfill(status=503, body=body, content_type="application/json")
        else:
            await route.continue_()

    await tab.route(page, "**/engine/chat", starting)
    await page.get_by_role("textbox", name="Message").fill("get order ord_0007")
    await page.keyboard.press("Enter")
    await expect(page.locator("main")).to_contain_text("When it answers, send the same again")
    starts = False
    await page.get_by_role("button", name="Send again").press("Enter")
    await expect(page.locator("main")).to_contain_text("Scripted demo model")
    await expect(page.locator(".you")).to_have_count(1)


@requirement("OPS-318")
async def test_a_session_that_ended_says_so_and_leads_back(browser: Browser, tmp_path: Path) -> None:
    async with fleet(tmp_path) as gate:
        tab = Tab(browser, gate.url)
        tab.expect("status of 401", AWAY)
        page = await tab.open("calls?tool=get_order", key=READER)
        await expect(page.get_by_role("heading", level=1)).to_have_text("Your calls")
        await gate.without_key("reader")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
        await expect(page.get_by_role("alert")).to_contain_text("The gate does not accept the key of this tab any more")
        await page.get_by_label("Key").fill(OWNER)
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Calls")
        assert "tool=get_order" in page.url
        await tab.close(None)
        assert tab.faults == []


@requirement("OPS-319")
async def test_an_empty_gate_says_what_to_do_next(browser: Browser, tmp_path: Path) -> None:
    async with fleet(tmp_path, upstreams=[], access=[]) as gate:
        tab = Tab(browser, gate.url)
        for place in ("", "tools", "servers", "chat"):
            page = await tab.open(place)
            await expect(page.locator("main")).to_contain_text("wicketgate import")
            assert await violations(page) == []
        page = await tab.open(key=READER)
        await expect(page.locator("main")).to_contain_text("Your key may use no tool of this gate")
        await tab.close(None)
        assert tab.faults == []


@requirement("OPS-320")
async def test_the_picture_fits_its_screen_and_stands_still_when_it_is_paused(tab: Tab, gate: Fleet) -> None:
    page = await tab.open(width=1280, reduced_motion="no-preference")
    await settled(page, ".row")
    lines = """(all) => all.map((row) => new Set([...row.querySelectorAll("button.t")]
        .map((tile) => Math.round(tile.getBoundingClientRect().top))).size)"""
    rows = await page.locator(".row", has=page.locator("button.t")).evaluate_all(
        f"(all) => ({lines})(all.filter((row) => row.querySelectorAll('button.t').length <= 12))"
    )
    assert set(rows) == {1}
    await gate.call("get_order", order_id="ord_0001")
    await expect(page.locator(".flow circle").first).to_be_attached()
    await expect(page.locator(".flow circle")).to_have_count(0)
    await page.get_by_role("button", name="Pause").click()
    counted = page.locator(".figs div").first.locator("dd")
    before = int((await counted.inner_text()).replace(",", ""))
    await page.evaluate(
        """window.seen = 0; new MutationObserver(() => {
            if (document.querySelector(".flow circle, .t.on")) window.seen += 1;
        }).observe(document.querySelector(".pic"), { childList: true, subtree: true, attributes: true })"""
    )
    await gate.call("get_order", order_id="ord_0001")
    await expect(counted).to_have_text(f"{before + 1:,}")
    assert await page.evaluate("window.seen") == 0
    wide = await tab.open(width=1920, height=1080)
    await settled(wide, ".row")
    # No empty third beside the picture.
    assert await wide.evaluate("document.querySelector('.cols').getBoundingClientRect().right") > 1_800
