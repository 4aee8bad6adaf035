"""Reports on each upstream as it connects, for people who wait for it: commands and the console (OPS-95).

The status of an upstream is read, since it sends no event. Nothing is read before someone listens.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from wicketgate.catalog.catalog import Catalog
from wicketgate.fleet.member import Member, loop_time
from wicketgate.ports import UpstreamPhase

log = logging.getLogger("wicketgate.upstream")

_LOOK_S = 0.02
_LOOK_SELDOM_S = 0.25


@dataclass(frozen=True, slots=True)
class UpstreamReport:
    """The state of one upstream. *error*: why it is down, or why its tools could not be had though it is ready; for the
    operator, since it may name addresses and settings.
    *seconds*: from the start of the first attempt to the first ready or failed state."""

    name: str
    phase: UpstreamPhase
    error: str
    tools: int
    seconds: float


Listener = Callable[[UpstreamReport], None]


@dataclass(slots=True)
class _Watched:
    member: Member
    began: float
    phase: UpstreamPhase = "connecting"
    seconds: float | None = None


@dataclass(eq=False, repr=False)
class UpstreamReports:
    """*refreshed* says whether an upstream has given its tools, or failed to; *troubles* why it failed."""

    _members: Callable[[], Mapping[str, Member]]
    _catalog: Callable[[], Catalog]
    _troubles: Callable[[], Mapping[str, str]]
    _refreshed: Callable[[str], bool]

    def __post_init__(self) -> None:
        self._listeners: list[Listener] = []
        self._listening = asyncio.Event()
        self._watched: dict[str, _Watched] = {}

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)
        self._listening.set()

    def began(self, member: Member) -> None:
        """The first attempt to connect *member* begins now."""
        self._watched[member.name] = _Watched(member, loop_time())

    async def watch(self) -> None:
        """Call the listeners until cancelled."""
        await self._listening.wait()
        while True:
            self.look()
            waiting = any(watched.seconds is None for watched in self._watched.values())
            await asyncio.sleep(_LOOK_S if waiting else _LOOK_SELDOM_S)

    def look(self) -> None:
        """Call the listeners for what has changed since the last look."""
        if not self._listeners:
            return
        members = self._members()
        counts: Counter[str] | None = None
        for name, watched in list(self._watched.items()):
            if members.get(name) is not watched.member:
                del self._watched[name]  # taken out, or replaced by one that has not begun yet
                continue
            status = watched.member.upstream.status
            # It is ready when its tools are there too: the number of them belongs to the report.
            phase = "connecting" if status.phase == "ready" and not self._refreshed(name) else status.phase
            if phase == watched.phase or (phase == "connecting" and watched.seconds is None):
                continue
            watched.phase = phase
            if watched.seconds is None:
                watched.seconds = loop_time() - watched.began
            counts = counts or Counter(item.server for item in self._catalog().tools.values())
            error = status.report if phase in ("down", "waiting") else self._troubles().get(name, "")
            self._report(UpstreamReport(name, phase, error, counts[name], watched.seconds))

    def _report(self, report: UpstreamReport) -> None:
        for listener in self._listeners:
            try:
                listener(report)
            except Exception:
                log.exception("a listener for upstreams failed at %s", report.name)
