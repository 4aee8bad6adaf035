"""The servers behind a gate, told and changed over HTTP; real servers as child processes."""

import sys
from pathlib import Path
from typing import Any

from tests.support.requirement import requirement
from tests.support.service import OPERATOR_KEY, READER_KEY, FileServer, RunningService, running_service
from tests.support.until import until
from wicketgate.access.identity import hash_key
from wicketgate.upstreams.embedded import StubUpstream

API = "/console/api"
WRITER_KEY = "wg_writer_0123456789012345678901234567890123456"
WRITER = {"id": "writer", "sha256": hash_key(WRITER_KEY), "actor": "olga", "permissions": ["ops:*", "tools:*"]}
SECRET = "hunter2-correct-horse"

_PROGRAM = """
import json, os, sys
print("\\x1b[31mstarting <img src=x onerror=alert(1)> \\u202egnp.exe with " + os.environ["API_TOKEN"], file=sys.stderr)
print("Authorization: Bearer abcdefghijklmnop", "x" * 5000, file=sys.stderr)
sys.stderr.flush()
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    match message["method"]:
        case "initialize":
            info = {"serverInfo": {"name": "s", "version": "1"}, "capabilities": {"tools": {}}}
            result = {**info, "protocolVersion": message["params"]["protocolVersion"]}
        case "tools/list":
            result = {"tools": [{"name": "crash", "inputSchema": {"type": "object"}}]}
        case "tools/call":
            print("Traceback: it hurts", file=sys.stderr, flush=True)
            os._exit(3)
        case method:
            error = {"code": -32601, "message": method}
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
            continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


def as_key(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def get(service: RunningService, path: str, key: str = OPERATOR_KEY) -> dict[str, Any]:
    answer = await service.http.get(f"{API}/{path}", headers=as_key(key))
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def post(service: RunningService, path: str, body: Any = None, key: str = WRITER_KEY) -> tuple[int, Any]:
    answer = await service.http.post(f"{API}/{path}", json=body, headers=as_key(key))
    return answer.status_code, answer.json()


def crashing(tmp_path: Path) -> dict[str, Any]:
    program = tmp_path / "crashing.py"
    program.write_text(_PROGRAM)
    entry = {
        "name": "bad",
        "command": [sys.executable, str(program)],
        "env": {"API_TOKEN": SECRET},
        "era": "2025-11-25",
    }
    return {"upstreams": [entry], "auth": {"keys": [WRITER]}}


@requirement("OPS-240", "OPS-241", "OPS-242")
async def test_a_crash_can_be_read_after_the_restart_and_no_secret_is_told(tmp_path: Path) -> None:
    async with running_service(upstreams=None, settings=crashing(tmp_path)) as service:
        crashed = {"operation": "/bad/crash", "input": {}}
        await service.http.post("/operations/call", json=crashed, headers=as_key(WRITER_KEY))

        async def restarted() -> dict[str, Any] | None:
            found = await get(service, "servers/bad")
            return found if found["connections"] >= 2 and len(found["stderr"]) >= 5 else None

        found = await until(restarted)
        assert [event["kind"] for event in found["events"]][-3:] == ["ready", "down", "ready"]
        assert "it ended with code 3" in {event["why"].partition(";")[0] for event in found["events"]}
        assert "Traceback: it hurts" in found["stderr"]
        text = "\n".join(found["stderr"])
        assert SECRET not in text
        assert "abcdefghijklmnop" not in text
        assert "\x1b[31mstarting <img" in text  # as it was written: the page shows it as text
        assert max(map(len, found["stderr"])) <= 1_000
        listed = (await get(service, "servers"))["servers"][0]
        assert "stderr" not in listed
        assert [kind for _, kind in listed["ticks"]][:3] == ["ready", "down", "ready"]
        assert (listed["kind"], listed["tools"], listed["enabled"]) == ("stdio", 1, True)
        assert SECRET not in (await service.http.get(f"{API}/servers", headers=as_key(OPERATOR_KEY))).text


@requirement("OPS-243", "OPS-244", "OPS-245")
async def test_a_server_is_disabled_enabled_and_connected_anew(tmp_path: Path) -> None:
    async with running_service(upstreams=None, settings=crashing(tmp_path)) as service:

        async def tools() -> int:
            return int((await get(service, "servers/bad"))["tools"])

        await until(tools)
        assert await post(service, "servers/bad/disable") == (
            202,
            {"done": "disabled until the next reload", "until_reload": True},
        )
        found = await get(service, "servers/bad")
        assert (found["state"], found["tools"], found["enabled"], found["switched"]) == ("disabled", 0, False, True)
        assert [(each["act"], each["done"]) for each in found["outcomes"]] == [("disable", True)]
        assert (await post(service, "servers/bad/disable"))[0] == 409
        assert (await post(service, "servers/bad/reconnect"))[0] == 409
        assert (await post(service, "servers/bad/enable"))[0] == 202
        await until(tools)
        before = (await get(service, "servers/bad"))["events"]
        assert (await post(service, "servers/bad/reconnect"))[0] == 202

        async def renewed() -> bool:
            found = await get(service, "servers/bad")
            kinds = [event["kind"] for event in found["events"][: len(found["events"]) - len(before)]]
            return found["state"] == "ready" and kinds == ["ready", "reconnect"] and not found["switched"]

        await until(renewed)
        records = (await get(service, "calls?operation=server"))["calls"]
        assert [record["detail"] for record in records] == [
            "reconnected",
            "enabled until the next reload",
            "disabled until the next reload",
        ]
        assert {(record["actor"], record["key_id"], record["server"]) for record in records} == {
            ("olga", "writer", "bad")
        }


@requirement("OPS-243")
async def test_a_reload_ends_what_an_operator_switched(tmp_path: Path) -> None:
    async with running_service(upstreams=None, settings=crashing(tmp_path)) as service:
        gate = service.app.state.gate
        as_configured = gate.settings
        assert (await post(service, "servers/bad/disable"))[0] == 202
        assert (await get(service, "configuration"))["switched"] == {"bad": False}
        await gate.apply(as_configured)
        found = await get(service, "servers/bad")
        assert (found["enabled"], found["switched"]) == (True, False)
        assert (await get(service, "configuration"))["switched"] == {}


@requirement("OPS-240", "OPS-244")
async def test_permissions_and_servers_that_are_not_there() -> None:
    settings = {"auth": {"keys": [WRITER]}}
    async with running_service(upstreams=[FileServer(), StubUpstream([], name="x")], settings=settings) as service:
        for path in ("servers", "servers/files", "keys", "configuration"):
            answer = await service.http.get(f"{API}/{path}", headers=as_key(READER_KEY))
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), path
        for path in ("servers/files/disable", "accept"):
            assert (await post(service, path, {}, OPERATOR_KEY))[0] == 403, path
        # It was passed in by this program.
        assert (await post(service, "servers/files/disable"))[0] == 409
        assert (await post(service, "servers/none/disable"))[0] == 404
        assert (await post(service, "servers/files/explode"))[0] == 404
        assert (await service.http.get(f"{API}/servers/none", headers=as_key(OPERATOR_KEY))).status_code == 404
        files = await get(service, "servers/files")
        assert (files["kind"], files["configured"], files["stderr"], files["tools"]) == ("embedded", False, None, 4)
