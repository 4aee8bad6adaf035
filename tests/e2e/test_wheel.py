"""The wheel: one top-level package, and a program that runs in an environment without anything else, beside packages of
its users."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from email.message import Message
from email.parser import Parser
from importlib.metadata import distribution
from pathlib import Path
from sysconfig import get_paths

import httpx
import pytest
from packaging.requirements import Requirement

from tests.support.process import ROOT, command
from tests.support.requirement import requirement

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
    """The wheel of the checkout, or the one that is about to be released (``release.sh``)."""
    if "WHEEL" in os.environ:
        return Path(os.environ["WHEEL"])
    return built(ROOT, tmp_path_factory.mktemp("wheel"), "wheel")


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(built(ROOT, folder / "packed", "sdist")) as archive:
        archive.extractall(folder, filter="data")
    (unpacked,) = folder.glob("wicketgate-*")
    return unpacked


@requirement("OPS-586")
def test_two_builds_in_different_folders_give_the_same_bytes(tmp_path: Path) -> None:
    """Of the same commit: what lies beside the files of a release does not matter, nor when they were written."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    made = []
    for folder in (tmp_path / "one", tmp_path / "another" / "place"):
        for name in filter(None, names.split("\0")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
        made.append([built(folder, folder / "dist" / kind, kind).read_bytes() for kind in ("wheel", "sdist")])
    assert made[0] == made[1]


def locked(name: str) -> list[Requirement]:
    """The packages of a lock file of ``requirements/`` that belong on this machine, each with its one version."""
    lines = re.findall(r"^([^#\s].*?)\s*\\?$", (ROOT / "requirements" / name).read_text("utf-8"), re.MULTILINE)
    requirements = [Requirement(line) for line in lines]
    return [each for each in requirements if each.marker is None or each.marker.evaluate()]


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new virtual environment with the packages of ``service.lock`` and the wheel, nothing else. Returns its ``bin``.

    The packages are those that are installed here, with hashes, from ``dev.lock``: links lead to them. So no network is
    needed, and a package that only the tests have is out of reach, as is the checkout.
    """
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    packages = Path(get_paths("venv", {"base": str(folder), "platbase": str(folder)})["purelib"])
    for requirement_ in locked("service.lock"):
        installed = distribution(requirement_.name)
        assert requirement_.specifier.contains(installed.version), f"make lock: {requirement_}"
        for top in {file.parts[0] for file in installed.files or ()} - {"..", "__pycache__"}:
            if not (packages / top).is_symlink():  # several distributions may share a folder, such as opentelemetry
                (packages / top).symlink_to(str(installed.locate_file(top)))
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "--disable-pip-version-check"]
    line = [*pip, "install", "--quiet", "--no-deps", "--no-index", "--no-compile", str(wheel)]
    subprocess.run(line, check=True, capture_output=True, timeout=60)
    return folder / "bin"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's folder, with a package ``app`` of their own."""
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__init__.py").touch()
    (tmp_path / "app" / "words.py").write_text('GREETING = "Hello"\n')
    (tmp_path / "app" / "mytools.py").write_text(TOOLS)
    return tmp_path


def contents(wheel: Path) -> dict[str, int]:
    with zipfile.ZipFile(wheel) as archive:
        return {entry.filename: entry.CRC for entry in archive.infolist()}


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


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
def test_the_source_distribution_builds_the_same_wheel(wheel: Path, sdist: Path, tmp_path: Path) -> None:
    assert contents(built(sdist, tmp_path, "wheel")) == contents(wheel)


@requirement("OPS-120")
def test_the_metadata_say_what_it_is_and_the_page_of_an_index_leads_nowhere_wrong(wheel: Path) -> None:
    said = metadata(wheel)
    assert said["Name"] == "wicketgate"
    assert said["License-Expression"] == "Apache-2.0"
    assert said["Description-Content-Type"] == "text/markdown"
    assert len(said["Summary"]) < 120
    assert {"mcp", "gateway"} <= set(said["Keywords"].split(","))
    classifiers = said.get_all("Classifier", [])
    # An index refuses what it does not know; the build checks the names.
    for group in ("Development Status", "Framework :: FastAPI", "Intended Audience", "Topic", "Operating System"):
        assert any(line.startswith(group) for line in classifiers), group
    assert "Operating System :: POSIX :: Linux" in classifiers
    minor = re.findall(r"^Programming Language :: Python :: 3\.(\d+)$", "\n".join(classifiers), re.MULTILINE)
    assert said["Requires-Python"] == f">=3.{minor[0]}"
    page = str(said.get_payload())
    assert page.startswith("# Wicketgate\n")
    prose = re.sub(r"^```.*?^```$|`[^`\n]*`", "", page, flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\(\s*(\S+?)\)|(?:src|href|srcset)=[\"'](\S+)[\"']", prose)
    assert all(re.match(r"https?://|mailto:", link) for pair in links for link in pair if link)


@requirement("OPS-120")
def test_the_source_distribution_has_what_the_page_of_an_index_names(sdist: Path) -> None:
    """The page tells that the files are there."""
    links = re.findall(r"\]\(([^)#\s]+)", (ROOT / "README.md").read_text("utf-8"))
    for link in links:
        assert "://" in link or (sdist / link).exists(), link
    for needed in ("docker/entrypoint.sh", "docker/test.sh", ".dockerignore", "requirements/servers.lock"):
        assert (sdist / needed).exists(), needed


@requirement("OPS-121")
def test_the_lock_file_of_the_service_holds_all_that_the_wheel_needs(wheel: Path) -> None:
    versions = {each.name: str(each.specifier).removeprefix("==") for each in locked("service.lock")}
    asked = [Requirement(line) for line in metadata(wheel).get_all("Requires-Dist", [])]
    needed = [each for each in asked if each.marker is None or each.marker.evaluate({"extra": ""})]
    assert len(needed) > 15
    for each in needed:
        assert each.specifier.contains(versions[each.name]), each


@requirement("UP-20", "LIB-21", "OPS-121")
async def test_init_check_and_serve_run_beside_an_app_of_the_user_and_load_tools_from_it(
    environment: Path, folder: Path
) -> None:
    program = str(environment / "wicketgate")
    # Nothing of this machine is on the path, such as uvx, by which init would add a server that has to be fetched.
    env = {"PATH": str(environment), "HOME": str(folder), "OPENAI_API_KEY": "", "ANTHROPIC_API_KEY": ""}
    async with command(program, "init", "--yes", folder=folder, env=env) as running:
        assert await running.ended(40) == 0
    (key,) = re.findall(r"wg_first_\S+", running.stdout)

    config = folder / "wicketgate.yaml"
    (before, after) = config.read_text().split("upstreams:\n")
    config.write_text(f'{before}upstreams:\n  - {{name: mine, python: "app.mytools:registry"}}\n{after}')
    async with command(program, "check", folder=folder, env=env) as running:
        assert await running.ended(40) == 0
    assert "mine:greet#" in running.stdout

    async with command(program, "serve", "--port", "0", folder=folder, env=env) as running:
        url = (await running.wait_for(r"ready on (http://\S+)")).group(1)
        async with httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {key}"}, trust_env=False) as http:
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


MOUNTED = """
from fastapi import FastAPI
from wicketgate import __version__, create_app

def add(a: int, b: int) -> int:
    return a + b

gate = create_app({"model": {"provider": "scripted"}}, tools=[add])
outer = FastAPI()
outer.mount("/gate", gate)
print(__version__, type(gate).__module__)
"""


@requirement("LIB-21", "LIB-26")
async def test_the_service_is_made_by_its_public_name_beside_a_package_app(environment: Path, folder: Path) -> None:
    async with command(str(environment / "python"), "-c", MOUNTED, folder=folder) as running:
        assert await running.ended() == 0, running.stderr
    assert running.stdout.split() == [distribution("wicketgate").version, "wicketgate.app.main"]
