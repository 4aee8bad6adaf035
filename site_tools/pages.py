"""Copies the pages of the repository into one folder, with their links to where the site has the pages.

Links to files that the site lacks become plain text, because the repository has no public address.
"""

import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

TOP = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
    "openapi/library.md": "reference/library.md",
}
"""Pages outside docs/ and their paths on the site."""

FILES = {
    "openapi/openapi.json": "reference/openapi.json",
    "openapi/wicketgate.schema.json": "reference/wicketgate.schema.json",
}
"""Files that pages offer for download."""

FOLDERS = {"openapi": "reference/http.md", "docs": "index.md"}
"""What a link to a folder leads to, if it has no README."""

_CODE_OR_LINK = re.compile(
    r"^(?P<fence>`{3,}).*?^(?P=fence)$"
    r"|(?P<ticks>`+)(?:(?!(?P=ticks)).)+(?P=ticks)"
    r"|(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^)\s]+)\)"
    r"|\b(?P<attribute>src|srcset|href)=\"(?P<value>[^\"]+)\"",
    re.MULTILINE | re.DOTALL,
)
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)
_LIST_AFTER_TEXT = re.compile(r"^(?!\s*$|[-*] |\d+\. |[ #|>])(.+)\n(?=(?:[-*]|1\.) )", re.MULTILINE)
_FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def places(root: Path = ROOT) -> dict[str, str]:
    """Returns where the site has each page and picture, by its path in the repository."""
    found = {**TOP, **FILES}
    for path in sorted((root / "docs").rglob("*")):
        if path.suffix in (".md", ".png", ".svg"):
            inside = path.relative_to(root / "docs")
            found[path.relative_to(root).as_posix()] = inside.with_name(
                "index.md" if inside.name == "README.md" else inside.name
            ).as_posix()
    return found


def navigation_faults(configuration: Mapping[str, Any], pages: Collection[str]) -> list[str]:
    """Returns a line for each page that the navigation lacks, and for each entry without a page."""
    listed = set(_entries(configuration["project"]["nav"]))
    return [
        *(f"{each}: not in the navigation" for each in sorted(set(pages) - listed)),
        *(f"{each}: in the navigation, but no page" for each in sorted(listed - set(pages))),
    ]


def copy(target: Path, root: Path = ROOT) -> None:
    """Writes all pages and pictures to *target*."""
    known = places(root)
    for source, place in known.items():
        path = target / place
        path.parent.mkdir(parents=True, exist_ok=True)
        if source.endswith(".md"):
            path.write_text(page((root / source).read_text("utf-8"), source, known), "utf-8")
        else:
            shutil.copyfile(root / source, path)


def page(text: str, source: str, known: dict[str, str]) -> str:
    """Returns the page *source* with the links of the site; a list directly below a text gets its blank line."""

    def replaced(match: re.Match[str]) -> str:
        if match["value"]:
            return f'{match["attribute"]}="{_new_target(match["value"], source, known) or match["value"]}"'
        if not match["target"]:
            return match[0]
        inner = page(match["text"], source, known)
        target = _new_target(match["target"], source, known)
        return inner if target is None else f"{match['image']}[{inner}]({target})"

    parts = _FENCED.split(_CODE_OR_LINK.sub(replaced, text))
    parts[::2] = [_LIST_AFTER_TEXT.sub(r"\1\n\n", part) for part in parts[::2]]
    return "".join(parts)


def _entries(nav: object) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    else:
        for each in nav.values() if isinstance(nav, Mapping) else nav if isinstance(nav, list) else ():
            yield from _entries(each)


def _new_target(target: str, source: str, known: dict[str, str]) -> str | None:
    """The target as the page's place on the site needs it, or None if the site lacks that file of the repository."""
    if _ELSEWHERE.match(target) or target.startswith("#"):
        return target
    path, mark, anchor = target.partition("#")
    file = os.path.normpath(PurePosixPath(source).parent / path)
    place = _place(file, known)
    if place is None:
        # A target that does not exist stays, so that the build fails.
        return None if (ROOT / file).exists() else target
    return os.path.relpath(place, PurePosixPath(known[source]).parent) + mark + anchor


def _place(path: str, known: dict[str, str]) -> str | None:
    return known.get(path) or known.get(f"{path}/README.md") or FOLDERS.get(path)
