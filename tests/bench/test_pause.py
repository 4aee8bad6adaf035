"""The probe and the upstream that the pause benchmark stands on."""

import asyncio
import threading

import anyio
import httpx2
import pytest
from mcp import Client
from mcp import types as t
from mcp.client.streamable_http import streamable_http_client

from bench.big_upstream import BigUpstream, make_app
from bench.loop_probe import probe
from bench.pause import measure, refreshed, shown
from tests.support.process import program
from tests.support.prompt_server import serving_app
from tests.support.service import BOUND_S, running_service


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
async def test_the_big_upstream_pages_and_announces_a_rename_in_both_eras(mode: str) -> None:
    tools = [t.Tool(name=f"t{number}", input_schema={"type": "object"}) for number in range(7)]
    told = anyio.Event()

    async def on_message(message: object) -> None:
        if isinstance(message, t.ToolListChangedNotification):
            told.set()

    async def listed(client: Client) -> list[list[str]]:
        pages, cursor = [], None
        while True:
            page = await client.list_tools(cursor=cursor)
            pages.append([tool.name for tool in page.tools])
            cursor = page.next_cursor
            if cursor is None:
                return pages

    async with (
        serving_app(make_app(BigUpstream(tools, page=3, shown=7))) as url,
        httpx2.AsyncClient(timeout=BOUND_S, trust_env=False) as http,
        Client(
            streamable_http_client(f"{url}/mcp", http_client=http), mode=mode, message_handler=on_message, cache=None
        ) as client,
    ):
        assert await listed(client) == [["t0", "t1", "t2"], ["t3", "t4", "t5"], ["t6"]]
        with anyio.fail_after(BOUND_S):
            if mode == "legacy":
                while not told.is_set():  # the GET stream opens by itself, after the handshake
                    await http.post(f"{url}/control", json={"rename": True})
                    with anyio.move_on_after(0.1):
                        await told.wait()
            else:
                async with client.listen(tools_list_changed=True) as changes:
                    await http.post(f"{url}/control", json={"rename": True})
                    await anext(aiter(changes))
        assert (await listed(client))[0][0] == "t0_r1"


async def test_the_probe_sees_a_pause_of_the_loop() -> None:
    stop = threading.Event()
    async with running_service() as service:
        host, port = service.url.removeprefix("http://").split(":")
        probing = asyncio.create_task(asyncio.to_thread(probe, host, int(port), stop))
        async with asyncio.timeout(BOUND_S):
            for _ in range(20):
                assert (await service.http.get("/healthz")).status_code == 200
            pause = threading.Event()
            pause.wait(0.25)  # on purpose on the loop's own thread
            for _ in range(20):
                assert (await service.http.get("/healthz")).status_code == 200
            stop.set()
            samples = await probing
    took = sorted(ms for _, ms, _ in samples)
    assert took[-1] >= 200
    assert took[0] < 200


async def test_the_probe_refuses_an_answer_that_is_not_200() -> None:
    async with running_service(await_ready=False) as service:
        host, port = service.url.removeprefix("http://").split(":")
        with pytest.raises(ConnectionError):
            await asyncio.to_thread(probe, host, int(port), threading.Event(), "/nowhere")


async def test_every_phase_of_the_bench_comes_to_its_end() -> None:
    rows = await measure(tools=40, page=25, refreshes=1, idle_s=1.0)
    assert [row["phase"] for row in rows] == [
        "idle",
        "all 40 tools appear",
        "browsed, no refresh",
        "one tool renamed",
        "refresh, nothing changed",
    ]
    assert all(row["longest_ms"][0] > 0 for row in rows)
    assert "refresh, nothing changed" in shown(rows)


async def test_a_refresh_that_never_comes_ends_the_bench_with_what_it_waited_for() -> None:
    async with program("-c", "import sys; print('something else', flush=True); sys.stdin.read()", stdin=-1) as quiet:
        await quiet.wait_for("else", "stdout")
        with pytest.raises(TimeoutError, match=r"no line with '.*catalog .* after order \{\}(?s:.*)something else"):
            await refreshed(quiet, 1, "order {}", bound_s=0.01)
