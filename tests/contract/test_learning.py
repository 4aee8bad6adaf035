"""The words that one caller's executions taught, through the doors, and over a restart (BROWSE-42, BROWSE-51)."""

from pathlib import Path
from typing import Any

import pytest

from tests.contract.test_mcp_door import body
from tests.gateway.test_learning import QUERY, TOOLS, answer
from tests.support.mcp_client import mcp_client
from tests.support.requirement import requirement
from tests.support.service import running_service
from wicketgate.upstreams.embedded import StubUpstream


def media() -> StubUpstream:
    return StubUpstream(TOOLS, answer, name="media")


async def found(client: Any, query: str) -> list[str]:
    cards = body(await client.call_tool("tool_browse", {"query": query}))["cards"]
    return [card["id"] for card in sorted(cards, key=lambda card: -(card["score"] or 0)) if card["kind"] == "tool"]


async def teach(client: Any, name: str) -> None:
    (tool_id,) = (tool_id for tool_id in await found(client, QUERY) if name in tool_id)
    assert body(await client.call_tool("tool_execute", {"tool_id": tool_id, "args": {}}))["status"] == "ok"


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
@requirement("BROWSE-42", "BROWSE-51")
async def test_words_lead_to_the_tool_that_was_executed_after_a_restart_too(era: str, tmp_path: Path) -> None:
    settings = {"storage": {"url": f"sqlite:///{tmp_path}/a.db"}}
    async with running_service(upstreams=[media()], settings=settings) as service, mcp_client(service, era) as client:
        assert await found(client, "blockbusters") == []
        await teach(client, "search_titles")
    async with running_service(upstreams=[media()], settings=settings) as service, mcp_client(service, era) as client:
        (tool_id,) = await found(client, "blockbusters")
        assert "search_titles" in tool_id


@requirement("BROWSE-42")
async def test_off_learns_nothing() -> None:
    settings = {"browse": {"learn": "off"}}
    async with (
        running_service(upstreams=[media()], settings=settings) as service,
        mcp_client(service, "2026-07-28") as client,
    ):
        await teach(client, "search_titles")
        assert await found(client, "blockbusters") == []
