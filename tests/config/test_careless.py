"""Careless settings are named by one pure function, and files that other users may change are refused."""

import json
import logging
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.support.requirement import requirement
from wicketgate.config.careless import careless
from wicketgate.config.settings import Settings
from wicketgate.config.settings_file import careless_lines, load_settings, log_configuration
from wicketgate.errors import ConfigError

GOOD = "kP3v8QzR1mW6xT0bYcN4sJ7uLdF2aHgE9"
AWAY = "http://tools.example.com/mcp"
KEY = {"id": "a", "sha256": "0" * 64, "actor": "ann"}


def key_of(word: str) -> dict[str, Any]:
    return {"auth": {"keys": [{**KEY, "sha256": sha256(word.encode()).hexdigest()}]}}


def front(**more: Any) -> dict[str, Any]:
    return {"auth": {"trusted_headers": {"addresses": ["10.0.0.7"], "secrets": [GOOD], **more}}}


def upstream(**more: Any) -> dict[str, Any]:
    return {"upstreams": [{"name": "a", **more}]}


def model(**more: Any) -> dict[str, Any]:
    return {"model": {"provider": "openai-chat", "model": "m", **more}}


LAN: dict[str, Any] = {"server": {"host": "0.0.0.0"}, "auth": {"keys": [KEY]}}
TOKEN = {"headers": {"Authorization": f"Bearer {GOOD}"}}


@requirement("OPS-421")
@pytest.mark.parametrize(
    ("sections", "fields"),
    [
        ({}, []),
        ({"server": {"trusted_proxies": ["10.0.0.0/8", "fd00::/8"]}}, []),
        ({"server": {"trusted_proxies": ["0.0.0.0/0"]}}, ["server.trusted_proxies"]),
        ({"server": {"trusted_proxies": ["0.0.0.0/1", "::/0"]}}, ["server.trusted_proxies"]),
        (front(), []),
        (front(addresses=["::/0"]), ["auth.trusted_headers.addresses"]),
        (front(secrets=["ab" * 20]), ["auth.trusted_headers.secrets"]),
        ({"server": {"allowed_hosts": ["*"], "allowed_origins": ["https://a.example"]}}, ["server.allowed_hosts"]),
        ({"server": {"allowed_origins": ["*"]}}, ["server.allowed_origins"]),
        ({"auth": {"seal_keys": [GOOD, "0123456789abcdef" * 2]}}, ["auth.seal_keys"]),
        ({"auth": {"seal_keys": ["correct-horse-" * 3]}}, ["auth.seal_keys"]),
        ({"auth": {"seal_keys": [GOOD], "audit_key": "a" * 40}}, ["auth.audit_key"]),
        (key_of("secret"), ["auth.keys.a.sha256"]),
        (key_of(""), ["auth.keys.a.sha256"]),
        (key_of(GOOD), []),
        (LAN, ["server.host"]),
        ({**LAN, "server": {**LAN["server"], "public_url": "https://gate.example.com"}}, []),
        (upstream(url=AWAY), []),
        (upstream(url=AWAY, **TOKEN), ["upstreams.a.url"]),
        (upstream(url="http://127.0.0.1:9/mcp", **TOKEN), []),
        (upstream(url=AWAY.replace("http:", "https:"), **TOKEN), []),
        (upstream(openapi="doc.json", base_url=AWAY, query={"api_key": GOOD}), ["upstreams.a.base_url"]),
        (model(base_url=AWAY, api_key=GOOD), ["model.base_url"]),
        (model(base_url=AWAY), []),
    ],
)
def test_careless_lines_are_named_with_the_mend(sections: dict[str, Any], fields: list[str]) -> None:
    found = careless(Settings.model_validate(sections))
    assert list(found) == fields
    assert all(advice and GOOD not in advice for advice in found.values())


@requirement("OPS-421")
@pytest.mark.parametrize(("mode", "plain", "named"), [(0o644, True, 1), (0o640, True, 0), (0o644, False, 0)])
def test_secrets_in_a_file_that_other_users_may_read_are_named(
    mode: int, plain: bool, named: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = tmp_path / "wicketgate.yaml"
    config.write_text(json.dumps(upstream(command=["x"], env={"API_TOKEN": GOOD if plain else "${TOKEN}"})))
    config.chmod(mode)
    settings = load_settings(config, {"TOKEN": GOOD})
    found = careless_lines(settings)
    assert [line.split(": ")[0] for line in found] == [str(config)] * named
    with caplog.at_level(logging.WARNING, "wicketgate.configuration"):
        log_configuration(settings, {})
    assert [each for each in caplog.messages if each.startswith("careless: ")] == [
        f"careless: {each}" for each in found
    ]
    assert GOOD not in caplog.text


@requirement("OPS-422")
@pytest.mark.parametrize(
    "which", ["", "auth.key_file", "pins.file", "network.ca_file", "storage.url", "upstreams.a.openapi"]
)
@pytest.mark.parametrize(("mode", "refused"), [(0o666, True), (0o602, True), (0o664, False), (0o644, False)])
def test_a_file_that_other_users_may_change_is_refused_with_the_command_that_mends_it(
    which: str, mode: int, refused: bool, tmp_path: Path
) -> None:
    config, other = tmp_path / "wicketgate.yaml", tmp_path / "the file"
    section, _, field = which.partition(".")
    value = f"sqlite:///{other}" if which == "storage.url" else str(other)
    if section == "upstreams":
        config.write_text(json.dumps(upstream(openapi=value)))
    else:
        config.write_text(json.dumps({section: {field: value}} if which else {}))
    config.chmod(0o644)
    other.touch()
    link = tmp_path / "link.yaml"
    link.symlink_to(config)
    (other if which else config).chmod(mode)
    if not refused:
        load_settings(link, {})
        return
    with pytest.raises(ConfigError) as error:
        load_settings(link, {})
    assert f"mode {mode:04o}" in str(error.value) and "chmod go-w" in str(error.value)
    assert which in str(error.value)


@requirement("OPS-422")
def test_a_file_of_a_group_that_is_not_ours_may_not_be_changed_by_it(tmp_path: Path) -> None:
    from wicketgate.config.settings_file import may_be_changed

    assert [may_be_changed(0o100664, gid, {100}) for gid in (0, 100, 200)] == [False, False, True]
    assert not may_be_changed(0o010666, 200, {100}), "a pipe"
