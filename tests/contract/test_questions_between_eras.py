"""Questions of servers of one era, and answers of clients, where the words of the two eras differ."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from mcp import types as t

from tests.support.mcp_client import OLD, mcp_client
from tests.support.requirement import requirement
from tests.support.service import BOUND_S, running_service
from wicketgate.ports import CallContext
from wicketgate.upstreams.embedded import StubUpstream

PAGE = {"mode": "url", "message": "Sign in.", "url": "https://pay.example.com/in"}
TOOL = {"name": "ask", "inputSchema": {"type": "object"}}


@requirement("FACE-99")
@pytest.mark.parametrize("own", [None, "of-the-server"])
async def test_a_page_without_an_id_is_put_to_a_client_of_the_handshake_era_with_one_of_ours(own: str | None) -> None:
    asked: list[Any] = []

    async def answer(context: Any, params: Any) -> t.ElicitResult:
        asked.append(params.elicitation_id)
        return t.ElicitResult(action="accept")

    async def ask(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        page = PAGE if own is None else {**PAGE, "elicitationId": own}
        said = [await context.caller.ask("elicitation/create", page) for _ in range(2)]
        return {"content": [{"type": "text", "text": " ".join(one["action"] for one in said)}]}

    async with (
        running_service(upstreams=[StubUpstream([TOOL], ask, name="new")]) as service,
        mcp_client(service, OLD, path="/mcp/namespaced", client={"elicitation_callback": answer}) as client,
        asyncio.timeout(BOUND_S),
    ):
        result = await client.call_tool("new__ask", {})
    assert result.content[0].model_dump()["text"] == "accept accept"
    assert all(asked)
    assert (len(set(asked)) == 2) if own is None else (asked == [own, own])
