"""``deploy/compose.yml``: what it starts, and that the gate and Redis take what it gives them."""

import re
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from app.cli import cli
from tests.deploy.files import DEPLOY, compose, secrets_in
from tests.support.debian import debian_program
from tests.support.ports import free_port
from tests.support.process import ROOT
from tests.support.redis import listens
from tests.support.requirement import requirement
from tests.support.until import until_now
from wicketgate.access.identity import hash_key
from wicketgate.config.settings_file import load_settings

GATES = ("gate-1", "gate-2")
OTHERS = {"nginx", "redis", "postgres", "prometheus", "grafana"}


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    found, _ = secrets_in(tmp_path_factory.mktemp("secrets"))
    return found


@requirement("OPS-209")
def test_two_equal_replicas_and_all_that_they_need_are_started_in_order(variables: dict[str, str]) -> None:
    made = compose(variables)
    services = made["services"]
    assert set(services) == {*GATES, *OTHERS}
    first, second = ({key: value for key, value in services[name].items() if key != "networks"} for name in GATES)
    assert first == second
    for name, service in services.items():
        assert service["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL"), name
        assert service["restart"] == "unless-stopped", name
        assert "no-new-privileges:true" in service["security_opt"], name
        tag = service["image"].partition(":")[2]
        assert tag not in ("", "latest"), name
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), name
        for wanted in service.get("depends_on", {}):
            assert wanted in services, name
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert (DEPLOY / source).exists() if source.startswith(".") else source in made["volumes"], volume
    known = [f"{name}:{services[name]['networks']['inner']['ipv4_address']}" for name in GATES]
    assert services["nginx"]["extra_hosts"] == known
    assert set(services["gate-1"]["depends_on"]) == {"redis", "postgres"}
    build = services["gate-1"]["build"]
    assert (DEPLOY / build["context"] / "Dockerfile").resolve() == ROOT / "Dockerfile"


@requirement("OPS-209")
def test_no_secret_has_a_default_or_stands_in_a_file(variables: dict[str, str], tmp_path: Path) -> None:
    text = (DEPLOY / "compose.yml").read_text()
    for name in variables.keys() - {"METRICS_KEY"}:
        used = re.findall(rf"\$\{{{name}\b([^}}]*)", text)
        assert used, name
        assert all(how.startswith(":?") for how in used), name
    assert "environment: METRICS_KEY" in text
    files = [path for path in DEPLOY.rglob("*") if path.is_file() and path.name != ".env"]
    for path in files:
        assert not re.search(r"[0-9a-f]{32}|wg_(?!\w+_\$)\w+_", path.read_text("utf-8")), path
    assert len(files) > 20
    assert "deploy/.env" in (ROOT / ".gitignore").read_text()


@requirement("OPS-209")
def test_the_secrets_are_made_once_and_differ(tmp_path: Path) -> None:
    made, shown = secrets_in(tmp_path)
    key = re.findall(r"wg_first_\w+", shown)
    assert [hash_key(one) for one in key] == [made["FIRST_KEY_SHA256"]]
    assert hash_key(made["METRICS_KEY"]) == made["METRICS_KEY_SHA256"]
    assert key[0] not in (tmp_path / ".env").read_text()
    assert len(set(made.values())) == len(made)
    assert all(len(value) >= 64 for value in made.values())
    assert stat.S_IMODE((tmp_path / ".env").stat().st_mode) == 0o600
    again = subprocess.run(["sh", DEPLOY / "secrets.sh", tmp_path], capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert "is there" in again.stderr
    assert secrets_of(tmp_path) == made


def secrets_of(folder: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in (folder / ".env").read_text().splitlines())


@requirement("OPS-210")
def test_the_gate_reads_its_file_with_the_variables_of_compose_alone(variables: dict[str, str]) -> None:
    made = compose(variables)
    services = made["services"]
    for name in GATES:
        settings = load_settings(DEPLOY / "wicketgate.yaml", services[name]["environment"])
        assert settings.storage.url == f"redis://:{variables['REDIS_PASSWORD']}@redis:6379/0"
        assert f":{variables['POSTGRES_PASSWORD']}@postgres/" in str(settings.plugins.auditing)
        proxy = services["nginx"]["networks"]["inner"]["ipv4_address"]
        assert settings.server.trusted_proxies == (proxy,)
        assert f"{name}:*" in settings.server.allowed_hosts
        grace = int(services[name]["stop_grace_period"].removesuffix("s"))
        assert grace > settings.server.settle_s + settings.server.drain_s + 15
        assert [key.permissions for key in settings.auth.keys] == [("tools:*",), ("ops:read",)]
        # The stores that compose starts are those that the file names.
        assert services["postgres"]["environment"]["POSTGRES_PASSWORD"] == variables["POSTGRES_PASSWORD"]


@contextmanager
def started_redis(service: dict[str, Any], folder: Path) -> Iterator[int]:
    """Redis by the command of the compose file, with its own file in place of the mounted one; its port."""
    mounted = dict(reversed(volume.split(":")[:2]) for volume in service["volumes"] if volume.startswith("."))
    program, port = debian_program("redis-server", "redis-server"), free_port()
    shell, option, script = service["command"]
    # First its own folder: this checkout may stand below /tmp itself.
    script = script.replace("/tmp/", f"{folder}/")
    for inside, source in mounted.items():
        script = script.replace(inside, str(DEPLOY / source))
    script = script.replace("exec redis-server", f"exec {program.path}") + f" --port {port} --bind 127.0.0.1"
    process = subprocess.Popen(
        [shell, option, script],
        cwd=folder,
        env={**program.environment, **service["environment"]},
        stdout=subprocess.DEVNULL,
    )
    try:
        until_now(lambda: listens(port) or process.poll() is not None)
        assert process.poll() is None
        yield port
    finally:
        process.kill()
        process.wait()


@requirement("OPS-210")
def test_the_redis_of_compose_keeps_what_it_acknowledged(
    variables: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = compose(variables)["services"]
    with started_redis(services["redis"], tmp_path) as port:
        for name, value in services["gate-1"]["environment"].items():
            monkeypatch.setenv(name, value)
        url = f"redis://:{variables['REDIS_PASSWORD']}@127.0.0.1:{port}/0"
        monkeypatch.setenv("WICKETGATE_STORAGE__URL", url)
        monkeypatch.setenv("WICKETGATE_PLUGINS", "{}")  # PostgreSQL is not started here
        told = CliRunner().invoke(cli, ["check", "--config", str(DEPLOY / "wicketgate.yaml")])
        assert told.exit_code == 0, told.output
        assert "clock" in told.output
        assert "storage: warning" not in told.output
        monkeypatch.setenv("WICKETGATE_STORAGE__URL", url.replace(variables["REDIS_PASSWORD"], "wrong"))
        assert CliRunner().invoke(cli, ["check", "--config", str(DEPLOY / "wicketgate.yaml")]).exit_code == 1
