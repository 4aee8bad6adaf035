"""The last that is known of one server: when its sessions began and ended, and what it wrote to its stderr (OPS-241).

It outlives the connections and the members of a server, so that a crash can be read after the restart.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

MOST_EVENTS = 50
MOST_LINES = 50
_MOST_SERVERS = 2_000

ServerEventKind = Literal["ready", "down", "asleep", "reconnect", "disabled", "enabled"]


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """*at* is in seconds since the epoch. *why* is empty or a phrase of this program, for the operator."""

    at: float
    kind: ServerEventKind
    why: str = ""


@dataclass(slots=True)
class ServerLog:
    """*now* gives seconds since the epoch. *lines* are as the server wrote them, each cut to a bounded length and not
    masked. *wrote* is the number of all lines."""

    now: Callable[[], float]
    events: deque[ServerEvent] = field(default_factory=lambda: deque(maxlen=MOST_EVENTS))
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=MOST_LINES))
    wrote: int = 0

    def note(self, kind: ServerEventKind, why: str = "") -> None:
        self.events.append(ServerEvent(self.now(), kind, why))

    def line(self, text: str) -> None:
        self.wrote += 1
        self.lines.append(text)


class ServerLogs:
    """The logs of all servers by name; those of the names that were used last are kept."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._by_name: OrderedDict[str, ServerLog] = OrderedDict()

    def of(self, name: str) -> ServerLog:
        log = self._by_name.get(name)
        if log is None:
            log = self._by_name[name] = ServerLog(self._now)
            if len(self._by_name) > _MOST_SERVERS:
                self._by_name.popitem(last=False)
        else:
            self._by_name.move_to_end(name)
        return log
