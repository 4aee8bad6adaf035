"""Places for the tools of a namespace: below clusters that are named by what the tools share.

A place is computed from tool ids alone. Up to 20 tools of a namespace stand directly below it. Above that, tools
whose names share their first telling word stand together, from three tools on, and so again by the next word inside
a cluster of more than 20. A level of more than 50 children is parted by the first letters of what they are about.

No path of a cluster is longer than 70 characters, whatever names come in, so that its card always fits (CARD-23).
Where a label would pass that, its end stands for it, or a hash. Where that does not fit either, or the third
alphabetical level is still too wide, the level is parted by a hash of the ids: it says nothing, but every level
is short, no tool moves because of another, and for that two characters a level always suffice.

So where a tool stands depends on the tools that share its words, and beyond them only on whether a level it is in
has passed 20 tools or 50 children, and in the longest paths on how many hundred tools are below.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from wicketgate.catalog.tool_id import ToolId, hash8, parse_tool_id

FLAT_TOOLS = 20
MIN_CLUSTER = 3
MAX_CHILDREN = 50
MAX_ALPHABETICAL_LEVELS = 3
MAX_INNER_PATH_CHARS = 70
MAX_SEGMENT_CHARS = 64

# What a level that is parted by a hash calls its children, and how often that can be repeated with 32 bits.
_DIGITS = "0123456789abcdefghijklmnopqrstuv"
_MAX_DIGITS = 6
# A hash does not part evenly; filled to half of 50 on average, its levels stay within it.
_MEAN_CHILDREN = MAX_CHILDREN // 2

MAX_TOPICS = 3

# What tools do; the rest of a name says to what they do it. Only the first or the last word is read as one. Words
# that are as often a thing (pull, post, query, test) are left out.
_VERBS = frozenset(
    [
        *("add", "analyze", "append", "apply", "approve", "archive", "assign", "build", "calculate", "cancel"),
        *("change", "check", "clear", "clone", "close", "compare", "complete", "configure", "connect"),
        *("convert", "copy", "count", "create", "deactivate", "delete", "deploy", "describe", "destroy"),
        *("disable", "dismiss", "download", "edit", "enable", "execute", "export", "fetch", "find", "fork"),
        *("generate", "get", "import", "insert", "install", "invoke", "list", "load", "lookup", "make"),
        *("manage", "mark", "merge", "modify", "move", "open", "patch", "publish", "put", "read", "recommend"),
        *("remove", "rename", "replace", "reply", "rerun", "reset", "resolve", "restart", "restore"),
        *("retrieve", "revoke", "run", "save", "scan", "search", "select", "send", "set", "show", "start"),
        *("stop", "submit", "subscribe", "sync", "toggle", "trigger", "unlock", "update", "upload", "upsert"),
        *("validate", "verify", "view", "write"),
    ]
)
_SMALL_WORDS = frozenset(
    [
        *("a", "all", "an", "and", "as", "at", "by", "for", "from", "in", "into", "is", "my", "of", "on"),
        *("or", "the", "to", "with"),
    ]
)

_WORD = re.compile(r"[A-Z]+(?![a-z])[0-9]*|[A-Z]?[a-z]+[0-9]*")


@dataclass(frozen=True, slots=True)
class Leaf:
    path: str
    tool_id: ToolId


@dataclass(frozen=True, slots=True)
class Branch:
    """A namespace or cluster with its children by segment, and all the tools below, ascending."""

    path: str
    label: str
    namespace: str
    children: Mapping[str, "Branch | Leaf"]
    tool_ids: tuple[ToolId, ...]


def place_namespace(namespace: str, tool_ids: Sequence[ToolId]) -> Branch:
    """The tree of one namespace, from its ids in ascending order."""
    names = {tool_id: parse_tool_id(tool_id).name for tool_id in tool_ids}
    segments = _segments(names)
    tools = [
        _Tool(tool_id, segments[tool_id], _filed(name, segments[tool_id]), topics(name, namespace))
        for tool_id, name in names.items()
    ]
    path = f"/{namespace}"
    return _branch(path, namespace, _place(_parts(tools, 0), path, namespace, MAX_ALPHABETICAL_LEVELS), tools)


@dataclass(frozen=True, slots=True)
class _Tool:
    """*filed* is the whole name as a segment would have it, however long, and differs for any two tools."""

    id: ToolId
    segment: str
    filed: str
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Part:
    """A child that has no place yet: one tool, or a cluster whose next level is by the topic word *depth*.

    *about* is what it is filed under when a level is parted by letters.
    """

    label: str
    about: str
    tools: tuple[_Tool, ...]
    depth: int | None


def _segments(names: Mapping[ToolId, str]) -> dict[ToolId, str]:
    """A legal and distinct segment for each tool of a namespace (BROWSE-15).

    Where names meet, the one that is legal as it stands keeps its own; the others carry a hash of their id, so that
    none of them ever changes because of a third.
    """
    legal = {tool_id: _legal_segment(name) for tool_id, name in names.items()}
    wanted: defaultdict[str, list[ToolId]] = defaultdict(list)
    for tool_id, segment in legal.items():
        wanted[segment].append(tool_id)
    segments: dict[ToolId, str] = {}
    for segment, tool_ids in wanted.items():
        unchanged = [tool_id for tool_id in tool_ids if names[tool_id] == segment] if len(tool_ids) > 1 else tool_ids
        if len(unchanged) == 1 and len(segment) <= MAX_SEGMENT_CHARS:
            segments[unchanged[0]] = segment
    taken = set(segments.values())
    for tool_id, segment in legal.items():
        if tool_id not in segments:
            segments[tool_id] = _free(segment, tool_id, taken)
            taken.add(segments[tool_id])
    return segments


def _legal_segment(name: str) -> str:
    return name.lower().replace(".", "-").lstrip("_-") or "tool"


def _filed(name: str, segment: str) -> str:
    whole = _legal_segment(name)
    return whole if whole == segment else f"{whole}{segment[-_HASH_CHARS:]}"


_HASH_CHARS = len("-") + 8


def _free(segment: str, tool_id: ToolId, taken: Iterable[str]) -> str:
    """The end of *segment*, which is where siblings differ, with a hash that makes it free."""
    kept = _end(segment, MAX_SEGMENT_CHARS - _HASH_CHARS) or "tool"
    salt: str = tool_id
    while True:
        salt = hash8(salt, None)
        candidate = f"{kept}-{salt}"
        if candidate not in taken:
            return candidate


def _parts(tools: Sequence[_Tool], depth: int) -> list[_Part]:
    if len(tools) <= FLAT_TOOLS:
        return [_single(tool, depth) for tool in tools]
    groups: defaultdict[str, list[_Tool]] = defaultdict(list)
    for tool in tools:
        groups[singular(tool.topics[depth]) if depth < len(tool.topics) else ""].append(tool)
    parts = []
    for word, group in groups.items():
        if word and len(group) >= MIN_CLUSTER:
            label, length = shared_label([tool.topics[depth:] for tool in group])
            parts.append(_Part(label, label, tuple(group), depth + length))
        else:
            parts.extend(_single(tool, depth) for tool in group)
    return parts


def _single(tool: _Tool, depth: int) -> _Part:
    return _Part(tool.segment, "_".join(tool.topics[depth:]) or tool.filed, (tool,), None)


def _place(parts: Sequence[_Part], path: str, namespace: str, levels: int) -> "dict[str, Branch | Leaf]":
    """Give each part its place below *path*, with at most *levels* alphabetical ones in between."""
    if len(parts) <= MAX_CHILDREN:
        below = {part.label: _parts(part.tools, part.depth) for part in parts if part.depth is not None}
        listed = [tool for part in parts if part.depth is None for tool in part.tools]
        levels_below = MAX_ALPHABETICAL_LEVELS
    else:
        below, listed, levels_below = _alphabetical(parts) if levels else {}, [], levels - 1
    tools = {label: _tools(group) for label, group in sorted(below.items())}
    segments = _cluster_segments({label: len(group) for label, group in tools.items()}, path)
    if segments is None or not (below or listed):
        return _by_hash(_tools(parts), path, namespace)
    children: dict[str, Branch | Leaf] = {}
    for label, segment in segments.items():
        child_path = f"{path}/{segment}"
        placed = _place(below[label], child_path, namespace, levels_below)
        children[segment] = _branch(child_path, namespace, placed, tools[label])
    for tool in listed:
        segment = tool.segment if tool.segment not in children else _free(tool.segment, tool.id, children)
        children[segment] = Leaf(f"{path}/{segment}", tool.id)
    return children


def _cluster_segments(counts: Mapping[str, int], path: str) -> dict[str, str] | None:
    """A distinct segment for each label, the label itself where it fits; None when any of them finds none.

    *counts* says how many tools are below each: their paths need room for the levels that these may take.
    """
    segments: dict[str, str] = {}
    for label, count in counts.items():
        longest = min(MAX_SEGMENT_CHARS, MAX_INNER_PATH_CHARS - len(path) - 1 - _room(count))
        candidates = [label, *(_end(label, length) for length in _SHORT_ENDS), hash8(label, None), _end(label, 1)]
        taken = set(segments.values())
        free = (one for one in candidates if one and len(one) <= longest and one not in taken)
        segment = next(free, None)
        if segment is None:
            return None
        segments[label] = segment
    return segments


_SHORT_ENDS = (24, 12, 4)


def _end(text: str, length: int) -> str:
    """At most the last *length* characters of *text*, as a segment begins, from a whole word on if that is enough."""
    end = text[-length:].lstrip("_-")
    if len(text) > length and text[-length - 1].isalnum():
        words = _WORD_START.search(end)
        if words and len(end) - words.end() >= length // 4:
            return end[words.end() :]
    return end


_WORD_START = re.compile("[_-]+")


def _room(tool_count: int) -> int:
    """The characters that levels parted by a hash need for this many tools."""
    characters, within = 0, MAX_CHILDREN
    while tool_count > within:
        characters += len("/") + 1
        within = _MEAN_CHILDREN * len(_DIGITS) ** (characters // 2)
    return characters


def _by_hash(tools: Sequence[_Tool], path: str, namespace: str, digit: int = 0) -> "dict[str, Branch | Leaf]":
    if len(tools) <= MAX_CHILDREN or digit == _MAX_DIGITS or len(path) + 2 > MAX_INNER_PATH_CHARS:
        return {tool.segment: Leaf(f"{path}/{tool.segment}", tool.id) for tool in tools}
    groups: defaultdict[str, list[_Tool]] = defaultdict(list)
    for tool in tools:
        groups[_DIGITS[int(hash8(tool.id, None), 16) >> 5 * digit & 31]].append(tool)
    return {
        mark: _branch(f"{path}/{mark}", namespace, _by_hash(group, f"{path}/{mark}", namespace, digit + 1), group)
        for mark, group in groups.items()
    }


def _tools(parts: Iterable[_Part]) -> list[_Tool]:
    return [tool for part in parts for tool in part.tools]


def _branch(path: str, namespace: str, children: "Mapping[str, Branch | Leaf]", tools: Sequence[_Tool]) -> Branch:
    return Branch(path, path.rpartition("/")[2], namespace, children, tuple(sorted(tool.id for tool in tools)))


def _alphabetical(parts: Sequence[_Part]) -> dict[str, list[_Part]]:
    """The parts by the first letter in which they differ, under all the letters up to that one."""
    first, last = min(part.about for part in parts), max(part.about for part in parts)
    shared = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    groups: defaultdict[str, list[_Part]] = defaultdict(list)
    for part in parts:
        groups[part.about[: shared + 1]].append(part)
    return groups


def topics(name: str, namespace: str) -> tuple[str, ...]:
    """Up to three lower-case words that say what *name* is about, the widest first; none for ``_1``.

    ``list_pull_requests`` gives ``pull, requests``; ``acr_registry_list`` gives ``acr, registry``. A leading
    namespace, one verb, small words and bare numbers are left out, as long as anything remains.
    """
    words = [word.lower() for word in _WORD.findall(name)]
    if len(words) > 1 and words[0] == namespace:
        words = words[1:]
    if len(words) > 1 and words[0] in _VERBS:
        words = words[1:]
    elif len(words) > 1 and words[-1] in _VERBS:
        words = words[:-1]
    telling = [word for word in words if word not in _SMALL_WORDS] or words
    return tuple(telling[:MAX_TOPICS])


def singular(word: str) -> str:
    """Returns one key for singular and plural. For comparing only: it is not always a word."""
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3:
        word = word[:-1]
    return word[:-1] if word.endswith(("se", "xe", "ze", "che", "she")) else word


def shared_label(members: Sequence[tuple[str, ...]]) -> tuple[str, int]:
    """The leading words that all *members* have in common, as ``pull_requests``, and how many they are.

    They have at least the first in common by ``singular``. The last is in the plural where any member writes it so.
    """
    length = 1
    shortest = min(len(member) for member in members)
    while length < shortest and len({singular(member[length]) for member in members}) == 1:
        length += 1
    *firsts, last = ({member[position] for member in members} for position in range(length))
    return "_".join([*map(min, firsts), max(last, key=lambda form: (len(form), form))]), length
