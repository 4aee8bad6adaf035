"""The pages of the documentation: their blocks of code, headings and links."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.process import ROOT

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@cache
def pages() -> tuple[str, ...]:
    """All pages but the specification's clauses and the history, by their paths from the root."""
    found = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")]
    found += sorted((ROOT / "docs").rglob("*.md"))
    found += sorted(path for path in (ROOT / "examples").rglob("*.md") if ".venv" not in path.parts)
    return tuple(path.relative_to(ROOT).as_posix() for path in found)


@cache
def text_of(page: str) -> str:
    return (ROOT / page).read_text("utf-8")


@cache
def blocks(*languages: str) -> tuple[Block, ...]:
    found = []
    for page in pages():
        text = text_of(page)
        assert len(re.findall(r"^ *```", text, re.MULTILINE)) == 2 * len(_FENCE.findall(text)), (
            f"{page}: a fence is open"
        )
        for match in _FENCE.finditer(text):
            if match[1] in languages:
                line = text.count("\n", 0, match.start()) + 1
                found.append(Block(page, line, match[1], match[2]))
    return tuple(found)


def prose(page: str) -> str:
    """The text without its blocks of code."""
    return _FENCE.sub("", text_of(page))


@cache
def anchors(page: str) -> frozenset[str]:
    """The anchors of the headings, as GitHub makes them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.+?) *$", prose(page), re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        base = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        number = 0
        while (anchor := f"{base}-{number}" if number else base) in found:
            number += 1
        found.add(anchor)
    return frozenset(found)


def links(page: str) -> list[str]:
    """The targets of all links and pictures that do not lead to another host."""
    text = re.sub(r"`[^`\n]*`", "", prose(page))
    return [target for target in re.findall(r"\]\(([^)\s]+)\)", text) if not re.match(r"[a-z]+:", target)]


def path_from(page: str, target: str) -> Path:
    return (ROOT / page).parent / target
