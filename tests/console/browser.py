"""Debian's Chromium, and pages in it that fail a test for whatever goes wrong in them."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, Route, async_playwright

from tests.console.gate import OWNER
from tests.support.debian import debian_program
from tests.support.service import BOUND_S

AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text("utf-8")
# Best practices too: they are what a reader of a screen stumbles over first.
_RULES = {
    "resultTypes": ["violations"],
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
}
_WATCH = "addEventListener('securitypolicyviolation', (e) => console.error('CSP', e.violatedDirective, e.blockedURI))"
_KEY = "sessionStorage.getItem('wicketgate.key') ?? sessionStorage.setItem('wicketgate.key', {key})"


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    found = debian_program("chromium-headless-shell", "chromium-headless-shell", ("usr/lib/chromium",))
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(
            executable_path=str(found.path), args=["--no-sandbox"], env=dict(found.environment)
        )
        try:
            yield browser
        finally:
            await browser.close()


class Tab:
    """Pages of one test, in a browser context of their own. *faults* must be empty at its end."""

    def __init__(self, browser: Browser, url: str, init: str = "", trace: bool = True) -> None:
        self._browser = browser
        self._init = _WATCH + "\n" + init
        self._trace = trace
        self._url = url
        self._contexts: list[BrowserContext] = []
        self._expected: list[str] = []
        self._faults: list[str] = []
        self._answering: set[asyncio.Task[Any]] = set()

    async def open(
        self, path: str = "", key: str | None = OWNER, width: int = 1440, height: int = 900, **options: Any
    ) -> Page:
        """The page of the console at *path*, signed in with *key*. *options* are those of a context."""
        whole: dict[str, Any] = {"reduced_motion": "reduce", "color_scheme": "light", **options}
        context = await self._browser.new_context(viewport={"width": width, "height": height}, **whole)
        self._contexts.append(context)
        if self._trace:
            await context.tracing.start(screenshots=False, snapshots=True)
        await context.add_init_script(self._init)
        if key:
            await context.add_init_script(_KEY.format(key=json.dumps(key)))
        context.set_default_timeout(BOUND_S * 1_000)
        page = await context.new_page()
        page.on("pageerror", lambda error: self._faults.append(f"error in the page: {error}"))
        page.on("console", self._said)
        page.on("requestfailed", lambda asked: self._failed(asked.url, asked.failure or ""))
        await page.goto(f"{self._url}/console/{path}")
        return page

    async def route(self, page: Page, pattern: str, answer: Callable[[Route], Awaitable[None]]) -> None:
        """Has *answer* called for each request of *page* that matches *pattern*. What still answers at the end of the
        test is cancelled then: Playwright leaves it to the garbage collector, whose errors another test would have."""

        async def answering(route: Route) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._answering.add(task)
            try:
                await answer(route)
            finally:
                self._answering.discard(task)

        await page.route(pattern, answering)

    def expect(self, *patterns: str) -> None:
        """Faults that match one of *patterns* are meant."""
        self._expected += patterns

    def _said(self, said: ConsoleMessage) -> None:
        if said.type == "error":
            self._faults.append(f"{said.text} at {said.location.get('url', '')}")

    def _failed(self, url: str, failure: str) -> None:
        # What the page itself gives up, such as the load of a view that was left, is no failure.
        if "ERR_ABORTED" not in failure:
            self._faults.append(f"{failure} for {url}")

    @property
    def faults(self) -> list[str]:
        return [each for each in self._faults if not any(re.search(pattern, each) for pattern in self._expected)]

    async def close(self, trace: Path | None) -> list[Path]:
        """Returns the traces, written beside *trace* if it is given."""
        for context in self._contexts:
            for page in context.pages:
                await page.unroute_all(behavior="ignoreErrors")
        left = list(self._answering)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        written = []
        for number, context in enumerate(self._contexts):
            if trace is not None:
                written.append(trace.with_name(f"{trace.name}-{number}.zip"))
            if self._trace:
                await context.tracing.stop(path=written[-1] if trace is not None else None)
            await context.close()
        return written


async def violations(page: Page) -> list[str]:
    """The findings of axe, one line each."""
    await page.evaluate(AXE)
    found = await page.evaluate(f"axe.run({json.dumps(_RULES)})")
    return [
        f"{each['id']}: {node['target']} {node.get('failureSummary', '')[:300]}"
        for each in found["violations"]
        for node in each["nodes"][:3]
    ]
