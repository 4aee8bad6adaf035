"""Links of the documentation lead somewhere, and the picture is the one that the program draws."""

import re
from xml.etree import ElementTree

import pytest

from examples.demo import QUESTIONS
from examples.picture import Numbers, draw
from tests.docs.pages import anchors, links, pages, path_from, text_of
from tests.support.process import ROOT, outcome
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
    code, out, err = await outcome("examples.picture", "--print")
    assert code == 0, err
    assert out == PICTURE.read_text("utf-8"), "run: make picture"
    # The table of the README and the page of the benchmarks have the same numbers.
    found = re.search(r"takes? ([\d,]+) tokens", out)
    told = re.search(r"three tools of the gate, ([\d,]+) tokens, and one browse adds (\d+)", out)
    assert found is not None
    assert told is not None
    assert f"| {found[1]} tokens | {told[1]} tokens, and {told[2]} for a browse |" in text_of("README.md")
    figures = text_of("docs/benchmarks.md")
    for words in (f"the demo's 85 tools {found[1]}", f"the gateway face {told[1]}", f"({QUESTIONS[0]}) {told[2]}"):
        assert words in figures, words


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


_GATEWAYS = ("mcp-proxy", "FastMCP", "namespaced handshake", "gateway handshake")


@requirement("OPS-131")
def test_the_table_of_the_readme_has_the_figures_of_the_benchmarks() -> None:
    readme, figures = text_of("README.md"), text_of("docs/benchmarks.md")
    # Every cell about the sets is of the same 100 tasks.
    rows = {(row[0], row[1].split()[0]): row for row in table_rows(figures) if row[2:3] == ["100"]}
    sets = list(dict.fromkeys(data for data, _ in rows))
    assert len(sets) == 5
    found = {
        name: ", ".join(f"{float(rows[data, name][4]):.0f}" for data in sets)
        for name in ("wicketgate", "bm25s", "fastmcp")
    }
    assert f"recall@5 in percent: {', '.join(sets)} |" in readme
    assert f"| BM25: {found['bm25s']}; FastMCP: {found['fastmcp']} | {found['wicketgate']} |" in readme
    # The first table of the section is of an upstream over stdio; the third column of 100 bytes, 32 callers at once.
    _, _, stdio = figures.partition("**Upstream over stdio**")
    ways = {row[0]: row for row in reversed(table_rows(stdio)) if row[0] in _GATEWAYS}
    bridge, fastmcp, ours, meta = (float(ways[name][2].split()[0].replace(",", "")) / 1_000 for name in _GATEWAYS)
    cells = (
        "| mcp-proxy: {:.2f} ms; FastMCP's proxy: {:.2f} ms "
        "| {:.2f} ms at the face with every tool, {:.2f} ms by `tool_execute` |"
    )
    assert cells.format(bridge, fastmcp, ours, meta) in readme
    (azure,) = re.findall(r"`azure` \(200\) take ([\d,]+) tokens", figures)
    (face,) = re.findall(r"the gateway face ([\d,]+):", figures)
    browse = rows["azure", "wicketgate"][7]
    assert re.search(rf"\| 200 tools [^|]*\| {azure} tokens \| {face} tokens, and {browse} for a browse \|", readme)


def table_rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*\|$", text, re.M)]
