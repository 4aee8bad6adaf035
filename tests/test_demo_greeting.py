"""The greeting of the demo: numbers of the running gate, and lines that can be pasted."""

import asyncio
import json
import re

import pytest

from app.local_key import LocalKey
from examples.demo import QUESTIONS, greeting
from tests.support.requirement import requirement
from tests.support.script import ScriptModel
from tests.support.service import BOUND_S
from wicketgate.access.identity import HashedKey, Identity, hash_key
from wicketgate.config.settings import Settings
from wicketgate.config.settings.upstreams import SandboxSettings
from wicketgate.gate import Gate
from wicketgate.ports import LOCAL_CALL
from wicketgate.upstreams.embedded import StubUpstream

KEY = "wg_local_abcdefghijklmnopqrstuvwxyz"
SCHEMA = {"type": "object", "properties": {"zone": {"type": "string", "description": "A zone. " * 200}}}


@requirement("OPS-100")
@pytest.mark.parametrize(
    ("sandbox", "said"), [(None, "run without a sandbox"), (SandboxSettings(), "run in a sandbox")]
)
async def test_it_says_what_there_is_what_it_costs_and_what_to_try(sandbox: SandboxSettings | None, said: str) -> None:
    tools = [{"name": name, "description": "A tool.", "inputSchema": SCHEMA} for name in ("one", "two")]
    upstreams = [StubUpstream(tools, name="time"), StubUpstream([], name="shop")]
    gate = Gate(Settings(sandbox=sandbox), upstreams=upstreams, provider=ScriptModel())
    local = LocalKey(HashedKey("local", hash_key(KEY), Identity("local", ("*",))), KEY)
    async with asyncio.timeout(BOUND_S), gate:
        await gate.wait_ready()
        text = greeting(gate, "http://0.0.0.0:8080", local)
        count = gate.runtime.tokens.count
        shown = sum(
            count(_definition(each.name, each.description, each.input_schema))
            for each in gate.surface.tools(LOCAL_CALL)
        )
    behind = sum(count(_definition(name, "A tool.", SCHEMA)) for name in ("one", "two"))
    lines = text.splitlines()
    assert len(lines) <= 25
    assert said in text
    assert re.search(r"^  time +2 tools +clocks", text, re.MULTILINE)
    assert re.search(r"^  shop +not there yet", text, re.MULTILINE)
    assert f"3 tools ({shown:,} tokens) instead of 2 ({behind:,} tokens)" in text
    assert all(f"  {question}\n" in text for question in QUESTIONS)
    assert f'curl -N http://127.0.0.1:8080/engine/chat -H "Authorization: Bearer {KEY}"' in text
    assert f"WG_URL=http://127.0.0.1:8080 WG_KEY={KEY} " in text
    assert "ready on http://0.0.0.0:8080" in text


def _definition(name: str, description: str, schema: object) -> str:
    fields = {"name": name, "description": description, "parameters": schema}
    return json.dumps(fields, separators=(",", ":"))
