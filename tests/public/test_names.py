"""The library by its names: complete, typed, cheap to import, and free of web frameworks."""

import ast
import asyncio
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import wicketgate
from tests.support.process import ROOT
from tests.support.requirement import requirement

PUBLIC_NAMES = [
    *("ProxyRuntime", "StubUpstream", "McpClientUpstream", "MultiplexUpstream", "ExposureMode", "McpGatewayServer"),
    *("McpProxyServer", "Catalog", "SelectableItem", "make_choice_cards", "ChoiceCard", "mcp_tool_to_selectable"),
    *("mcp_result_to_envelope", "infer_namespace", "parse_tool_id", "format_tool_id", "load_mcp_session_jsonl"),
    *("ContextManager", "ContextItem", "ItemKind", "Phase", "ToolRegistry", "ToolContext", "ToolFailed"),
    *("SecurityPlugin", "MiddlewarePlugin", "Settings", "Gate", "running_engine", "create_app"),
]

HEAVY = ("fastapi", "starlette", "sse_starlette", "uvicorn", "mcp")
LOADED = "print(sorted(m for m in {heavy} if m in sys.modules), len(sys.modules))"


async def fresh(code: str) -> str:
    """Returns the output of *code* in an interpreter of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(30):
        out, err = await process.communicate()
    assert (process.returncode, err.decode()) == (0, "")
    return out.decode().strip()


@requirement("LIB-1")
def test_every_name_is_there_and_the_list_is_what_type_checkers_see() -> None:
    assert set(PUBLIC_NAMES) <= set(wicketgate.__all__)
    assert set(wicketgate.__all__) <= set(dir(wicketgate))
    tree = ast.parse((ROOT / "wicketgate" / "__init__.py").read_text("utf-8"))
    (checked,) = [node for node in tree.body if isinstance(node, ast.If)]
    imported = [
        (alias.name, node.module) for node in checked.body if isinstance(node, ast.ImportFrom) for alias in node.names
    ]
    assert sorted(name for name, _ in imported) == sorted(wicketgate.__all__)
    for name, module in imported:
        assert getattr(wicketgate, name) is getattr(sys.modules[str(module)], name)
    assert (ROOT / "wicketgate" / "py.typed").is_file()


@requirement("LIB-1")
def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        wicketgate.nothing_of_the_kind  # noqa: B018


@requirement("LIB-29")
async def test_the_published_reference_is_that_of_these_docstrings() -> None:
    written = await fresh("from examples.reference import main; main()")
    assert (ROOT / "openapi" / "library.md").read_text("utf-8").strip() == written, "run: make openapi"
    assert {f"## {name}" for name in wicketgate.__all__} <= set(written.splitlines())


@requirement("LIB-2")
async def test_importing_it_loads_none_of_its_modules_and_no_name_brings_a_web_framework() -> None:
    own = await fresh("import sys, wicketgate; print([m for m in sys.modules if m.startswith('wicketgate.')])")
    assert own == "[]"
    others = "[name for name in wicketgate.__all__ if name != 'create_app']"
    code = f"import sys, wicketgate\nfor n in {others}: getattr(wicketgate, n)\n{LOADED.format(heavy=HEAVY)}"
    assert (await fresh(code)).startswith("[] ")


@requirement("LIB-1")
def test_the_version_is_that_of_the_installation() -> None:
    assert wicketgate.__version__ == version("wicketgate")


@requirement("LIB-2", "LIB-4")
async def test_a_call_brings_no_web_framework_either() -> None:
    code = f"""
import asyncio, sys
from wicketgate import ProxyRuntime, StubUpstream

async def answer(name, arguments, context):
    return {{"content": [{{"type": "text", "text": f"{{name}} for {{context.identity.actor}}"}}]}}

async def main():
    runtime = ProxyRuntime(StubUpstream([{{"name": "greet", "inputSchema": {{"type": "object"}}}}], answer))
    await runtime.refresh_catalog()
    (card,) = (await runtime.browse_query("greet")).cards
    print((await runtime.execute(card.id, {{}})).envelope.summary)

asyncio.run(main())
{LOADED.format(heavy=HEAVY)}
"""
    said, loaded = (await fresh(code)).splitlines()
    assert said == "greet for local"
    assert loaded.startswith("[] ")


CHECKED_CALLS = {"browse_query": 3, "browse_path": 2, "hydrate": 2, "execute": 3, "call": 3, "view": 3}
"""Methods of a runtime that take the program itself for the caller, and how many arguments name another."""


def calls_without_a_caller(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        holder = ast.unparse(node.func.value)
        wanted = CHECKED_CALLS.get(node.func.attr)
        if wanted is None or not holder.endswith("runtime"):
            continue
        if len(node.args) < wanted and "context" not in {keyword.arg for keyword in node.keywords}:
            found.append(f"{path.name}:{node.lineno} {ast.unparse(node)}")
    return found


@requirement("LIB-4")
def test_the_gate_itself_always_says_who_calls(tmp_path: Path) -> None:
    forgetful = tmp_path / "forgetful.py"
    forgetful.write_text("async def f(self): await self._runtime.execute('a:b@1', {})")
    assert len(calls_without_a_caller(forgetful)) == 1
    files = [path for root in ("wicketgate", "app", "routers") for path in (ROOT / root).rglob("*.py")]
    assert [call for path in files for call in calls_without_a_caller(path)] == []
