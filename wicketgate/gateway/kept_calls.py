"""Calls that outlive their requests, as all processes see them (EXEC-47, FACE-105 to FACE-110).

The row of a call is the conversation about it. The process that runs the call holds the row, and writes each of its
states: it works, it asks, it has ended. What a client says at another process (an answer, a cancellation) is a row of
its own, which the process of the call reads. A call whose process ended first is reported as lost, once for all: its
fate is unknown, and nothing runs twice.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from wicketgate.errors import (
    ConnectRequired,
    GatewayError,
    InputRequired,
    UpstreamError,
    UpstreamLost,
    UpstreamUnavailable,
)
from wicketgate.gateway.running_calls import RunningCall, RunningCalls
from wicketgate.task_end import end_tasks, hold

log = logging.getLogger("wicketgate.calls")

MAX_KEPT_BYTES = 8 * 1024 * 1024
MOST_BYTES = 256 * 1024 * 1024
"""Of all rows: thirty-two of the largest ones."""
ANSWERS_WITHIN_S = 600.0
ATTENDS_S = 6.0
"""The life of the row of an attempt, which is renewed while its client waits."""
ATTEMPT, LEFT, CANCEL, GIVEN, TASK = "attempt", "left", "cancel", "given", "task"
"""Names of what clients say, next to the keys of questions. An attempt that has left names itself, so that a later one
is not taken for it."""
_LAST_WRITES_S = 2.0
_AGAIN_S = 2.0
_COMES_S = 5.0
"""The longest wait for a row that its process has not written yet. It tries about every two seconds."""
_PROGRESS_S = 1.0
_BETWEEN = "."

Row = Mapping[str, Any]
"""JSON: the state of a call. ``label`` is the id of its tool, ``process`` runs it, ``questions`` are open, ``outcome``
is None until it has ended; ``unkept`` if only its process has that."""
Written = Literal["kept", "full", "unavailable", "lost"]


class CallUnreadable(UpstreamUnavailable):
    """The row of a call cannot be read at the moment, or only the process that ran it has its result. Callers get the
    code of UPSTREAM_UNAVAILABLE."""

    def __init__(self) -> None:
        super().__init__("The state of the call cannot be read at the moment. Ask again later.")


@dataclass(frozen=True, slots=True)
class Said:
    """What a client of another process said to the call with the row *key*."""

    key: str
    name: str
    value: Any
    version: int


class Changed(Protocol):
    async def wait(self) -> None:
        """Returns after a signal, or after two seconds. Look at the row in either case."""
        ...


class CallStore(Protocol):
    """The rows of calls, and of what is said to them. Another owner's row does not exist. Raises CallUnreadable.

    Calls of a process that has ended become lost by themselves. The bytes of all rows are bounded over all processes,
    those of one owner by half of that. The oldest of calls that have ended give way, of the owner that holds most of
    them; rows that are held do not.
    """

    process: str

    def key(self, owner: str, id: str) -> str: ...

    async def write(self, owner: str, id: str, row: Row, life_s: float, *, begun: bool, ended: bool) -> Written:
        """Writes the row and signals it. Holds it unless it has *ended*. *begun*: a write before was acknowledged.
        Returns ``lost`` if the row belongs to another process by now. Never raises."""
        ...

    async def get(self, key: str) -> Row | None: ...

    def on_lost(self, listener: Callable[[], None]) -> None:
        """Calls *listener* if rows of this process may be gone."""
        ...

    async def lives(self, process: str) -> bool:
        """Returns false only if *process* is known to have ended."""
        ...

    async def drop(self, key: str) -> bool:
        """Returns true if there was a row. Of several processes that drop it, one gets true."""
        ...

    async def say(
        self, key: str, process: str, name: str, value: Any, life_s: float = ANSWERS_WITHIN_S, expect: int | None = 0
    ) -> int:
        """Leaves *value*, sealed, for the *process* of the call, and signals it. Returns the version, 0 if that before
        was not *expect*."""
        ...

    async def unsay(self, said: Sequence[Said]) -> None: ...

    async def heard(self) -> Sequence[Said]:
        """Returns what was said to the calls of this process."""
        ...

    def listening(self) -> AbstractAsyncContextManager[Changed]:
        """Waits for what is said to calls of this process."""
        ...

    def following(self, key: str) -> AbstractAsyncContextManager[Changed]:
        """Waits for changes of one row."""
        ...

    def seal(self, key: str, value: Any) -> str:
        """Seals *value*, as decoded from JSON, for the row *key*."""
        ...

    def open(self, key: str, sealed: str) -> Any:
        """Raises ValueError."""
        ...


class Door(Protocol):
    """How a face shows one of its calls to other processes, and takes what their clients say."""

    def row(self) -> Row:
        """Returns the state of the call now. Never raises."""
        ...

    def said(self, name: str, value: Any) -> None:
        """``ATTEMPT`` is true while a client waits at another process."""
        ...


class _Kept:
    """A call of this process with a row."""

    def __init__(self, call: RunningCall[Any], door: Door) -> None:
        self.call = call
        self.door = door
        self.begun = False
        self.ended = False
        self.dirty = True
        self.attended = False
        self.timer: asyncio.TimerHandle | None = None
        self.writing = asyncio.Lock()


class FollowedCall:
    """A call of another process. *row* is None if there is none."""

    def __init__(self, store: CallStore, changed: Changed, key: str) -> None:
        self._store = store
        self._changed = changed
        self._key = key
        self.row: Row | None = None
        self._attempt = ""
        self._version = 0

    @property
    def ended(self) -> bool:
        return self.row is None or bool(self.row["outcome"])

    async def read(self) -> None:
        """Raises CallUnreadable."""
        row = await self._store.get(self._key)
        if row is not None and row.get("unkept"):
            raise CallUnreadable
        self.row = row

    async def next(self, timeout_s: float | None = None) -> None:
        """Waits for a signal, or until it is time to look, at most for *timeout_s*; then reads."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            pass
        await self.read()
        if self._version:
            self._version = await self._say(ATTEMPT, self._attempt, ATTENDS_S, self._version)

    async def until(self, over: Callable[[], bool], timeout_s: float) -> None:
        """Waits until *over* or the end of the call, at most for *timeout_s*."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + timeout_s
        while not self.ended and not over() and (left_s := ends_at - loop.time()) > 0:
            await self.next(left_s)

    async def say(self, name: str, value: Any = True) -> None:
        """What is said twice counts once."""
        await self._say(name, value, ANSWERS_WITHIN_S, 0)

    async def attend(self) -> None:
        """Lets the process of the call know that a client waits here; the last to come counts."""
        self._attempt = secrets.token_hex(8)
        self._version = await self._say(ATTEMPT, self._attempt, ATTENDS_S, None)

    async def leave(self, *, hung_up: bool = False) -> None:
        """The client waits no longer. One that has hung up ends the call, unless another waits."""
        version, self._version = self._version, 0
        if hung_up:
            await self._say(LEFT, self._attempt, ANSWERS_WITHIN_S, None)
        elif version:
            await self._store.unsay([Said(self._key, ATTEMPT, None, version)])

    async def claim(self) -> bool:
        """Takes the row away. Of several that try, one gets true."""
        return await self._store.drop(self._key)

    def opened(self, sealed: str) -> Any:
        """Raises CallUnreadable."""
        try:
            return self._store.open(self._key, sealed)
        except ValueError:
            log.error("what was sealed in the row %s of a call is damaged, or its key is missing", self._key)
            raise CallUnreadable from None

    async def _say(self, name: str, value: Any, life_s: float, expect: int | None) -> int:
        if self.row is None:
            return 0
        return await self._store.say(self._key, self.row["process"], name, value, life_s, expect)


class KeptCalls:
    """The rows of calls. *longest_s* bounds a call."""

    def __init__(self, running: RunningCalls, store: CallStore, longest_s: float) -> None:
        self._running = running
        self._store = store
        self._life_s = longest_s + ANSWERS_WITHIN_S + running.limits.kept_s
        self._kept: dict[str, _Kept] = {}
        self._tasks = set[asyncio.Task[Any]]()
        self._hearing: asyncio.Task[None] | None = None
        running.on_drop = self._dropped
        store.on_lost(self._write_again)

    def is_here(self, owner: str, id: str) -> bool:
        return self._running.get(owner, id) is not None

    async def check_missing(self, id: str) -> None:
        """For a call that was held and has no row: raises UpstreamLost if its process has ended, and CallUnreadable if
        another process may still run it, and could not write its row."""
        if await self._may_run_elsewhere(id):
            raise CallUnreadable
        if self._is_of_another(id):
            raise lost("")

    async def keep(self, call: RunningCall[Any], door: Callable[[], Door]) -> None:
        """Writes the row of *call* before a client gets its id, and from then on each change of it."""
        key = self._store.key(call.owner, call.id)
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = _Kept(call, door())
            call.at_end(lambda: self.changed(call))
            if self._hearing is None or self._hearing.done():
                self._hearing = asyncio.create_task(self._hear(), name="what is said to calls")
        await asyncio.shield(self.spawn(self._write(kept)))

    def changed(self, call: RunningCall[Any], *, soon: bool = False) -> None:
        """Writes the state of *call*, if it has a row. *soon*: within a second, for changes that come often."""
        kept = self._kept.get(self._store.key(call.owner, call.id))
        if kept is None:
            return
        if soon:
            if kept.timer is None:
                kept.timer = asyncio.get_running_loop().call_later(_PROGRESS_S, self.changed, call)
            return
        kept.dirty = True
        self.spawn(self._write(kept))

    @asynccontextmanager
    async def following(self, owner: str, id: str) -> AsyncIterator[FollowedCall]:
        """A call of any process. Raises CallUnreadable."""
        key = self._store.key(owner, id)
        async with self._store.following(key) as changed:
            followed = FollowedCall(self._store, changed, key)
            await followed.read()
            if followed.row is None and await self._may_run_elsewhere(id):
                # The store may have been unavailable when the row was to be written.
                ends_at = asyncio.get_running_loop().time() + _COMES_S
                while followed.row is None and (left_s := ends_at - asyncio.get_running_loop().time()) > 0:
                    await followed.next(left_s)
            yield followed

    async def claim(self, call: RunningCall[Any]) -> bool:
        """As ``FollowedCall.claim``, for a call of this process. Raises CallUnreadable."""
        kept = self._kept.get(key := self._store.key(call.owner, call.id))
        return kept is None or not kept.begun or await self._store.drop(key)

    def sealed(self, call: RunningCall[Any], value: Any) -> str:
        return self._store.seal(self._store.key(call.owner, call.id), value)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[None]":
        """Runs *work*, which the end of this process waits for."""
        return hold(asyncio.ensure_future(_quietly(work)), self._tasks)

    async def aclose(self) -> None:
        """Lets what is being written end."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_LAST_WRITES_S)
        self._kept.clear()
        await end_tasks(self._hearing)

    async def _write(self, kept: _Kept) -> None:
        call = kept.call
        async with kept.writing:
            if not kept.dirty or kept.ended or not self._is_kept(kept):
                return
            kept.dirty = False
            if kept.timer is not None:
                kept.timer.cancel()
                kept.timer = None
            row = {**kept.door.row(), "process": self._store.process}
            ended = bool(row["outcome"])
            life_s = self._running.limits.kept_s if ended else self._life_s
            written = await self._store.write(call.owner, call.id, row, life_s, begun=kept.begun, ended=ended)
            if written == "full" and kept.begun:
                ended = False
                log.warning("%s: its result is available at this process only", call.label)
                row = {**row, "questions": {}, "unkept": True, "outcome": None}
                written = await self._store.write(call.owner, call.id, row, self._life_s, begun=True, ended=False)
            match written:
                case "kept":
                    kept.begun, kept.ended = True, ended
                case "lost":
                    if self._is_kept(kept):
                        log.warning("%s: it was reported as lost, because this process was paused", call.label)
                        del self._kept[self._store.key(call.owner, call.id)]
                        self._running.drop(call)
                case _:
                    if not kept.begun:
                        log.warning("%s: a call continues after its request, at this process only", call.label)
                    kept.dirty = written == "unavailable"

    def _write_again(self) -> None:
        """The store may have lost its memory."""
        for kept in self._kept.values():
            self.changed(kept.call)

    def _is_of_another(self, id: str) -> bool:
        return id.partition(_BETWEEN)[2] not in ("", self._store.process)

    async def _may_run_elsewhere(self, id: str) -> bool:
        return self._is_of_another(id) and await self._store.lives(id.partition(_BETWEEN)[2])

    def _is_kept(self, kept: _Kept) -> bool:
        return self._kept.get(self._store.key(kept.call.owner, kept.call.id)) is kept

    async def _hear(self) -> None:
        """Takes what is said to calls of this process, while there are any."""
        while self._kept:
            try:
                async with self._store.listening() as changed:
                    while self._kept:
                        await self._take(await self._store.heard())
                        for kept in list(self._kept.values()):
                            await self._write(kept)
                        await changed.wait()
            except CallUnreadable:
                await asyncio.sleep(_AGAIN_S)
            except Exception:
                # The last boundary of this task: without it nobody could answer at another process.
                log.exception("messages to calls could not be read")
                await asyncio.sleep(_AGAIN_S)

    async def _take(self, heard: Sequence[Said]) -> None:
        attempts = {said.key: said for said in heard if said.name == ATTEMPT}
        said_once = [said for said in heard if said.name != ATTEMPT]
        over = list(said_once)
        for said in said_once:
            if said.name == LEFT and said.key in attempts and attempts[said.key].value == said.value:
                over.append(attempts.pop(said.key))
        # Attempts first, because a process that drains waits for a call that it knows to be attended.
        for key, kept in list(self._kept.items()):
            if kept.attended != (key in attempts):
                kept.attended = not kept.attended
                kept.door.said(ATTEMPT, kept.attended)
        for said in said_once:
            if (found := self._kept.get(said.key)) is None or (said.name == LEFT and said.key in attempts):
                continue  # the call is over, or another attempt waits
            if said.name == GIVEN:
                self._running.give(found.call)
            else:
                found.door.said(said.name, said.value)
        if over:
            await self._store.unsay(over)

    def _dropped(self, call: RunningCall[Any]) -> None:
        if (kept := self._kept.pop(self._store.key(call.owner, call.id), None)) is not None:
            self.spawn(self._drop(kept))

    async def _drop(self, kept: _Kept) -> None:
        async with kept.writing:
            await self._store.drop(self._store.key(kept.call.owner, kept.call.id))


async def _quietly(work: Coroutine[Any, Any, Any]) -> None:
    try:
        await work
    except CallUnreadable:
        log.debug("a row of a call is not written: it lapses")


def call_id(id: str, process: str) -> str:
    """The id of a call with that of its process, which says later whether the call may be lost."""
    return f"{id}{_BETWEEN}{process}"


def lost(tool_id: str) -> UpstreamLost:
    return UpstreamLost(
        "The process that ran the call has ended, and left no result. Whether it took effect is not known; it does not "
        "run again.",
        path=tool_id,
    )


def plain(error: BaseException) -> dict[str, Any]:
    """Returns *error* as JSON: what clients see of it. Any that is no outcome for a caller becomes one that says
    nothing of it."""
    match error:
        case InputRequired():
            question = [dict(error.requests), error.request_state, error.definition, error.approval]
            return {"question": question}
        case ConnectRequired():
            return {"message": error.message, "path": error.path, "connect": {**error.connect, "flow": error.flow}}
        case GatewayError():
            body = {"code": error.code, "message": error.message, "path": error.path, "details": error.details}
            return {**body, "retryable": error.retryable}
    return {"code": UpstreamError.code, "message": "The call failed inside the gateway."}


def raised(given: Mapping[str, Any]) -> GatewayError | InputRequired:
    """Returns the error of which ``plain`` made *given*, in the class of its code."""
    if "question" in given:
        return InputRequired(*given["question"])
    if "connect" in given:
        required = ConnectRequired(given["message"], **given["connect"])
        required.path = given["path"]
        return required
    error = _BY_CODE.get(given["code"], UpstreamError)(
        given["message"], path=given.get("path", ""), details=given.get("details")
    )
    error.retryable = given.get("retryable", False)
    return error


_BY_CODE = {each.code: each for each in GatewayError.__subclasses__() if "code" in vars(each)}
