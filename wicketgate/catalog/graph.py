"""Paths through the catalog, and what stands at each: namespaces, clusters, tools."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from wicketgate.catalog.card import member_name
from wicketgate.catalog.clusters import Branch, Leaf, place_namespace
from wicketgate.catalog.selectable import SelectableItem
from wicketgate.catalog.tool_id import ToolId, Visible
from wicketgate.errors import PathInvalid, PathNotFound

WILDCARD = "*"
MAX_CHARS = 1_000
"""No path of the graph comes near it; a longer one need not be read."""
SEGMENT = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class Inner:
    """A namespace or cluster. *tool_count* and *members* are of what is visible.

    The members are the segments of its children, or a tool's own name where that is in another script.
    """

    path: str
    label: str
    namespace: str
    tool_count: int
    members: tuple[str, ...]


Node = Inner | Leaf


def parse_path(path: object) -> tuple[str, ...]:
    """Returns the segments of *path*, none for ``/``; a final ``*`` stays. Raises PathInvalid."""
    if not isinstance(path, str):
        raise PathInvalid("A path is a string such as /github/issues.")
    if path == "/":
        return ()
    if len(path) > MAX_CHARS:
        raise PathInvalid(f"A path has at most {MAX_CHARS} characters.", path=path)
    if not path.startswith("/"):
        raise PathInvalid("A path begins with '/'.", path=path)
    segments = tuple(path[1:].split("/"))
    for position, segment in enumerate(segments):
        if segment == WILDCARD:
            if position < len(segments) - 1:
                raise PathInvalid("'*' may only be the last segment.", path=path)
        elif not SEGMENT.fullmatch(segment):
            raise PathInvalid(
                "A segment is 1 to 64 of a-z, 0-9, '_' and '-', and begins with a letter or digit.", path=path
            )
    if segments[0][0].isdigit():
        raise PathInvalid("The first segment is a namespace and begins with a letter.", path=path)
    return segments


class ChoiceGraph:
    """All tools, each at exactly one path. Immutable; the branch of a namespace is kept while its ids are the same."""

    def __init__(self, items: Iterable[SelectableItem], previous: "ChoiceGraph | None" = None) -> None:
        # The ids by namespace, and the names that replace a segment in a list of members.
        ids: defaultdict[str, list[ToolId]] = defaultdict(list)
        self._names: dict[ToolId, str] = {}
        for item in items:
            ids[item.namespace].append(item.id)
            name = member_name(item)
            if name is not None:
                self._names[item.id] = name
        # Branches whose tools did not change are taken over.
        kept: Mapping[str, Branch | Leaf] = previous._root.children if previous else {}
        namespaces: dict[str, Branch | Leaf] = {}
        for namespace in sorted(ids):
            tool_ids = tuple(sorted(ids[namespace]))
            before = kept.get(namespace)
            same = isinstance(before, Branch) and before.tool_ids == tool_ids
            namespaces[namespace] = before if before and same else place_namespace(namespace, tool_ids)
        self._root: Branch = Branch(
            "/", "", "", namespaces, tuple(sorted(tool for group in ids.values() for tool in group))
        )
        self._paths = {leaf.tool_id: leaf.path for leaf in _leaves(self._root)}

    def children(self, path: Sequence[str], visible: Visible | None = None) -> tuple[Node, ...]:
        """The children of *path*: clusters first, then tools by id; a leaf gives itself, a final ``*`` changes nothing.

        With *visible*, what holds no visible tool does not exist, and counts and members are of visible tools; where
        a tool stands is the same for every caller. Raises PathNotFound.
        """
        node: Branch | Leaf = self._root
        for segment in path[:-1] if path and path[-1] == WILDCARD else path:
            child = node.children.get(segment) if isinstance(node, Branch) else None
            if child is None or not _exists(child, visible):
                raise PathNotFound("Nothing is at this path. Browse '/' for what there is.", path="/" + "/".join(path))
            node = child
        if isinstance(node, Leaf):
            return (node,)
        return tuple(
            child if isinstance(child, Leaf) else self._inner(child, visible)
            for child in _shown_children(node, visible)
        )

    def walk(self, visible: Visible | None = None) -> Iterator[Node]:
        """Every node below the root, each before its children."""
        yield from self._below(self._root, visible)

    def path_of(self, tool_id: str) -> str:
        """Raises PathNotFound."""
        try:
            return self._paths[ToolId(tool_id)]
        except KeyError:
            raise PathNotFound("No tool has this id.", path=tool_id) from None

    def _below(self, branch: Branch, visible: Visible | None) -> Iterator[Node]:
        for child in _shown_children(branch, visible):
            if isinstance(child, Leaf):
                yield child
            else:
                yield self._inner(child, visible)
                yield from self._below(child, visible)

    def _inner(self, branch: Branch, visible: Visible | None) -> Inner:
        count = len(branch.tool_ids) if visible is None else sum(map(visible, branch.tool_ids))
        members = tuple(self._member(child) for child in _shown_children(branch, visible))
        return Inner(branch.path, branch.label, branch.namespace, count, members)

    def _member(self, child: Branch | Leaf) -> str:
        name = self._names.get(child.tool_id) if isinstance(child, Leaf) else None
        return name or child.path.rpartition("/")[2]


def _exists(node: "Branch | Leaf", visible: Visible | None) -> bool:
    if visible is None:
        return True
    return visible(node.tool_id) if isinstance(node, Leaf) else any(map(visible, node.tool_ids))


def _shown_children(branch: Branch, visible: Visible | None) -> "list[Branch | Leaf]":
    shown = (child for child in branch.children.values() if _exists(child, visible))
    return sorted(shown, key=lambda child: (True, child.tool_id) if isinstance(child, Leaf) else (False, child.path))


def _leaves(branch: Branch) -> Iterator[Leaf]:
    for child in branch.children.values():
        if isinstance(child, Leaf):
            yield child
        else:
            yield from _leaves(child)
