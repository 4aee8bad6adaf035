"""The example of a third party's plugin: built, installed in a folder, found by its entry point (ROUTE-25)."""

import asyncio
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.support.process import ROOT, program
from tests.support.requirement import requirement
from tests.support.service import KEY
from tests.support.until import until
from wicketgate.access.identity import Identity, hash_key
from wicketgate.plugin_api import Allow, Block, Request

PACKAGE = ROOT / "examples" / "plugin_package"
BOUND_S = 40.0
TOOLS = """
from wicketgate.tools import ToolRegistry
registry = ToolRegistry()
@registry.tool
def read(path: str) -> str: return f"contents of {path}"
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with the package and its metadata, as an installer leaves them."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")]
    subprocess.run(build, cwd=PACKAGE, check=True, capture_output=True, timeout=BOUND_S)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        files.extractall(tmp_path / "site")
    return tmp_path / "site"


def config(folder: Path, **settings: object) -> Path:
    (folder / "their_tools.py").write_text(TOOLS)
    path = folder / "wicketgate.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "auth": {"keys": [{"id": "t", "sha256": hash_key(KEY), "actor": "o", "permissions": ["*"]}]},
                "upstreams": [{"name": "files", "python": "their_tools:registry", "cwd": str(folder)}],
                "plugins": {"security": {"files": [{"handler": "path_guard", "config": settings}]}},
            }
        )
    )
    return path


@requirement("ROUTE-25")
async def test_it_judges_the_calls_of_a_real_service(installed: Path, tmp_path: Path) -> None:
    env = {"PYTHONPATH": f"{ROOT}:{installed}"}
    serve = ("app", "serve", "--config", str(config(tmp_path, roots=["/data/"])), "--port", "0")
    async with asyncio.timeout(BOUND_S), program(*serve, env=env) as running:
        url = (await running.wait_for(r"(http://127\.0\.0\.1:\d+)")).group(1)
        headers = {"Authorization": f"Bearer {KEY}"}
        async with httpx.AsyncClient(base_url=url, headers=headers, trust_env=False) as http:
            await until(lambda: http.get("/readyz"), lambda answer: answer.status_code == 200)

            async def read(path: str) -> tuple[int, str]:
                call = {"operation": "files/read", "input": {"path": path}}
                response = await http.post("/operations/call", json=call)
                return response.status_code, response.text

            assert await read("/data/a.md") == (200, '"contents of /data/a.md"')
            for outside in ("/data/../etc/passwd", "/database/x", "a.md"):
                status, text = await read(outside)
                assert (status, "a path outside the folders" in text) == (403, True)


async def test_a_mistake_in_its_configuration_is_told_with_its_place(installed: Path, tmp_path: Path) -> None:
    env = {"PYTHONPATH": f"{ROOT}:{installed}"}
    check = ("app", "check", "--config", str(config(tmp_path, roots=["data"])))
    async with program(*check, env=env) as running:
        assert await running.ended(BOUND_S) != 0
    assert re.search(r"plugins\.security\.files\[0\]\.config\.roots: 'data' must be absolute", running.stderr)


@requirement("ROUTE-25")
async def test_the_plugin_of_the_documentation_does_what_it_says() -> None:
    text = (ROOT / "docs" / "plugins.md").read_text()
    block = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert block is not None
    names: dict[str, Any] = {}
    exec(block.group(1), names)
    plugin = names["NoWords"](names["NoWordsConfig"].model_validate({"words": ["secret"]}))
    request = Request("r", "tools/call", "s", "t", {}, Identity("o"))
    assert await plugin.on_result(request, {"content": "a secret"}) == Block("the result contains a blocked word")
    assert await plugin.on_result(request, {"content": None}) == Allow()
