"""``/mcp`` with the official client in both protocol eras, behind the same middleware (FACE-1, FACE-17)."""

import json
from typing import Any

import pytest
from mcp.types import CallToolResult

from tests.contract.test_tool_calls import IDS
from tests.support.mcp_client import ERAS, mcp_client
from tests.support.requirement import requirement
from tests.support.service import READER_KEY, SUSPENDED_KEY, FileServer, running_service
from wicketgate.log_text import HEADER

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}},
}
ORDER = "wicketgate/cache_stable"
MARKER = "__cache_breakpoint__"
NOT_THE_ARGUMENTS: list[Any] = [[], 0, "", False, None, {}]


def in_order(asked: object) -> Any:
    """The ``_meta`` of a request that asks for an order of cards."""
    return None if asked is None else {ORDER: asked}


def body(result: CallToolResult) -> dict[str, Any]:
    assert isinstance(result.structured_content, dict)
    return result.structured_content


LONG = "a/" * 2_000
"""The path of a file whose content is not shown whole."""


@ERAS
@pytest.mark.parametrize("path", ["/mcp", "/mcp/gateway"])
@requirement("FACE-1", "FACE-17")
async def test_a_client_of_either_era_sees_three_tools_and_works_with_them(mode: str, path: str) -> None:
    files = FileServer()
    async with running_service(upstreams=[files]) as service, mcp_client(service, mode, path=path) as client:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == ["tool_browse", "tool_execute", "tool_view"]

        browse = await client.call_tool("tool_browse", {"query": "read a file"})
        cards = body(browse)["cards"]
        best = cards[0]
        assert best["id"] == IDS["read_file"]
        assert "inputSchema" not in json.dumps(cards)
        *lines, hint = browse.content[0].text.splitlines()  # type: ignore[union-attr]
        assert [line.split()[0] for line in lines] == [card["id"] for card in cards]
        assert hint == body(browse)["hint"] == "read_file(path)"

        run = await client.call_tool("tool_execute", {"tool_id": best["id"], "args": {"path": LONG}})
        envelope = body(run)
        assert (run.is_error, envelope["status"]) == (False, "ok")
        assert run.content[0].text.startswith("contents of a/a")  # type: ignore[union-attr]

        view = await client.call_tool(
            "tool_view", {"handle": envelope["artifacts"][0]["handle"], "selector": {"type": "head", "chars": 8}}
        )
        assert (body(view)["content"], body(view)["total"]) == ("contents", len(f"contents of {LONG}"))
    assert [(name, arguments) for name, arguments, _ in files.calls] == [("read_file", {"path": LONG})]


@ERAS
@requirement("BROWSE-61")
async def test_a_null_argument_of_a_browse_is_as_if_it_were_absent(mode: str) -> None:
    async with running_service(upstreams=[FileServer()]) as service, mcp_client(service, mode) as client:
        for nulls, plain in (
            ({"query": "read", "path": None, "top_k": None}, {"query": "read"}),
            ({"query": None, "path": "/files", "top_k": None}, {"path": "/files"}),
        ):
            told = await client.call_tool("tool_browse", nulls)
            assert (told.is_error, body(told)) == (False, body(await client.call_tool("tool_browse", plain)))


@ERAS
@requirement("BROWSE-1", "BROWSE-2", "EXEC-1", "EXEC-4", "EXEC-11")
async def test_failures_are_results_in_one_shape_never_protocol_errors(mode: str) -> None:
    bad: list[tuple[str, dict[str, Any], str]] = [
        ("tool_browse", {}, "ARGS_INVALID"),
        ("tool_browse", {"query": "x", "path": "/"}, "ARGS_INVALID"),
        ("tool_browse", {"query": 5}, "ARGS_INVALID"),
        ("tool_browse", {"path": 5}, "ARGS_INVALID"),
        ("tool_browse", {"query": "x", "nope": 1}, "ARGS_INVALID"),
        *(("tool_browse", {"query": "x", "top_k": k}, "ARGS_INVALID") for k in (0, -1, 51, "3", True)),
        ("tool_browse", {"path": "bad"}, "PATH_INVALID"),
        ("tool_browse", {"path": "/no_such"}, "PATH_NOT_FOUND"),
        ("tool_execute", {}, "ARGS_INVALID"),
        ("tool_execute", {"tool_id": 42}, "ARGS_INVALID"),
        ("tool_execute", {"tool_id": "missing:tool#00000000", "args": {}}, "HYDRATE_FAILED"),
        ("tool_execute", {"tool_id": IDS["read_file"], "dry_run": "false"}, "ARGS_INVALID"),
        *(("tool_execute", {"tool_id": IDS["read_file"], "args": args}, "ARGS_INVALID") for args in NOT_THE_ARGUMENTS),
        ("tool_view", {"handle": "text:x:0", "selector": {"type": "head"}}, "VIEW_FAILED"),
        ("tool_view", {"handle": 5}, "ARGS_INVALID"),
    ]
    files = FileServer()
    async with running_service(upstreams=[files]) as service, mcp_client(service, mode) as client:
        for tool, arguments, code in bad:
            result = await client.call_tool(tool, arguments)
            answer = body(result)
            assert (result.is_error, answer["error"]) == (True, code), (tool, arguments, answer)
            assert set(answer) - {"details"} == {"error", "message", "path", "retryable"}
            assert answer["message"]
    assert files.calls == []


@ERAS
@requirement("EXEC-19", "CHAT-45")
async def test_an_error_of_the_tool_itself_is_an_envelope_marked_as_error(mode: str) -> None:
    async with running_service(upstreams=[FileServer()]) as service, mcp_client(service, mode) as client:
        result = await client.call_tool("tool_execute", {"tool_id": IDS["fail"]})
    assert (result.is_error, body(result)["status"]) == (True, "error")
    assert "no such luck" in body(result)["summary"]


@ERAS
@requirement("EXEC-13")
async def test_a_fault_of_ours_tells_the_client_nothing_of_its_cause(mode: str) -> None:
    async with running_service(upstreams=[FileServer()]) as service, mcp_client(service, mode) as client:
        result = await client.call_tool("tool_execute", {"tool_id": IDS["boom"]})
    assert (result.is_error, body(result)["error"]) == (True, "UPSTREAM_ERROR")
    assert "secret" not in result.model_dump_json()
    assert "srv" not in result.model_dump_json()


@ERAS
@requirement("EXEC-29")
async def test_another_actors_artifacts_and_tools_do_not_exist(mode: str) -> None:
    async with running_service(upstreams=[FileServer()]) as service:
        async with mcp_client(service, mode) as owner:
            run = await owner.call_tool("tool_execute", {"tool_id": IDS["read_file"], "args": {"path": LONG}})
        handle = body(run)["artifacts"][0]["handle"]
        async with mcp_client(service, mode, READER_KEY) as reader:
            view = await reader.call_tool("tool_view", {"handle": handle, "selector": {"type": "head", "chars": 3}})
            names = [card["name"] for card in body(await reader.call_tool("tool_browse", {"path": "/files"}))["cards"]]
    assert body(view)["error"] == "VIEW_FAILED"
    assert names == ["read_file"]


@requirement("ACCESS-1", "ACCESS-4")
@pytest.mark.parametrize("credential", ["", "Bearer wrong", f"Bearer {SUSPENDED_KEY}"])
async def test_the_door_is_shut_without_a_credential(credential: str) -> None:
    async with running_service() as service:
        headers = {"Authorization": credential} if credential else {"Authorization": ""}
        response = await service.http.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "ping"}, headers=headers)
    assert (response.status_code, response.json()["code"]) == (401, "unauthorized")


@ERAS
@requirement("OPS-14")
async def test_the_correlation_id_of_the_request_reaches_the_upstream(mode: str) -> None:
    files = FileServer()
    async with (
        running_service(upstreams=[files]) as service,
        mcp_client(service, mode, headers={HEADER: "trace-7"}) as client,
    ):
        await client.call_tool("tool_execute", {"tool_id": IDS["read_file"], "args": {"path": "a"}})
    ((_, _, context),) = files.calls
    assert (context.correlation_id, context.identity.actor) == ("trace-7", "owner_1")


@ERAS
@pytest.mark.parametrize("configured", [None, True])
@requirement("BROWSE-20", "BROWSE-27", "BROWSE-28")
async def test_a_client_of_either_era_asks_for_the_order_of_its_cards(mode: str, configured: bool | None) -> None:
    settings = {} if configured is None else {"mcp": {"cache_stable": configured}}
    query = {"query": "read a file", "top_k": 1}
    async with (
        running_service(upstreams=[FileServer()], settings=settings) as service,
        mcp_client(service, mode) as client,
    ):

        async def shown(asked: Any) -> list[str]:
            answer = await client.call_tool("tool_browse", {"path": "/files"}, meta=in_order(asked))
            return [card["id"] for card in body(answer)["cards"]]

        await client.call_tool("tool_browse", query)
        plain, stable = await shown(False), await shown(True)
        assert stable == (
            [IDS["read_file"], MARKER, *(i for i in plain if i != IDS["read_file"])] if configured else plain
        )
        await client.call_tool("tool_browse", query, meta=in_order(True))
        # Anything but true and false is as if it were not there.
        assert await shown("yes") == await shown(None)
        first = body(await client.call_tool("tool_browse", {"query": "write or read a file"}, meta=in_order(False)))
    assert [card["score"] for card in first["cards"]] == sorted((c["score"] for c in first["cards"]), reverse=True)
    assert MARKER not in plain


@ERAS
@requirement("BROWSE-31", "CARD-32")
async def test_the_hint_is_the_last_line_of_the_text_and_in_the_structured_answer(mode: str) -> None:
    async with running_service(upstreams=[FileServer()]) as service, mcp_client(service, mode) as client:
        stable = await client.call_tool("tool_browse", {"query": "read a file"}, meta=in_order(True))
        nothing = await client.call_tool("tool_browse", {"query": "zzzz qqqq"})
    lines = stable.content[0].text.splitlines()  # type: ignore[union-attr]
    assert [line.split()[0] for line in lines[:-1]] == [card["id"] for card in body(stable)["cards"]]
    assert lines[-1] == body(stable)["hint"]
    assert lines[-1].startswith(f"Best for this query: {IDS['read_file']}")
    assert nothing.content[0].text == body(nothing)["hint"]  # type: ignore[union-attr]


@requirement("BROWSE-25")
async def test_a_session_header_of_the_newer_era_reaches_nobody_elses_session() -> None:
    stable = {"mcp": {"cache_stable": True}}
    async with running_service(upstreams=[FileServer()], settings=stable) as service:
        async with mcp_client(service, "2026-07-28") as owner:
            first = body(await owner.call_tool("tool_browse", {"path": "/files"}))["cards"]
        for forged in ("actor:owner_1", "owner_1", "named"):
            async with mcp_client(service, "2026-07-28", READER_KEY, headers={"Mcp-Session-Id": forged}) as reader:
                await reader.call_tool("tool_browse", {"query": "read file"})
        async with mcp_client(service, "2026-07-28") as owner:
            again = body(await owner.call_tool("tool_browse", {"path": "/files"}))["cards"]
    assert again == first


@requirement("BROWSE-25")
async def test_a_client_without_sessions_may_name_one() -> None:
    meta: Any = {"wicketgate/session": "task-1", ORDER: True}
    async with running_service(upstreams=[FileServer()]) as service, mcp_client(service, "2026-07-28") as client:
        await client.call_tool("tool_browse", {"query": "read file", "top_k": 1}, meta=meta)
        named = body(await client.call_tool("tool_browse", {"path": "/files"}, meta=meta))["cards"]
        unnamed = body(await client.call_tool("tool_browse", {"path": "/files"}, meta=in_order(True)))["cards"]
    assert [card["id"] for card in named][1] == "__cache_breakpoint__"
    assert "__cache_breakpoint__" not in [card["id"] for card in unnamed]
