"""The pictures of the README: ``python -m tests.console.pictures`` writes docs/console-light.png and console-dark.png.

They show the page Gate of the demo after so many chats, always the same ones (OPS-267).
"""

import asyncio
import re

from examples.traffic import record
from tests.console.browser import Tab, chromium
from tests.support.process import ROOT, program

CHATS = 240
WIDTH, HEIGHT = 1360, 900
FOLDER = ROOT / "docs"
THEMES = ("light", "dark")
MOST_BYTES = 190_000


async def main() -> None:
    async with program("examples.demo", "--port", "0", cold=True) as demo, chromium() as browser:
        url = (await demo.wait_for(r"ready on (http://\S+)"))[1]
        key = (await demo.wait_for(r"(wg_local_[\w-]+)"))[1]
        await asyncio.to_thread(record, url, key, CHATS)
        for theme in THEMES:
            tab = Tab(browser, url)
            page = await tab.open(key=key, width=WIDTH, height=HEIGHT, color_scheme=theme)
            await page.locator(".flow path").first.wait_for(state="attached")
            await page.locator(".live li").nth(5).wait_for()
            await page.evaluate("document.fonts.ready")
            picture = await page.screenshot(path=str(FOLDER / f"console-{theme}.png"))
            heading = re.sub(r"\s+", " ", await page.get_by_role("heading", level=1).inner_text())
            await tab.close(None)
            if tab.faults or len(picture) > MOST_BYTES:
                raise SystemExit(f"pictures: {theme}: {len(picture)} bytes, {tab.faults}")
            print(f"docs/console-{theme}.png: {len(picture)} bytes, {heading}")
        await demo.stop()


if __name__ == "__main__":
    asyncio.run(main())
