"""The wheel: one top-level package, and a program that runs beside packages of its users."""

import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path
from sysconfig import get_paths

import httpx
import pytest
import yaml

from tests.support.process import ROOT, command
from tests.support.requirement import requirement
from tests.support.service import KEY
from wicketgate.access.identity import hash_key

TOOLS = """
from app.words import GREETING
from wicketgate.tools import ToolRegistry

registry = ToolRegistry()


@registry.tool
def greet(name: str) -> str:
    return f"{GREETING}, {name}"
"""


def built(source: Path, target: Path, kind: str) -> Path:
    line = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(target)]
    subprocess.run(line, cwd=source, check=True, capture_output=True, timeout=60)
    (made,) = target.iterdir()
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(ROOT, tmp_path_factory.mktemp("wheel"), "wheel")


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel, and the dependencies that are installed here. Returns its ``bin``.

    A ``.pth`` file leads to the dependencies. The ``.pth`` files that lie there themselves, such as the link to the
    checkout, are not read, so the checkout is out of reach.
    """
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    packages = Path(get_paths("venv", {"base": str(folder), "platbase": str(folder)})["purelib"])
    (packages / "dependencies.pth").write_text(get_paths()["purelib"] + "\n")
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "--disable-pip-version-check"]
    line = [*pip, "install", "--quiet", "--no-deps", "--no-index", "--no-compile", "--ignore-installed", str(wheel)]
    subprocess.run(line, check=True, capture_output=True, timeout=60)
    return folder / "bin"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's folder, with a package ``app`` of their own."""
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__init__.py").touch()
    (tmp_path / "app" / "words.py").write_text('GREETING = "Hello"\n')
    (tmp_path / "app" / "mytools.py").write_text(TOOLS)
    keys = [{"id": "test", "sha256": hash_key(KEY), "actor": "owner_1", "permissions": ["tools:*"]}]
    upstreams = [{"name": "mine", "python": "app.mytools:registry"}]
    (tmp_path / "wicketgate.yaml").write_text(yaml.safe_dump({"auth": {"keys": keys}, "upstreams": upstreams}))
    return tmp_path


def contents(wheel: Path) -> dict[str, int]:
    with zipfile.ZipFile(wheel) as archive:
        return {entry.filename: entry.CRC for entry in archive.infolist()}


@requirement("LIB-20")
def test_the_wheel_has_one_top_level_package_and_what_belongs_to_it(wheel: Path) -> None:
    names = set(contents(wheel))
    information = next(name for name in names if name.endswith("/METADATA")).partition("/")[0]
    assert {name.partition("/")[0] for name in names} == {"wicketgate", information}
    for packed in ("py.typed", "cl100k_base.tiktoken.gz", "app/main.py", "routers/engine.py", "middleware/auth.py"):
        assert f"wicketgate/{packed}" in names
    for notice in ("LICENSE", "NOTICE"):
        assert f"{information}/licenses/{notice}" in names


@requirement("LIB-20")
def test_the_source_distribution_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(built(ROOT, tmp_path / "sdist", "sdist")) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.glob("wicketgate-*")
    assert contents(built(unpacked, tmp_path / "wheel", "wheel")) == contents(wheel)


@requirement("UP-20", "LIB-21")
async def test_check_and_serve_run_beside_an_app_of_the_user_and_load_tools_from_it(
    environment: Path, folder: Path
) -> None:
    program = str(environment / "wicketgate")
    async with command(program, "check", "--config", "wicketgate.yaml", folder=folder) as running:
        assert await running.ended(40) == 0
    assert "mine: ready\n  mine:greet#" in running.stdout

    serve = (program, "serve", "--config", "wicketgate.yaml", "--port", "0")
    async with command(*serve, folder=folder) as running:
        url = (await running.wait_for(r"ready on (http://\S+)")).group(1)
        async with httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {KEY}"}, trust_env=False) as http:
            call = {"operation": "/mine/greet", "input": {"name": "Ada"}}
            answer = await http.post("/operations/call", json=call)
        assert await running.stop() == 0
    assert (answer.status_code, answer.json()) == (200, "Hello, Ada")


@requirement("LIB-21")
async def test_the_package_runs_as_a_module_too_and_comes_from_the_wheel(environment: Path, folder: Path) -> None:
    python = str(environment / "python")
    where = "import wicketgate.app.main as service; print(service.__file__)"
    async with (
        command(python, "-m", "wicketgate", "--version", folder=folder) as shown,
        command(python, "-c", where, folder=folder) as asked,
    ):
        assert (await shown.ended(40), await asked.ended(40)) == (0, 0)
    assert shown.stdout.startswith("wicketgate, version ")
    assert Path(asked.stdout.strip()).is_relative_to(environment.parent)


@requirement("LIB-21")
async def test_in_a_checkout_both_ways_of_starting_it_find_the_service() -> None:
    bin_folder = Path(sys.executable).parent
    async with (
        command(str(bin_folder / "wicketgate"), "--version", folder=ROOT) as script,
        command(sys.executable, "-m", "wicketgate", "--version", folder=ROOT) as module,
    ):
        assert (await script.ended(40), await module.ended(40)) == (0, 0)
    assert script.stdout == module.stdout


@requirement("LIB-21")
async def test_a_checkout_says_why_it_cannot_run_where_another_app_hides_the_service(folder: Path) -> None:
    async with command(sys.executable, "-m", "wicketgate", "--version", folder=folder) as running:
        assert await running.ended(40) == 1
    assert "install the wheel" in running.stderr
    assert "Traceback" not in running.stderr
