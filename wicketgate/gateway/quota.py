"""The limits of executions: which of them hold for a call, and the refusal where one is used up (ACCESS-16)."""

from collections.abc import Awaitable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from math import ceil

from wicketgate.access.identity import Identity
from wicketgate.call_state import QuotaStore, Window
from wicketgate.catalog.tool_id import ToolNames
from wicketgate.errors import RateLimited

_MAX_KEPT_TOOLS = 10_000


def quota_pattern(patterns: Sequence[str], tool_id: str, names: ToolNames) -> str | None:
    """Returns the first of *patterns* that fits the tool, by its id or as ``namespace:name`` under any of its names
    (ACCESS-49); None if none does."""
    texts = [tool_id, *(f"{namespace}:{name}" for namespace, own in names for name in own)]
    return next((pattern for pattern in patterns if any(fnmatchcase(text, pattern) for text in texts)), None)


class _Limits:
    """The limits of the whole gate, or through a virtual one, whose windows have names with *prefix*."""

    def __init__(self, per_actor: int | None, per_tool: Mapping[str, int], prefix: str = "") -> None:
        self.of_actor = [] if per_actor is None else [Window(prefix, per_actor)]
        self._per_tool = dict(per_tool)
        self._prefix = prefix
        self._pattern = lru_cache(maxsize=_MAX_KEPT_TOOLS)(partial(quota_pattern, tuple(per_tool)))

    def windows(self, tool_id: str, names: ToolNames) -> list[Window]:
        pattern = self._pattern(tool_id, names) if self._per_tool else None
        if pattern is None:
            return self.of_actor
        return [*self.of_actor, Window(f"{self._prefix}{pattern}", self._per_tool[pattern])]


class Quota:
    """*per_actor*: executions of one actor; *per_tool*: of one actor and the tools that a pattern fits, the first that
    does; *gates*: both through each virtual gate, besides. They are counted in *store*."""

    def __init__(
        self,
        store: QuotaStore,
        *,
        per_actor: int | None = None,
        per_tool: Mapping[str, int] | None = None,
        gates: Mapping[str, tuple[int | None, Mapping[str, int]]] | None = None,
    ) -> None:
        self._store = store
        self.limit(per_actor, per_tool or {}, gates or {})

    def limit(
        self,
        per_actor: int | None,
        per_tool: Mapping[str, int],
        gates: Mapping[str, tuple[int | None, Mapping[str, int]]],
    ) -> None:
        """Other limits from now on; what was counted under a limit that stays still counts."""
        whole = _Limits(per_actor, per_tool)
        own = {gate: _Limits(*limits, prefix=f"gates/{gate} ") for gate, limits in gates.items()}
        self._limits = {"": [whole], **{gate: [whole, each] for gate, each in own.items()}}
        self._of_actor = {window for limits in self._limits.values() for each in limits for window in each.of_actor}

    def take(self, identity: Identity, tool_id: str, names: ToolNames = ()) -> Awaitable[None]:
        """Count one execution. Raises RateLimited, and then nothing is counted, and NotAdmitted where it cannot be."""
        return self._within(identity.actor, tool_id, self._windows(identity, tool_id, names))

    async def take_other(self, identity: Identity, asked: str) -> None:
        """As ``take``, for an execution of no tool, such as the read of a resource: *per_tool* says nothing of it."""
        await self._within(identity.actor, asked, [window for each in self._of(identity) for window in each.of_actor])

    async def check(self, identity: Identity, tool_id: str, names: ToolNames = ()) -> None:
        """Raises as ``take`` would, and counts nothing."""
        await self._within(identity.actor, tool_id, self._windows(identity, tool_id, names), count=False)

    def _windows(self, identity: Identity, tool_id: str, names: ToolNames) -> list[Window]:
        return [window for each in self._of(identity) for window in each.windows(tool_id, names)]

    def _of(self, identity: Identity) -> Sequence[_Limits]:
        return self._limits.get(identity.gate, self._limits[""])

    async def _within(self, actor: str, asked: str, windows: Sequence[Window], *, count: bool = True) -> None:
        if not windows:
            return
        full = await self._store.take(actor, windows, count=count)
        if full is not None:
            raise RateLimited(
                f"At most {full.window.most} executions a minute are allowed here.",
                path=asked,
                details={
                    "scope": "actor" if full.window in self._of_actor else "tool",
                    "limit": full.window.most,
                    "retry_after_s": ceil(full.retry_after_s * 10) / 10,
                },
            )
