"""Configurations, data and programs of the documentation are read and run."""

import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.docs.pages import Block, blocks, pages, text_of
from tests.support.process import ROOT, outcome
from tests.support.requirement import requirement
from wicketgate.config.settings import Settings
from wicketgate.config.settings_file import load_settings

RUN_ELSEWHERE = {
    "docs/embedding.md": "tests/public/test_embedding_page.py",
    "docs/plugins.md": "tests/examples/test_plugin_package.py",
    "docs/guide/agents.md": "tests/examples/test_agents.py",
    "docs/guide/sdks.md": "tests/docs/test_commands.py",
}
"""Pages whose programs another test runs, in the same way: all blocks, or the only one."""
NOT_READ = {
    "ini": "units of systemd, two beside each other; tests/e2e passes a socket as systemd does",
    "js": "programs that make agents and make sdk run",
}
LANGUAGES = {"sh", "text", "yaml", "json", "toml", "python", *NOT_READ}


def ours(block: Block) -> bool:
    """Returns whether the YAML is a configuration of the gate, and no OpenAPI document or file of a client."""
    value = yaml.safe_load(block.text)
    sections = {*Settings.model_fields, "mcpServers"}
    return isinstance(value, dict) and bool(value.keys() & sections) and "schema" not in value


CONFIGURATIONS = [block for block in blocks("yaml") if ours(block)]
OTHER_YAML = [block for block in blocks("yaml") if not ours(block)]
PROGRAMS = [block for block in blocks("python") if block.page not in RUN_ELSEWHERE]


@requirement("OPS-133")
def test_every_block_has_a_language_that_is_read_or_a_reason() -> None:
    used = {language for page in pages() for language in re.findall(r"^```(.*)\n(?:.*\n)*?```$", text_of(page), re.M)}
    assert used == LANGUAGES


@requirement("OPS-133")
def test_programs_that_another_test_runs_are_named_there() -> None:
    for page, test in RUN_ELSEWHERE.items():
        assert any(block.page == page for block in blocks("python")), page
        assert Path(page).name in (ROOT / test).read_text("utf-8")


def upstreams_of_plugins(block: Block) -> str:
    """The upstreams that the plugins of the block are about, where it is about plugins alone."""
    value = yaml.safe_load(block.text)
    kinds = value.get("plugins", {}).values() if "upstreams" not in value else ()
    names = sorted({name for kind in kinds for name in kind} - {"_global"})
    return "\n" + yaml.safe_dump({"upstreams": [{"name": name, "python": "m:r"} for name in names]}) if names else ""


@requirement("OPS-133")
@pytest.mark.parametrize("block", CONFIGURATIONS, ids=str)
def test_a_configuration_is_read(block: Block, tmp_path: Path) -> None:
    path = tmp_path / "wicketgate.yaml"
    path.write_text(block.text + upstreams_of_plugins(block))
    variables = dict.fromkeys(re.findall(r"\$\{(\w+)", block.text), "a" * 64)
    load_settings(path, variables)


@requirement("OPS-133")
def test_the_configurations_of_the_start_may_stand_in_one_file(tmp_path: Path) -> None:
    """A reader pastes one below the other."""
    path = tmp_path / "wicketgate.yaml"
    path.write_text("".join(block.text for block in CONFIGURATIONS if block.page == "docs/guide/start.md"))
    assert {upstream.name for upstream in load_settings(path, {}).upstreams} == {"time", "git"}


@requirement("OPS-133")
@pytest.mark.parametrize("block", [*OTHER_YAML, *blocks("json", "toml")], ids=str)
def test_other_data_is_parsed(block: Block) -> None:
    match block.language:
        case "json":
            json.loads(block.text)
        case "toml":
            tomllib.loads(block.text)
    assert block.language != "yaml" or {"openapi", "schema"} & yaml.safe_load(block.text).keys()


@requirement("OPS-133")
@pytest.mark.parametrize("block", PROGRAMS, ids=str)
async def test_a_program_runs(block: Block, tmp_path: Path) -> None:
    code, out, err = await outcome("-c", block.text, cwd=tmp_path)
    assert code == 0, out + err
