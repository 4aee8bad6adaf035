"""Every policy twice: for a call by ``tool_execute``, and for the same call inside a program."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.requirement import requirement
from wicketgate.access.identity import Identity
from wicketgate.fleet.breaker import BreakerPolicy
from wicketgate.gate import Gate
from wicketgate.ports import CallContext
from wicketgate.tools import ToolFailed, ToolRegistry

registry = ToolRegistry()
MADE: list[str] = []


@registry.tool(read_only=True)
def read(page: int = 1) -> list[str]:
    """Read a page."""
    MADE.append(f"read {page}")
    return ["sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789"]


@registry.tool
def write(to: str = "me@example.org") -> str:
    """Write a mail."""
    MADE.append(f"write {to}")
    return "written"


@registry.tool
async def hang() -> str:
    """Never come back."""
    MADE.append("hang")
    await asyncio.Event().wait()
    return ""


@registry.tool
def fail() -> str:
    """Fail."""
    MADE.append("fail")
    raise ToolFailed("out of paper")


UPSTREAM: Mapping[str, Any] = {"name": "shop", "python": f"{__name__}:registry"}
EVERYTHING = ("*",)
# The settings, the calls in order, and the permissions of their caller.
POLICIES: Mapping[str, tuple[Mapping[str, Any], list[tuple[str, Mapping[str, Any]]], tuple[str, ...]]] = {
    "nothing forbids it": ({}, [("read", {})], EVERYTHING),
    "the tool does not exist": ({}, [("nothing", {})], EVERYTHING),
    "no permission": ({}, [("read", {})], ("nothing",)),
    "hidden by a rule": ({"access": [{"match": "shop:read", "effect": "deny"}]}, [("read", {})], EVERYTHING),
    "a condition on arguments": (
        {"access": [{"match": "shop:read", "when": "args.page > 1", "effect": "deny"}]},
        [("read", {"page": 2}), ("read", {"page": 1})],
        EVERYTHING,
    ),
    "arguments that do not fit": ({}, [("read", {"page": "x"}), ("read", {"pages": 1})], EVERYTHING),
    "arguments that are repaired": ({}, [("read", {"page": "2"})], EVERYTHING),
    "an approval": ({"access": [{"match": "shop:write", "approval": "always"}]}, [("write", {})], EVERYTHING),
    "an approval of others": (
        {"access": [{"match": "shop:write", "approval": {"by": "role:lead"}}]},
        [("write", {})],
        EVERYTHING,
    ),
    "a quota of the actor": ({"quota": {"per_actor": 1}}, [("read", {}), ("read", {})], EVERYTHING),
    "a quota of the tool": ({"quota": {"per_tool": {"shop:read": 1}}}, [("read", {}), ("read", {})], EVERYTHING),
    "a deadline": ({"upstreams": [{**UPSTREAM, "timeout_s": 0.1}]}, [("hang", {})], EVERYTHING),
    "a breaker": (
        {"upstreams": [{**UPSTREAM, "timeout_s": 0.1}]},
        [*(("hang", {}) for _ in range(BreakerPolicy().failures)), ("read", {})],
        EVERYTHING,
    ),
    "a cache": (
        {"upstreams": [{**UPSTREAM, "cache": {"tools": ["read"], "ttl_s": 60}}]},
        [("read", {}), ("read", {})],
        EVERYTHING,
    ),
    "a plugin on results": (
        {"plugins": {"security": {"_global": [{"handler": "secrets_filter", "config": {"action": "block"}}]}}},
        [("read", {})],
        EVERYTHING,
    ),
    "a plugin that changes results": (
        {"plugins": {"security": {"shop": [{"handler": "secrets_filter", "config": {"action": "redact"}}]}}},
        [("read", {})],
        EVERYTHING,
    ),
    "a flow rule": (
        {"access": [{"match": "shop:write", "when": "size(strange) > 0", "approval": "always"}]},
        [("read", {}), ("write", {"to": "eve@example.net"})],
        EVERYTHING,
    ),
    "an error of the tool": ({}, [("fail", {})], EVERYTHING),
}
FIELDS = (
    *("tool_id", "server", "arguments_sha256", "outcome", "transport", "protocol", "tool", "code", "cached", "phase"),
    *("key_id", "source", "correlation_id", "actor", "gate", "flow"),
)


async def by_execute(gate: Gate, calls: list[tuple[str, Mapping[str, Any]]], context: CallContext) -> list[str]:
    ends = []
    for name, args in calls:
        result = await gate.surface.call("tool_execute", {"tool_id": f"shop:{name}", "args": args}, context)
        status = "TOOL_ERROR" if result.structured.get("status") == "error" else "ok"
        ends.append(result.structured.get("error", status))
    return ends


async def in_programs(gate: Gate, calls: list[tuple[str, Mapping[str, Any]]], context: CallContext) -> list[str]:
    ends = []
    for name, args in calls:
        made = f'    tool("shop:{name}", **{dict(args)!r})\n    end = "ok"'
        code = f"try:\n{made}\nexcept ToolError as error:\n    end = str(error)\nend"
        result = await gate.surface.call("tool_run", {"code": code}, context)
        waits = result.structured.get("status") == "waiting"
        ends.append("APPROVAL_REQUIRED" if waits else result.shown.partition(":")[0])
    return ends


def records(file: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in file.read_text().splitlines()]
    calls = [each for each in found if each["operation"] == "execute"]
    return [{name: each[name] for name in FIELDS} | {"stages": _outcomes(each)} for each in calls]


def _outcomes(record: Mapping[str, Any]) -> list[str]:
    return [stage["outcome"] for stage in record["stages"]]


@pytest.mark.parametrize("policy", POLICIES)
@requirement("EXEC-142")
async def test_each_policy_holds_inside_a_program_as_it_does_outside(tmp_path: Path, policy: str) -> None:
    settings, calls, permissions = POLICIES[policy]
    seen = []
    for way in (by_execute, in_programs):
        MADE.clear()
        file = tmp_path / f"{way.__name__}.jsonl"
        sink = {"handler": "audit_jsonl", "config": {"path": str(file)}}
        plugins = {
            **settings.get("plugins", {}),
            "auditing": {"_global": [sink]},
        }
        context = CallContext(Identity("ann", permissions, "key"), "trace", "session", door="mcp", source="127.0.0.1")
        made = {"upstreams": [UPSTREAM], "code_mode": {"enabled": True}, **settings, "plugins": plugins}
        async with Gate(made) as gate:
            ends = await way(gate, calls, context)
        seen.append((ends, list(MADE), records(file)))
    outside, inside = seen
    assert inside[:2] == outside[:2]
    assert inside[2] == outside[2]
