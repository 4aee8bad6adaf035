"""browse, execute, view and chat from a terminal, over a gate of their own and over a running service."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from app.commands.gate_client import open_gate
from tests.e2e.test_serve import echo_id
from tests.support.process import program
from tests.support.requirement import requirement
from tests.support.served import address, write_config
from tests.support.service import KEY
from wicketgate.access.identity import LOCAL
from wicketgate.config.settings import Settings

PRIVATE = {"WG_KEY": KEY}


async def wicketgate(*args: str, stdin: str = "") -> tuple[int, str, str]:
    """The exit code, stdout and stderr of a whole run."""
    async with program("app", *args, env=PRIVATE, stdin=asyncio.subprocess.PIPE) as running:
        assert running.process.stdin is not None
        running.process.stdin.write(stdin.encode())
        running.process.stdin.close()
        code = await running.ended(bound_s=40)
        return code, running.stdout, running.stderr


@requirement("OPS-6")
async def test_a_tool_is_found_run_and_read_from_a_configuration(tmp_path: Path) -> None:
    config = write_config(tmp_path, storage={"url": f"sqlite:///{tmp_path}/kept.db"})
    where = ("--config", str(config))
    code, cards, stderr = await wicketgate("browse", "give the text back", *where)
    assert (code, echo_id() in cards, "Connecting to 1 upstream " in stderr) == (0, True, True)
    long = "many words " * 2_000
    code, envelope, _ = await wicketgate("execute", echo_id(), "-", *where, stdin=json.dumps({"text": long}))
    assert code == 0
    handle = json.loads(envelope)["artifacts"][0]["handle"]
    code, part, _ = await wicketgate("view", handle, '{"type": "head", "chars": 10}', *where)
    assert (code, part) == (0, '{"text": "\n')


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write_config(tmp_path)


@requirement("OPS-6", "OPS-113")
async def test_a_running_service_is_asked_by_its_url(config: Path) -> None:
    async with program("app", "serve", "--config", str(config), "--port", "0") as running:
        url = await address(running)
        code, cards, _ = await wicketgate("browse", "/", "--url", url, "--json")
        assert (code, json.loads(cards)["cards"][0]["id"]) == (0, "/echo")
        code, envelope, _ = await wicketgate("execute", echo_id(), '{"text": "hi"}', "--url", url)
        assert (code, json.loads(envelope)["status"]) == (0, "ok")
        async with open_gate(Settings(), LOCAL, url, KEY) as gate:
            assert await gate.short_ids([echo_id(), "echo:gone#00000000"]) == {echo_id(): "echo:echo"}
        code, events, _ = await wicketgate("chat", "echo the word hi", "--url", url, "--json")
        seen: list[dict[str, Any]] = [json.loads(line) for line in events.splitlines()]
        assert (code, seen[-1]["event"]) == (0, "done")
        code, answers, _ = await wicketgate("chat", "--url", url, stdin="hello\nand again\n\n")
        assert code == 0 and answers.strip()
        code, _, refused = await wicketgate("browse", "/", "--url", url, "--key", "wrong")
        assert (code, "HTTP 401" in refused) == (1, True)
    code, _, gone = await wicketgate("browse", "/", "--url", url)
    assert (code, "cannot reach the service" in gone) == (1, True)


@requirement("OPS-5")
@pytest.mark.parametrize("command", [["check"], ["lock", "--diff"]])
async def test_a_warning_that_quotes_a_server_writes_its_control_characters_out(
    tmp_path: Path, command: list[str]
) -> None:
    operations = {"/a\x1b[2J{x": {"get": {}}, "/b": {"get": {"operationId": "b", "responses": {}}}}
    document = tmp_path / "hostile.json"
    document.write_text(json.dumps({"openapi": "3.1.0", "paths": operations}))
    upstream = {"name": "shop", "openapi": str(document), "base_url": "http://127.0.0.1:9"}
    config = tmp_path / "hostile.yaml"
    config.write_text(json.dumps({"upstreams": [upstream]}))
    _, stdout, stderr = await wicketgate(*command, "--config", str(config))
    assert "operation left out: GET /a\\u001b[2J{x" in stderr
    assert "\x1b" not in stdout + stderr


@requirement("OPS-4")
@pytest.mark.parametrize("rest", ['\\"', "/*", "\\\\", ", "])
async def test_a_file_to_import_is_read_in_time_that_grows_with_its_length(tmp_path: Path, rest: str) -> None:
    """A string or comment without an end. In quadratic time a mebibyte would take hours: the bound is for a hang."""
    client = tmp_path / "client.json"
    client.write_text('{"mcpServers": {"a": {"command": "' + rest * 500_000)
    code, _, stderr = await wicketgate("import", str(client))
    assert (code, "is not JSON" in stderr) == (1, True)
