"""Calls that outlive their requests, for all processes of a service (EXEC-47, FACE-105 to FACE-110).

A call runs in one process, its home, whose id stands in that of the call: any other asks there. What it came to is kept
in a store too, for the time when its home has ended. A call whose home has ended without that is reported as lost: its
fate is unknown, and nothing runs twice.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from wicketgate.errors import UpstreamLost, UpstreamUnavailable
from wicketgate.gateway.lent_callers import ANSWERS_WITHIN_S, LentCallers
from wicketgate.gateway.peer_json import as_payload, from_payload, written
from wicketgate.gateway.running_calls import RunningCall, RunningCalls
from wicketgate.peers import Answer, NotReached, Peers

log = logging.getLogger("wicketgate.calls")

MAX_KEPT_BYTES = 8 * 1024 * 1024
MOST_BYTES = 256 * 1024 * 1024
"""Of all rows, unless the configuration says otherwise."""
_LAST_WRITES_S = 2.0
_BETWEEN = "."

Row = Mapping[str, Any]
"""JSON: what is kept of a call."""


class StoreAway(Exception):
    """The store cannot be read at the moment."""


class HomeAway(UpstreamUnavailable):
    """The home of a call cannot be reached at the moment, or what it kept cannot be read. Callers get the code of
    UPSTREAM_UNAVAILABLE."""

    def __init__(self) -> None:
        super().__init__("The process that runs the call cannot be reached at the moment. Ask again later.")


class CallStore(Protocol):
    """Rows by owner and id of a call, each for a time. Another owner's row does not exist.

    Their bytes are bounded over all processes, those of one owner by the half. The oldest of calls that have ended give
    way, of the owner that holds most of them; rows of calls that run do not.
    """

    async def put(self, owner: str, id: str, row: bytes, life_s: float, *, ended: bool) -> bool:
        """Keep it in place of an earlier one. False if there is no room, or if the store is out of order, which it
        logs; never raises."""
        ...

    async def get(self, owner: str, id: str) -> bytes | None:
        """Raises StoreAway."""
        ...

    async def drop(self, owner: str, id: str) -> None:
        """Never raises: what stays lapses."""
        ...

    async def aclose(self) -> None:
        """Once, when nothing is kept any more."""
        ...


def call_id(id: str, home: str) -> str:
    """The id of a call with that of its home."""
    return f"{id}{_BETWEEN}{home}"


class KeptCalls:
    """*store* is None where nothing outlives the process. *longest_s* bounds a call."""

    def __init__(self, running: RunningCalls, peers: Peers, store: CallStore | None, longest_s: float) -> None:
        self.peers = peers
        self.callers = LentCallers(peers)
        self._running = running
        self._store = store
        self._longest_s = longest_s
        self._kept = set[str]()
        self._writing = set[asyncio.Task[None]]()
        running.on_drop = self._dropped

    def home_of(self, id: str) -> str | None:
        """The process of the call *id*, if it is another one."""
        home = id.partition(_BETWEEN)[2]
        return None if home in ("", self.peers.own_id) else home

    def answer(self, operation: str, answer: Answer, *, outlives: bool = False) -> None:
        self.peers.answer(operation, answer, outlives=outlives)

    async def ask(self, home: str, operation: str, value: Any, timeout_s: float, call: tuple[str, str]) -> Any:
        """Return the answer of *home*; None if it has ended, or if it is not reached and the store has the outcome of
        *call* (its owner and id). Raises HomeAway."""
        try:
            return from_payload(await self.peers.ask(home, operation, await as_payload(value), timeout_s))
        except NotReached as error:
            if not error.gone and "outcome" not in (await self.row(*call) or ()):
                raise HomeAway from None
            return None

    async def keep(self, call: RunningCall[Any], row: Row, packed: Callable[[RunningCall[Any]], Row | None]) -> None:
        """Keep *row*, and at its end what *packed* makes of it (None: nothing), before a client is given its id."""
        store = self._store
        if store is None or call.id in self._kept:
            return
        self._kept.add(call.id)
        kept_s = self._running.limits.kept_s
        life_s = self._longest_s + ANSWERS_WITHIN_S + kept_s
        if not await store.put(call.owner, call.id, await written(row), life_s, ended=False):
            log.warning("%s: a call goes on without its request, and is unknown if this process ends", call.label)

        async def end() -> None:
            ended = packed(call)
            if ended is None or call.id not in self._kept:
                return
            whole = await written({**row, **ended})
            if len(whole) > MAX_KEPT_BYTES or not await store.put(call.owner, call.id, whole, kept_s, ended=True):
                log.warning("%s: its result of %d bytes is lost if this process ends", call.label, len(whole))

        call.at_end(lambda: self._write(end))

    async def row(self, owner: str, id: str) -> Row | None:
        """Return the row of a call of another process. Raises HomeAway."""
        if self._store is None:
            return None
        try:
            found = await self._store.get(owner, id)
        except StoreAway:
            raise HomeAway from None
        return None if found is None else dict(json.loads(found))

    async def aclose(self) -> None:
        """Let what is being written end."""
        if self._writing:
            await asyncio.wait(self._writing, timeout=_LAST_WRITES_S)
        if self._store is not None:
            await self._store.aclose()

    def _dropped(self, call: RunningCall[Any]) -> None:
        store = self._store
        if store is not None and call.id in self._kept:
            self._kept.discard(call.id)
            self._write(lambda: store.drop(call.owner, call.id))

    def _write(self, write: Callable[[], Any]) -> None:
        task = asyncio.ensure_future(write())
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)


def lost(tool_id: str) -> UpstreamLost:
    return UpstreamLost(
        "The process that ran the call has ended, and left no result. Whether it took effect is not known; it does not "
        "run again.",
        path=tool_id,
    )
