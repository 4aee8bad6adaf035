"""The memory of earlier calls: counts for quotas, and results given again while they are fresh (EXEC-16, ACCESS-16).

Of results, only answers of tools that the operator named and that are declared read-only are kept, never errors, and
only as long as the catalog is the same. The upstream's own result is kept, not the envelope: its artifacts are stored
anew for each caller. A result belongs to the actor who got it, unless the operator shares the results of an upstream.
Permissions are no part of the key, because they are checked at each call before a kept result is looked for, and no
upstream sees them.
"""

import hashlib
import json
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from typing import Any

from wicketgate.catalog.catalog import Catalog
from wicketgate.catalog.selectable import SelectableItem
from wicketgate.catalog.tool_id import ToolNames
from wicketgate.errors import RateLimited
from wicketgate.ports import CallContext

_MAX_EXACT = 2**53


def arguments_digest(arguments: Mapping[str, Any]) -> str:
    """SHA-256, in hex, of the canonical JSON."""
    return hashlib.sha256(canonical_json(arguments)).hexdigest()


def canonical_json(arguments: Mapping[str, Any]) -> bytes:
    """Keys sorted, no blanks, ASCII."""
    return json.dumps(arguments, sort_keys=True, separators=(",", ":")).encode("ascii")


def approval_digest(arguments: Mapping[str, Any]) -> str:
    """As ``arguments_digest``, but 1.0 is 1: a client that keeps a conversation in JavaScript sends it back as such."""
    return arguments_digest({key: _plain(value) for key, value in arguments.items()})


def _plain(value: Any) -> Any:
    match value:
        case float() if value.is_integer() and abs(value) <= _MAX_EXACT:
            return int(value)
        case dict():
            return {key: _plain(each) for key, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case _:
            return value


Key = tuple[str | None, str, str, str, str, str, str, str]


class ResultCache:
    """*max_results* bounds the number. The caller decides which results are too bulky to be kept."""

    def __init__(self, now: Callable[[], float], *, max_results: int = 1_000) -> None:
        self._now = now
        self._max_results = max_results
        self._results: OrderedDict[Key, tuple[float, Mapping[str, Any]]] = OrderedDict()

    def key(
        self,
        catalog: Catalog,
        item: SelectableItem,
        arguments: Mapping[str, Any],
        context: CallContext,
        *,
        shared: bool = False,
    ) -> Key | None:
        """None for a call whose result is never kept: the tool is not declared read-only, or the call carries the
        answers of a person. *shared*: one actor's result serves all actors."""
        if item.side_effects or context.answers is not None:
            return None
        return (
            None if shared else context.identity.actor,
            # A server may answer a client that it cannot ask, or that shows no pages, in its own way.
            context.caller.answers,
            arguments_digest(context.caller.capabilities) if context.caller.capabilities else "",
            catalog.version,
            item.id,
            # A plugin may send a call elsewhere, each caller's to another place.
            item.server,
            item.upstream_name,
            arguments_digest(arguments),
        )

    def clear(self) -> None:
        """Called at each refresh: tools that announce a change may also answer differently."""
        self._results.clear()

    def get(self, key: Key) -> Mapping[str, Any] | None:
        kept = self._results.get(key)
        if kept is None:
            return None
        fresh_until, result = kept
        if self._now() >= fresh_until:
            del self._results[key]
            return None
        return result

    def put(self, key: Key, result: Mapping[str, Any], ttl_s: float) -> None:
        if result.get("isError"):
            return
        self._results[key] = (self._now() + ttl_s, result)
        self._results.move_to_end(key)
        while len(self._results) > self._max_results:
            self._results.popitem(last=False)


WINDOW_S = 60.0
_MAX_KEPT_TOOLS = 10_000
_MAX_COUNTED = 10_000
"""Pairs of actor and limit that are counted at once; the one longest unused is forgotten first."""


def quota_pattern(patterns: Sequence[str], tool_id: str, names: ToolNames) -> str | None:
    """Returns the first of *patterns* that fits the tool, by its id or as ``namespace:name`` under any of its names
    (ACCESS-49); None if none does."""
    texts = [tool_id, *(f"{namespace}:{name}" for namespace, own in names for name in own)]
    return next((pattern for pattern in patterns if any(fnmatchcase(text, pattern) for text in texts)), None)


class Quota:
    """*per_actor*: executions of one actor; *per_tool*: of one actor and the tools that a pattern fits, the first that
    does. The window slides: each execution counts for a minute of its own."""

    def __init__(
        self, now: Callable[[], float], *, per_actor: int | None = None, per_tool: Mapping[str, int] | None = None
    ) -> None:
        self._now = now
        self._taken: OrderedDict[tuple[str, str], deque[float]] = OrderedDict()
        self.limit(per_actor, per_tool or {})

    def limit(self, per_actor: int | None, per_tool: Mapping[str, int]) -> None:
        """Other limits from now on; what was counted under a limit that stays still counts."""
        self._per_actor = per_actor
        self._per_tool = dict(per_tool)
        self._pattern = lru_cache(maxsize=_MAX_KEPT_TOOLS)(partial(quota_pattern, tuple(per_tool)))

    def take(self, actor: str, tool_id: str, names: ToolNames = ()) -> None:
        """Count one execution. Raises RateLimited, and then nothing is counted."""
        now = self._now()
        for window in self._free(actor, tool_id, names, now):
            window.append(now)

    def take_other(self, actor: str, asked: str) -> None:
        """As ``take``, for an execution of no tool, such as the read of a resource: *per_tool* says nothing of it."""
        now = self._now()
        limits = [("actor", "", self._per_actor)] if self._per_actor is not None else []
        for window in self._within(actor, asked, now, limits):
            window.append(now)

    def check(self, actor: str, tool_id: str, names: ToolNames = ()) -> None:
        """Raises RateLimited if ``take`` would, and counts nothing."""
        self._free(actor, tool_id, names, self._now())

    def _free(self, actor: str, tool_id: str, names: ToolNames, now: float) -> list[deque[float]]:
        """The windows that one execution counts in. Raises RateLimited when one of them is full."""
        limits = [("actor", "", self._per_actor)] if self._per_actor is not None else []
        pattern = self._pattern(tool_id, names) if self._per_tool else None
        if pattern is not None:
            limits.append(("tool", pattern, self._per_tool[pattern]))
        return self._within(actor, tool_id, now, limits)

    def _within(self, actor: str, tool_id: str, now: float, limits: list[tuple[str, str, int]]) -> list[deque[float]]:
        """As ``_free``, for these *limits*."""
        windows = []
        for scope, pattern, most in limits:
            window = self._window(actor, pattern, now)
            if len(window) >= most:
                retry_after_s = round(window[0] + WINDOW_S - now, 1) if window else WINDOW_S
                raise RateLimited(
                    f"At most {most} executions a minute are allowed here.",
                    path=tool_id,
                    details={"scope": scope, "limit": most, "retry_after_s": retry_after_s},
                )
            windows.append(window)
        return windows

    def _window(self, actor: str, pattern: str, now: float) -> deque[float]:
        window = self._taken.setdefault((actor, pattern), deque())
        self._taken.move_to_end((actor, pattern))
        while window and window[0] <= now - WINDOW_S:
            window.popleft()
        if len(self._taken) > _MAX_COUNTED:
            self._taken.popitem(last=False)
        return window
