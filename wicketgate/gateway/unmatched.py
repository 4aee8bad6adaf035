"""Patterns of the operator that match no tool: a rule, a limit or words that were misspelt hold nothing (ACCESS-53,
ACCESS-54, OPS-57).

A pattern is judged only when it can be: as long as an upstream that it may be about has not listed its tools, it is not
reported. Tools that a plugin hides or a pin holds back count as tools.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

from wicketgate.access.policy import AccessPolicy
from wicketgate.catalog.catalog import Catalog
from wicketgate.catalog.name_patterns import compile_glob, split_pattern
from wicketgate.catalog.tool_id import namespace_of
from wicketgate.fleet.member import Listing
from wicketgate.gateway.options import RuntimePolicies
from wicketgate.gateway.plugin_chain import PluginChain

log = logging.getLogger("wicketgate.access")


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """All that decides which patterns match: the catalog and what the upstreams listed, the operator's decisions, and
    the names of the members and of those of them that were not configured by a name."""

    catalog: Catalog
    listings: Mapping[str, Listing]
    policies: RuntimePolicies
    access: AccessPolicy
    members: Collection[str]
    unnamed: Collection[str] = ()

    def same(self, other: "Judged | None") -> bool:
        if other is None or frozenset(self.members) != frozenset(other.members):
            return False
        now, then = ((each.catalog, each.listings, each.policies, each.access) for each in (self, other))
        return all(a is b for a, b in zip(now, then, strict=True))


class Unmatched:
    """*found* are the patterns that match no tool, as they were when ``look`` was called last."""

    def __init__(self, plugins: PluginChain | None) -> None:
        self._plugins = plugins
        self._judged: Judged | None = None
        self.found: tuple[str, ...] = ()

    async def look(self, judged: Judged) -> None:
        """Finds them again if anything has changed, and logs those that were not found before."""
        if judged.same(self._judged):
            return
        self._judged = judged
        # Off the loop: a thousand rules and ten thousand tools take seconds.
        found = await asyncio.to_thread(lambda: tuple(find_unmatched(judged, self._plugins)))
        if self._judged is not judged:
            return  # a later look has begun, and knows more
        for pattern in found:
            if pattern not in self.found:
                log.warning("no tool matches: %s", pattern)
        self.found = found


def find_unmatched(judged: Judged, plugins: PluginChain | None = None) -> Iterator[str]:
    """Yields each pattern that matches no tool, with its place in the configuration."""
    tools = _Tools(judged)
    for label, rule in zip(judged.access.labels, judged.access.rules, strict=True):
        if not tools.may_fit_rule(rule.match):
            yield label
    for name, gate in judged.access.gates.items():
        yield from (f"gates.{name}.tools ({match})" for match in gate.tools if not tools.may_fit_rule(match))
    for pattern in judged.policies.per_tool:
        if not tools.may_fit_text(pattern):
            yield f"quota.per_tool ({pattern})"
    for match in judged.policies.always:
        if not tools.may_fit_rule(match, ids=True):
            yield f"mcp.always ({match})"
    for match in (*judged.policies.flow.trusted, *judged.policies.flow.destinations):
        if not tools.may_fit_rule(match):
            yield f"flow ({match})"
    for index, match in enumerate(judged.policies.words):
        if not tools.may_fit_rule(match, ids=True):
            yield f"browse.words[{index}].match ({match})"
    # Pins of what a server offers besides tools stand under ``server/prompts`` and the like. A pinned tool that is gone
    # from an upstream is reported with the pins.
    for server in dict.fromkeys(source.partition("/")[0] for source in judged.policies.pins.pins or ()):
        if server not in tools.servers:
            yield f"pins ({server}): there is no upstream of this name"
    for server in judged.listings:
        policy = judged.policies.call_policy(server)
        named = (
            (f"upstreams.{server}.cache.tools", policy.cached_tools),
            (f"upstreams.{server}.tool_timeouts_s", policy.tool_timeouts_s),
            (f"upstreams.{server}.read_only", policy.read_only),
            *(plugins.tool_patterns(server) if plugins is not None else ()),
        )
        for place, patterns in named:
            yield from (f"{place} ({pattern})" for pattern in patterns if not _fits_one(pattern, tools.own(server)))


class _Tools:
    """The names of all tools, put together when the first pattern asks: of a large catalog that takes half a second.
    *servers* are all upstreams."""

    def __init__(self, judged: Judged) -> None:
        self.servers = {*judged.members, *judged.policies.configured}
        waiting = self.servers - judged.listings.keys()
        # The tools of an upstream that infers namespaces can be in any.
        self._anything = any(server in judged.unnamed or server in judged.policies.inferred for server in waiting)
        self._waiting = {namespace_of(server) for server in waiting}
        self._judged = judged
        self._own: dict[str, Collection[str]] = {}

    def own(self, server: str) -> Collection[str]:
        """The names of the tools that the upstream listed."""
        if server not in self._own:
            listing = self._judged.listings[server]
            self._own[server] = {name for tool in listing if isinstance(name := _name_of(tool), str)}
        return self._own[server]

    @cached_property
    def _names(self) -> Mapping[str, Collection[str]]:
        found: defaultdict[str, set[str]] = defaultdict(set)
        for server in self._judged.listings:
            if server not in self._judged.unnamed:
                found[namespace_of(server)].update(self.own(server))
        for item in self._judged.catalog.tools.values():
            for namespace, names in item.names:
                found[namespace].update(names)
        return found

    @cached_property
    def _ids(self) -> Mapping[str, Collection[str]]:
        found: defaultdict[str, set[str]] = defaultdict(set)
        for item in self._judged.catalog.tools.values():
            found[item.namespace].add(item.id.partition(":")[2])
        return found

    @cached_property
    def _texts(self) -> Sequence[str]:
        texts = [f"{namespace}:{name}" for namespace, names in self._names.items() for name in names]
        return [*texts, *self._judged.catalog.tools]

    def may_fit_rule(self, match: str, *, ids: bool = False) -> bool:
        """Returns true if a tool fits, or one that is not known yet could; with *ids* also by what follows the
        namespace in an id. A pattern about every tool of an upstream also speaks of what that offers besides tools, so
        it fits if there is the upstream."""
        namespace_glob, name_glob = (compile_glob(pattern) for pattern in split_pattern(match))
        if self._anything or any(_fits(namespace_glob, namespace) for namespace in self._waiting):
            return True
        by_namespace = [self._names, self._ids] if ids else [self._names]
        return any(
            name_glob is None or any(map(name_glob, names))
            for known in by_namespace
            for namespace, names in known.items()
            if _fits(namespace_glob, namespace)
        )

    def may_fit_text(self, pattern: str) -> bool:
        """Does the same for a pattern over ``namespace:name`` or an id."""
        namespace, colon, _ = pattern.partition(":")
        if self._anything or (self._waiting and not colon):
            return True
        if any(fnmatchcase(each, namespace) for each in self._waiting):
            return True
        return any(fnmatchcase(text, pattern) for text in self._texts)


def _fits(glob: Callable[[str], bool] | None, text: str) -> bool:
    return glob is None or glob(text)


def _fits_one(pattern: str, names: Collection[str]) -> bool:
    return pattern in names or any(fnmatchcase(name, pattern) for name in names)


def _name_of(tool: object) -> object:
    return tool.get("name") if isinstance(tool, Mapping) else None
