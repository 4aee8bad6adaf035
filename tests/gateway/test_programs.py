"""Programs of models: their limits, their values, and calls that wait for a person."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.process import children
from tests.support.requirement import requirement
from wicketgate.access.identity import Identity
from wicketgate.catalog.selectable import mcp_tool_to_selectable
from wicketgate.catalog.signature import MAX_TOKENS, signature
from wicketgate.errors import ConfigError
from wicketgate.faces.surface import SurfaceResult, UnknownTool
from wicketgate.gate import Gate
from wicketgate.ports import CallContext
from wicketgate.tokens import shipped_token_counter
from wicketgate.tools import ToolFailed, ToolRegistry

ANN = CallContext(Identity("ann", ("*",)), "trace", "session", door="mcp")
NOT_ANN = [
    CallContext(identity, "trace", "session", door="mcp")
    for identity in (
        Identity("bob", ("*",)),
        Identity("ann", ("tools:local:rows",)),  # another key of hers, which may do less
        Identity("ann", ("*",), gate="desk"),
    )
]
CODE: Mapping[str, Any] = {"code_mode": {"enabled": True, "seconds": 1, "memory": 32 * 1024 * 1024, "calls": 50}}


class Shop:
    """Orders and mails, with a list of what was done."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.registry = ToolRegistry()
        self.registry.tool(name="rows", description="List orders.", read_only=True)(self.rows)
        self.registry.tool(name="send", description="Send a mail.")(self.send)
        self.registry.tool(name="fail", description="Fail.")(self.fail)

    def rows(self, page: int = 1) -> list[dict[str, Any]]:
        self.done.append(f"rows {page}")
        return [{"id": number, "late": number % 3 == 0, "note": "x" * 40} for number in range(50)]

    def send(self, to: str) -> str:
        self.done.append(f"send {to}")
        return "sent"

    def fail(self) -> str:
        raise ToolFailed("out of paper")


@asynccontextmanager
async def gate_of(shop: Shop, **settings: Any) -> AsyncIterator[Gate]:
    async with Gate({**CODE, **settings}, tools=shop.registry) as gate:
        yield gate


async def run(gate: Gate, code: str, context: CallContext = ANN) -> SurfaceResult:
    return await gate.surface.call("tool_run", {"code": code}, context)


async def wait(gate: Gate, handle: str, context: CallContext = ANN, **selector: Any) -> SurfaceResult:
    wanted = {"type": "wait", "timeout_s": 20, **selector} if "type" not in selector else selector
    return await gate.surface.call("tool_view", {"handle": handle, "selector": wanted}, context)


# What a program tries, and how it ends: its answer, or the code with a part of the message.
HOSTILE: Mapping[str, tuple[str, Any]] = {
    "loop": ("while True:\n    pass", "seconds"),
    "memory": ("a=[0]\nwhile True:\n    a=a+a", "memory"),
    "long text": ('a="x"*10**9', "memory"),
    "doubled text": ('a="x"\nfor i in range(60):\n    a=a+a', "memory"),
    "power": ("x=10**(10**8)", "memory"),
    "tower": ("x=9**9**9", "memory"),
    "recursion": ("def f():\n    return f()\nf()", "PROGRAM_FAILED: RecursionError"),
    "brackets": ("(" * 5000 + "1" + ")" * 5000, "PROGRAM_INVALID: "),
    "deep list": ("a=[]\nfor i in range(100000):\n    a=[a]\nlen(a)", 1),
    "deep answer": ("a=[]\nfor i in range(100000):\n    a=[a]\na", "[[["),
    "os.system": ('import os\nos.system("id")', "PROGRAM_FAILED: AttributeError"),
    "subprocess": ("import subprocess", "PROGRAM_FAILED: ModuleNotFoundError"),
    "socket": ("import socket", "PROGRAM_FAILED: ModuleNotFoundError"),
    "open": ('open("/etc/passwd").read()', "PROGRAM_FAILED: PermissionError"),
    "eval": ('eval("1+1")', 2),
    "exec": ('exec("x=1")\n1', 1),
    "subclasses": ("().__class__.__bases__[0].__subclasses__()", "PROGRAM_FAILED: AttributeError"),
    "globals": ("tool.__globals__", "PROGRAM_FAILED: NameError"),
    "caught loop": (
        "while True:\n    try:\n        while True:\n            pass\n    except BaseException:\n        pass",
        "seconds",
    ),
    "calls": ('for i in range(1000):\n    tool("local:rows")', "calls"),
    "caught calls": (
        'while True:\n    try:\n        tool("local:rows")\n    except BaseException:\n        pass',
        "calls",
    ),
    "unknown calls": ("while True:\n    try:\n        f(1)\n    except BaseException:\n        pass", "calls"),
    "expression": ('import re\nre.match("(a+)+$","a"*40+"b")\n1', 1),
    "wide format": ('"{:>1000000000}".format(1)', "memory"),
    "digits": ("str(7**200000)[:5]", "PROGRAM_FAILED: "),
    "sort": ("sorted(range(10**7))", "memory"),
    "print": ('while True:\n    print("x"*10000)', "memory"),
    "environment": ("import os\nos.environ", "PROGRAM_FAILED: RuntimeError"),
    "sleep": ("import time\ntime.sleep(30)\n1", 1),
    "deep JSON": ('import json\njson.loads("["*100000)', "PROGRAM_FAILED: json.JSONDecodeError"),
    "unknown tool": ('tool("local:nothing")', "PROGRAM_FAILED: RuntimeError: HYDRATE_FAILED"),
    "failing tool": ('tool("local:fail")', "PROGRAM_FAILED: RuntimeError: TOOL_ERROR: out of paper"),
    "class": ("class A:\n    def __init__(self):\n        self.x=1\nA().x", 1),
    "with": ('with open("a") as f:\n    pass', "PROGRAM_FAILED: PermissionError"),
    "match": ("match 1:\n    case 1:\n        x=2\nx", 2),
    "generator": ("def g():\n    yield 1\nlist(g())", "PROGRAM_INVALID: "),
    "lambda": ("(lambda x: x+1)(2)", 3),
    "comprehension": ('{k:v for k,v in [("a",2)]}', {"a": 2}),
    "f-string": ('f"{3.14159:.2f}"', "3.14"),
    "date": ("import datetime\ndatetime.date(2026,1,2)", "2026-01-02"),
    "set": ("import collections\nsorted(collections.Counter([1,1,2]).values())", [1, 2]),
    "statistics": ("import statistics", "PROGRAM_FAILED: ModuleNotFoundError"),
}


@requirement("EXEC-143")
async def test_hostile_programs_end_at_their_limits_and_others_are_served_in_the_meantime() -> None:
    shop = Shop()
    assert len(HOSTILE) == 42
    async with gate_of(shop) as gate:
        over = asyncio.Event()

        async def others() -> int:
            served = 0
            while not over.is_set():
                served += not (await gate.surface.call("tool_execute", {"tool_id": "local:rows"}, ANN)).is_error
                await asyncio.sleep(0.01)
            return served

        serving = asyncio.create_task(others())
        ends = {}
        for name, (code, _) in HOSTILE.items():
            ends[name] = await run(gate, code)
        over.set()
        assert await serving > 42
    for name, (_, wanted) in HOSTILE.items():
        body = ends[name].structured
        if wanted in ("seconds", "memory", "calls"):
            assert (body["error"], body["details"]["limit"]) == ("PROGRAM_LIMIT", wanted), (name, body)
        elif isinstance(wanted, str) and wanted.startswith("PROGRAM_"):
            code, _, text = wanted.partition(": ")
            assert body["error"] == code and text in body["message"], (name, body)
        else:
            shown = ends[name].shown
            assert shown.startswith(wanted) if isinstance(wanted, str) else json.loads(shown) == wanted, (name, body)


@requirement("EXEC-143", "EXEC-147")
async def test_a_worker_has_no_environment_and_its_death_ends_its_program_alone() -> None:
    shop, seen = Shop(), []

    @shop.registry.tool
    def kill() -> str:
        """Kill the worker."""
        for pid in children(os.getpid()):
            if b"monty" in Path(f"/proc/{pid}/cmdline").read_bytes():
                seen.append(Path(f"/proc/{pid}/environ").read_bytes())
                os.kill(pid, signal.SIGKILL)
        return "killed"

    async with gate_of(shop) as gate:
        lost = await run(gate, 'tool("local:rows")\ntool("local:kill")')
        assert (lost.structured["error"], lost.structured["details"]) == (
            "PROGRAM_LOST",
            {"ran": {"local:rows": 1, "local:kill": 1}},
        )
        assert (await run(gate, "1 + 1")).shown == "2"
    assert seen and set(seen) == {b""}


@requirement("EXEC-142", "EXEC-145")
async def test_a_program_gets_whole_values_and_a_large_answer_is_kept() -> None:
    async with gate_of(Shop()) as gate:
        late = await run(gate, 'rows = tool("local:rows", page=2)\n[row["id"] for row in rows if row["late"]][:3]')
        assert late.shown == "[0,3,6]"
        assert (await run(gate, 'print("one")\nprint(2)')).shown == "one\n2\n"
        handled = 'try:\n    tool("local:rows", page="x")\nexcept ToolError as error:\n    found = str(error)\nfound'
        assert (await run(gate, handled)).shown.startswith("ARGS_INVALID: ")
        large = await run(gate, 'tool("local:rows") * 40')
        assert len(large.shown) < 10_000
        handle = large.structured["artifacts"][0]["handle"]
        view = await gate.surface.call("tool_view", {"handle": handle, "selector": {"type": "head", "chars": 9}}, ANN)
        assert view.structured["content"] == '[{"id":0,'
        for other in NOT_ANN:
            view = await gate.surface.call("tool_view", {"handle": handle, "selector": {"type": "head"}}, other)
            assert view.structured["error"] == "VIEW_FAILED"


@requirement("EXEC-144")
async def test_a_browse_adds_signatures_in_code_mode_only() -> None:
    async with gate_of(Shop()) as gate:
        await run(gate, 'tool("local:rows")')
        browse = await gate.surface.call("tool_browse", {"query": "list orders"}, ANN)
        without = await gate.surface.call("tool_browse", {"query": "list orders"}, ANN.having(code_mode=False))
        lines = ["local:rows(page?: int) -> [{id: int, late: bool, note: str}]"]
        assert browse.structured == {**without.structured, "signatures": lines}
        assert browse.shown == f"{without.shown}\n\nSignatures for tool_run:\n{lines[0]}"
        assert gate.surface.shown_again("tool_browse", browse.text) == browse.shown


@requirement("EXEC-144")
def test_a_signature_has_at_most_sixty_tokens() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for level in range(6):
        deep = {"type": "object", "properties": {f"name_{level}_{each}": deep for each in range(3)}}
    tool = {"name": "wide", "inputSchema": deep, "outputSchema": deep}
    item = mcp_tool_to_selectable(tool, "server")
    assert shipped_token_counter().count(signature(item)) <= MAX_TOKENS


@requirement("EXEC-140", "EXEC-141")
async def test_code_mode_is_off_unless_the_operator_and_the_client_want_it() -> None:
    shop = Shop()
    async with Gate({}, tools=shop.registry) as gate:
        assert len(gate.surface.tools(ANN)) == 3
        with pytest.raises(UnknownTool):
            await run(gate, "1")
    async with gate_of(shop) as gate:
        assert gate.surface.tools(ANN)[-1].name == "tool_run"
        with pytest.raises(UnknownTool):
            await run(gate, "1", ANN.having(code_mode=False))


@requirement("EXEC-140")
async def test_without_the_extra_the_setting_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wicketgate.sandbox.PACKAGE", "no_such_interpreter")
    with pytest.raises(ConfigError, match=r"pip install 'wicketgate\[code\]'"):
        Gate(CODE)


@requirement("EXEC-140")
def test_the_interpreter_is_not_imported_while_code_mode_is_off() -> None:
    code = "import sys, wicketgate.gate; wicketgate.gate.Gate({}); print('pydantic_monty' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


@requirement("EXEC-146", "EXEC-148")
async def test_a_program_waits_for_each_approval_and_goes_on_by_itself_without_repeating_a_call() -> None:
    shop = Shop()
    code = 'tool("local:rows")\ntool("local:send", to="b " + tool("local:send", to="a"))'
    async with gate_of(shop, access=[{"match": "local:send", "approval": "always"}]) as gate:
        first = await run(gate, code)
        assert first.structured["status"] == "waiting"
        assert 'local:send(to="a")' in first.structured["summary"]
        handle = first.structured["handle"]
        for other in NOT_ANN:
            assert (await wait(gate, handle, other)).structured["error"] == "VIEW_FAILED"
        for to in ("a", "b sent"):
            waiting, _ = await gate.approvals.lists(ANN.identity, everything=False)
            chosen = next(call for call in waiting if call.args == {"to": to})
            await gate.approvals.decide(chosen.id, "approve", ANN)
            while to == "a" and "b sent" not in (await wait(gate, handle, timeout_s=1)).shown:
                pass
        assert (await wait(gate, handle)).shown == "sent"
    assert shop.done == ["rows 1", "send a", "send b sent"]


@requirement("EXEC-146")
async def test_a_denied_call_fails_inside_the_program() -> None:
    shop = Shop()
    code = 'try:\n    tool("local:send", to="a")\nexcept ToolError as error:\n    end = str(error)\nend'
    async with gate_of(shop, access=[{"match": "local:send", "approval": "always"}]) as gate:
        handle = (await run(gate, code)).structured["handle"]
        waiting, _ = await gate.approvals.lists(ANN.identity, everything=False)
        await gate.approvals.decide(waiting[0].id, "deny", ANN)
        assert (await wait(gate, handle)).shown == "FORBIDDEN: Denied by the owner. It was not run."
        cancelled = (await run(gate, code)).structured["handle"]
        assert (
            "cancelled"
            in (await gate.surface.call("tool_view", {"handle": cancelled, "selector": {"type": "cancel"}}, ANN)).shown
        )
    assert shop.done == []


DONE: list[str] = []
registry = ToolRegistry()


@registry.tool(read_only=True)
def look(page: int) -> list[int]:
    """Look at a page."""
    DONE.append(f"look {page}")
    return [page, page + 1]


@registry.tool
def mail(to: str) -> str:
    """Send a mail."""
    DONE.append(f"mail {to}")
    return "sent"


@registry.tool
def wipe() -> str:
    """Wipe."""
    DONE.append("wipe")
    return "wiped"


def configured() -> Gate:
    """Of a server whose read-only tools are known to change nothing."""
    DONE.clear()
    upstream = {"name": "shop", "python": f"{__name__}:registry"}
    access = [{"match": "shop:mail", "approval": "always"}]
    return Gate({**CODE, "upstreams": [upstream], "access": access})


@requirement("EXEC-150")
async def test_a_preview_lists_the_calls_of_a_program_and_their_approvals_cover_exactly_those() -> None:
    code = (
        'sent = [tool("shop:mail", to=str(each)) for each in tool("shop:look", page=1)]\n'
        'sent.append(tool("shop:mail", to=str(tool("shop:look", page=7))))\n'
        'tool("shop:mail", to=f"last {sent}")'
    )
    async with configured() as gate:
        first = await run(gate, code)
        assert "3 further calls are on the list too" in first.structured["summary"]
        assert DONE == ["look 1", "look 7"]
        waiting, _ = await gate.approvals.lists(ANN.identity, everything=False)
        # A call that depends on an answer which nobody has yet is another one when it comes.
        assert [call.args for call in waiting] == [{"to": to} for to in ("1", "2", "[7, 8]", "last [None, None, None]")]
        assert len({call.program for call in waiting}) == 1
        for call in reversed(waiting):
            await gate.approvals.decide(call.id, "approve", ANN)
        handle = first.structured["handle"]
        while "last" not in (seen := await wait(gate, handle, timeout_s=1)).shown:
            pass
        assert seen.structured["status"] == "waiting"
        assert DONE == ["look 1", "look 7", "mail 1", "mail 2", "look 7", "mail [7, 8]"]
        waiting, _ = await gate.approvals.lists(ANN.identity, everything=False)
        assert [call.args for call in waiting] == [{"to": "last ['sent', 'sent', 'sent']"}]
        await gate.approvals.decide(waiting[0].id, "approve", ANN)
        assert (await wait(gate, handle)).shown == "sent"


@requirement("EXEC-150")
async def test_a_preview_runs_no_call_that_may_write_and_uses_no_decision_up() -> None:
    first = 'tool("shop:mail", to="a")\n'
    async with configured() as gate:
        handle = (await run(gate, first + 'tool("shop:wipe")\ntool("shop:mail", to="b")')).structured["handle"]
        waiting, _ = await gate.approvals.lists(ANN.identity, everything=False)
        assert ([call.args for call in waiting], DONE) == ([{"to": "a"}], [])
        await wait(gate, handle, type="cancel")
        # The approval of b stands when a copy of another program comes to that call.
        again = (await run(gate, first + 'tool("shop:mail", to="b")')).structured["handle"]
        waiting, _ = await gate.approvals.lists(ANN.identity, everything=False)
        assert [call.args for call in waiting] == [{"to": "a"}, {"to": "b"}]
        await gate.approvals.decide(waiting[1].id, "approve", ANN)
        await wait(gate, again, type="cancel")
        handle = (await run(gate, first + 'tool("shop:mail", to="b")')).structured["handle"]
        assert DONE == []
        await gate.approvals.decide(waiting[0].id, "approve", ANN)
        assert (await wait(gate, handle)).shown == "sent"
        assert DONE == ["mail a", "mail b"]
