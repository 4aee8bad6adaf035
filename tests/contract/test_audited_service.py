"""The audit log of the running service: addresses, failed logins, decisions and reloads (ACCESS-60, ACCESS-64 to
ACCESS-66)."""

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.contract.test_approvals import GATED, READ, Conversation, asked
from tests.support.audit_memory import AuditMemory
from tests.support.mcp_client import call_statelessly
from tests.support.requirement import requirement
from tests.support.script import ScriptModel, calls, says
from tests.support.service import SUSPENDED_KEY, FileServer, running_service
from tests.support.ways import on_the_way
from wicketgate.errors import ConfigError
from wicketgate.gateway.audit import Attached, Auditor
from wicketgate.gateway.audit_events import PER_SOURCE

Record = dict[str, Any]


def audited(folder: Path, **sections: Any) -> dict[str, Any]:
    sink = {"handler": "audit_jsonl", "config": {"path": str(folder / "audit.jsonl")}}
    return {"plugins": {"auditing": {"_global": [sink]}}, **sections}


def records(folder: Path, operation: str) -> list[Record]:
    """Those that are kept by now."""
    read = map(json.loads, (folder / "audit.jsonl").read_text().splitlines())
    return [record for record in read if record["operation"] == operation]


@requirement("ACCESS-60")
@pytest.mark.parametrize("door", ["chat", "operations", "mcp"])
async def test_every_door_records_the_address_and_the_key(tmp_path: Path, door: str) -> None:
    model = ScriptModel(calls(READ), says("ok"))
    async with running_service(model, [FileServer()], settings=audited(tmp_path)) as service:
        if door == "chat":
            await service.chat()
        elif door == "operations":
            body = {"operation": "/files/read_file", "input": {"path": "a.md"}}
            (await service.http.post("/operations/call", json=body)).raise_for_status()
        else:
            call = {"tool_id": next(iter(service.app.state.gate.runtime.catalog().items)), "args": {"path": "a.md"}}
            (await call_statelessly(service.http, "tool_execute", call)).raise_for_status()
    ended = [record for record in records(tmp_path, "execute") if record["phase"] == "end"]
    assert [(record["source"], record["key_id"]) for record in ended] == [("127.0.0.1", "test")]


@requirement("ACCESS-65")
async def test_failed_logins_are_recorded_with_reason_address_and_key(tmp_path: Path) -> None:
    async with running_service(upstreams=[FileServer()], settings=audited(tmp_path)) as service:
        for credential in (f"Bearer {SUSPENDED_KEY}", "Bearer wg_made_up", ""):
            answer = await service.http.get("/operations", headers={"Authorization": credential})
            assert answer.status_code == 401
    failed = records(tmp_path, "login")
    assert [(record["detail"], record["key_id"]) for record in failed] == [
        ("suspended", "gone"),
        ("unknown", ""),
        ("missing", ""),
    ]
    assert {(record["outcome"], record["source"]) for record in failed} == {("denied", "127.0.0.1")}
    assert "made_up" not in (tmp_path / "audit.jsonl").read_text()


@requirement("ACCESS-65")
async def test_a_flood_of_failed_logins_is_counted_not_written(tmp_path: Path) -> None:
    async with running_service(upstreams=[FileServer()], settings=audited(tmp_path)) as service:
        for _ in range(PER_SOURCE + 25):
            await service.http.get("/operations", headers={"Authorization": "Bearer no"})
    *single, rest = records(tmp_path, "login")
    assert len(single) == PER_SOURCE
    assert rest["detail"] == "25 more failed logins, not recorded singly"


@requirement("ACCESS-71")
async def test_a_flood_of_failed_logins_hides_none_with_a_known_key(tmp_path: Path) -> None:
    async with running_service(upstreams=[FileServer()], settings=audited(tmp_path)) as service:
        for credential in [*(["no"] * (PER_SOURCE + 5)), *([SUSPENDED_KEY] * (PER_SOURCE + 5))]:
            await service.http.get("/operations", headers={"Authorization": f"Bearer {credential}"})
    *single, rest = records(tmp_path, "login")
    assert [record["key_id"] for record in single] == [""] * PER_SOURCE + ["gone"] * PER_SOURCE
    assert rest["detail"] == "10 more failed logins, not recorded singly"


@requirement("ACCESS-64")
@pytest.mark.parametrize(("word", "outcome"), [("approve", "allowed"), ("deny", "denied")])
async def test_a_decision_is_recorded_with_who_made_it(tmp_path: Path, word: str, outcome: str) -> None:
    model = ScriptModel(calls(READ), says("ok"), says("ok"))
    async with running_service(model, [FileServer()], settings=audited(tmp_path, **GATED)) as service:
        talk = Conversation(service)
        approval = asked(await talk.go_on())["c1"]
        await talk.go_on((approval, word))
        talk.messages = talk.messages[:3]
        await talk.go_on((approval, "approve"))
    mark = hashlib.sha256(approval.encode()).hexdigest()[:16]
    waiting = next(record for record in records(tmp_path, "execute") if record["outcome"] == "approval_required")
    assert waiting["approval"] == mark
    decided, *used, again = records(tmp_path, "approval")
    assert (decided["outcome"], decided["approval"], decided["actor"]) == (outcome, mark, "owner_1")
    assert (decided["key_id"], decided["source"]) == ("test", "127.0.0.1")
    assert decided["tool_id"] == waiting["tool_id"]
    assert decided["detail"] == ("" if word == "approve" else "denied by the owner")
    assert len(used) == (word == "approve")
    assert (again["outcome"], again["detail"]) == ("denied", "approval_refused: this approval was decided before")
    assert approval not in (tmp_path / "audit.jsonl").read_text()


@requirement("ACCESS-66")
async def test_a_reload_is_recorded_by_the_names_of_its_sections(tmp_path: Path) -> None:
    async with running_service(upstreams=[FileServer()], settings=audited(tmp_path)) as service:
        gate = service.app.state.gate
        secret = {"access": [{"match": "files:secret_tool", "effect": "deny"}], "server": {"port": 1234}}
        await gate.apply(type(gate.settings).model_validate(on_the_way(audited(tmp_path, **secret))))
        with pytest.raises(ConfigError):
            await gate.apply(gate.settings.model_copy(update={"pins": _missing_lock(gate.settings, tmp_path)}))
    applied, refused = records(tmp_path, "reload")
    assert (applied["outcome"], applied["detail"]) == ("allowed", "access; after a restart: server.port")
    assert (refused["outcome"], refused["detail"]) == ("failed", "not applied")
    assert "secret_tool" not in (tmp_path / "audit.jsonl").read_text()


def _missing_lock(settings: Any, folder: Path) -> Any:
    return settings.pins.model_copy(update={"file": str(folder / "none.lock")})


@requirement("ACCESS-61")
async def test_a_key_that_is_configured_later_counts_from_then_on(tmp_path: Path) -> None:
    body = {"operation": "/files/read_file", "input": {"path": "a.md"}}
    async with running_service(upstreams=[FileServer()], settings=audited(tmp_path)) as service:
        gate = service.app.state.gate
        (await service.http.post("/operations/call", json=body)).raise_for_status()
        await gate.apply(type(gate.settings).model_validate(audited(tmp_path, auth={"audit_key": "k" * 32})))
        (await service.http.post("/operations/call", json=body)).raise_for_status()
    kinds = [record["arguments_sha256"].startswith("hmac:") for record in records(tmp_path, "execute")]
    assert kinds == [False, False, True, True]


@requirement("OPS-10")
async def test_the_service_is_not_ready_while_a_critical_audit_sink_cannot_be_written() -> None:
    async with running_service(upstreams=[FileServer()]) as service:
        for is_critical in (False, True):
            full = AuditMemory()
            full.broken = True
            service.app.state.gate.records.auditor = Auditor(
                [Attached("disk", full, is_critical)], wall_clock=time.time
            )
            for headers in ({"Accept": "*/*"}, {"Authorization": ""}):
                answer = await service.http.get("/readyz", headers=headers)
                assert (answer.status_code, answer.json()["ready"]) == ((503, False) if is_critical else (200, True))
