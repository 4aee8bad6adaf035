"""Every setting has its row on the page of the configuration."""

import re
from collections.abc import Iterator

from tests.docs.pages import prose
from tests.support.requirement import requirement
from wicketgate.config.schema import file_schema
from wicketgate.config.settings import Settings

PAGE = "docs/guide/configuration.md"
# One section of the page may describe several of the file.
SECTION = {"pins": "pins, access", "access": "pins, access", "access_default": "pins, access"}


def settings(schema: dict[str, object], defs: dict[str, dict[str, object]], path: str = "") -> Iterator[str]:
    """Paths of all settings: ``engine.resume.keep_s``, ``auth.keys[].id``."""
    properties = schema.get("properties")
    assert isinstance(properties, dict)
    for name, value in properties.items():
        here = f"{path}.{name}" if path else name
        nested = sorted({ref for ref in re.findall(r"#/\$defs/(\w+)", str(value)) if "properties" in defs[ref]})
        if not nested:
            yield here
        for ref in nested:
            yield from settings(defs[ref], defs, f"{here}[]" if "array" in str(value) else here)


def described() -> dict[str, str]:
    """The rows of the tables and the items of the lists, by section."""
    lines = re.findall(r"^(?:\||## |- |  ).*$", prose(PAGE), re.MULTILINE)
    sections = re.split(r"^## (.+)$", "\n".join(lines), flags=re.M)
    return dict(zip(sections[1::2], sections[2::2], strict=True))


@requirement("OPS-132")
def test_every_setting_has_its_row() -> None:
    schema = Settings.model_json_schema()
    in_files = file_schema()["properties"]
    text = described()
    missing = []
    for path in settings(schema, schema["$defs"]):
        top, _, rest = path.partition(".")
        section = top.removesuffix("[]")
        if section not in in_files:
            continue
        spans = re.findall(r"`([^`]+)`", text.get(SECTION.get(section, section), ""))
        names = {word for span in spans for word in re.findall(r"[\w.\[\]]+", span)}
        leaf = path.rpartition(".")[2]
        if not names & {leaf, path, rest, f".{leaf}", f"{section}[].{leaf}", f"{section}[]"}:
            missing.append(path)
    assert missing == []


@requirement("OPS-132")
def test_no_row_is_about_a_setting_that_is_not_there() -> None:
    schema = Settings.model_json_schema()
    known = {part for path in settings(schema, schema["$defs"]) for part in re.findall(r"\w+", path)}
    for section, text in described().items():
        for row in re.findall(r"^\| ((?:`[^`]+`(?:, )?)+) \|", text, re.MULTILINE):
            for name in re.findall(r"`([^`]+)`", row):
                assert set(re.findall(r"\w+", name)) <= known, f"{section}: {name}"
