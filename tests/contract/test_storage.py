"""Artifacts in a file, behind both doors: handles outlive the process that gave them (EXEC-32)."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.contract.test_mcp_door import body
from tests.contract.test_tool_calls import IDS
from tests.support.mcp_client import mcp_client
from tests.support.requirement import requirement
from tests.support.service import FileServer, running_service
from wicketgate.errors import ConfigError

ERA = "2026-07-28"
LONG = "a/" * 2_000
READ = {"tool_id": IDS["read_file"], "args": {"path": LONG}}


@requirement("EXEC-32")
async def test_a_handle_is_valid_after_a_restart_and_the_file_is_closed_at_the_end(tmp_path: Path) -> None:
    settings = {"storage": {"url": f"sqlite:///{tmp_path}/a.db"}}
    async with (
        running_service(upstreams=[FileServer()], settings=settings) as service,
        mcp_client(service, ERA) as client,
    ):
        (artifact,) = body(await client.call_tool("tool_execute", READ))["artifacts"]
    assert {file.name for file in tmp_path.iterdir()} == {"a.db"}
    async with (
        running_service(upstreams=[FileServer()], settings=settings) as service,
        mcp_client(service, ERA) as client,
    ):
        selector = {"type": "head", "chars": 100}
        view = body(await client.call_tool("tool_view", {"handle": artifact["handle"], "selector": selector}))
    assert view["content"] == f"contents of {LONG}"[:100]


@requirement("EXEC-31")
async def test_a_store_that_breaks_loses_no_answer_and_offers_nothing_that_is_not_there(tmp_path: Path) -> None:
    settings = {"storage": {"url": f"sqlite:///{tmp_path}/a.db"}}
    async with (
        running_service(upstreams=[FileServer()], settings=settings) as service,
        mcp_client(service, ERA) as client,
    ):
        (artifact,) = body(await client.call_tool("tool_execute", READ))["artifacts"]
        with closing(sqlite3.connect(tmp_path / "a.db")) as other:
            other.execute("DROP TABLE row")
        envelope = body(await client.call_tool("tool_execute", READ | {"args": {"path": f"b/{LONG}"}}))
        assert (envelope["status"], envelope["artifacts"]) == ("partial", [])
        assert envelope["summary"].startswith("contents of b/a/a")
        assert "cannot be viewed" in envelope["facts"][-1]
        selector = {"type": "head", "chars": 100}
        view = await client.call_tool("tool_view", {"handle": artifact["handle"], "selector": selector})
        assert view.is_error
        assert (body(view)["error"], body(view)["path"]) == ("VIEW_FAILED", artifact["handle"])


@requirement("EXEC-31")
async def test_what_is_larger_than_the_store_is_answered_and_said_to_be_gone() -> None:
    settings = {"storage": {"max_bytes": 2**20}}
    async with (
        running_service(upstreams=[FileServer()], settings=settings) as service,
        mcp_client(service, ERA) as client,
    ):
        args = {"path": "x" * 600_000}
        envelope = body(await client.call_tool("tool_execute", READ | {"args": args}))
    assert (envelope["status"], envelope["artifacts"]) == ("partial", [])
    assert envelope["summary"].startswith("contents of xxx")
    assert "larger than the store takes" in envelope["facts"][-1]


async def test_a_file_that_cannot_be_used_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist; make it"):
        async with running_service(settings={"storage": {"url": f"sqlite:///{tmp_path}/none/a.db"}}):
            pass
