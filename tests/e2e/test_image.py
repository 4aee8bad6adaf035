"""The image's entry point, run from the checkout as the image runs it from its own files (``docker/entrypoint.sh``)."""

import os
import re
import stat
import sys
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.support.process import ROOT, Program, command, program
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


@requirement("ACCESS-28")
async def test_a_kept_key_that_cannot_be_read_or_made_stops_the_start_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "key.json").write_text('{"id": "local"')
    for file in ("key.json", "missing/key.json"):
        env = {**environment(tmp_path), "WICKETGATE_AUTH__KEY_FILE": str(tmp_path / file)}
        del env["WICKETGATE_CONFIG"]
        async with program("app", "serve", env=env) as running:
            assert await running.ended(40) == 1
        assert running.stderr.startswith(f"wicketgate: auth.key_file: {tmp_path / file} ")
        assert running.stderr.count("\n") == 1


@requirement("OPS-23")
def test_the_container_is_published_on_this_machine_only_and_no_key_is_in_the_repository() -> None:
    service: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["wicketgate"]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    files = [
        ROOT / name for name in ("Dockerfile", "docker-compose.yml", "docker/entrypoint.sh", "examples/docker.yaml")
    ]
    for file in files:
        assert not re.search(r"[0-9a-f]{64}|wg_\w+_", file.read_text()), file
