"""One truth about access: the command line, the console and the gate answer alike, for any rule and any key."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from app.cli import cli
from tests.support.requirement import requirement
from tests.support.service import OPERATOR_KEY, running_service
from wicketgate.access.identity import hash_key

KEYS: dict[str, dict[str, Any]] = {
    "lead": {"actor": "lena", "roles": ["lead"]},
    "plain": {"actor": "lena"},
    "all": {"actor": "root", "permissions": ["*"]},
    "else": {"actor": "bob", "permissions": ["tools:else:*"], "roles": ["lead"]},
    "pay": {"actor": "eve", "permissions": ["tools:p:*", "pay:write"]},
}
DUE = "p:due"
RULES: list[tuple[str, list[dict[str, Any]], set[str]]] = [
    ("none", [], {"lead", "plain", "all", "pay"}),
    ("denied to a role", [{"when": "'lead' in roles", "effect": "deny"}], {"plain", "all", "pay"}),
    ("requires a role", [{"require": ["role:lead"]}], {"lead"}),
    ("one of", [{"require_any": ["role:lead", "pay:write"]}], {"lead", "all", "pay"}),
    ("a role and a permission", [{"require": ["role:lead", "pay:write"]}], set()),
    ("a resource", [{"require": ["pay:write"]}], {"all", "pay"}),
    ("an actor", [{"when": "actor == 'lena'"}, {"visibility": "internal"}], {"lead", "plain"}),
    ("approval of a role", [{"require": ["role:lead"], "approval": {"by": "role:lead"}}], {"lead"}),
]


def secret(key_id: str) -> str:
    return f"wg_{key_id}_{'0123456789' * 4}"


@requirement("ACCESS-270", "ACCESS-271")
@pytest.mark.parametrize(("rules", "seen"), [row[1:] for row in RULES], ids=[row[0] for row in RULES])
async def test_explain_the_console_and_the_gate_agree(
    rules: list[dict[str, Any]], seen: set[str], tmp_path: Path
) -> None:
    keys = [{"id": name, "sha256": hash_key(secret(name)), **each} for name, each in KEYS.items()]
    settings = {
        "auth": {"keys": keys},
        "upstreams": [{"name": "p", "python": "tests.support.python_tools:registry"}],
        "access": [{"match": DUE, **rule} for rule in rules],
    }
    config = tmp_path / "wicketgate.yaml"
    config.write_text(json.dumps(settings))

    def explained(key: str) -> bool:
        found = CliRunner().invoke(cli, ["explain", DUE, "--key", key, "--json", "--config", str(config)])
        said = json.loads(found.stdout)
        assert (found.exit_code, said["key"]) == (0 if said["usable"] else 1, key)
        return bool(said["usable"])

    by_command = {key for key in KEYS if await asyncio.to_thread(explained, key)}
    by_console, by_browse, by_call = set[str](), set[str](), set[str]()
    async with running_service(upstreams=None, settings=settings) as service:
        (due,) = (each for each in service.app.state.gate.runtime.catalog().tools if each.startswith(f"{DUE}#"))
        for key in KEYS:
            operator = {"Authorization": f"Bearer {OPERATOR_KEY}"}
            tool = await service.http.get("/console/api/tool", params={"id": due, "key": key}, headers=operator)
            caller = {"Authorization": f"Bearer {secret(key)}"}
            shown = await service.http.get("/console/api/map?path=/", headers=caller)
            tried = {"id": due, "args": {"start": "2026-01-01"}, "dry_run": True}
            run = await service.http.post("/console/api/execute", json=tried, headers=caller)
            policy = tool.json()["policy"]
            assert policy["key"] == key
            by_console |= {key} if policy["usable"] else set()
            by_browse |= {key} if due in shown.json()["columns"]["id"] else set()
            by_call |= {key} if run.json()["envelope"].get("error") != "HYDRATE_FAILED" else set()
    assert (by_command, by_console, by_browse, by_call) == (seen, seen, seen, seen)
