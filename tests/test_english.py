"""Plain English: phrases that are never right, and one meaning for each public class name (docs/house.md)."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PRODUCT = ("wicketgate", "app", "routers", "middleware")

BANNED = re.compile(r"\b(?:whoever|somebody|anew|meanwhile|of\s+ours|of\s+theirs|for\s+so\s+long|told\s+of)\b", re.I)

CHECKED = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "docs", "examples", *PRODUCT)
"""Files and folders without banned phrases."""

TWICE = frozenset(
    [
        "Agreement",
        "Answer",
        "Asked",
        "Call",
        "Changed",
        "Client",
        "Connection",
        "DecidedCall",
        "EventStream",
        "Exchange",
        "Full",
        "Gate",
        "Grant",
        "HttpRequest",
        "Issuer",
        "IssuerAway",
        "Kept",
        "Login",
        "Logins",
        "Message",
        "Pace",
        "Page",
        "Patience",
        "Place",
        "Refusal",
        "Refused",
        "Report",
        "Request",
        "Row",
        "ToolNames",
        "Turn",
        "Window",
    ]
)
"""Public class names that more than one module of the product has. Rename one, and remove the name here."""


def test_product_and_docs_have_no_banned_phrase() -> None:
    """A comment or a text may break a phrase at the end of a line."""
    found = []
    for name in CHECKED:
        files = [ROOT / name, *(ROOT / name).rglob("*.py"), *(ROOT / name).rglob("*.md")]
        for file in sorted(file for file in files if file.is_file()):
            text = re.sub(r"(\n)\s*#\s?", r"\1", file.read_text())
            found += [f"{file.relative_to(ROOT)}: {match.group()}" for match in BANNED.finditer(text)]
    assert found == []


@pytest.mark.parametrize("text", ["Whoever comes", "a text\nof  ours", "it was told of", "for so long"])
def test_a_banned_phrase_is_found_in_any_spelling(text: str) -> None:
    assert BANNED.search(text)


def test_no_public_class_name_is_used_twice() -> None:
    files = [file for room in PRODUCT for file in sorted((ROOT / room).rglob("*.py"))]
    classes = Counter(
        node.name
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    twice = {name for name, count in classes.items() if count > 1}
    assert sorted(twice - TWICE) == [], "give one of the classes another name"
    assert sorted(TWICE - twice) == [], "these names have one meaning now: remove them from TWICE"
