"""Learning which tool was meant: browses are remembered until a tool that they showed is run, which is a lesson
(BROWSE-42 to BROWSE-51).

Lessons are kept in the background, after the answer of the call. Ranking reads what is in memory, and waits for no
store.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from wicketgate.catalog.learned_words import (
    MAX_ACTOR_TOOLS,
    ActorWords,
    Learned,
    Lesson,
    OwnAndShared,
    SharedWords,
    words_to_learn,
)
from wicketgate.ports import CallContext, LearnedRows, LearnedStore, owner_of

log = logging.getLogger("wicketgate.learning")

LearnScope = Literal["off", "actor", "all"]
"""``actor``: each actor's own runs count. ``all``: also what several actors have in common."""

_BROWSES = 4
_MAX_AGE_S = 3_600.0
_MAX_SESSIONS = 2_000
_MAX_SESSIONS_OF_ACTOR = 100
_MAX_WAITING = 1_000
_LOOK_AGAIN_S = 10.0
_TRY_AGAIN_S = 1.0
_ROWS_A_TURN = 100
_MOST_NEW = MAX_ACTOR_TOOLS // 10
"""New rows, or a tenth of all if that is more, after which the store is read whole again."""


@dataclass(slots=True)
class _Browse:
    """The words of a browse, and the tools that it showed, best first; empty in place of one that was run since."""

    words: tuple[str, ...]
    ids: list[str]
    at: float


class Browses:
    """The latest browses by words of each session, bounded for each actor and in all. *now* gives seconds."""

    def __init__(
        self,
        now: Callable[[], float],
        *,
        max_sessions: int = _MAX_SESSIONS,
        max_per_actor: int = _MAX_SESSIONS_OF_ACTOR,
    ) -> None:
        self._now = now
        self._max_sessions = max_sessions
        self._max_per_actor = max_per_actor
        self._sessions: OrderedDict[str, list[_Browse]] = OrderedDict()
        self._by_actor: dict[str, OrderedDict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def note(self, session: str, query: str, ids: Sequence[str]) -> None:
        """A browse has shown *ids*, best first."""
        words = words_to_learn(query)
        if not ids or not words:
            return
        browses = self._sessions.pop(session, [])
        browses.append(_Browse(words, list(ids), self._now()))
        del browses[:-_BROWSES]
        self._sessions[session] = browses
        # The actor that browsed last comes last too.
        own = self._by_actor.pop(owner_of(session), OrderedDict())
        self._by_actor[owner_of(session)] = own
        own.pop(session, None)
        own[session] = None
        if len(own) > self._max_per_actor:
            self._forget(next(iter(own)))
        if len(self._sessions) > self._max_sessions:
            # Of the actor with most sessions, so that nobody's are pushed out by another's; of equals, of the one that
            # browsed longest ago.
            most = max(self._by_actor, key=lambda actor: len(self._by_actor[actor]))
            self._forget(next(iter(self._by_actor[most])))

    def taught_by(self, session: str, tool_id: str) -> tuple[tuple[str, ...], bool] | None:
        """The words of the latest browse that showed the tool, and whether it stood first. A browse says it once."""
        for browse in reversed(self._sessions.get(session, ())):
            if self._now() - browse.at > _MAX_AGE_S:
                break
            if tool_id in browse.ids:
                place = browse.ids.index(tool_id)
                browse.ids[place] = ""
                return browse.words, place == 0
        return None

    def clear(self) -> None:
        self._sessions.clear()
        self._by_actor.clear()

    def _forget(self, session: str) -> None:
        del self._sessions[session]
        own = self._by_actor[owner_of(session)]
        del own[session]
        if not own:
            del self._by_actor[owner_of(session)]


class Learning:
    """Makes lessons of browses and runs, keeps them in *store*, and gives ranking what was learned.

    Of lessons that wait for the store, at most 1,000 are kept. With *patient* they also wait while it is out of order,
    and are given to it again every second; without, they are dropped.
    """

    def __init__(self, store: LearnedStore, scope: LearnScope = "off", *, patient: bool = True) -> None:
        self._store = store
        self._patient = patient
        self._scope: LearnScope = scope
        self._browses = Browses(store.now)
        self._waiting: list[Lesson] = []
        self._keeping: asyncio.Task[None] | None = None
        self._version = 0
        self._read_whole = 0
        self._read_new = 0
        self._looked_at = float("-inf")
        self._actors: dict[str, ActorWords] = {}
        self._shared: SharedWords | None = None
        self._failed = False
        self._closed = False
        self._again: asyncio.TimerHandle | None = None
        self.lessons = 0
        """The runs that taught something."""
        self.dropped = 0
        """The lessons that no store has: too many waited, or it was out of order until the end."""

    def use(self, scope: LearnScope) -> None:
        """Learn so from now on. With ``off``, what was learned stays in the store and ranks nothing."""
        self._scope = scope
        self._looked_at = float("-inf")
        if scope == "off":
            self._browses.clear()
        if scope != "all":
            self._shared = None

    def words(self, context: CallContext) -> Learned | None:
        """The words that rank for this caller beside the definitions; None if there is nothing."""
        if self._scope == "off":
            return None
        self._look_again()
        at = self._store.now()
        own = self._actors.get(context.identity.actor)
        if self._shared is None:
            return None if own is None else own.on(at)
        shared = self._shared.on(at)
        return shared if own is None else OwnAndShared(own.on(at), shared)

    def browsed(self, context: CallContext, query: str, ids: Sequence[str]) -> None:
        """A browse of this caller has shown *ids*, best first."""
        if self._scope != "off":
            self._browses.note(context.session, query, ids)

    def ran(self, context: CallContext, tool_id: str) -> None:
        """A tool was run with success. Does not wait for the store."""
        taught = self._browses.taught_by(context.session, tool_id)
        if taught is None:
            return
        words, first = taught
        self.lessons += 1
        if len(self._waiting) < _MAX_WAITING:
            self._waiting.append(Lesson(context.identity.actor, tool_id, words, first))
        else:
            self.dropped += 1
        if self._again is None:
            self._keep()

    async def load(self) -> None:
        """Read what was learned before, if that may be something."""
        if self._scope != "off" and self._store.shared:
            self._keep()
            await self.settle()

    async def settle(self) -> None:
        """Wait until the store has what was taught so far, or could not take it."""
        while self._keeping is not None and not self._keeping.done():
            await asyncio.wait([self._keeping])

    async def aclose(self) -> None:
        """Keep what waits, and learn nothing from then on. The store stays open."""
        await self.settle()
        if self._waiting:
            self._keep()
            await self.settle()
        self._closed = True
        if self._again is not None:
            self._again.cancel()
        if self._waiting:
            log.error("learned words of %d executions were dropped", len(self._waiting))
            self.dropped += len(self._waiting)
            self._waiting = []

    def _look_again(self) -> None:
        # Other processes learn too, and the command line forgets.
        due = self._store.shared and abs(self._store.now() - self._looked_at) > _LOOK_AGAIN_S
        if due or (self._scope == "all" and self._shared is None):
            self._keep()

    def _keep(self) -> None:
        if self._closed:
            return
        if self._again is not None:
            self._again.cancel()
            self._again = None
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # a browse outside of any loop
        if self._keeping is None or self._keeping.done() or self._keeping.get_loop() is not loop:
            self._keeping = loop.create_task(self._keep_waiting(), name="learned words")

    async def _keep_waiting(self) -> None:
        while await self._exchange():
            if not self._waiting:
                return
        if self._waiting and not self._closed:
            self._again = asyncio.get_running_loop().call_later(_TRY_AGAIN_S, self._keep)

    async def _exchange(self) -> bool:
        """Give the store what waits, and take what changed there. Returns false if it is out of order."""
        lessons, self._waiting = self._waiting, []
        self._looked_at = self._store.now()
        try:
            # Without the words that all share, everything is read again.
            since = 0 if self._scope == "all" and self._shared is None else self._version
            changed = await self._store.learn(lessons, since)
            if changed is not None:
                await self._take(changed)
        except Exception:
            if not self._failed:
                log.exception("the store of learned words failed; nothing is learned")
            self._failed = True
            self.dropped += len(lessons)
            return False
        self._failed = False
        left = lessons if changed is None else changed.left
        if left:
            kept = [*left, *self._waiting] if self._patient else []
            self.dropped += len(left) + len(self._waiting) - len(kept[:_MAX_WAITING])
            self._waiting = kept[:_MAX_WAITING]
        return changed is not None and not left

    async def _take(self, changed: LearnedRows) -> None:
        if changed.whole:
            actors: dict[str, ActorWords] = {}
            shared = SharedWords(actors) if self._scope == "all" else None
            self._read_whole, self._read_new = len(changed.rows), 0
        else:
            actors, shared = self._actors, self._shared
        for number, (actor, tool_id, words) in enumerate(changed.rows, 1):
            own = actors.get(actor)
            if own is None:
                own = actors[actor] = ActorWords()
            former = own.get(tool_id)
            self._read_new += not changed.whole and not former.runs
            own.put(tool_id, words)
            if shared is not None:
                shared.note(actor, tool_id, former, words)
            if number % _ROWS_A_TURN == 0:  # there may be thousands
                await asyncio.sleep(0)
        # The store does not report what it evicts.
        is_stale = self._read_new > max(_MOST_NEW, self._read_whole // 10)
        self._version, self._actors = 0 if is_stale else changed.version, actors
        self._shared = shared if self._scope == "all" else None
