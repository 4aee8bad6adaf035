"""Limits on the executions of an actor, in all and by tool, within any sixty seconds (gateway 131)."""

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase

from wicketgate.errors import RateLimited

WINDOW_S = 60.0
_MAX_COUNTED = 10_000
"""Pairs of actor and limit that are counted at once; the one longest unused is forgotten first."""


class Quota:
    """*per_actor*: executions of one actor; *per_tool*: of one actor and the tools whose id fits a pattern, the first
    that does. The window slides: each execution counts for a minute of its own."""

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

    def take(self, actor: str, tool_id: str) -> None:
        """Count one execution. Raises RateLimited, and then nothing is counted."""
        now = self._now()
        for window in self._free(actor, tool_id, now):
            window.append(now)

    def check(self, actor: str, tool_id: str) -> None:
        """Raises RateLimited if ``take`` would, and counts nothing."""
        self._free(actor, tool_id, self._now())

    def _free(self, actor: str, tool_id: str, now: float) -> list[deque[float]]:
        """The windows that one execution counts in. Raises RateLimited when one of them is full."""
        limits = [("actor", "", self._per_actor)] if self._per_actor is not None else []
        pattern = next((pattern for pattern in self._per_tool if fnmatchcase(tool_id, pattern)), None)
        if pattern is not None:
            limits.append(("tool", pattern, self._per_tool[pattern]))
        windows = []
        for scope, pattern, most in limits:
            window = self._window(actor, pattern, now)
            if most is not None and len(window) >= most:
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
