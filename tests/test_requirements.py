"""Requirements of our own that are cited are written down, and each is shown by a test (docs/requirements.md)."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_ID = re.compile(r"\bW-[A-Z][A-Z-]*[A-Z]\b")


def cited(folder: str) -> set[str]:
    files = (path for path in (ROOT / folder).rglob("*.py") if path != Path(__file__))
    return {found for path in files for found in _ID.findall(path.read_text(encoding="utf-8"))}


def test_what_is_cited_is_written_down_and_what_is_written_down_is_shown() -> None:
    table = (ROOT / "docs" / "requirements.md").read_text(encoding="utf-8")
    written = set(re.findall(r"^\| (W-\S+) \|", table, re.MULTILINE))
    assert cited("wicketgate") | cited("app") | cited("tests") | cited("bench") <= written
    assert written == cited("tests")
