"""The map of the repository leads to what is there."""

import re

import pytest

from tests.docs.pages import pages, text_of
from tests.support.process import ROOT

PATHS = sorted(set(re.findall(r"`((?:[\w.]+/)+[\w*]*(?:\.py)?)`", text_of("docs/house.md"))))
MOST_WORDS = 2_500
MOST_COLUMNS = 160
MOST_TERMS = 40


@pytest.mark.parametrize("path", PATHS)
def test_each_path_of_the_map_exists(path: str) -> None:
    tops = (ROOT, ROOT / "wicketgate", ROOT / "tests")
    assert any([*top.glob(path.rstrip("/"))] for top in tops)


def test_the_map_names_every_module_in_its_room() -> None:
    named: dict[str, list[str]] = {}
    rows = text_of("docs/house.md").partition("| room | question |")[2].partition("\n\n")[0].splitlines()[2:]
    room = ""
    for row in rows:
        first, _, modules = (cell.strip() for cell in row.strip("|").split("|"))
        room = first.strip("`") or room
        named.setdefault(room, []).extend(modules.split())
    there: dict[str, list[str]] = {}
    for top in ("wicketgate", "app", "routers", "middleware"):
        for path in sorted((ROOT / top).rglob("*.py")):
            if path.stem not in ("__init__", "__main__"):
                there.setdefault(f"{path.parent.relative_to(ROOT)}/", []).append(path.stem)
    assert named == there


def test_the_map_and_its_list_of_terms_stay_short() -> None:
    assert len(text_of("docs/house.md").split()) <= MOST_WORDS
    terms = text_of("docs/house.md").partition("## Terms")[2]
    assert 10 < len(re.findall(r"^\| (?!term |---)", terms, re.MULTILINE)) <= MOST_TERMS


@pytest.mark.parametrize("page", pages())
def test_no_page_has_a_line_that_an_editor_has_to_scroll(page: str) -> None:
    assert [line for line in text_of(page).splitlines() if len(line) > MOST_COLUMNS] == []
