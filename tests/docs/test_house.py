"""The map of the repository leads to what is there."""

import re

import pytest

from tests.docs.pages import text_of
from tests.support.process import ROOT

PATHS = sorted(set(re.findall(r"`((?:[\w.]+/)+[\w*]*(?:\.py)?)`", text_of("docs/house.md"))))
MOST_WORDS = 2_500
MOST_TERMS = 40


@pytest.mark.parametrize("path", PATHS)
def test_each_path_of_the_map_exists(path: str) -> None:
    tops = (ROOT, ROOT / "wicketgate", ROOT / "tests")
    assert any([*top.glob(path.rstrip("/"))] for top in tops)


def test_the_map_and_its_list_of_terms_stay_short() -> None:
    assert len(text_of("docs/house.md").split()) <= MOST_WORDS
    terms = text_of("docs/house.md").partition("## Terms")[2]
    assert 10 < len(re.findall(r"^\| (?!term |---)", terms, re.MULTILINE)) <= MOST_TERMS
