"""Links of the documentation lead somewhere, and the picture is the one that the program draws."""

import asyncio
import re
import sys
from xml.etree import ElementTree

import pytest

from examples.picture import Numbers, draw
from tests.docs.pages import anchors, links, pages, path_from, text_of
from tests.support.process import ROOT, START_BOUND_S
from tests.support.requirement import requirement

PICTURE = ROOT / "docs" / "gate.svg"


@requirement("OPS-130")
@pytest.mark.parametrize("page", pages())
def test_every_link_leads_to_a_file_and_a_heading(page: str) -> None:
    lost = []
    for link in links(page):
        target, _, anchor = link.partition("#")
        path = path_from(page, target).resolve() if target else ROOT / page
        if not path.exists() or (anchor and anchor not in anchors(path.relative_to(ROOT).as_posix())):
            lost.append(link)
    assert lost == []


@requirement("OPS-130")
def test_every_page_of_the_guide_is_on_its_first_page() -> None:
    listed = {link.partition("#")[0] for link in links("docs/guide/README.md")}
    there = {path.name for path in (ROOT / "docs" / "guide").glob("*.md")} - {"README.md"}
    assert sorted(there - listed) == []
    assert len(there) > 10


@requirement("OPS-131")
async def test_the_picture_has_the_numbers_of_the_demo() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "examples.picture", "--print"),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(START_BOUND_S):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    assert out.decode() == PICTURE.read_text("utf-8"), "run: make picture"
    # The table of the README has the same numbers.
    found = re.search(r"takes? ([\d,]+) tokens", out.decode())
    told = re.search(r"three tools of the gate, ([\d,]+) tokens, and one browse adds (\d+)", out.decode())
    assert found is not None
    assert told is not None
    assert f"| {found[1]} tokens | {told[1]} tokens, and {told[2]} for a browse |" in text_of("README.md")


@requirement("OPS-131")
def test_the_picture_tells_its_content_and_takes_nothing_from_elsewhere() -> None:
    text = draw(Numbers((("a<b", 3), ("c", 4)), 1000, 100, 10), "x & y")
    root = ElementTree.fromstring(text)
    kinds = [element.tag.rpartition("}")[2] for element in root.iter()]
    assert {"title", "desc"} <= set(kinds)
    assert not {"script", "image", "use", "foreignObject"} & set(kinds)
    assert "7 tools of 2 servers" in text
    assert "a&lt;b" in text
    assert not re.search(r"url\(|@import|@font-face|href", text)
    assert len(PICTURE.read_bytes()) < 10_000
