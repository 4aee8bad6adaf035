"""Configurations that people write by mistake, as cases of other gateways tell them (gatekit G; gateway 136)."""

from pathlib import Path

import pytest

from tests.support.requirement import requirement
from wicketgate.config.settings_file import load_settings
from wicketgate.errors import ConfigError


def fault(folder: Path, text: str, **environ: str) -> str:
    path = folder / "wicketgate.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as raised:
        load_settings(path, environ)
    return str(raised.value)


@requirement("gatekit G116")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty"),
        ("# only a remark\n", "is empty"),
        ("server:\n\tport: 1\n", "line 2, column 1: not valid YAML"),
        ("upstreams: none\n", "upstreams: must be a list"),
    ],
)
def test_a_file_that_says_nothing_is_not_taken_for_the_defaults(tmp_path: Path, text: str, told: str) -> None:
    assert told in fault(tmp_path, text)


@requirement("gatekit G117", "gatekit G118", "gatekit G119", "gatekit G20")
@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["a", "a"], "upstreams: the name 'a' is used twice"),
        (["a__b"], "upstreams[0].name: must not contain '__'"),
        (["ok", "b_"], "upstreams[1].name: must not contain '__' or end in '_'"),
        (["My Server"], "upstreams[0].name: "),
    ],
)
def test_a_name_that_cannot_be_a_namespace_is_refused(tmp_path: Path, names: list[str], told: str) -> None:
    listed = "".join(f"  - {{name: {name}, command: [x]}}\n" for name in names)
    assert told in fault(tmp_path, f"upstreams:\n{listed}")


@requirement("gatekit G120", "gatekit G121", "gatekit G122", "gatekit G123", "gatekit G124", "gateway 136")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("upstreams: [{name: a, command: 'npx x'}]", "upstreams[0].command: must be a list"),
        ("upstreams: [{name: a, url: localhost}]", "upstreams[0]: url must be an http:// or https:// URL"),
        ("upstreams: [{name: a, command: [x], evn: {A: b}}]", "upstreams[0].evn: unknown key"),
        ("upstreams: [{name: a, command: ['${HOEM}/x']}]", "upstreams[0].command[0]: the environment variable HOEM"),
        ("upstreams: [{name: a, url: 'http://x', transport: carrier-pigeon}]", "upstreams[0].transport: "),
        ("upstreams: [{name: a, command: [x], timeout_s: 0}]", "upstreams[0].timeout_s: "),
        ("engine: {foo: 1}", "engine.foo: unknown key"),
        ("plugins: {security: [x]}", "plugins.security: must be a section"),
        ("plugins: {security: {_global: [{handler: x, priority: 101}]}}", "plugins.security._global[0].priority: "),
        ("plugins: {security: {nowhere: [{handler: x}]}}", "nowhere"),
        ("server: {log_level: LOUD}", "server.log_level: "),
        ("mcp: {face: strict}", "mcp.face: "),
        ("catalog: {}\nupstreams: []", "catalog: unknown key"),
    ],
)
def test_each_mistake_is_one_line_that_names_the_field(tmp_path: Path, text: str, told: str) -> None:
    said = fault(tmp_path, text)
    assert told in said
    assert len(said.splitlines()) == 1


@requirement("gatekit G125")
def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nope\.yaml"):
        load_settings(tmp_path / "nope.yaml", {})
