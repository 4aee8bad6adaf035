"""One browser and one gate for the files of this folder in each worker, a browser context for each test.

Everything runs in the loop of the tests: Playwright's own loop, in the blocking interface, would be in the way of all
other tests of the worker.
"""

from collections.abc import AsyncIterator, Generator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, expect

from tests.console.browser import Tab, chromium
from tests.console.gate import Fleet, fleet
from tests.support.service import BOUND_S

expect.set_options(timeout=BOUND_S * 1_000)

_OUTCOME = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Generator[None, Any, Any]:
    report = yield
    if report.when == "call":
        item.stash[_OUTCOME] = report.failed
    return report


@pytest.fixture(scope="package")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as opened:
        yield opened


@pytest.fixture(scope="package")
async def gate(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    async with fleet(tmp_path_factory.mktemp("gate")) as running:
        yield running


@pytest.fixture
async def tab(browser: Browser, gate: Fleet, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Tab]:
    """Fails the test for errors in its pages, on their consoles, in their requests, and for what the policy forbids.
    Traces are kept of tests that fail."""
    opened = Tab(browser, gate.url)
    await gate.deny_all()  # what earlier tests left waiting
    yield opened
    failed = request.node.stash.get(_OUTCOME, True) or bool(opened.faults)
    traces = await opened.close(tmp_path / "trace" if failed else None)
    assert opened.faults == [], traces
    if traces:
        print("traces:", *traces)
