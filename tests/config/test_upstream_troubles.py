"""The words of configured upstreams that cannot be reached name the host, and nothing else of their URLs."""

import asyncio

import pytest

from tests.support.requirement import requirement
from tests.support.supervised import BOUND_S
from tests.support.until import until
from wicketgate.config.settings import UpstreamSettings
from wicketgate.config.upstreams import UpstreamMaker
from wicketgate.net import Outgoing

URL = "http://me:pass@127.0.0.1:1/private?key=hidden"
MEND = "start it, or correct the port in"


@requirement("UP-67")
@pytest.mark.parametrize(
    ("settings", "report"),
    [
        ({"url": URL}, f"it refuses connections (http://127.0.0.1:1): {MEND} url"),
        ({"url": URL, "transport": "sse"}, f"it refuses connections (http://127.0.0.1:1): {MEND} url"),
        (
            {"openapi": URL},
            f"its document cannot be reached: it refuses connections (http://127.0.0.1:1): {MEND} openapi",
        ),
        ({"command": ["/no/such/bin", "--token", "x"]}, "the command was not found (/no/such/bin): there is no such"),
    ],
)
async def test_the_report_names_what_was_tried(settings: dict[str, object], report: str) -> None:
    upstream = UpstreamMaker(Outgoing()).upstream(UpstreamSettings.model_validate({"name": "shop", **settings}))
    async with asyncio.timeout(BOUND_S), asyncio.TaskGroup() as tasks:
        supervising = tasks.create_task(upstream.supervise(lambda _: None))
        await until(lambda: upstream.status.phase == "down")
        supervising.cancel()
    assert upstream.status.report.startswith(report)
    assert "127.0.0.1" not in upstream.status.error
