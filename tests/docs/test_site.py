"""The documentation as a site (``make site``): its pages and their links, the generated pages, and the check."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from site_tools.check import faults
from site_tools.pages import navigation_faults, page, places
from site_tools.reference import http_page, settings_page
from tests.docs.test_settings import settings
from tests.support.process import ROOT
from tests.support.requirement import requirement
from wicketgate.config.settings import Settings

KNOWN = {
    "docs/a.md": "a.md",
    "docs/guide/b.md": "guide/b.md",
    "docs/guide/README.md": "guide/index.md",
    "README.md": "index.md",
}


@requirement("OPS-580")
def test_every_page_is_in_the_navigation() -> None:
    configuration = tomllib.loads((ROOT / "site_tools" / "zensical.toml").read_text("utf-8"))
    pages = {place for place in places().values() if place.endswith(".md")}
    generated = {"reference/settings.md", "reference/http.md"}
    assert navigation_faults(configuration, pages | generated) == []
    assert navigation_faults({"project": {"nav": [{"A": ["a.md"]}]}}, {"b.md"}) == [
        "b.md: not in the navigation",
        "a.md: in the navigation, but no page",
    ]


@requirement("OPS-580")
@pytest.mark.parametrize(
    ("source", "before", "after"),
    [
        ("docs/a.md", "[x](guide/b.md#c)", "[x](guide/b.md#c)"),
        ("docs/guide/b.md", "[x](../a.md) [y](README.md)", "[x](../a.md) [y](index.md)"),
        ("README.md", "[x](docs/guide) and [y](docs/a.md)", "[x](guide/index.md) and [y](a.md)"),
        ("README.md", "[the code](wicketgate/gate.py), [x](#y), [z](https://z.example)", None),
        (
            "README.md",
            "`[x](docs/a.md)`\n\n```sh\n[x](docs/a.md)\n```\n",
            "`[x](docs/a.md)`\n\n```sh\n[x](docs/a.md)\n```\n",
        ),
        ("docs/a.md", "[x](gone.md)", "[x](gone.md)"),
        ("README.md", "text\n- one\n- two\n", "text\n\n- one\n- two\n"),
    ],
)
def test_links_lead_to_the_pages_of_the_site(source: str, before: str, after: str | None) -> None:
    expected = "the code, [x](#y), [z](https://z.example)" if after is None else after
    assert page(before, source, KNOWN) == expected


@requirement("OPS-580")
@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://cdn.example/a.js"></script>',
        '<script>fetch("https://cdn.example/a")</script>',
        '<link rel="stylesheet" href="//fonts.example/css">',
        '<img srcset="a.png 1x, https://cdn.example/b.png 2x">',
        '<p style="background: url(https://cdn.example/a.png)">',
        "<style>@import 'https://cdn.example/a.css';</style>",
        '<a href="gone.html">x</a>',
        '<a href="#gone">x</a>',
    ],
)
def test_a_page_that_loads_from_another_host_or_leads_nowhere_is_a_fault(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.png").touch()
    (tmp_path / "index.html").write_text(text)
    (fault,) = faults(tmp_path)
    assert fault.startswith("index.html")


@requirement("OPS-580")
def test_style_sheets_and_scripts_are_checked_too(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text("@font-face { src: url(https://fonts.example/a.woff2) }")
    (tmp_path / "a.js").write_text('load("https://cdn.example/a.js"); svg("http://www.w3.org/2000/svg")')
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "index.html").write_text('<h2 id="c"></h2><a href="../b/#c"></a><a href="https://x.example"></a>')
    assert sorted(faults(tmp_path)) == [
        "a.css loads https://fonts.example/a.woff2",
        "a.js names https://cdn.example/a.js",
    ]


@requirement("OPS-580")
def test_the_generated_pages_have_every_setting_and_every_operation() -> None:
    schema = Settings.model_json_schema()
    written = json.loads((ROOT / "openapi" / "wicketgate.schema.json").read_text("utf-8"))
    rows = set(re.findall(r"^\| `(?:\S*\.)?(\w+)", settings_page(written), re.MULTILINE))
    in_files = written["properties"]
    leaves = {
        path.removesuffix("[]").rpartition(".")[2]
        for path in settings(schema, schema["$defs"])
        if re.split(r"[.\[]", path)[0] in in_files
    }
    assert leaves - rows == set()
    assert "The tools: &lt;namespace&gt;:&lt;tool&gt; with \\*, ?" in settings_page(written)
    document = json.loads((ROOT / "openapi" / "openapi.json").read_text("utf-8"))
    text = http_page(document)
    for path, operations in document["paths"].items():
        for method in operations:
            assert f"\n## {method.upper()} {path}\n" in text
