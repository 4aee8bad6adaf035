"""The line in a meta-tool's description that counts the tools behind the gate (FACE-16)."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.requirement import requirement
from wicketgate.access.identity import Identity
from wicketgate.catalog.selectable import mcp_tool_to_selectable
from wicketgate.faces.gateway import MAX_TOKENS, GatewayFace, inventory
from wicketgate.fleet.member import MultiplexUpstream
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.ports import CallContext
from wicketgate.tokens import TokenCounter, shipped_token_counter
from wicketgate.upstreams.embedded import StubUpstream

OWNER = CallContext(Identity("owner_1", ("*",)), "req_1", "s")
SHOPPER = CallContext(Identity("reader", ("tools:shop:*",)), "req_2", "s")


@pytest.fixture(scope="module")
def tokens() -> TokenCounter:
    return shipped_token_counter()


def tools(count: int) -> list[dict[str, Any]]:
    return [{"name": f"tool_{number}"} for number in range(count)]


async def face_over(tokens: TokenCounter, **servers: int) -> GatewayFace:
    fleet = MultiplexUpstream([StubUpstream(tools(count), name=name) for name, count in servers.items()])
    runtime = ProxyRuntime(fleet)
    await runtime.refresh_catalog()
    return GatewayFace(runtime)


def cost(face: GatewayFace, context: CallContext, tokens: TokenCounter) -> int:
    return sum(
        tokens.count(
            json.dumps(
                {"name": tool.name, "description": tool.description, "parameters": tool.input_schema},
                separators=(",", ":"),
            )
        )
        for tool in face.tools(context)
    )


@requirement("FACE-16")
async def test_the_largest_namespaces_come_first_with_their_counts_and_only_the_callers(tokens: TokenCounter) -> None:
    face = await face_over(tokens, git=2, shop=3, time=2)
    assert "Tools here now: shop 3, git 2, time 2." in face.tools(OWNER)[0].description
    assert "Tools here now: shop 3." in face.tools(SHOPPER)[0].description
    assert face.tools(OWNER) is face.tools(OWNER)


@requirement("FACE-16")
async def test_three_tools_stay_within_their_budget_however_many_namespaces_there_are(tokens: TokenCounter) -> None:
    for servers in (0, 1, 7, 120):
        face = await face_over(tokens, **{f"server-with-a-long-name-{number}": 2 for number in range(servers)})
        assert cost(face, OWNER, tokens) <= MAX_TOKENS
    assert "in 1" in face.tools(OWNER)[0].description  # the unnamed namespaces are counted


@requirement("FACE-16")
async def test_hundreds_of_namespaces_cost_no_more_than_those_that_can_be_named(tokens: TokenCounter) -> None:
    items = [mcp_tool_to_selectable(tool, f"n{number}") for number in range(500) for tool in tools(1)]
    tried: list[str] = []

    def fits(line: str) -> bool:
        tried.append(line)
        return tokens.count(line) <= 90

    line = inventory(items, fits, most_named=90 // 3)
    assert len(tried) <= 31
    assert line == inventory(items, lambda line: tokens.count(line) <= 90)
    assert max(map(tokens.count, tried)) < 300


@requirement("FACE-16")
async def test_an_empty_gate_says_so(tokens: TokenCounter) -> None:
    assert "No tools are here now." in (await face_over(tokens)).tools(OWNER)[0].description


@requirement("BROWSE-34")
async def test_the_description_says_that_one_browse_serves_one_step(tokens: TokenCounter) -> None:
    face = await face_over(tokens, git=2)
    (browse,) = (tool for tool in face.tools(OWNER) if tool.name == "tool_browse")
    assert "for one step of a task" in browse.description
    assert "browse again for the next step" in browse.description


@requirement("CARD-30")
@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.integers(1, 4), min_size=1, max_size=8),
       st.integers(10, 120))  # fmt: skip
def test_the_line_is_the_same_for_the_same_tools_and_adds_up(counts: dict[str, int], longest: int) -> None:
    items = [mcp_tool_to_selectable(tool, name) for name, count in counts.items() for tool in tools(count)]
    line = inventory(items, fits=lambda text: len(text) <= longest)
    assert line == inventory(reversed(items), fits=lambda text: len(text) <= longest)
    assert len(line) <= longest
    if line:
        numbers = [int(word.strip(".,")) for word in line.split() if word.strip(".,").isdigit()]
        if "more" in line or "namespaces" in line:
            numbers.pop()  # the number of unnamed namespaces
        assert sum(numbers) == sum(counts.values())
