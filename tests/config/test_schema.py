"""The JSON Schema of the configuration file fits what is read (OPS-68)."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from jsonschema import Draft7Validator

from app.cli import cli
from tests.support.requirement import requirement
from wicketgate.config.schema import file_schema
from wicketgate.config.settings import Settings
from wicketgate.yaml_text import read_yaml

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = ROOT / "openapi" / "wicketgate.schema.json"
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
SCHEMA = Draft7Validator(file_schema())


def wrong(text: str) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in SCHEMA.iter_errors(read_yaml(text))]


def snippets() -> Iterator[Any]:
    """The configurations in the documentation: blocks of YAML whose keys at the top are sections."""
    sections = {*Settings.model_fields, "mcpServers"}
    for page in [
        ROOT / "README.md",
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "examples").rglob("*.md")),
    ]:
        for number, match in enumerate(re.finditer(r"^```yaml\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)):
            value = read_yaml(match[1])
            # The file of Continue is YAML too, with a schema of its own.
            if isinstance(value, dict) and value.keys() & sections and "schema" not in value:
                yield pytest.param(match[1], id=f"{page.relative_to(ROOT)}-{number}")


@requirement("OPS-68")
def test_the_published_schema_is_the_one_of_the_program() -> None:
    printed = CliRunner().invoke(cli, ["schema"]).stdout
    assert PUBLISHED.read_text("utf-8") == printed, "run: make openapi"
    Draft7Validator.check_schema(json.loads(printed))


@requirement("OPS-68")
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_fit_and_name_the_schema(path: Path) -> None:
    text = path.read_text("utf-8")
    assert wrong(text) == []
    line = re.match(r"# yaml-language-server: \$schema=(\S+)\n", text)
    assert line is not None
    assert (path.parent / line[1]).resolve() == PUBLISHED


def test_there_are_examples_and_snippets() -> None:
    assert len(EXAMPLES) >= 3
    assert len(list(snippets())) >= 12


@requirement("OPS-68")
@pytest.mark.parametrize("text", list(snippets()))
def test_the_snippets_of_the_documentation_fit(text: str) -> None:
    assert wrong(text) == []


@requirement("OPS-68")
@pytest.mark.parametrize(
    "text",
    [
        "server: {port: '${PORT:-8080}', log_level: '${env:LEVEL}'}",
        "upstreams: [{name: a, command: npx, args: [-y, foo], type: stdio, disabled: true, timeout_s: '${T}'}]",
        "mcpServers: {a: {command: npx, args: [x], description: y}, b: {type: http, url: 'http://x', required: true}}",
        "mcpServers: {a: {serverUrl: 'http://x'}}\nupstreams: [{name: b, python: 'm:r'}, {name: c, openapi: x.json}]",
        "engine: {max_iterations: null, loop_guard: null}",
        "auth: {keys: [{id: '${ID}', sha256: '${HASH}', actor: a, not_before: 2027-01-31T00:00:00Z}]}",
        "quota: {per_tool: {'github:delete_*': 5}}\naccess_default: deny",
        "plugins: {auditing: {_global: [{handler: audit_jsonl, config: {path: x}}]}}",
    ],
)
def test_both_spellings_fit_and_variables_stand_for_any_single_value(text: str) -> None:
    assert wrong(text) == []


@requirement("OPS-68")
@pytest.mark.parametrize(
    "text",
    [
        "sever: {port: 1}",
        "server: {prot: 1}",
        "server: {port: many}",
        "server: {port: 70000}",
        "server: {log_level: loud}",
        "upstreams: {name: a, command: [x]}",
        "upstreams: [{name: A, command: [x]}]",
        "upstreams: [{name: a}]",
        "upstreams: [{command: [x]}]",
        "upstreams: [{name: a, command: []}]",
        "mcpServers: {a: {comand: x}}",
        "mcpServers: {My Server: {command: x}}",
        "mcpServers: [{name: a, command: x}]",
        "auth: {keys: [{id: a, sha256: wg_a_secret, actor: x}]}",
        "model: {provider: openai}",
        "from_variables: [x]",
        "from_file: x",
    ],
)
def test_what_the_program_refuses_at_a_place_the_schema_refuses_too(text: str) -> None:
    assert wrong(text) != []


@requirement("OPS-68")
def test_every_setting_is_described() -> None:
    schema = file_schema()
    bare = [
        f"{name}.{key}"
        for name, section in {"": schema, **schema["definitions"]}.items()
        for key, part in section["properties"].items()
        if not part.get("description")
    ]
    assert bare == []
    texts = re.findall(r'"description": "(.*?)"', json.dumps(schema))
    assert [text for text in texts if "``" in text or ".py" in text or "None" in text] == []
