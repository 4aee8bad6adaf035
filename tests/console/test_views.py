"""Each place of the console in each of its looks: what axe finds, what is cut off, what is empty.

``make test`` looks at each place in both themes; ``CONSOLE=whole`` (``make test-console``) at all widths, at 200 %, in
forced colours, and writes a picture of each below ``CONSOLE_PICTURES``.
"""

import os
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from tests.console.browser import Tab, violations
from tests.console.gate import Fleet
from tests.support.requirement import requirement

# A place, and a part of it that is there when it is complete. {name} stands for the id of the tool of that name,
# {call} for that of a call.
PLACES: dict[str, tuple[str, str]] = {
    "sign-in": ("", "#key"),
    "gate": ("", ".row"),
    "gate-below": ("?path=/shop/orders", ".row.tool"),
    "gate-odd": ("?path=/odd", ".row.tool"),
    "tools": ("tools?q=cancel+an+order", ".res li"),
    "tools-odd": ("tools?id={markup}", "article h2"),
    "tools-run": ("tools?id={get_order}&tab=run", ".f"),
    "chat": ("chat", "textarea"),
    "servers": ("servers", "main section"),
    "server": ("servers?name=broken", ".detail .name"),
    "calls": ("calls", ".log table"),
    "call": ("calls?id={call}", ".detail .name"),
    "approvals": ("approvals", "#decided"),
    "keys": ("keys", "td"),
    "spending": ("spending", ".choose"),
    "connect": ("connect", "pre"),
    "configuration": ("configuration", ".rows"),
    "tools-held": ("tools?show=held", "main li, main a.nm"),
}
WIDTHS = (360, 390, 768, 1024, 1440, 1920)
LOOKS: dict[str, dict[str, Any]] = {
    "light": {},
    "dark": {"color_scheme": "dark"},
    # A window of 1280 pixels at 200 % is one of 640 with twice the pixels.
    "twice": {"width": 640, "height": 400, "device_scale_factor": 2},
    "forced": {"forced_colors": "active"},
    "forced-dark": {"forced_colors": "active", "color_scheme": "dark"},
}
WHOLE = os.environ.get("CONSOLE") == "whole"
PICTURES = os.environ.get("CONSOLE_PICTURES")

if WHOLE:
    VIEWS = [(look, width) for look in LOOKS for width in ((640,) if look == "twice" else WIDTHS)]
else:
    VIEWS = [("light", 1440), ("dark", 390)]


@requirement("OPS-275", "OPS-276", "OPS-277", "OPS-278", "OPS-288")
@pytest.mark.parametrize(("look", "width"), VIEWS, ids=[f"{look}-{width}" for look, width in VIEWS])
@pytest.mark.parametrize("place", PLACES)
async def test_a_view_is_whole_and_open_to_everybody(tab: Tab, gate: Fleet, place: str, look: str, width: int) -> None:
    path, part = PLACES[place]
    if "{call}" in path:
        path = path.replace("{call}", await gate.a_call())
    path = re.sub(r"\{(\w+)\}", lambda found: gate.id(found[1]).replace("#", "%23"), path)
    await gate.call("hostile_failure")
    await gate.call("refund_order", order_id="ord_0042", note="<b>paid</b> twice")
    given: dict[str, Any] = {"width": width, **LOOKS[look]}
    if place == "sign-in":
        given["key"] = None
    page = await tab.open(path, **given)
    await expect(page.locator(part).first).to_be_visible()
    await expect(page.get_by_text("Loading …")).to_have_count(0)
    assert await violations(page) == []
    assert await page.evaluate("document.documentElement.scrollWidth") <= width, "it is to be scrolled sideways"
    if PICTURES:
        await page.screenshot(path=str(Path(PICTURES) / f"{place}-{look}-{width}.png"))


@requirement("OPS-288")
async def test_the_judge_of_views_finds_what_is_wrong(tab: Tab) -> None:
    page = await tab.open()
    await expect(page.locator(".row").first).to_be_visible()
    await page.evaluate("document.querySelector('main').append(document.createElement('button'))")
    assert any(each.startswith("button-name") for each in await violations(page))
