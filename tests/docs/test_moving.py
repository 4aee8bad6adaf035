"""The files of other gateways become what the page about moving shows."""

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from app.cli import cli
from tests.docs.pages import blocks, text_of
from tests.support.requirement import requirement

PAGE = "docs/moving.md"


def imported(text: str, path: Path) -> Result:
    path.write_text(text)
    result = CliRunner().invoke(cli, ["import", str(path)])
    assert result.exit_code == 0, result.stderr
    return result


def block_of(*languages: str) -> str:
    return next(block.text for block in blocks(*languages) if block.page == PAGE)


@requirement("OPS-133")
def test_a_file_of_mcp_proxy_becomes_what_the_page_shows(tmp_path: Path) -> None:
    result = imported(block_of("json"), tmp_path / "servers.json")
    assert yaml.safe_load(result.stdout) == yaml.safe_load(block_of("yaml"))
    assert "not imported: transportType" in result.stderr


@requirement("OPS-133")
def test_a_file_of_litellm_becomes_what_the_page_shows_without_its_credential(tmp_path: Path) -> None:
    result = imported(block_of("text"), tmp_path / "litellm.yaml")
    shown = yaml.safe_load([block.text for block in blocks("yaml") if block.page == PAGE][1])
    del shown["upstreams"][0]["headers"]
    assert yaml.safe_load(result.stdout) == shown
    assert "not imported: auth_type, auth_value" in result.stderr


@requirement("OPS-133")
@pytest.mark.parametrize(
    "lost",
    [
        'auth: "oauth"',
        "tools: {x: {name: y}}",
        "include_tags: [x]",
        "exclude_tags: [x]",
        "disallowed_tools: [x]",
        "static_headers: {x: y}",
        "extra_headers: [x]",
        "spec_path: x",
    ],
)
def test_what_the_page_says_is_not_imported_is_not(lost: str, tmp_path: Path) -> None:
    result = imported(f"mcp_servers:\n  a:\n    url: https://a.example/mcp\n    {lost}\n", tmp_path / "file.yaml")
    name = lost.partition(":")[0]
    assert f"not imported: {name}" in result.stderr
    assert f"`{name}" in text_of(PAGE)
    assert yaml.safe_load(result.stdout) == {"upstreams": [{"name": "a", "url": "https://a.example/mcp"}]}
