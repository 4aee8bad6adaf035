"""The sessions that are in use here by id and by actor, and how many each actor holds (FACE-39).

A session is opened for each client that comes, so neither its actor's nor all are gone through to count them.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from app.mcp_live_session import LiveSession


class SessionTable:
    """*counts* are the sessions of each actor, those included that are being opened; *total* is their sum."""

    def __init__(self) -> None:
        self._by_id: dict[str, LiveSession] = {}
        # With the actor that each is filed under.
        self._actors: dict[str, str] = {}
        self._by_actor: dict[str, dict[str, LiveSession]] = {}
        self._counts: Counter[str] = Counter()
        self.total = 0

    @property
    def counts(self) -> Mapping[str, int]:
        return self._counts

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._by_id

    def __iter__(self) -> Iterator[LiveSession]:
        """Yields those there are at this moment; they may come and go meanwhile."""
        return iter(list(self._by_id.values()))

    def get(self, session_id: str) -> LiveSession | None:
        return self._by_id.get(session_id)

    def of(self, actor: str) -> list[LiveSession]:
        return list(self._by_actor.get(actor, {}).values())

    def most(self) -> tuple[str, int]:
        """Returns an actor that holds most, and how many. There has to be one."""
        actor = max(self._counts, key=self._counts.__getitem__)
        return actor, self._counts[actor]

    def put(self, live: LiveSession) -> None:
        """Adds *live*, or files it anew; it takes the place of another with its id."""
        known = self._by_id.get(live.id)
        if known is not None:
            if known is live and self._actors[live.id] == live.kept.actor:
                return
            self.remove(known)
        actor = live.kept.actor
        self._by_id[live.id] = live
        self._actors[live.id] = actor
        self._by_actor.setdefault(actor, {})[live.id] = live
        self.take_place(actor)

    def remove(self, live: LiveSession) -> None:
        """Does nothing for one that is not there, or not any more."""
        if self._by_id.get(live.id) is not live:
            return
        del self._by_id[live.id]
        actor = self._actors.pop(live.id)
        del self._by_actor[actor][live.id]
        if not self._by_actor[actor]:
            del self._by_actor[actor]
        self.give_place_back(actor)

    def take_place(self, actor: str) -> None:
        """Counts a session of *actor* that is being opened."""
        self._counts[actor] += 1
        self.total += 1

    def give_place_back(self, actor: str) -> None:
        self._counts[actor] -= 1
        self.total -= 1
        if not self._counts[actor]:
            del self._counts[actor]
