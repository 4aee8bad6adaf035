"""The spelling that a server gives its own name parts the words of its namespace."""

import random
import sys
from functools import partial

import pytest

from tests.support.requirement import requirement
from tests.support.runtimes import refreshed
from tests.support.supervised import connected
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.upstreams.embedded import StubUpstream
from wicketgate.upstreams.mcp.eras import Mode
from wicketgate.upstreams.mcp.stdio import stdio_transport
from wicketgate.upstreams.mcp.upstream import McpServerUpstream

BOUND_S = 20.0


def found(runtime: ProxyRuntime, query: str) -> set[str]:
    return {tool_id.partition("#")[0] for tool_id, _ in runtime.catalog().router.route(query, 20)}


@requirement("BROWSE-38")
@pytest.mark.parametrize("mode", ["auto", "handshake"])
async def test_the_name_of_a_real_server_parts_its_namespace(mode: Mode) -> None:
    command = [sys.executable, "-m", "tests.support.echo_server", "CoinMarketCap"]
    connect = partial(stdio_transport, "coinmarketcap", command, {}, None)
    upstream = McpServerUpstream("coinmarketcap", connect, connect_timeout_s=15, jitter=random.random, mode=mode)
    runtime = ProxyRuntime(upstream)
    async with connected(upstream):
        await runtime.refresh_catalog()
        assert upstream.spellings == ("CoinMarketCap",)
        assert "coinmarketcap:echo" in found(runtime, "market")


class Named(StubUpstream):
    """A server that calls itself *spellings*."""

    spellings: tuple[str, ...] = ()


@requirement("BROWSE-38")
async def test_another_name_counts_from_the_next_refresh_and_changes_no_id_or_version() -> None:
    upstream = Named([{"name": "get", "inputSchema": {"type": "object"}}], name="coinmarketcap")
    runtime = await refreshed(ProxyRuntime(upstream))
    before = runtime.catalog()
    assert found(runtime, "market") == set()
    # A name of other letters says nothing, and one that spells the namespace parts it.
    for spellings, expected in (
        (("Market Data",), set()),
        (("x", "Coin Market Cap"), {"coinmarketcap:get"}),
        ((), set()),
    ):
        upstream.spellings = spellings
        await runtime.refresh_catalog()
        assert found(runtime, "market") == expected
        assert (list(runtime.catalog().items), runtime.catalog().version) == (list(before.items), before.version)
        assert [item.digest for item in runtime.catalog().all()] == [item.digest for item in before.all()]
