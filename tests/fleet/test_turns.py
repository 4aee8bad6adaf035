"""Hundreds of upstreams connect and end a few at a time, and other work goes on meanwhile (UP-56)."""

import asyncio
import json
from typing import Any

import pytest

from tests.support.http_service import HttpService, Reply, Seen
from tests.support.requirement import requirement
from tests.support.until import until
from wicketgate.config.settings import Settings
from wicketgate.fleet import turns
from wicketgate.fleet.turns import AT_ONCE, LONGEST_S, Turns, cancel_in_turns
from wicketgate.gate import Gate

BOUND_S = 20.0
JSON = {"content-type": "application/json"}


class Servers:
    """Many MCP servers behind one port, one a path. *most*: how many were asked for their handshake at once."""

    def __init__(self) -> None:
        self.connecting = 0
        self.most = 0
        self.hung = asyncio.Event()

    async def __call__(self, seen: Seen) -> Reply:
        if seen.method != "POST":
            return Reply(status=405)
        if "hangs" in seen.target:
            await self.hung.wait()
        message = json.loads(seen.body)
        result: dict[str, Any]
        match message["method"]:
            case "initialize":
                self.connecting += 1
                self.most = max(self.most, self.connecting)
                for _ in range(50):
                    await asyncio.sleep(0)
                self.connecting -= 1
                result = {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "s", "version": "1"},
                }
            case "tools/list":
                result = {"tools": [{"name": "it", "inputSchema": {"type": "object"}}]}
            case "server/discover":
                error = {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}}
                return Reply(json.dumps(error).encode(), headers=JSON)
            case _:
                return Reply(status=202)
        return Reply(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode(), headers=JSON)


def settings(url: str, count: int, path: str = "") -> Settings:
    return Settings.model_validate(
        {"upstreams": [{"name": f"s{number}", "url": f"{url}/{path}{number}"} for number in range(count)]}
    )


async def all_ready(gate: Gate, names: set[str]) -> None:
    await until(lambda: not any(gate.fleet.members[name].upstream.status.phase != "ready" for name in names))


@requirement("UP-56")
async def test_upstreams_connect_a_few_at_a_time_at_the_start_and_after_a_reload(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # On a busy machine a handshake may take longer than a turn counts otherwise.
    monkeypatch.setattr(turns, "LONGEST_S", BOUND_S)
    servers, count = Servers(), 4 * AT_ONCE
    async with (
        HttpService(servers) as service,
        asyncio.timeout(BOUND_S),
        Gate(settings(service.url, count), waits=False) as gate,
    ):
        await all_ready(gate, set(gate.fleet.members))
        await gate.apply(settings(service.url, count, "again/"))
        await all_ready(gate, set(gate.fleet.members))
        assert 1 < servers.most <= AT_ONCE


@requirement("UP-56")
async def test_servers_that_do_not_answer_hold_up_no_others() -> None:
    servers, count = Servers(), 2 * AT_ONCE
    async with HttpService(servers) as service, asyncio.timeout(BOUND_S):
        hanging = settings(service.url, count, "hangs/").upstreams
        good = [one.model_copy(update={"name": f"good_{one.name}"}) for one in settings(service.url, count).upstreams]
        both = Settings().model_copy(update={"upstreams": [*hanging, *good]})
        async with Gate(both, waits=False) as gate:
            await all_ready(gate, {one.name for one in good})
            assert gate.fleet.members["s0"].upstream.status.phase == "connecting"
            servers.hung.set()


@requirement("UP-56")
async def test_a_turn_that_takes_too_long_no_longer_counts() -> None:
    own = Turns(at_once=2, longest_s=0.001)
    async with asyncio.timeout(BOUND_S):
        held = [await own.take() for _ in range(6)]
    for turn in held:
        turn.end()
    own = Turns(at_once=1, longest_s=BOUND_S)
    first = await own.take()
    waiting = asyncio.create_task(own.take())
    await asyncio.sleep(0)
    assert not waiting.done()
    first.end()
    first.end()
    second = await waiting
    third = asyncio.create_task(own.take())
    await asyncio.sleep(0)
    assert not third.done(), "a turn that has ended twice makes room once"
    second.end()
    (await third).end()


@requirement("UP-56")
async def test_tasks_are_cancelled_in_turns_and_other_work_goes_on_between() -> None:
    ended_in_turn: list[int] = []
    turn = 0

    async def supervisor() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended_in_turn.append(turn)

    async def other_work() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(supervisor()) for _ in range(8 * AT_ONCE)]
    work = asyncio.create_task(other_work())
    await asyncio.sleep(0)
    await cancel_in_turns(tasks)
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    work.cancel()
    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
    assert max(ended_in_turn.count(number) for number in set(ended_in_turn)) <= AT_ONCE


@pytest.mark.parametrize("cancelled", [True, False])
async def test_a_turn_that_is_waited_for_is_not_lost_when_its_waiter_leaves(cancelled: bool) -> None:
    own = Turns(at_once=1, longest_s=BOUND_S)
    first = await own.take()
    waiting = asyncio.create_task(own.take())
    await asyncio.sleep(0)
    if cancelled:
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        first.end()
    else:
        first.end()
        (await waiting).end()
    async with asyncio.timeout(BOUND_S):
        (await own.take()).end()


async def test_the_last_of_many_gets_its_turn_within_the_longest_wait() -> None:
    turns = Turns(longest_s=0.01)
    others = 3 * AT_ONCE
    for _ in range(others):
        await turns.take()  # none of them ends its turn by itself
    assert Turns.longest_wait_s(others) == 3 * LONGEST_S
    assert Turns.longest_wait_s(AT_ONCE - 1) == 0
