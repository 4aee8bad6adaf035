"""Start, refresh on change, readiness, stop (OPS-10)."""

import asyncio
import selectors
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.requirement import requirement
from tests.support.until import until
from wicketgate.fleet.member import MultiplexUpstream
from wicketgate.gateway.lifecycle import Lifecycle
from wicketgate.gateway.options import RuntimeOptions, RuntimePolicies
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.ports import UpstreamStatus
from wicketgate.upstreams.embedded import StubUpstream
from wicketgate.upstreams.mcp.exchange import to_its_end

TOOL = {"name": "one", "inputSchema": {"type": "object"}}


class Changing(StubUpstream):
    """Announces changes when asked to; can be slow to list, or never connect."""

    def __init__(self, name: str) -> None:
        super().__init__([TOOL], name=name)
        self.changed: Callable[[str], None] | None = None
        self.listing = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self.listed = 0

    async def supervise(self, changed: Callable[[str], None]) -> None:
        self.changed = changed
        await super().supervise(changed)

    async def list_tools(self) -> Any:
        self.listing.set()
        await self.gate.wait()
        self.listed += 1
        return await super().list_tools()


def build(
    *upstreams: StubUpstream, deadline_s: float = 10, inferred: tuple[str, ...] = ()
) -> tuple[Lifecycle, ProxyRuntime]:
    fleet = MultiplexUpstream(upstreams)
    runtime = ProxyRuntime(fleet, RuntimeOptions(RuntimePolicies(inferred=frozenset(inferred))))
    return Lifecycle(fleet, runtime, start_deadline_s=deadline_s), runtime


@requirement("OPS-10")
async def test_it_is_ready_when_every_upstream_had_its_turn_and_no_more_once_it_stops() -> None:
    slow = Changing("slow")
    slow.gate.clear()
    lifecycle, runtime = build(Changing("quick"), slow)
    assert not lifecycle.ready()
    async with lifecycle.running():
        await until(lambda: len(runtime.catalog().items) == 1)
        assert not lifecycle.ready()
        slow.gate.set()
        await lifecycle.wait_ready()
        assert len(runtime.catalog().items) == 2
    assert not lifecycle.ready()


async def test_without_upstreams_it_is_ready_at_once() -> None:
    lifecycle, _ = build()
    async with lifecycle.running(), asyncio.timeout(30):
        await lifecycle.wait_ready()


@requirement("OPS-10")
async def test_one_that_failed_or_is_late_does_not_hold_the_others() -> None:
    class Down(StubUpstream):
        async def supervise(self, changed: Callable[[str], None]) -> None:
            self.status = UpstreamStatus("down", "it cannot be reached")
            await asyncio.Event().wait()

    lifecycle, _ = build(Changing("good"), Down([], name="down"))
    async with lifecycle.running(), asyncio.timeout(30):
        await lifecycle.wait_ready()
    stuck = Changing("stuck")
    stuck.gate.clear()
    lifecycle, _ = build(stuck, deadline_s=0.05)
    async with lifecycle.running(), asyncio.timeout(30):
        await lifecycle.wait_ready()


async def test_a_change_refreshes_and_changes_during_a_refresh_are_not_lost() -> None:
    upstream = Changing("files")
    lifecycle, runtime = build(upstream)
    async with lifecycle.running():
        await lifecycle.wait_ready()
        assert upstream.listed == 1
        upstream.gate.clear()
        upstream.listing.clear()
        assert upstream.changed is not None
        upstream.changed("files")
        await upstream.listing.wait()
        for name in ("two", "three"):  # both arrive while the first refresh is under way: one more refresh sees them
            upstream.tools.append({**TOOL, "name": name})
            upstream.changed("files")
        upstream.gate.set()
        await until(lambda: len(runtime.catalog().items) == 3)
        await until(lambda: upstream.listed == 3)


@requirement("CARD-14")
async def test_a_collision_is_logged_and_the_next_change_heals_it(caplog: pytest.LogCaptureFixture) -> None:
    upstream = Changing("files")
    upstream.tools[:] = [{**TOOL, "name": "a.two"}]
    lifecycle, runtime = build(Changing("more"), upstream, inferred=("files", "more"))
    async with lifecycle.running():
        await lifecycle.wait_ready()
        assert upstream.changed is not None
        upstream.tools[:] = [TOOL, {**TOOL, "name": "a.three"}]
        upstream.changed("files")
        await until(lambda: "two tools have the id" in caplog.text)
        assert sorted(item.name for item in runtime.catalog().items.values()) == ["one", "two"]
        upstream.tools[:] = [{**TOOL, "name": "a.three"}]
        upstream.changed("files")
        await until(lambda: sorted(item.name for item in runtime.catalog().items.values()) == ["one", "three"])


async def test_work_that_belongs_to_no_caller_ends_before_the_upstreams_do() -> None:
    ended: list[str] = []

    class Ending(StubUpstream):
        async def supervise(self, changed: Callable[[str], None]) -> None:
            try:
                await super().supervise(changed)
            finally:
                ended.append("upstream")

    lifecycle, runtime = build(Ending([]))

    async def close() -> None:
        await asyncio.sleep(0)
        ended.append("work")

    runtime.at_end(close)
    async with asyncio.timeout(30), lifecycle.running():
        await until(lifecycle.ready)
    assert ended == ["work", "upstream"]


class CountingSelector(selectors.DefaultSelector):
    """Counts the iterations of an event loop: each asks the selector once."""

    def __init__(self) -> None:
        super().__init__()
        self.iterations = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.iterations += 1
        return super().select(timeout)


@requirement("OPS-26")
@pytest.mark.parametrize("way", ["stopped", "drained", "retired"])
def test_the_loop_is_idle_while_an_upstream_takes_its_grace(way: str) -> None:
    selector = CountingSelector()
    during: list[int] = []

    class Stubborn(StubUpstream):
        """Ends like a child process that takes its grace, whatever cancels it meanwhile."""

        async def supervise(self, changed: Callable[[str], None]) -> None:
            try:
                await super().supervise(changed)
            finally:
                await to_its_end(self.grace)

        async def grace(self) -> None:
            before = selector.iterations
            await asyncio.sleep(0.2)  # the time in which turns of the loop are counted
            during.append(selector.iterations - before)

    async def run() -> None:
        lifecycle, runtime = build(Stubborn([TOOL], name="stubborn"))
        async with asyncio.timeout(30), lifecycle.running():
            await lifecycle.wait_ready(0.001)
            if way == "drained":
                lifecycle.stop_after(0)
            elif way == "retired":
                runtime.fleet.members = {}
                lifecycle.adopt_members(0)
            await until(lambda: way == "stopped" or during)

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        runner.run(run())
    # A cancellation that is delivered again at each iteration makes thousands of them.
    assert len(during) == 1
    assert during[0] < 100
