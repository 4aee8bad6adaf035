"""The words of the gateway face about itself: three definitions that never change, and a line of namespaces in the
instructions (FACE-16, FACE-190)."""

import json
from typing import Any

import pytest

from tests.support.requirement import requirement
from wicketgate.access.identity import Identity
from wicketgate.faces.gateway import MAX_NAMED, GatewayFace
from wicketgate.faces.mcp.fit import ToolListings
from wicketgate.fleet.member import MultiplexUpstream
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.ports import CallContext
from wicketgate.tokens import shipped_token_counter
from wicketgate.upstreams.embedded import StubUpstream

OWNER = CallContext(Identity("owner_1", ("*",)), "req_1", "s")
SHOPPER = CallContext(Identity("reader", ("tools:shop:*",)), "req_2", "s")


async def face_over(**servers: int) -> GatewayFace:
    listed = {name: [{"name": f"tool_{number}"} for number in range(count)] for name, count in servers.items()}
    runtime = ProxyRuntime(MultiplexUpstream([StubUpstream(tools, name=name) for name, tools in listed.items()]))
    await runtime.refresh_catalog()
    return GatewayFace(runtime)


async def listed(face: GatewayFace, context: CallContext) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = (await ToolListings().page(face.tools(context), None, "2026-07-28"))["tools"]
    return tools


@requirement("FACE-16")
@pytest.mark.parametrize(
    ("servers", "context", "line"),
    [
        ({"time": 2, "git": 2, "shop": 3}, OWNER, "Namespaces here: git, shop, time."),
        ({"time": 9, "git": 1, "shop": 1}, OWNER, "Namespaces here: git, shop, time."),
        # One that has given no tools so far is named already.
        ({"time": 0, "git": 2, "shop": 3}, OWNER, "Namespaces here: git, shop, time."),
        ({"time": 2, "git": 2, "shop": 3}, SHOPPER, "Namespaces here: shop."),
        ({"time": 0, "git": 0, "shop": 0}, SHOPPER, "Namespaces here: shop."),
        ({"time": 2}, SHOPPER, ""),
        ({}, OWNER, ""),
    ],
)
async def test_the_instructions_name_the_namespaces_of_the_caller_and_count_nothing(
    servers: dict[str, int], context: CallContext, line: str
) -> None:
    assert (await face_over(**servers)).introduction(context) == line


@requirement("FACE-16")
async def test_the_line_is_short_whatever_their_number() -> None:
    face = await face_over(**{f"server-with-a-long-name-{number:03}": 1 for number in range(120)})
    assert face.introduction(OWNER).endswith(f"-{MAX_NAMED - 1:03} and 80 more.")


@requirement("FACE-190", "CARD-30")
async def test_the_three_definitions_are_the_same_bytes_for_all_and_within_their_budget() -> None:
    none, some = await face_over(), await face_over(git=2, shop=3)
    assert await listed(none, OWNER) == await listed(some, OWNER) == await listed(some, SHOPPER)
    assert shipped_token_counter().count(json.dumps(await listed(some, OWNER), separators=(",", ":"))) <= 300
    hints = {tool["name"]: (tool["title"], tool["annotations"]) for tool in await listed(some, OWNER)}
    assert hints == {
        "tool_browse": ("Find tools", {"openWorldHint": False, "readOnlyHint": True}),
        "tool_execute": ("Run tool", {"openWorldHint": True}),
        "tool_view": ("Read result", {"readOnlyHint": True}),
    }


@requirement("BROWSE-34")
async def test_the_description_says_that_one_browse_serves_one_step() -> None:
    browse = (await face_over(git=2)).tools(OWNER)[0]
    assert "for one step of a task" in browse.description
    assert "browse again for the next step" in browse.description
