"""Cleans definitions and other words of servers for clients: removes hidden characters, unsafe icons, and entries of
page policies that allow any host (FACE-164 to FACE-166)."""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

T = TypeVar("T")

# Control characters, soft hyphen, zero-width and bidirectional marks, invisible operators, fillers, tags. Not the
# selectors and joiners that emoji and several scripts need, unless there are more of them in a row than these have.
HIDDEN = (
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]"
    "|(?<=[\x00-\x7f])[\u200c\u200d]{1,2}(?=[\x00-\x7f])|[\u200c\u200d\ufe00-\ufe0f]{3,}"
)
"""A pattern of invisible characters."""
_HIDDEN = re.compile(rf"\r|{HIDDEN}")
_ICON = re.compile(r"https://|data:image/", re.IGNORECASE)
# No host, every host, or every host of a top-level domain.
_ANY_HOST = re.compile(r"(?:(?:https?|wss?):(?://)?)?(?:\*(?:\.[a-z]*)?)?(?::(?:\d*|\*))?/?", re.IGNORECASE)


def words_of(address: str) -> tuple[str, ...]:
    """Returns the keys of words for people in what is known by its *address*, ``name`` or a URI."""
    return ("description", "title") if address == "name" else ("description", "title", "name")


def shown_offer(item: Mapping[str, Any], address: str) -> Mapping[str, Any]:
    """Returns a prompt, resource or template as clients may be shown it; most are returned unchanged."""
    texts = [text for key in words_of(address) if isinstance(text := item.get(key), str)]
    if "arguments" in item or not all(map(str.isprintable, texts)):
        item = visible(item, words_of(address))
    return safe_sources(item)


def visible(
    value: T,
    keys: Collection[str] | None = None,
    *,
    hidden: re.Pattern[str] = _HIDDEN,
    name: Callable[[str], str] | None = None,
) -> T:
    """Returns a copy of JSON without *hidden* characters in its strings and names, or only in the strings under *keys*.
    Tabs and line feeds stay. *name* is applied to each name instead; raises what it raises."""
    named = name or (lambda key: hidden.sub("", key))
    root: list[Any] = [value]
    waiting: list[tuple[Any, Any]] = [(root, 0)]
    while waiting:
        holder, place = waiting.pop()
        each = holder[place]
        if isinstance(each, str):
            if (keys is None or place in keys) and not (each.isascii() and each.isprintable()):
                holder[place] = hidden.sub("", each)
        elif isinstance(each, Mapping):
            copy = {named(key): inner for key, inner in each.items()} if keys is None else dict(each)
            holder[place] = copy
            waiting += [(copy, key) for key in copy]
        elif isinstance(each, list | tuple):
            holder[place] = items = list(each)
            waiting += [(items, index) for index in range(len(items))]
    shown: T = root[0]
    return shown


def safe_sources(shown: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a definition, a link or contents without icons that are neither ``https:`` nor image data, and without
    entries in the policy of its page (``_meta.ui.csp``) that allow any host. *shown* itself if it has none of these."""
    icons, meta = shown.get("icons"), shown.get("_meta")
    if isinstance(icons, list) and len(kept := list(filter(_is_safe_icon, icons))) < len(icons):
        shown = {key: value for key, value in shown.items() if key != "icons"} | ({"icons": kept} if kept else {})
    ui = meta.get("ui") if isinstance(meta, Mapping) else None
    csp = ui.get("csp") if isinstance(ui, Mapping) else None
    if isinstance(meta, Mapping) and isinstance(ui, Mapping) and isinstance(csp, Mapping):
        named = {key: list(filter(_names_host, each)) if isinstance(each, list) else each for key, each in csp.items()}
        if named != csp:
            shown = {**shown, "_meta": {**meta, "ui": {**ui, "csp": named}}}
    return shown


def _is_safe_icon(icon: object) -> bool:
    source = icon.get("src") if isinstance(icon, Mapping) else None
    return isinstance(source, str) and _ICON.match(source) is not None


def _names_host(domain: object) -> bool:
    return isinstance(domain, str) and _ANY_HOST.fullmatch(domain.strip()) is None
