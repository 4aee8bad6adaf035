"""The images: their entry point, run from the checkout as an image runs it (``docker/entrypoint.sh``), and what can be
seen of them without making them. ``make test-image`` makes and uses them."""

import os
import re
import stat
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.support.process import ROOT, Program, command
from tests.support.requirement import requirement
from tests.support.service import KEY, chat_body, frames
from wicketgate.access.identity import hash_key

ENTRYPOINT = str(ROOT / "docker" / "entrypoint.sh")


def environment(folder: Path) -> dict[str, str]:
    """The image's, with *folder* in place of its volume and of the mounted configuration, on a free loopback port."""
    return {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "WICKETGATE_CONFIG": str(folder / "wicketgate.yaml"),
        "WICKETGATE_SERVER__HOST": "127.0.0.1",
        "WICKETGATE_SERVER__PORT": "0",
        "WICKETGATE_AUTH__KEY_FILE": str(folder / "key.json"),
    }


async def ask(running: Program, key: str) -> httpx.Response:
    url = (await running.wait_for(r"ready on (http://\S+)")).group(1)
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=20, trust_env=False) as http:
        return await http.post("/engine/chat", json=chat_body("What time is it in Tokyo?"))


@requirement("ACCESS-5", "ACCESS-28", "OPS-23")
async def test_the_first_start_shows_a_key_once_and_later_ones_take_it(tmp_path: Path) -> None:
    async with command("sh", ENTRYPOINT, folder=ROOT, env=environment(tmp_path)) as first:
        shown = (await first.wait_for(r"shown only now: (wg_local_\S+)")).group(1)
        answered = await ask(first, shown)
        assert await first.stop() == 0
    results = [data for event, data in frames(answered.text) if event == "tool-result"]
    assert re.search(r"\d{4}-\d\d-\d\dT[\d:]{8}\+09:00", str(results)), answered.text
    assert frames(answered.text)[-1][1]["finish_reason"] == "stop"
    assert "no configuration is mounted" in first.stderr
    # What docker/test.sh looks for in the log of a start.
    for sought in ("ready on ", "shown only now: wg_local_"):
        assert sought in first.stderr
    assert (first.stdout + first.stderr).count(shown) == 1

    kept = (tmp_path / "key.json").read_text()
    assert shown not in kept
    assert hash_key(shown) in kept
    assert stat.S_IMODE((tmp_path / "key.json").stat().st_mode) == 0o600

    async with command("sh", ENTRYPOINT, folder=ROOT, env=environment(tmp_path)) as second:
        again = await ask(second, shown)
        wrong = await ask(second, KEY)
        assert await second.stop() == 0
    assert (again.status_code, wrong.status_code) == (200, 401)
    assert "wg_local_" not in second.stdout + second.stderr


@requirement("OPS-23")
async def test_a_mounted_configuration_with_keys_is_served_and_no_key_is_made(tmp_path: Path) -> None:
    keys = [{"id": "test", "sha256": hash_key(KEY), "actor": "owner_1"}]
    (tmp_path / "wicketgate.yaml").write_text(yaml.safe_dump({"auth": {"keys": keys}, "upstreams": []}))
    async with command("sh", ENTRYPOINT, folder=ROOT, env=environment(tmp_path)) as running:
        assert (await ask(running, KEY)).status_code == 200
        assert await running.stop() == 0
    assert "no configuration" not in running.stderr
    assert not (tmp_path / "key.json").exists()


@requirement("OPS-23")
async def test_a_directory_in_place_of_the_configuration_is_explained(tmp_path: Path) -> None:
    (tmp_path / "wicketgate.yaml").mkdir()
    async with command("sh", ENTRYPOINT, folder=ROOT, env=environment(tmp_path)) as running:
        assert await running.ended() == 1
    assert "is a directory" in running.stderr
    assert not (tmp_path / "key.json").exists()


async def test_with_arguments_it_is_the_command(tmp_path: Path) -> None:
    line = ("sh", ENTRYPOINT, "key", "new", "--actor", "owner_1")
    async with command(*line, folder=ROOT, env=environment(tmp_path)) as running:
        assert await running.ended() == 0
    assert re.search(r"wg_key_\S+", running.stderr)


@requirement("OPS-23")
def test_the_container_is_published_on_this_machine_only_and_no_key_is_in_the_repository() -> None:
    service: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["wicketgate"]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    files = [
        ROOT / name for name in ("Dockerfile", "docker-compose.yml", "docker/entrypoint.sh", "examples/docker.yaml")
    ]
    for file in files:
        assert not re.search(r"[0-9a-f]{64}|wg_\w+_", file.read_text()), file


def stages() -> dict[str, list[list[str]]]:
    """The instructions of each stage of the Dockerfile, by its name; the last stage, without a name, is ``""``."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text("utf-8"), flags=re.MULTILINE).replace("\\\n", " ")
    found: dict[str, list[list[str]]] = {}
    name = None
    for words in map(str.split, filter(None, text.splitlines())):
        if words[0] == "FROM":
            name = words[3] if len(words) == 4 else ""
            found[name] = []
        if name is not None:
            found[name].append(words)
    return found


@requirement("OPS-122")
def test_the_plain_image_is_the_default_and_each_runs_as_an_unprivileged_user_with_a_home_in_the_volume() -> None:
    found = stages()
    assert list(found)[-1] == ""
    assert found[""] == [["FROM", "plain"]]
    assert found["servers"][0] == ["FROM", "plain", "AS", "servers"]
    for name in ("plain", "servers"):
        assert [words for words in found[name] if words[0] == "USER"][-1] == ["USER", "wicketgate"]
    assert ["VOLUME", "/var/lib/wicketgate"] in found["plain"]
    assert ["ENV", "HOME=/var/lib/wicketgate"] in found["servers"]
    copied = " ".join(word for words in found["servers"] if words[0] == "COPY" for word in words)
    for program_ in ("/node", "/npm", "/uv ", "/uvx "):
        assert program_ in copied
    service: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["wicketgate"]
    assert service["build"]["target"] == "plain"
    assert "servers" in (ROOT / "docker-compose.yml").read_text()


@requirement("OPS-122")
def test_what_the_images_are_made_of_is_there_let_into_the_build_and_locked() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    let_in = [line[1:] for line in ignored if line.startswith("!")]
    for words in (words for stage in stages().values() for words in stage):
        if words[0] == "COPY" and not words[1].startswith("--from"):
            for source in words[1:-1]:
                assert (ROOT / source).exists(), source
                assert any(source == place or fnmatch(source, f"{place}/*") for place in let_in), source
        line = " ".join(words)
        if "pip install" in line:
            assert "--require-hashes -r requirements/" in line or "--no-index" in line, line
    for lock in ("service.lock", "servers.lock"):
        pinned = re.findall(r"^[\w.-]+==\S+.*?(?=^\S|\Z)", (ROOT / "requirements" / lock).read_text(), re.M | re.S)
        assert pinned
        assert all("--hash=sha256:" in entry for entry in pinned), lock


def fakes(folder: Path, **exits: int) -> dict[str, str]:
    """Programs that write down how they were called, and end with the given status when asked for ``info``."""
    for name, status in exits.items():
        (folder / name).write_text(
            f'#!/bin/sh\n[ "$1" != info ] || exit {status}\necho "{name} $*" >>"{folder}/calls"\n'
        )
        (folder / name).chmod(0o755)
    return {"PATH": str(folder), "BUILD_OPTIONS": "--build-arg BASE=mine"}


@requirement("OPS-123")
@pytest.mark.parametrize(
    ("exits", "built_by"),
    [
        ({"docker": 0, "podman": 0, "buildah": 0}, "docker build"),
        ({"docker": 1, "podman": 0}, "podman build"),  # docker's program without its daemon
        ({"docker": 1, "buildah": 0}, "buildah bud"),
    ],
)
def test_both_images_are_built_by_the_first_tool_that_works(
    tmp_path: Path, exits: dict[str, int], built_by: str
) -> None:
    line = ["/bin/sh", str(ROOT / "docker" / "image.sh")]
    subprocess.run(line, env=fakes(tmp_path, **exits), cwd=ROOT, check=True, capture_output=True, timeout=30)
    assert (tmp_path / "calls").read_text().splitlines() == [
        f"{built_by} --build-arg BASE=mine --target plain -t wicketgate:latest .",
        f"{built_by} --build-arg BASE=mine --target servers -t wicketgate:servers .",
    ]


@requirement("OPS-123")
def test_without_a_tool_that_works_the_build_ends_in_one_line(tmp_path: Path) -> None:
    line = ["/bin/sh", str(ROOT / "docker" / "image.sh")]
    ended = subprocess.run(line, env=fakes(tmp_path, docker=1), cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert re.fullmatch(r"image: .*docker.*podman.*buildah.*\n", ended.stderr)


@requirement("OPS-123")
def test_the_scripts_are_read_by_a_plain_shell_and_name_what_there_is() -> None:
    for script in sorted((ROOT / "docker").glob("*.sh")):
        subprocess.run(["/bin/sh", "-n", str(script)], check=True, timeout=30)
    tried = (ROOT / "docker" / "test.sh").read_text()
    targets = re.findall(r"^build (\w+)$", tried, re.MULTILINE)
    made = (ROOT / "docker" / "image.sh").read_text()
    assert [f"{target}:" in made for target in targets] == [True, True]
    assert set(targets) < set(stages())
    # The script reads the health check out of docker-compose.yml.
    (compose,) = re.findall(r'"-c", "(.*)"\]$', (ROOT / "docker-compose.yml").read_text(), re.MULTILINE)
    assert "/readyz" in compose
    makefile = (ROOT / "Makefile").read_text()
    assert "sh docker/image.sh" in makefile
    assert "sh docker/test.sh" in makefile
