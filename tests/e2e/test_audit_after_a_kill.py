"""The audit log of the real process after a kill: no effect without a trace (ACCESS-62)."""

import asyncio
import json
import signal
import sqlite3
import sys
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.support.effect_server import UNANSWERED
from tests.support.requirement import requirement
from tests.support.served import serving
from tests.support.service import KEY
from tests.support.until import until
from wicketgate.access.identity import hash_key
from wicketgate.gateway.call_memory import arguments_digest

BOUND_S = 30.0
CALLERS = 8
ROUNDS = 2


def configuration(folder: Path, sink: str) -> dict[str, Any]:
    where = {"url": f"sqlite:///{folder}/audit.db"} if sink == "audit_sql" else {"path": str(folder / "audit.jsonl")}
    return {
        "auth": {"keys": [{"id": "test", "sha256": hash_key(KEY), "actor": "owner_1", "permissions": ["tools:*"]}]},
        "plugins": {"auditing": {"_global": [{"handler": sink, "config": where}]}},
        "upstreams": [
            {"name": "bank", "command": [sys.executable, "-m", "tests.support.effect_server", str(folder / "effects")]}
        ],
    }


def effects(folder: Path) -> list[int]:
    file = folder / "effects"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def kept(folder: Path, sink: str) -> list[tuple[str, str, str]]:
    """Phase, arguments and call id of each record that is there after the kill."""
    if sink == "audit_sql":
        with closing(sqlite3.connect(folder / "audit.db")) as disk:
            return disk.execute("SELECT phase, arguments_sha256, call_id FROM wicketgate_audit").fetchall()
    lines = map(json.loads, (folder / "audit.jsonl").read_text().splitlines())
    return [(line["phase"], line["arguments_sha256"], line["call_id"]) for line in lines]


@requirement("ACCESS-62")
@pytest.mark.parametrize("sink", ["audit_jsonl", "audit_sql"])
async def test_every_effect_has_an_intent_after_a_kill_in_the_middle(tmp_path: Path, sink: str) -> None:
    config = tmp_path / "wicketgate.yaml"
    config.write_text(yaml.safe_dump(configuration(tmp_path, sink)))
    numbers = count()
    for turn in range(ROUNDS):
        before = len(effects(tmp_path))
        async with serving(config) as (running, http):

            async def charge(number: int, http: httpx.AsyncClient = http) -> None:
                body = {"operation": "/bank/charge", "input": {"number": number}}
                (await http.post("/operations/call", json=body)).raise_for_status()

            async def call_on() -> None:
                with suppress(httpx.TransportError):
                    while True:
                        await charge(next(numbers))

            async def be_under_way(number: int) -> None:
                with suppress(httpx.TransportError):
                    await charge(number)

            under_way = UNANSWERED + turn
            callers = [asyncio.create_task(be_under_way(under_way))]
            callers += [asyncio.create_task(call_on()) for _ in range(CALLERS)]
            await until(
                lambda: effects(tmp_path),
                lambda made: len(made) >= before + 50 and under_way in made,
                bound_s=BOUND_S,
                pause_s=0.001,
            )
            running.process.send_signal(signal.SIGKILL)
            async with asyncio.timeout(BOUND_S):
                await asyncio.gather(*callers)
    charged = {arguments_digest({"number": number}) for number in effects(tmp_path)}
    intents = {arguments: call_id for phase, arguments, call_id in kept(tmp_path, sink) if phase == "intent"}
    ends = {arguments: call_id for phase, arguments, call_id in kept(tmp_path, sink) if phase == "end"}
    assert len(charged) >= ROUNDS * 50
    assert charged <= intents.keys()
    assert {arguments_digest({"number": UNANSWERED + turn}) for turn in range(ROUNDS)} <= intents.keys() - ends.keys()
    assert all(intents[arguments] == call_id for arguments, call_id in ends.items())
