"""Checks the built site: every link leads somewhere, and no page loads anything from another host."""

import re
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = {
    "script": ("src",),
    "link": ("href",),
    "img": ("src", "srcset"),
    "source": ("src", "srcset"),
    "iframe": ("src",),
    "object": ("data",),
    "embed": ("src",),
    "video": ("src", "poster"),
    "audio": ("src",),
    "form": ("action",),
    "use": ("href", "xlink:href"),
    "base": ("href",),
}
"""Attributes whose addresses a browser loads by itself or sends something to."""

_FOREIGN = re.compile(r"^(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
_IN_STYLE = re.compile(r"(?:url\(\s*|@import\s+)[\"']?((?:https?:)?//[^\"')\s]+)", re.IGNORECASE)
_IN_SCRIPT = re.compile(r"[\"'`]((?:https?:|wss?:)?//[a-z0-9-]+\.[^\"'`\s]*)", re.IGNORECASE)
_NAMESPACE = "http://www.w3.org/"


class _Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag if tag in ("style", "script") else self._inside
        for name, value in attrs:
            if value is None:
                continue
            if name == "id":
                self.ids.add(value)
            elif name in LOADS.get(tag, ()):
                parts = value.split(",") if name == "srcset" else [value]
                self.loaded += [each.split()[0] for each in parts if each.strip()]
            elif tag == "a" and name == "href":
                self.links.append(value)
            elif name == "style":
                self.loaded += _IN_STYLE.findall(value)

    def handle_endtag(self, tag: str) -> None:
        if tag == self._inside:
            self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "style":
            self.loaded += _IN_STYLE.findall(data)
        elif self._inside == "script":
            self.loaded += _foreign_in_script(data)


def faults(site: Path) -> Iterator[str]:
    """Yields what is wrong with the site, one line each."""
    for path in sorted(site.rglob("*")):
        place = path.relative_to(site).as_posix()
        if path.suffix == ".html":
            yield from _faults_of_page(path, place, site)
        elif path.suffix == ".css":
            yield from (f"{place} loads {each}" for each in _IN_STYLE.findall(path.read_text("utf-8")))
        elif path.suffix == ".js" and path.name != "search.js":
            yield from (f"{place} names {each}" for each in _foreign_in_script(path.read_text("utf-8")))


def _faults_of_page(path: Path, place: str, site: Path) -> Iterator[str]:
    page = _read(path)
    yield from (f"{place} loads {each}" for each in page.loaded if _FOREIGN.match(each))
    for link in [*page.links, *page.loaded]:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc or link.startswith("data:"):
            continue
        inside = unquote(parts.path)
        target = (site / inside[1:] if inside[:1] == "/" else path.parent / inside).resolve() if inside else path
        target = target / "index.html" if target.is_dir() else target
        if not target.is_relative_to(site.resolve()) or not target.exists():
            yield f"{place}: no such page: {link}"
        elif parts.fragment and target.suffix == ".html" and unquote(parts.fragment) not in _read(target).ids:
            yield f"{place}: no such heading: {link}"


@cache
def _read(path: Path) -> _Page:
    return _Page(path.read_text("utf-8"))


def _foreign_in_script(text: str) -> list[str]:
    return [each for each in _IN_SCRIPT.findall(text) if not each.startswith(_NAMESPACE)]
