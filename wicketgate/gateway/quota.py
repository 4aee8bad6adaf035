"""The limits of executions: which of them hold for a call, and the refusal where one is used up (ACCESS-16)."""

from collections.abc import Awaitable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from math import ceil

from wicketgate.call_state import QuotaStore, Window
from wicketgate.catalog.tool_id import ToolNames
from wicketgate.errors import RateLimited

_MAX_KEPT_TOOLS = 10_000


def quota_pattern(patterns: Sequence[str], tool_id: str, names: ToolNames) -> str | None:
    """Returns the first of *patterns* that fits the tool, by its id or as ``namespace:name`` under any of its names
    (ACCESS-49); None if none does."""
    texts = [tool_id, *(f"{namespace}:{name}" for namespace, own in names for name in own)]
    return next((pattern for pattern in patterns if any(fnmatchcase(text, pattern) for text in texts)), None)


class Quota:
    """*per_actor*: executions of one actor; *per_tool*: of one actor and the tools that a pattern fits, the first that
    does. They are counted in *store*."""

    def __init__(
        self, store: QuotaStore, *, per_actor: int | None = None, per_tool: Mapping[str, int] | None = None
    ) -> None:
        self._store = store
        self.limit(per_actor, per_tool or {})

    def limit(self, per_actor: int | None, per_tool: Mapping[str, int]) -> None:
        """Other limits from now on; what was counted under a limit that stays still counts."""
        self._of_actor = [] if per_actor is None else [Window("", per_actor)]
        self._per_tool = dict(per_tool)
        self._pattern = lru_cache(maxsize=_MAX_KEPT_TOOLS)(partial(quota_pattern, tuple(per_tool)))

    def take(self, actor: str, tool_id: str, names: ToolNames = ()) -> Awaitable[None]:
        """Count one execution. Raises RateLimited, and then nothing is counted, and NotAdmitted where it cannot be."""
        return self._within(actor, tool_id, self._windows(tool_id, names))

    async def take_other(self, actor: str, asked: str) -> None:
        """As ``take``, for an execution of no tool, such as the read of a resource: *per_tool* says nothing of it."""
        await self._within(actor, asked, self._of_actor)

    async def check(self, actor: str, tool_id: str, names: ToolNames = ()) -> None:
        """Raises as ``take`` would, and counts nothing."""
        await self._within(actor, tool_id, self._windows(tool_id, names), count=False)

    def _windows(self, tool_id: str, names: ToolNames) -> list[Window]:
        pattern = self._pattern(tool_id, names) if self._per_tool else None
        return self._of_actor if pattern is None else [*self._of_actor, Window(pattern, self._per_tool[pattern])]

    async def _within(self, actor: str, asked: str, windows: Sequence[Window], *, count: bool = True) -> None:
        if not windows:
            return
        full = await self._store.take(actor, windows, count=count)
        if full is not None:
            raise RateLimited(
                f"At most {full.window.most} executions a minute are allowed here.",
                path=asked,
                details={
                    "scope": "tool" if full.window.name else "actor",
                    "limit": full.window.most,
                    "retry_after_s": ceil(full.retry_after_s * 10) / 10,
                },
            )
