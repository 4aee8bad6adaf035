"""Readers of runs whose events are in a store: those of other processes, and of those that have moved there."""

import asyncio
from collections.abc import Callable, Sequence

from wicketgate.engine.journal import Entry, Follower
from wicketgate.storage.run_store import RunStore, StoreAway

POLL_S = 0.1


class HereFirst:
    """Implements Follower for a run of this process. If that has *moved* to another process when it ends here, *attend*
    is called, and the rest is read from the store."""

    def __init__(
        self, here: Follower, elsewhere: "StoreFollower", moved: Callable[[], bool], attend: Callable[[], None]
    ) -> None:
        self._here: Follower | None = here
        self._elsewhere = elsewhere
        self._moved = moved
        self._attend = attend

    async def next(self) -> Sequence[Entry]:
        if self._here is not None:
            if entries := await self._here.next():
                self._elsewhere.after = entries[-1].position
                return entries
            if not self._moved():
                return ()
            self._here = None
            self._attend()
        return await self._elsewhere.next()


class StoreFollower:
    """Implements Follower for a run of another process, or of one that is gone. *lapsed* is called with the name, and
    the position read, of a run whose process seems to be gone."""

    def __init__(
        self, store: RunStore, name: str, after: int, patience_s: float, lapsed: Callable[[str, int], None]
    ) -> None:
        self._store = store
        self._name = name
        self.after = after
        self._patience_s = patience_s
        self._lapsed = lapsed

    async def next(self) -> Sequence[Entry]:
        away_since: float | None = None
        now = asyncio.get_running_loop().time
        while True:
            try:
                found = await self._store.read(self._name, self.after)
            except StoreAway:
                away_since = now() if away_since is None else away_since
                if now() - away_since > self._patience_s:
                    return ()
            else:
                away_since = None
                if found is None:
                    return ()
                run, entries = found
                if entries and entries[0].position != self.after + 1:
                    return ()  # what this reader had still to read was dropped
                if entries:
                    self.after = entries[-1].position
                    return entries
                if run.ended:
                    return ()
                if run.lapsed:
                    self._lapsed(self._name, 0)
            await asyncio.sleep(POLL_S)
