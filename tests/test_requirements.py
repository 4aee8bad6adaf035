"""The specification, the code and the tests agree: each clause of docs/spec is shown by a test, and only clauses that
exist are cited."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SPEC = ROOT / "docs" / "spec"

_CLAUSE = re.compile(r"^- \*\*([A-Z]+-\d+)\*\*", re.MULTILINE)
_FOREIGN = re.compile(
    r"DESIGN §|(?<![\w`\"/])S[0-4]\b(?![\w`\"])|\bE\d\d\b|\bgatekit\b|\balknet\b|\bgateway \d{1,3}\b|"
    r"\bW-[A-Z]{3}|(?<!\w)\.\./shared\b"
)
"""The forms in which documents outside this repository were cited."""

_CITES = re.compile(r"^[^#\n]*?\brequirement\(([^()]*)\)", re.MULTILINE)
"""Read without the syntax tree of each test, which takes seconds."""

_CODE = ("app", "wicketgate", "routers", "middleware", "tests", "bench", "examples")


def clauses() -> list[str]:
    return [found for page in sorted(SPEC.glob("*.md")) for found in _CLAUSE.findall(page.read_text("utf-8"))]


@cache
def text_of(path: Path) -> str:
    return path.read_text("utf-8")


def sources(*folders: str) -> Iterator[tuple[str, str]]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            # The benchmarks install their peers below bench/out.
            if path != Path(__file__) and ROOT / "bench" / "out" not in path.parents:
                yield str(path.relative_to(ROOT)), text_of(path)


def shown() -> set[str]:
    """The ids in every ``requirement(...)`` of the tests."""
    return {
        cited
        for _, text in sources("tests")
        for arguments in _CITES.findall(text)
        for cited in re.findall(r'"([^"]*)"', arguments)
    }


def test_each_clause_has_an_id_of_its_own_and_each_page_one_area() -> None:
    found = clauses()
    assert len(found) > 300
    assert sorted({clause for clause in found if found.count(clause) > 1}) == []
    for page in sorted(SPEC.glob("*.md")):
        areas = {clause.partition("-")[0] for clause in _CLAUSE.findall(page.read_text("utf-8"))}
        assert len(areas) == (0 if page.name == "README.md" else 1), page.name


def test_each_clause_is_shown_by_a_test_and_each_id_is_that_of_a_clause() -> None:
    known, cited = set(clauses()), shown()
    assert sorted(known - cited) == [], "no test shows these clauses"
    assert sorted(cited - known) == [], "no such clause"


def test_only_clauses_that_exist_are_cited() -> None:
    known = set(clauses())
    areas = "|".join(sorted({clause.partition("-")[0] for clause in known}))
    citation = re.compile(rf"\b(?:{areas})-\d+\b")
    pages = [(str(path.relative_to(ROOT)), path.read_text("utf-8")) for path in sorted((ROOT / "docs").rglob("*.md"))]
    found = {f"{name}: {cited}": cited for name, text in [*sources(*_CODE), *pages] for cited in citation.findall(text)}
    assert [place for place, cited in found.items() if cited not in known] == []


def test_nothing_is_cited_that_is_not_in_this_repository() -> None:
    pages = [path for path in sorted((ROOT / "docs").rglob("*.md")) if path != SPEC / "README.md"]
    pages += [ROOT / "README.md", *sorted((ROOT / "examples").rglob("*.md"))]
    texts = [*sources(*_CODE), *((str(path.relative_to(ROOT)), path.read_text("utf-8")) for path in pages)]
    assert [f"{name}: {found}" for name, text in texts for found in _FOREIGN.findall(text)] == []
