"""Learned words in memory: gone with the process (BROWSE-48)."""

import time
from collections.abc import Callable, Sequence

from wicketgate.catalog.learned_words import MAX_ACTOR_TOOLS, MAX_SIZE, Held, Lesson, ToolWords, giving_way
from wicketgate.ports import LearnedRows

Key = tuple[str, str]


class MemoryLearnedStore:
    """Implements LearnedStore for one process. *now* gives seconds on a clock that never goes back."""

    shared = False

    def __init__(
        self,
        now: Callable[[], float] = time.monotonic,
        *,
        max_size: int = MAX_SIZE,
        max_actor_tools: int = MAX_ACTOR_TOOLS,
    ) -> None:
        self.now = now
        self._max_size = max_size
        self._max_actor_tools = max_actor_tools
        self._rows: dict[Key, ToolWords] = {}
        self._changed: dict[Key, int] = {}  # in the order of the changes
        self._tools: dict[str, int] = {}
        self._size = 0
        self._version = 0
        self._dropped = 0

    async def learn(self, lessons: Sequence[Lesson], since: int) -> LearnedRows | None:
        at = self.now()
        for lesson in lessons:
            self._version += 1
            key = lesson.actor, lesson.tool_id
            former = self._rows.get(key)
            self._put(key, (former or ToolWords()).taught(lesson.words, at, first=lesson.first))
        if self._size > self._max_size or any(self._tools[lesson.actor] > self._max_actor_tools for lesson in lessons):
            held = (Held(*key, words.size, words.at) for key, words in self._rows.items())
            self._drop([(each.actor, each.tool_id) for each in giving_way(held, self._max_size, self._max_actor_tools)])
        return self._since(since)

    async def reset(self, actor: str | None = None, tool_id: str | None = None) -> int:
        going = [key for key in self._rows if actor in (None, key[0]) and tool_id in (None, key[1])]
        self._drop(going)
        return len(going)

    async def aclose(self) -> None:
        """Does nothing: there is nothing to close."""

    def _put(self, key: Key, words: ToolWords) -> None:
        former = self._rows.get(key)
        if former is None:
            self._tools[key[0]] = self._tools.get(key[0], 0) + 1
        self._size += words.size - (former.size if former else 0)
        self._rows[key] = words
        self._changed.pop(key, None)
        self._changed[key] = self._version

    def _drop(self, keys: Sequence[Key]) -> None:
        for key in keys:
            self._size -= self._rows.pop(key).size
            del self._changed[key]
            self._tools[key[0]] -= 1
            if not self._tools[key[0]]:
                del self._tools[key[0]]
        if keys:
            self._version += 1
            self._dropped = self._version

    def _since(self, since: int) -> LearnedRows:
        if since < self._dropped:
            return LearnedRows(self._version, [(*key, words) for key, words in self._rows.items()], whole=True)
        rows = []
        for key in reversed(self._changed):
            if self._changed[key] <= since:
                break
            rows.append((*key, self._rows[key]))
        return LearnedRows(self._version, rows[::-1])
