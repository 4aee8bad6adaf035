"""At which path each tool of a namespace stands: below clusters named by what tools share (DESIGN §3 "Browsing").

A place is computed from tool ids alone. Up to 20 tools of a namespace stand directly below it. Above that, tools
whose names share their first telling word stand together, from three tools on, and so again by the next word inside
a cluster of more than 20. A level of more than 50 children is parted by the first letters of what they are about.

So where a tool stands depends on the tools that share its words, and beyond them only on whether a level it is in
has passed 20 tools or 50 children. No path of a cluster is longer than 70 characters, whatever names come in, so
that its card always fits (S0 §2.3); where that bound or the third alphabetical level is reached, all that is left is
listed at one level.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from app.catalog.tool_id import ToolId, hash8, parse_tool_id
from app.catalog.topics import shared_label, stem, topics

FLAT_TOOLS = 20
MIN_CLUSTER = 3
MAX_CHILDREN = 50
MAX_ALPHABETICAL_LEVELS = 3
MAX_INNER_PATH_CHARS = 70
MAX_SEGMENT_CHARS = 64


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
    tools = [_Tool(tool_id, segments[tool_id], topics(name, namespace)) for tool_id, name in names.items()]
    path = f"/{namespace}"
    return _branch(path, namespace, _place(_parts(tools, 0), path, namespace, MAX_ALPHABETICAL_LEVELS), tools)


@dataclass(frozen=True, slots=True)
class _Tool:
    id: ToolId
    segment: str
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
    """A legal and distinct segment for each tool of a namespace (S0 §3.2).

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


def _free(segment: str, tool_id: ToolId, taken: Iterable[str]) -> str:
    salt: str = tool_id
    while True:
        salt = hash8(salt, None)
        candidate = f"{segment[: MAX_SEGMENT_CHARS - 9]}-{salt}"
        if candidate not in taken:
            return candidate


def _parts(tools: Sequence[_Tool], depth: int) -> list[_Part]:
    if len(tools) <= FLAT_TOOLS:
        return [_single(tool, depth) for tool in tools]
    groups: defaultdict[str, list[_Tool]] = defaultdict(list)
    for tool in tools:
        groups[stem(tool.topics[depth]) if depth < len(tool.topics) else ""].append(tool)
    parts = []
    for word, group in groups.items():
        if word and len(group) >= MIN_CLUSTER:
            label, length = shared_label([tool.topics[depth:] for tool in group])
            parts.append(_Part(label, label, tuple(group), depth + length))
        else:
            parts.extend(_single(tool, depth) for tool in group)
    return parts


def _single(tool: _Tool, depth: int) -> _Part:
    return _Part(tool.segment, "_".join(tool.topics[depth:]) or tool.segment, (tool,), None)


def _place(parts: Sequence[_Part], path: str, namespace: str, levels: int) -> "dict[str, Branch | Leaf]":
    """Give each part its place below *path*, with at most *levels* alphabetical ones in between."""
    children: dict[str, Branch | Leaf] = {}
    listed: list[_Tool] = []
    if len(parts) > MAX_CHILDREN and levels:
        for letters, group in _alphabetical(parts).items():
            tools = [tool for part in group for tool in part.tools]
            if _fits(path, letters):
                below = _place(group, f"{path}/{letters}", namespace, levels - 1)
                children[letters] = _branch(f"{path}/{letters}", namespace, below, tools)
            else:
                listed.extend(tools)
    else:
        for part in parts:
            if part.depth is not None and _fits(path, part.label):
                child_path = f"{path}/{part.label}"
                below = _place(_parts(part.tools, part.depth), child_path, namespace, MAX_ALPHABETICAL_LEVELS)
                children[part.label] = _branch(child_path, namespace, below, part.tools)
            else:
                listed.extend(part.tools)
    for tool in listed:
        label = tool.segment if tool.segment not in children else _free(tool.segment, tool.id, children)
        children[label] = Leaf(f"{path}/{label}", tool.id)
    return children


def _fits(path: str, label: str) -> bool:
    return len(label) <= MAX_SEGMENT_CHARS and len(path) + 1 + len(label) <= MAX_INNER_PATH_CHARS


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
