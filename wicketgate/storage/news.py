"""The news: facts that every process has to hear, as one log that each process follows from its own start on.

State that lasts is kept in rows. An entry only asks the others to look at a row, or reports an act.
"""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from wicketgate.storage.core import DamagedRow, sound
from wicketgate.storage.encoding import packed, unpacked
from wicketgate.storage.store import LOOK_S, Append, Kind, Op, Put, Signal, Store, StoreUnavailable, end_of_log
from wicketgate.task_end import end_tasks, hold

log = logging.getLogger("wicketgate.storage")

_NEWS = Kind("news")
_ALL = "all"
"""The only row of that kind. The topic of its signals is the name of the kind."""
_KEPT = 1_000
_AT_ONCE = 64
_OWED = 256

Facts = Mapping[str, Any]
Hear = Callable[[Facts], Awaitable[None]]
"""Gets the facts of an entry, which may be of another release: what it raises as KeyError, TypeError or ValueError is
logged as a damaged entry. After StoreUnavailable it is called again."""


class News:
    """Follows the news of *store* within ``running``. *process* is the id of this process, which hears its own entries
    too. An entry is heard once, although a store may keep it twice."""

    def __init__(self, store: Store, process: str) -> None:
        self._store = store
        self._process = process
        self._hear: dict[str, tuple[Hear, asyncio.Lock]] = {}
        self._missed: list[Hear] = []
        # Position and text of the entry that was read last. Each entry is unique, so that a store that lost its data
        # and has as many new entries is noticed.
        self._seen: tuple[int, bytes] | None = None
        self._recent = deque[str](maxlen=_KEPT)
        self._owed = deque[list[Op]](maxlen=_OWED)
        self._hearing = set[asyncio.Task[None]]()

    def on(self, what: str, hear: Hear, missed: Hear | None = None) -> None:
        """Calls *hear* with each entry of this name, one after the other; *missed* when entries may have been lost."""
        self._hear[what] = hear, asyncio.Lock()
        if missed is not None:
            self._missed.append(missed)

    def ops(self, what: str, **facts: Any) -> list[Op]:
        """Returns the operations that add an entry, for a step that changes rows too. *by* is this process."""
        entry = packed({**facts, "what": what, "by": self._process, "id": secrets.token_hex(8)})
        cut = max(0, (self._seen or (0, b""))[0] - _KEPT)
        return [Put(_NEWS, _ALL, b""), Append(_NEWS, _ALL, 0, -1, [entry], cut), Signal(_NEWS.name)]

    async def tell(self, what: str, **facts: Any) -> None:
        """Adds an entry, or does so later if the store is unavailable."""
        self._owed.append(self.ops(what, **facts))
        try:
            await self._pay()
        except StoreUnavailable as error:
            log.error("news (%s) will reach other processes later: %s", what, error)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        with suppress(StoreUnavailable):
            self._seen = await end_of_log(self._store, _NEWS, _ALL)
        following = asyncio.create_task(self._follow(), name="news of other processes")
        try:
            yield
        finally:
            await end_tasks(following, *self._hearing)

    async def _follow(self) -> None:
        while True:
            try:
                async with self._store.listen(_NEWS.name) as changed:
                    while True:
                        await self._pay()
                        await self._read()
                        await changed.wait()
            except StoreUnavailable:
                pass
            except Exception:
                # The last boundary of this task: without it the process would hear nothing any more.
                log.exception("the news of other processes could not be read")
            await asyncio.sleep(LOOK_S)

    async def _pay(self) -> None:
        while self._owed:
            ops = self._owed[0]
            await self._store.step(ops)
            if self._owed and self._owed[0] is ops:
                self._owed.popleft()

    async def _read(self) -> None:
        while self._seen is not None:
            found = await self._store.read_log(_NEWS, _ALL, 0, max(0, self._seen[0] - 1), _AT_ONCE)
            if self._seen[0]:
                if not found or found[0] != self._seen:
                    break
                found = found[1:]
            elif found and found[0][0] != 1:
                break
            for position, data in found:
                self._seen = position, data
                self._heard(position, data)
            if len(found) < _AT_ONCE - 1:
                return
        self._seen = await end_of_log(self._store, _NEWS, _ALL)
        for missed in self._missed:
            self._begin(missed, {}, asyncio.Lock())

    def _heard(self, position: int, data: bytes) -> None:
        def read() -> tuple[Facts, str, str]:
            entry = unpacked(data)
            return entry, str(entry["what"]), str(entry["id"])

        if (found := sound(_NEWS.name, f"{_ALL}, entry {position}", read)) is None:
            return
        entry, what, id = found
        if id not in self._recent and what in self._hear:
            self._recent.append(id)
            self._begin(self._hear[what][0], entry, self._hear[what][1])

    def _begin(self, hear: Hear, facts: Facts, turn: asyncio.Lock) -> None:
        name = f"news: {facts.get('what', 'missed')}"
        hold(asyncio.create_task(self._run(hear, facts, turn), name=name), self._hearing)

    async def _run(self, hear: Hear, facts: Facts, turn: asyncio.Lock) -> None:
        async with turn:
            while True:
                try:
                    await hear(facts)
                    return
                except StoreUnavailable:
                    await asyncio.sleep(LOOK_S)
                except (KeyError, TypeError, ValueError):
                    DamagedRow(_NEWS.name, f"{_ALL}, {facts.get('what')}")
                    return
                except Exception:
                    log.exception("news of another process (%s) could not be applied", facts.get("what"))
                    return
