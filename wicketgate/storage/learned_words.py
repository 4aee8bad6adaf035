"""Learned words as rows of a ``Store``: one for each tool of each actor, and a log of their changes."""

import asyncio
import logging
import secrets
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TypeGuard

from wicketgate.catalog.learned_words import (
    HALF_LIFE_S,
    MAX_ACTOR_TOOLS,
    MAX_SIZE,
    MAX_TOOL_WORDS,
    Lesson,
    ToolWords,
)
from wicketgate.errors import ConfigError
from wicketgate.ports import LearnedRows
from wicketgate.storage.core import sound
from wicketgate.storage.encoding import hashed, packed, unpacked
from wicketgate.storage.measures import StorageMeasures, without_level
from wicketgate.storage.store import Append, Conflict, Drop, Kind, Op, Put, Row, Store, StoreUnavailable, end_of_log

log = logging.getLogger("wicketgate.learning")

_CHANGES = Kind("learned_changes")
_ALL = "all"
"""The only row of that kind."""
_RESET = "reset"
_CHANGES_KEPT = 2_000
_LIFE_S = 6 * HALF_LIFE_S
_TRIES = 20
_AT_ONCE = 32

WordsRow = tuple[str, str, ToolWords]


class StoredLearnedWords:
    """Implements LearnedStore. *now* is the time of day in seconds, *shared* whether other processes use *store*.

    Rows that nothing was added to for 180 days expire. The owner of *store* closes it.
    """

    def __init__(
        self,
        store: Store,
        *,
        shared: bool,
        now: Callable[[], float] = time.time,
        measures: StorageMeasures | None = None,
        max_size: int = MAX_SIZE,
        max_actor_tools: int = MAX_ACTOR_TOOLS,
    ) -> None:
        self.now = now
        self.shared = shared
        self._store = store
        self._fail = (measures or StorageMeasures()).fail
        self._kind = Kind("learned", most_bytes=max_size, owner_rows=max_actor_tools, gives="row", listed=True)
        # Position and text of the change that was read last. Texts are unique, so that a store that lost changes and
        # has as many new ones is noticed.
        self._seen = 0, b""
        self._turn = asyncio.Lock()

    async def learn(self, lessons: Sequence[Lesson], since: int) -> LearnedRows | None:
        by_tool: defaultdict[tuple[str, str], list[Lesson]] = defaultdict(list)
        for lesson in lessons:
            by_tool[lesson.actor, lesson.tool_id].append(lesson)
        tools, left = list(by_tool.values()), list[Lesson]()
        try:
            async with self._turn:
                for start in range(0, len(tools), _AT_ONCE):
                    these = tools[start : start + _AT_ONCE]
                    # After one failure the rest is not tried.
                    taught = [False] * len(these) if left else await asyncio.gather(*map(self._teach, these))
                    for of_tool, done in zip(these, taught, strict=True):
                        left += () if done else of_tool
                rows, whole = await self._changed(since)
                found = LearnedRows(self._seen[0], await self._sound(rows), whole, left)
        except StoreUnavailable as error:
            self._log_failure(error)
            return None if len(left) == len(lessons) else LearnedRows(since, (), left=left)
        if not left:
            self._fail.answered("learned_words")
        return found

    async def reset(self, actor: str | None = None, tool_id: str | None = None) -> int:
        forgotten = 0
        try:
            rows = await self._store.of_owner(self._kind, None if actor is None else hashed(actor), MAX_SIZE)
            if tool_id is not None:
                rows = [row for row in rows if (words := self._read(row)) is not None and words[1] == tool_id]
            for start in range(0, len(rows), _AT_ONCE):
                drops = [Drop(self._kind, row.key) for row in rows[start : start + _AT_ONCE]]
                forgotten += sum((await self._step(drops, _RESET))[: len(drops)])
        except StoreUnavailable as error:
            raise ConfigError(f"storage.url: {error}") from None
        return forgotten

    async def _teach(self, lessons: Sequence[Lesson]) -> bool:
        """Counts *lessons*, which are of one tool of one actor. Returns False if the store is unavailable."""
        actor, tool_id = lessons[0].actor, lessons[0].tool_id
        key = hashed(hashed(actor) + tool_id)
        try:
            for _ in range(_TRIES):
                row = await self._store.get(self._kind, key)
                former = (actor, tool_id, ToolWords()) if row is None else self._read(row)
                if former is None:
                    return True  # a damaged row is never mended
                words, at = former[2], self.now()
                for lesson in lessons:
                    words = words.taught(lesson.words, at, first=lesson.first)
                put = Put(
                    self._kind,
                    key,
                    # Sorted, so that the order of the words in the query is not kept.
                    packed([actor, tool_id, words.runs, words.at, dict(sorted(words.counts.items()))]),
                    hashed(actor),
                    expect=0 if row is None else row.version,
                    life_s=_LIFE_S,
                    size=words.size,
                )
                with suppress(Conflict):
                    await self._step([put], key)
                    return True
            raise StoreUnavailable("other processes write at the same time")
        except StoreUnavailable as error:
            self._log_failure(error)
            return False

    async def _step(self, ops: Sequence[Op], change: str) -> Sequence[int]:
        """Does *ops*, and appends *change* to the log of changes."""
        entry = f"{change} {secrets.token_hex(8)}".encode()
        cut = max(0, self._seen[0] - _CHANGES_KEPT)
        note = Put(_CHANGES, _ALL, b"", life_s=_LIFE_S), Append(_CHANGES, _ALL, 0, -1, [entry], cut)
        return await self._store.step([*ops, *note])

    async def _changed(self, since: int) -> tuple[Sequence[Row], bool]:
        """Returns the rows that changed after *since*, and whether these are all rows."""
        if since and since == self._seen[0]:
            first, *changes = await self._store.read_log(_CHANGES, _ALL, 0, since - 1, _CHANGES_KEPT) or [(0, b"")]
            keys = list(dict.fromkeys(text.decode("ascii", "replace").partition(" ")[0] for _, text in changes))
            if first == self._seen and _RESET not in keys:
                rows: list[Row] = []
                for start in range(0, len(keys), _AT_ONCE):
                    gets = (self._store.get(self._kind, key) for key in keys[start : start + _AT_ONCE])
                    rows += [row for row in await asyncio.gather(*gets) if row is not None]
                if changes:
                    self._seen = changes[-1]
                return rows, False
        # The end of the log first: what changes later is read again.
        end = await end_of_log(self._store, _CHANGES, _ALL)
        found = await self._store.of_owner(self._kind, None, MAX_SIZE)
        self._seen = end
        return found, True

    async def _sound(self, rows: Iterable[Row]) -> list[WordsRow]:
        """Returns the rows that are not damaged. Yields to the event loop in between."""
        sound = []
        for number, row in enumerate(rows, 1):
            if (words := self._read(row)) is not None:
                sound.append(words)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        return sound

    def _read(self, row: Row) -> WordsRow | None:
        """Returns None for a damaged row, which is logged. A time to come counts as now."""

        def read() -> WordsRow:
            actor, tool_id, runs, at, counts = unpacked(row.data)
            if not (
                isinstance(actor, str)
                and isinstance(tool_id, str)
                and _is_number(runs)
                and _is_number(at)
                and len(counts) <= MAX_TOOL_WORDS
                # No word occurs in more runs than there were.
                and all(_is_number(count) and 0 < count <= runs for count in counts.values())
            ):
                raise TypeError
            return actor, tool_id, ToolWords(runs, counts, min(at, self.now()))

        return sound(self._kind.name, row.key, read)

    def _log_failure(self, error: StoreUnavailable) -> None:
        level = without_level(self._fail, "learned_words")
        log.log(level, "learned words cannot be kept or read at the moment: %s", error)


def _is_number(value: object) -> TypeGuard[float]:
    # A whole number may be longer than any float.
    return isinstance(value, float | int) and 0 <= value <= sys.float_info.max
