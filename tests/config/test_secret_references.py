"""Secrets of files, commands and keyrings in the configuration (OPS-570)."""

import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from keyring.backend import KeyringBackend

from tests.support.requirement import requirement
from wicketgate.config import secret_references
from wicketgate.config.settings_file import load_settings, settings_from
from wicketgate.errors import ConfigError
from wicketgate.gate import Gate
from wicketgate.gateway.archive import Execution

SECRET = "s3cr3t-of-the-vault"


class OwnKeyring(KeyringBackend):
    """One in the memory of the test."""

    priority = 1.0

    def get_password(self, service: str, username: str) -> str | None:
        return None if username == "nobody" else f"{service}+{username}"

    def set_password(self, service: str, username: str, password: str) -> None:
        raise NotImplementedError

    def delete_password(self, service: str, username: str) -> None:
        raise NotImplementedError


def upstream(token: str, **more: Any) -> Mapping[str, Any]:
    return {"upstreams": [{"name": "a", "url": "http://localhost:1/mcp", "headers": {"X-Token": token}, **more}]}


def token(reference: str) -> str:
    return settings_from(upstream(reference)).upstreams[0].headers["X-Token"].get_secret_value()


@requirement("OPS-570")
def test_a_secret_comes_from_a_file_a_command_or_a_keyring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.write_text(f"{SECRET}\n")
    monkeypatch.setattr("keyring.core._keyring_backend", OwnKeyring())  # type: ignore[no-untyped-call]
    assert token(f"${{file:{file}}}") == SECRET
    assert token(f"Bearer ${{file:{file}}}!") == f"Bearer {SECRET}!"
    assert token(f"${{cmd:cat '{file}'}}") == SECRET
    assert token("${keyring:op/vault/ann}") == "op/vault+ann"
    with pytest.raises(ConfigError, match="no password for op/nobody"):
        token("${keyring:op/nobody}")
    # What a secret says is no reference.
    file.write_text("${HOME}${cmd:false}")
    assert token(f"${{file:{file}}}") == "${HOME}${cmd:false}"


@requirement("OPS-570")
def test_it_is_masked_by_its_value_and_fetched_once_for_each_reading(tmp_path: Path) -> None:
    counted, config = tmp_path / "count", tmp_path / "wicketgate.yaml"
    reference = f"${{cmd:sh -c 'echo x >> {counted}; echo plainword'}}"
    config.write_text(
        f'upstreams:\n- {{name: a, url: "http://localhost:1/{reference}", query: {{}}, headers: {{A: "{reference}"}}}}'
    )
    for times in (1, 2):
        settings = load_settings(config, {})
        assert "plainword" in [*settings.secrets()]
        assert counted.read_text() == "x\n" * times
    config.write_text(config.read_text().replace("plainword", "another"))
    assert "another" in [*load_settings(config, {}).secrets()]


@requirement("OPS-570")
async def test_what_a_reference_gave_is_masked_in_the_results_of_every_server(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("correct-horse-battery")
    (tmp_path / "told.py").write_text("def told() -> str:\n    return 'it is correct-horse-battery, as ever'\n")
    config = tmp_path / "wicketgate.yaml"
    bearer = f'headers: {{Authorization: "Bearer ${{file:{tmp_path}/secret}}"}}'
    other = f'{{name: a, url: "http://127.0.0.1:1/mcp", {bearer}}}'
    config.write_text(f'upstreams:\n- {other}\n- {{name: b, python: "told:told", cwd: "{tmp_path}"}}\n')
    async with Gate(load_settings(config, {})) as gate:
        execution = await gate.runtime.execute("b:told", {})
    assert isinstance(execution, Execution)
    assert "it is [redacted], as ever" in execution.page


@requirement("OPS-570")
@pytest.mark.parametrize(
    ("reference", "told"),
    [
        ("${file:/no/such/file}", "there is no readable file /no/such/file"),
        ("${file:/}", "there is no readable file /"),
        ("${file:/dev/zero}", "64 KiB"),
        ("${cmd:/no/such/program}", "cannot be run"),
        ("${cmd:sh -c 'echo TOLD; echo TOLD >&2; exit 3'}", "ended with code 3"),
        ("${cmd:'}", "cannot be run"),
        ("${cmd: }", "cannot be run"),
        ("${cmd:sleep 30}", "did not end within"),
        ("${cmd:printf '\\377'}", "no UTF-8"),
        ("${keyring:a/b}", "wicketgate[keyring]"),
    ],
)
def test_a_secret_that_cannot_be_had_stops_the_start_and_names_the_field_alone(
    reference: str, told: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(secret_references, "_COMMAND_S", 0.5)
    monkeypatch.setitem(sys.modules, "keyring", None)
    with caplog.at_level(logging.DEBUG), pytest.raises(ConfigError) as raised:
        token(reference)
    assert "upstreams[0].headers.X-Token" in str(raised.value)
    assert told in str(raised.value)
    assert "\nTOLD" not in str(raised.value) + caplog.text
