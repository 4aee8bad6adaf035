"""No file of the console has a way in which a text from outside could become more than text."""

import re
from pathlib import Path

import pytest

from app.console.files import STATIC
from tests.support.requirement import requirement

FORBIDDEN = {
    "markup from texts": r"innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|createContextualFragment"
    r"|DOMParser|document\.write|srcdoc|setHTML",
    "code from texts": r"\beval\b|new\s+Function|\bFunction\s*\(|set(?:Timeout|Interval)\s*\(\s*[\"'`]|javascript:",
    "styles as texts": r"\sstyle=[\"']|cssText|setAttribute\(\s*[\"']style|<style",
    "other hosts": r"(?:https?:)?//[a-z0-9][a-z0-9-]*(?:\.[a-z0-9-]+)+|\bimport\s*\(\s*[\"']http|@import",
    "credentials that requests carry by themselves": r"document\.cookie|credentials:\s*[\"']include",
    "handlers as texts": r"\son[a-z]+=[\"']",
}
OURS = sorted(
    path for path in STATIC.rglob("*") if path.suffix in (".js", ".css", ".html") and "vendor" not in path.parts
)


def faults(text: str) -> list[str]:
    text = text.replace("http://www.w3.org/2000/svg", "")  # the name of SVG, which nothing is loaded from
    return [f"{what}: {found[0]}" for what, pattern in FORBIDDEN.items() for found in re.finditer(pattern, text)]


@requirement("OPS-265")
@pytest.mark.parametrize("path", OURS, ids=lambda path: path.relative_to(STATIC).as_posix())
def test_no_file_holds_what_makes_more_of_a_text(path: Path) -> None:
    assert faults(path.read_text("utf-8")) == []


@requirement("OPS-265")
@pytest.mark.parametrize(
    "text",
    [
        "node.innerHTML = text",
        'h("p", { dangerouslySetInnerHTML: { __html: text } })',
        "eval(text)",
        "document.write(text)",
        '<p style="color:red">',
        "import('https://cdn.example.com/x.js')",
        "url(//cdn.example.com/x.woff2)",
        '<a onclick="x()">',
        "new Function(text)",
    ],
)
def test_the_lint_finds(text: str) -> None:
    assert faults(text)
