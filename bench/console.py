"""The time until the page Gate is seen, on loopback: ``python -m bench.console [--tools 85,10000] [--rounds 5]``.

A gate of so many tools, as a process of its own, and Debian's Chromium, in a new context each time. *first paint* is
the browser's own first contentful paint; *totals* is when the heading tells the number of tools, *map* when the rows
are there; *frame* is the 95th percentile of the time between two frames while the page is scrolled; *news* is the
longest task of the page (0: none of 50 ms, which is the least that a browser tells) while 400 calls of 400 tools end,
eight at a time. All in milliseconds, the first three from the start of the navigation.
"""

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx
from playwright.async_api import Browser, Page

from tests.console.browser import Tab, chromium
from tests.support.process import program

_MARKS = """
window.marks = {};
new MutationObserver(() => {
  const now = performance.now();
  if (/behind the gate/.test(document.querySelector("h1")?.textContent ?? "")) marks.totals ??= now;
  if (document.querySelector(".row")) marks.map ??= now;
}).observe(document, { childList: true, subtree: true, characterData: true });
"""
_FRAMES = """async () => {
  const times = [];
  for (let at = performance.now(), y = 0; times.length < 60; y += 40) {
    scrollTo(0, y);
    const now = await new Promise(requestAnimationFrame);
    times.push(now - at);
    at = now;
  }
  return times.sort((a, b) => a - b)[56];
}"""
_TASKS = """
window.tasks = [0];
const watch = new PerformanceObserver((list) => list.getEntries().forEach((each) => tasks.push(each.duration)));
watch.observe({ type: "longtask" });
"""
_CALLS = 400
_AT_ONCE = 8
_CONFIG = """
server: {{start_deadline_s: 120}}
upstreams:
{upstreams}
"""
NAMESPACES = 10


def settings(tools: int) -> str:
    """A configuration of *tools* tools, in at most ten servers."""
    server = Path(__file__).with_name("console_server.py")
    each = -(-tools // NAMESPACES)
    counts = [min(each, tools - start) for start in range(0, tools, each)]
    line = (
        "  - {{name: area{number}, connect_timeout_s: 60, command: [{python}, -ISE, {server}, '{count}', '{number}']}}"
    )
    upstreams = (
        line.format(number=number, python=sys.executable, server=server, count=count)
        for number, count in enumerate(counts)
    )
    return _CONFIG.format(upstreams="\n".join(upstreams))


async def measure(browser: Browser, tools: int, rounds: int) -> dict[str, list[float]]:
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "wicketgate.yaml"
        config.write_text(settings(tools))
        async with program("app", "serve", "--config", str(config), "--port", "0", cold=True) as gate:
            url = (await gate.wait_for(r"ready on (http://\S+)", bound_s=180))[1]
            key = (await gate.wait_for(r"(wg_local_[\w-]+)"))[1]
            found: dict[str, list[float]] = {}
            for _ in range(rounds + 1):
                for name, value in (await look(browser, url, key)).items():
                    found.setdefault(name, []).append(value)
            await gate.stop()
    return {name: values[1:] for name, values in found.items()}  # the first one warms the gate up


async def look(browser: Browser, url: str, key: str) -> dict[str, float]:
    tab = Tab(browser, url, init=_MARKS, trace=False)
    page = await tab.open(key=key)
    await page.wait_for_function("() => marks.map && performance.getEntriesByName('first-contentful-paint').length")
    marks: dict[str, Any] = await page.evaluate("({...marks, n: document.querySelectorAll('*').length})")
    paint = await page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    frame = await page.evaluate(_FRAMES)
    news = await longest_task(page, url, key)
    await tab.close(None)
    if tab.faults:
        raise SystemExit(f"the page has failed: {tab.faults}")
    return {
        "first paint": paint,
        "totals": marks["totals"],
        "map": marks["map"],
        "frame": frame,
        "news": news,
        "elements": marks["n"],
    }


async def longest_task(page: Page, url: str, key: str) -> float:
    """Runs tools all over the map, so that every row has news."""
    async with httpx.AsyncClient(
        base_url=f"{url}/console/api/", headers={"Authorization": f"Bearer {key}"}, trust_env=False, timeout=60
    ) as http:
        ids: list[str] = (await http.get("map")).json()["columns"]["id"]
        waiting = random.Random(1).choices(ids, k=_CALLS)
        await page.evaluate(_TASKS)

        async def caller() -> None:
            while waiting:
                answer = await http.post("execute", json={"id": waiting.pop(), "args": {}})
                answer.raise_for_status()

        await asyncio.gather(*(caller() for _ in range(_AT_ONCE)))
    await page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 100)))")
    found: float = await page.evaluate("Math.max(...tasks)")
    return found


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.console", description=__doc__)
    parser.add_argument("--tools", default="85,10000")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    async with chromium() as browser:
        for tools in map(int, options.tools.split(",")):
            found = await measure(browser, tools, options.rounds)
            told = (f"{name} {statistics.median(each):.0f} (to {max(each):.0f})" for name, each in found.items())
            print(f"{tools} tools: {', '.join(told)}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
