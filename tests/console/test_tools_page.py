"""The page Tools, in a browser."""

import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.debian import debian_program
from tests.support.requirement import requirement
from tests.support.service import BOUND_S, running_service
from wicketgate.access.identity import hash_key
from wicketgate.catalog.pins import pin
from wicketgate.config.lock_file import write_lock
from wicketgate.ports import CallContext
from wicketgate.upstreams.embedded import StubUpstream

playwright = pytest.importorskip("playwright.async_api")

KEY = "wg_olga_0123456789012345678901234567890123456789"
HOSTILE = '<img src=x onerror="document.title=1"> \u202eevil\u202c <b>bold</b> \u001b[31mred'

PLACE = {
    "type": "object",
    "required": ["lat"],
    "properties": {"lat": {"type": "number", "maximum": 90}, "near": {"$ref": "#/$defs/place"}},
}
TRIP = {
    "type": "object",
    "required": ["name", "where"],
    "$defs": {"place": PLACE},
    "properties": {
        "name": {"type": "string"},
        "where": {"$ref": "#/$defs/place"},
        "who": {
            "anyOf": [
                {"type": "string", "title": "A name"},
                {"type": "object", "title": "A person", "properties": {"first": {"type": "string"}}},
            ]
        },
        "tags": {"type": "array", "items": {"type": "string"}},
        "mode": {"enum": ["fast", 3]},
        "extra": {},
    },
}
BILL = {"name": "pay_bill", "description": "Pay a bill.", "inputSchema": {"type": "object"}}
TOOLS: list[dict[str, Any]] = [
    {"name": "plan_trip", "description": "Plan a trip.", "inputSchema": TRIP},
    {"name": "cancel_trip", "description": "Cancel a trip that was planned.", "inputSchema": {"type": "object"}},
    {"name": "odd_trip", "description": HOSTILE, "inputSchema": {"type": "object"}},
    {**BILL, "inputSchema": {"type": "object", "required": ["amount"]}},
]


class Trips(StubUpstream):
    def __init__(self) -> None:
        super().__init__(TOOLS, self._answer, name="trips")

    async def _answer(self, name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        return {"content": [{"type": "text", "text": HOSTILE}]}


@asynccontextmanager
async def opened(folder: Path, address: str, width: int = 1440, **more: Any) -> AsyncIterator[tuple[Any, Trips]]:
    """The page Tools at *address*. Fails for an error in the page, and for one that the page was told."""
    program = debian_program("chromium-headless-shell", "chromium-headless-shell", ("usr/lib/chromium",))
    lock = folder / "wicketgate.lock"
    write_lock(lock, {"trips": {"pay_bill": pin(BILL)}})
    keys = [{"id": "olga", "sha256": hash_key(KEY), "actor": "olga", "permissions": ["tools:*", "ops:*"]}]
    settings = {"auth": {"keys": keys}, "pins": {"file": str(lock)}, "mcp": {"cache_stable": True}, **more}
    faults: list[str] = []
    trips = Trips()
    async with (
        running_service(upstreams=[trips], settings=settings) as service,
        playwright.async_playwright() as driver,
    ):
        browser = await driver.chromium.launch(
            executable_path=str(program.path), args=["--no-sandbox"], env=program.environment
        )
        context = await browser.new_context(viewport={"width": width, "height": 900}, reduced_motion="reduce")
        await context.add_init_script(f"sessionStorage.setItem('wicketgate.key', {json.dumps(KEY)})")
        page = await context.new_page()
        page.set_default_timeout(BOUND_S * 1_000)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda said: faults.append(said.text) if "Content Security" in said.text else None)
        await page.goto(f"{service.url}/console/tools{address}")
        yield page, trips
        await browser.close()
    assert faults == []


async def results(page: Any) -> list[str]:
    names: list[str] = await page.locator(".res .nm").all_inner_texts()
    return [re.match(r"\w+_(?:trip|bill)", name)[0] for name in names]  # type: ignore[index]


@requirement("OPS-270")
async def test_a_search_is_explained_while_it_is_typed(tmp_path: Path) -> None:
    async with opened(tmp_path, "") as (page, _):
        await page.get_by_role("searchbox").press_sequentially("cancel the trip")
        await page.locator(".res .rk").first.wait_for()
        await page.wait_for_url("**/tools?q=cancel+the+trip")
        await page.get_by_text("3 tools match").wait_for()
        assert (await results(page))[0] == "cancel_trip"
        words = await page.locator(".words .hit").all_inner_texts()
        assert [" ".join(word.split()) for word in words] == ["cancel in 1", "trip in 3"]
        rows = page.locator(".why tbody tr")
        await rows.first.wait_for()
        adds = [float(text) for text in await rows.locator("td:last-child").all_inner_texts()]
        told = await page.get_by_text(re.compile("^Place 1 for")).inner_text()
        assert abs(sum(adds) - float(told.rstrip(".").rpartition(" ")[2])) < 0.002
        # As sent: typing asks nothing, Enter does.
        await page.get_by_role("link", name="As sent in this session").click()
        await page.locator(".res li").first.wait_for()
        await page.get_by_role("searchbox").fill("plan a trip")
        await page.get_by_role("searchbox").press("Enter")
        await page.get_by_text("sent before").first.wait_for()


@requirement("OPS-271")
async def test_a_form_and_json_follow_each_other_and_run(tmp_path: Path) -> None:
    async with opened(tmp_path, "?id=trips:plan_trip&tab=run") as (page, trips):
        await page.get_by_label("name * required").fill("Oslo")
        await page.get_by_label("lat * required").fill("100")
        await page.get_by_role("button", name="Add near").click()
        await page.get_by_label("lat * required").nth(1).fill("2.5")
        await page.get_by_role("button", name="Add tags").click()
        await page.get_by_role("button", name="Add an item to tags").click()
        await page.get_by_label("1 * required").fill("north")
        await page.get_by_label("Form of who").select_option(label="A person")
        await page.get_by_label("first").fill("Ann")
        await page.get_by_label("mode").select_option(label="3")
        wanted = {
            "name": "Oslo",
            "where": {"lat": 100, "near": {"lat": 2.5}},
            "tags": ["north"],
            "who": {"first": "Ann"},
            "mode": 3,
        }
        await playwright.expect(page.get_by_label("As JSON")).to_have_value(re.compile('"mode": 3'))
        assert json.loads(await page.get_by_label("As JSON").input_value()) == wanted
        await page.get_by_role("button", name="Check only").click()
        await page.locator(".why-not").wait_for()
        assert await page.get_by_label("lat * required").first.get_attribute("aria-invalid") == "true"
        wanted["where"] = {"lat": 59.9}
        await page.get_by_label("As JSON").fill(json.dumps(wanted))
        await playwright.expect(page.get_by_label("lat * required").first).to_have_value("59.9")
        assert trips.calls == []
        await page.get_by_role("button", name="Run", exact=True).click()
        await page.get_by_text("the server was called", exact=True).wait_for()
        assert [arguments for _, arguments, _ in trips.calls] == [wanted]
        assert await page.locator("main img, main b:has-text('bold')").count() == 0
        assert "\\u{202e}evil" in await page.locator(".sum").inner_text()


@requirement("OPS-272")
@pytest.mark.parametrize("width", [1440, 390])
async def test_what_is_held_back_is_found_with_its_difference(tmp_path: Path, width: int) -> None:
    async with opened(tmp_path, "", width) as (page, _):
        await page.get_by_role("link", name="1 tool quarantined").click()
        await page.get_by_role("link", name="pay_bill").click()
        await page.locator(".diff").wait_for()
        assert '+ inputSchema.required: ["amount"]' in await page.locator(".diff").inner_text()
        assert await page.get_by_role("button", name="Accept this definition").is_enabled()
        await page.evaluate("history.back()")
        await page.get_by_role("link", name="odd_trip").click()
        await page.get_by_text("hidden characters: U+001B").last.wait_for()
        assert await page.locator("main img").count() == 0
        assert await page.evaluate("document.documentElement.scrollWidth") == width


@requirement("ACCESS-273")
async def test_a_tool_that_is_hidden_from_the_operator_is_marked_and_explained_without_run(tmp_path: Path) -> None:
    hidden = [{"match": "trips:cancel_trip", "visibility": "internal"}]
    async with opened(tmp_path, "", access=hidden) as (page, _):
        await page.get_by_role("link", name=re.compile("cancel_trip.*hidden from you")).click()
        await page.get_by_role("heading", name="cancel_trip").wait_for()
        assert await page.get_by_role("tab").all_inner_texts() == ["Schema", "Pin", "Who may", "Calls"]
        await page.get_by_text("Does not see it").wait_for()
        await page.get_by_text("access[0] (trips:cancel_trip): internal").first.wait_for()
        await page.reload()
        await page.get_by_text("Does not see it").wait_for()
