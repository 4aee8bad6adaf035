"""Paths through the catalog, and what stands at each: namespaces, clusters, tools."""

import re
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


def server_of(asked_for: str) -> str:
    """Returns the name of the server in a tool's id or path."""
    return asked_for.lstrip("/").partition("/")[0].partition(":")[0]


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


def is_root(path: Sequence[str]) -> bool:
    """Returns whether these are the segments of ``/``, with or without ``*``."""
    return tuple(path) in ((), (WILDCARD,))


@dataclass(frozen=True, slots=True, eq=False)
class Namespace:
    """One namespace in the graph. *names* replace the segments of some tools in a list of members."""

    branch: Branch
    names: Mapping[ToolId, str]


class ChoiceGraph:
    """All tools, each at exactly one path. Immutable; ``updated`` gives another one and shares what did not change."""

    def __init__(self, items: Iterable[SelectableItem] = ()) -> None:
        self._use({})
        self._use(self.updated((), items).namespaces)

    def updated(self, removed: Iterable[SelectableItem], added: Iterable[SelectableItem]) -> "ChoiceGraph":
        """A graph without the tools *removed* and with *added*, which may be under the same id.

        It is as one built again. Only the namespaces of these tools are looked at, and one whose ids are the same keeps
        its branch.
        """
        # The ids and names of the namespaces that are touched.
        ids: dict[str, set[ToolId]] = {}
        names: dict[str, dict[ToolId, str]] = {}

        def touch(namespace: str) -> set[ToolId]:
            if namespace not in ids:
                known = self.namespaces.get(namespace)
                ids[namespace] = set(known.branch.tool_ids) if known else set()
                names[namespace] = dict(known.names) if known else {}
            return ids[namespace]

        for item in removed:
            touch(item.namespace).discard(item.id)
            names[item.namespace].pop(item.id, None)
        for item in added:
            touch(item.namespace).add(item.id)
            name = member_name(item)
            if name is not None:
                names[item.namespace][item.id] = name
        # Their places; those of the others are taken over.
        namespaces = dict(self.namespaces)
        for namespace, tool_ids in ids.items():
            if tool_ids:
                before = namespaces.get(namespace)
                namespaces[namespace] = _placed(namespace, tool_ids, names[namespace], before)
            else:
                namespaces.pop(namespace, None)
        if list(namespaces) != list(self.namespaces):
            namespaces = {namespace: namespaces[namespace] for namespace in sorted(namespaces)}
        graph = ChoiceGraph.__new__(ChoiceGraph)
        graph._use(namespaces)
        return graph

    def _use(self, namespaces: Mapping[str, Namespace]) -> None:
        self.namespaces = namespaces
        """Ascending by name."""
        # Nobody asks the root for its ids.
        self._root = Branch("/", "", "", {namespace: place.branch for namespace, place in namespaces.items()}, ())
        self._paths: dict[str, str] | None = None

    def children(self, path: Sequence[str], visible: Visible | None = None) -> tuple[Node, ...]:
        """The children of *path*: clusters first, then tools by id; a leaf gives itself, a final ``*`` changes nothing.

        With *visible*, what holds no visible tool does not exist, and counts and members are of visible tools; where
        a tool stands is the same for every caller. Raises PathNotFound.
        """
        return tuple(
            child if isinstance(child, Leaf) else self._inner(child, visible) for child in self.places_at(path, visible)
        )

    def places_at(self, path: Sequence[str], visible: Visible | None = None) -> "Sequence[Branch | Leaf]":
        """As ``children``, with all the tools of each, also hidden ones."""
        node: Branch | Leaf = self._root
        for segment in path[:-1] if path and path[-1] == WILDCARD else path:
            child = node.children.get(segment) if isinstance(node, Branch) else None
            if child is None or not _exists(child, visible):
                raise PathNotFound("Nothing is at this path. Browse '/' for all namespaces.", path="/" + "/".join(path))
            node = child
        return (node,) if isinstance(node, Leaf) else shown_children(node, visible)

    def namespace_at(self, namespace: str, visible: Visible) -> Inner:
        """Returns a namespace as anyone who sees some of its tools is shown it."""
        return self._inner(self.namespaces[namespace].branch, visible)

    def tool_at(self, path: Sequence[str]) -> ToolId | None:
        """Returns the tool whose own path this is, for whomever it is visible; None for any other path."""
        node: Branch | Leaf | None = self._root
        for segment in path:
            node = node.children.get(segment) if isinstance(node, Branch) else None
        return node.tool_id if isinstance(node, Leaf) else None

    def walk_in(self, namespace: str) -> Iterator[Node]:
        """A namespace and every node in it, each before its children."""
        branch = self.namespaces[namespace].branch
        yield self._inner(branch, None)
        yield from self._below(branch)

    def path_of(self, tool_id: str) -> str:
        """Raises PathNotFound."""
        if self._paths is None:
            self._paths = {leaf.tool_id: leaf.path for leaf in _leaves(self._root)}
        try:
            return self._paths[tool_id]
        except KeyError:
            raise PathNotFound("No tool has this id.", path=tool_id) from None

    def _below(self, branch: Branch) -> Iterator[Node]:
        for child in shown_children(branch, None):
            if isinstance(child, Leaf):
                yield child
            else:
                yield self._inner(child, None)
                yield from self._below(child)

    def _inner(self, branch: Branch, visible: Visible | None) -> Inner:
        count = len(branch.tool_ids) if visible is None else sum(map(visible, branch.tool_ids))
        names = self.namespaces[branch.namespace].names
        members = tuple(_member(child, names) for child in shown_children(branch, visible))
        return Inner(branch.path, branch.label, branch.namespace, count, members)


def _placed(
    namespace: str, tool_ids: Iterable[ToolId], names: Mapping[ToolId, str], before: Namespace | None
) -> Namespace:
    ascending = tuple(sorted(tool_ids))
    if before is None or before.branch.tool_ids != ascending:
        return Namespace(place_namespace(namespace, ascending), names)
    return before if before.names == names else Namespace(before.branch, names)


def _member(child: Branch | Leaf, names: Mapping[ToolId, str]) -> str:
    name = names.get(child.tool_id) if isinstance(child, Leaf) else None
    return name or child.path.rpartition("/")[2]


def _exists(node: "Branch | Leaf", visible: Visible | None) -> bool:
    if visible is None:
        return True
    return visible(node.tool_id) if isinstance(node, Leaf) else any(map(visible, node.tool_ids))


def shown_children(branch: Branch, visible: Visible | None) -> "list[Branch | Leaf]":
    """The children with visible tools: clusters first, then tools by id."""
    shown = (child for child in branch.children.values() if _exists(child, visible))
    return sorted(shown, key=lambda child: (True, child.tool_id) if isinstance(child, Leaf) else (False, child.path))


def _leaves(branch: Branch) -> Iterator[Leaf]:
    for child in branch.children.values():
        if isinstance(child, Leaf):
            yield child
        else:
            yield from _leaves(child)
