"""Calls that wait for the owner's word, asked for by MCP clients (CHAT-71)."""

from collections.abc import Mapping
from typing import Any

import pytest
from mcp import types as t

from tests.contract.test_tool_calls import IDS
from tests.support.mcp_client import ERAS, OLD, mcp_client
from tests.support.requirement import requirement
from tests.support.service import FileServer, running_service
from wicketgate.config.settings import Settings

pytestmark = pytest.mark.usefixtures("both_ways")

GATED = {"access": [{"match": "files:read_file", "approval": "always"}]}
CALL = {"tool_id": IDS["read_file"], "args": {"path": "a\u202e.md"}}


@ERAS
@requirement("CHAT-65", "CHAT-71", "ACCESS-10")
async def test_a_client_that_cannot_be_asked_is_told_that_nothing_ran(mode: str) -> None:
    files = FileServer()
    async with running_service(upstreams=[files], settings=GATED) as service, mcp_client(service, mode) as client:
        refused = await client.call_tool("tool_execute", CALL)
        tried = await client.call_tool("tool_execute", {**CALL, "dry_run": True})
    assert refused.is_error
    assert refused.structured_content is not None
    assert refused.structured_content["error"] == "APPROVAL_REQUIRED"
    assert refused.structured_content["path"] == IDS["read_file"]
    assert not tried.is_error
    assert tried.structured_content is not None
    assert tried.structured_content["checks"]["approval"] == "required"
    assert files.calls == []


@pytest.mark.parametrize(
    ("action", "error", "ran"), [("accept", None, 1), ("decline", "FORBIDDEN", 0), ("cancel", "APPROVAL_REQUIRED", 0)]
)
@ERAS
@requirement("CHAT-66", "CHAT-67", "CHAT-71", "ACCESS-295")
async def test_a_client_that_can_be_asked_decides_at_once(mode: str, action: Any, error: str | None, ran: int) -> None:
    asked: list[str] = []

    async def decide(context: Any, params: t.ElicitRequestParams) -> t.ElicitResult:
        asked.append(params.message)
        return t.ElicitResult(action=action, content={} if action == "accept" else None)

    files = FileServer()
    async with (
        running_service(upstreams=[files], settings=GATED) as service,
        mcp_client(service, mode, client={"elicitation_callback": decide}) as client,
    ):
        result = await client.call_tool("tool_execute", CALL)
    assert (result.structured_content or {}).get("error") == error
    assert len(files.calls) == ran
    (question,) = asked
    assert IDS["read_file"] in question
    # What is shown is what would be sent, and nothing in it turns the line around.
    assert '{"path": "a\\u202e.md"}' in question


@ERAS
@requirement("CHAT-67", "CHAT-71")
async def test_arguments_too_long_to_be_read_are_not_asked_about(mode: str) -> None:
    async def decide(context: Any, params: t.ElicitRequestParams) -> t.ElicitResult:
        raise AssertionError("nobody can have read this")

    files = FileServer()
    async with (
        running_service(upstreams=[files], settings=GATED) as service,
        mcp_client(service, mode, client={"elicitation_callback": decide}) as client,
    ):
        result = await client.call_tool("tool_execute", {**CALL, "args": {"path": "x" * 5_000}})
    assert (result.structured_content or {})["error"] == "APPROVAL_REQUIRED"
    assert files.calls == []


RULES = [
    {"match": "files:*", "effect": "deny"},
    {"match": "files:read_file", "when": "args.path.startsWith('a')", "effect": "deny"},
    {"match": "files:*", "approval": {"by": "role:lead"}},
]


@pytest.mark.parametrize("rule", RULES, ids=["tool", "arguments", "others"])
@requirement("ACCESS-70")
async def test_a_call_that_was_forbidden_while_its_owner_was_asked_does_not_run(rule: Mapping[str, Any]) -> None:
    files = FileServer()
    async with running_service(upstreams=[files], settings=GATED) as service:

        async def decide(context: Any, params: t.ElicitRequestParams) -> t.ElicitResult:
            await service.app.state.gate.apply(Settings.model_validate({"access": [rule, *GATED["access"]]}))
            return t.ElicitResult(action="accept", content={})

        async with mcp_client(service, OLD, client={"elicitation_callback": decide}) as client:
            result = await client.call_tool("tool_execute", CALL)
    assert (result.structured_content or {})["error"] == "FORBIDDEN"
    assert files.calls == []
