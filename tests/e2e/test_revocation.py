"""The real process: a removed key stops its callers, and keys are rotated as docs/operations says."""

import asyncio
import re
import signal
from pathlib import Path
from typing import Any

import yaml

from tests.support.model_server import DONE, ModelServer, Reply, chunk
from tests.support.process import ROOT, Program, program
from tests.support.requirement import requirement
from tests.support.served import serving
from tests.support.service import KEY, OTHER_KEY, chat_body, frames
from tests.support.until import until
from wicketgate.access.identity import hash_key
from wicketgate.catalog.tool_id import derive_tool_id

TOOLS = """
from wicketgate.tools import ToolRegistry

registry = ToolRegistry()


@registry.tool
async def count(file: str) -> str:
    "Write one line more."
    with open(file, "a") as lines:
        lines.write("called\\n")
    return "counted"
"""

BOUND_S = 40.0


def entry(key_id: str, key: str, actor: str) -> dict[str, Any]:
    return {"id": key_id, "sha256": hash_key(key), "actor": actor, "permissions": ["tools:*"]}


def write(path: Path, keys: list[dict[str, Any]], **sections: Any) -> Path:
    path.write_text(yaml.safe_dump({"auth": {"keys": keys}, **sections}))
    return path


async def hang_up(running: Program) -> None:
    """SIGHUP, until the log says that the configuration is in force."""
    before = running.stdout.count("configuration applied")
    running.process.send_signal(signal.SIGHUP)
    await running.wait_for(rf"(?s)(configuration applied.*){{{before + 1}}}", "stdout", BOUND_S)


def lines(file: Path) -> int:
    return file.read_text().count("called") if file.exists() else 0


def a_round(tool_id: str, counted: Path) -> Reply:
    """A turn that asks for the tool once more."""
    call = {
        "index": 0,
        "id": "",
        "type": "function",
        "function": {
            "name": "tool_execute",
            "arguments": f'{{"tool_id": "{tool_id}", "args": {{"file": "{counted}"}}}}',
        },
    }
    return Reply([chunk({"tool_calls": [call]}), chunk({}, "tool_calls"), DONE])


@requirement("ACCESS-39", "ACCESS-42", "CHAT-93")
async def test_a_model_that_loops_calls_no_tool_after_the_reload_that_takes_its_key_out(tmp_path: Path) -> None:
    (tmp_path / "counting_tools.py").write_text(TOOLS)
    counted = tmp_path / "calls.txt"
    schema: dict[str, Any] = {"type": "object", "properties": {"file": {"type": "string"}}, "required": ["file"]}
    async with ModelServer(*[a_round(derive_tool_id("count", schema, None, "mine"), counted)] * 20_000) as model:
        sections = {
            "upstreams": [{"name": "mine", "python": "counting_tools:registry", "cwd": str(tmp_path)}],
            "model": {"provider": "openai-chat", "base_url": model.base_url, "model": "some-model"},
            "engine": {"loop_guard": None},
        }
        both = [entry("looping", KEY, "mallory"), entry("other", OTHER_KEY, "alice")]
        config = write(tmp_path / "wicketgate.yaml", both, **sections)
        async with serving(config) as (running, http):
            detached = {
                "Authorization": f"Bearer {KEY}",
                "Idempotency-Key": "k",
                "X-On-Disconnect": "continue",
            }
            looping = asyncio.create_task(http.post("/engine/chat", json=chat_body(), headers=detached))
            await until(lambda: lines(counted) >= 20)
            write(config, both[1:], **sections)
            await hang_up(running)
            before = lines(counted)
            ends = frames((await looping).text)
            # Other callers are served in this time.
            for _ in range(20):
                other = await http.get("/operations", headers={"Authorization": f"Bearer {OTHER_KEY}"})
                assert other.status_code == 200
            assert lines(counted) == before
            refused = await http.post("/engine/chat", json=chat_body(), headers=detached)
            assert await running.stop() == 0
    assert [event for event, _ in ends].count("done") == 1
    assert (ends[-1][0], ends[-1][1]["finish_reason"]) == ("done", "cancelled")
    assert refused.status_code == 401
    assert "key looping is no longer valid (gone): 1 streams and 0 calls ended" in running.stdout


@requirement("ACCESS-6", "ACCESS-44", "ACCESS-46")
async def test_a_key_is_rotated_as_operations_says_and_its_callers_notice_nothing(tmp_path: Path) -> None:
    async def made(key_id: str, *more: str) -> tuple[str, list[dict[str, Any]]]:
        async with program("app", "key", "new", "--id", key_id, "--actor", "owner_1", *more) as making:
            assert await making.ended() == 0, making.stderr
        found = re.search(rf"wg_{key_id}_\S+", making.stderr)
        assert found is not None
        assert found.group() not in making.stdout
        keys: list[dict[str, Any]] = yaml.safe_load(making.stdout)
        return found.group(), keys

    old, olds = await made("gw-1", "--expires-in", "10d")
    new, news = await made(
        "gw-2",
        "--permission",
        "tools:*",
        "--permission",
        "ops:read",
        "--not-before",
        "2020-01-01T00:00:00Z",
        "--expires-in",
        "90d",
    )
    assert set(news[0]) == {"id", "sha256", "actor", "permissions", "not_before", "expires_at"}
    config = write(tmp_path / "wicketgate.yaml", olds)

    async with serving(config) as (running, http):

        async def statuses() -> list[int]:
            found = [
                await http.post("/engine/chat", json=chat_body(), headers={"Authorization": f"Bearer {key}"})
                for key in (old, new)
            ]
            return [each.status_code for each in found]

        assert await statuses() == [200, 401]
        await running.wait_for(r"key gw-1: expires on .*, in 10 days or less", "stdout")
        write(config, [*olds, *news])
        await hang_up(running)
        assert await statuses() == [200, 200]
        metrics = (await http.get("/metrics", headers={"Authorization": f"Bearer {new}"})).text
        assert all(
            f'wicketgate_key_last_used_timestamp_seconds{{key="{name}"}}' in metrics for name in ("gw-1", "gw-2")
        )
        write(config, news)
        await hang_up(running)
        assert await statuses() == [401, 200]
        assert await running.stop() == 0


@requirement("ACCESS-46")
async def test_check_warns_of_keys_that_have_expired_and_passes(tmp_path: Path) -> None:
    keys = [{**entry("old", KEY, "a"), "expires_at": "2020-01-01T00:00:00Z"}]
    clock = {"name": "clock", "python": "examples.clock:registry", "cwd": str(ROOT)}
    config = write(tmp_path / "wicketgate.yaml", keys, upstreams=[clock])
    async with program("app", "check", "--config", str(config)) as running:
        assert await running.ended() == 0
    assert "warning: key old: expired on 2020-01-01 00:00 UTC" in running.stdout
