"""Programs of models in a chat and over MCP: the task of twenty calls, the client's switch, and the audit."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bench.programs import PROGRAM, orders
from tests.contract.test_face_by_client import THREE, WIRE_ERAS, client_of, listed
from tests.support.requirement import requirement
from tests.support.script import ScriptModel, calls, says
from tests.support.service import running_service
from wicketgate.models.provider import ToolCall
from wicketgate.upstreams.python.upstream import PythonUpstream

pytestmark = pytest.mark.usefixtures("both_ways")

CODE: Mapping[str, Any] = {"code_mode": {"enabled": True}}
TWENTY = '{"Porto":7,"Gent":6,"Graz":6}'
"""The answer of the task, after one call for the list and one for each of nineteen customers."""


def servers() -> list[PythonUpstream]:
    return [PythonUpstream("orders", orders(19))]


def text_of(answer: Mapping[str, Any]) -> str:
    text: str = answer["result"]["content"][0]["text"]
    return text


@WIRE_ERAS
@requirement("EXEC-140")
async def test_a_client_of_mcp_runs_the_task_of_twenty_calls_as_one_program(era: str) -> None:
    async with running_service(upstreams=servers(), settings=CODE) as service:
        client = client_of(service, era)
        assert await listed(client) == [*THREE, "tool_run"]
        assert text_of(await client.call("tool_run", {"code": PROGRAM})) == TWENTY


@requirement("EXEC-140")
async def test_the_model_of_a_chat_runs_the_task_of_twenty_calls_as_one_program() -> None:
    arguments = {"code": PROGRAM}
    model = ScriptModel(calls(ToolCall("c1", "tool_run", arguments, json.dumps(arguments))), says("Done."))
    async with running_service(model, servers(), settings=CODE) as service:
        events = await service.chat()
    assert [tool.name for tool in model.requests[0].tools] == [*THREE, "tool_run"]
    assert model.requests[1].messages[-1]["content"] == TWENTY
    assert events[-1][0] == "done"


@WIRE_ERAS
@requirement("EXEC-140", "EXEC-141")
@pytest.mark.parametrize(
    ("query", "enabled", "has"),
    [
        ("", True, True),
        ("?code=true", True, True),
        ("?code=false", True, False),
        ("?codemode=false", True, False),
        ("?result=json&code=false", True, False),
        ("?code=falsehood", True, True),
        ("?code=true", False, False),
        ("", False, False),
    ],
)
async def test_a_client_switches_programs_off_and_never_on(era: str, query: str, enabled: bool, has: bool) -> None:
    settings = {"code_mode": {"enabled": enabled}, "mcp": {"always": ["orders:get_customer"]}}
    for chosen in (["orders__get_customer"], []):
        settings = settings if chosen else {"code_mode": settings["code_mode"]}
        async with running_service(upstreams=servers(), settings=settings) as service:
            client = client_of(service, era, query)
            assert await listed(client) == [*THREE, *(["tool_run"] if has else []), *chosen]
            called = await client.call("tool_run", {"code": "1"})
            assert ("error" in called) is not has


@requirement("EXEC-149")
async def test_the_audit_has_the_text_of_a_program_and_its_calls_name_it(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    sink = {"handler": "audit_jsonl", "config": {"path": str(file)}}
    settings = {**CODE, "plugins": {"auditing": {"_global": [sink]}}}
    code = 'tool("orders:list_orders", page=1)\ntool("orders:get_customer", id=1)["city"]'
    async with running_service(upstreams=servers(), settings=settings) as service:
        await client_of(service, "2025-11-25").call("tool_run", {"code": code})
    records = [json.loads(line) for line in file.read_text().splitlines()]
    runs = [each for each in records if each["operation"] == "run"]
    inner = [each for each in records if (each["operation"], each["phase"]) == ("execute", "end")]
    assert [each["phase"] for each in runs] == ["intent", "end"]
    digest = hashlib.sha256(code.encode()).hexdigest()
    assert {(each["text"], each["arguments_sha256"], each["actor"]) for each in runs} == {(code, digest, "owner_1")}
    assert [(each["program"], each["step"]) for each in inner] == [(runs[0]["program"], 1), (runs[0]["program"], 2)]
    assert runs[0]["program"]
