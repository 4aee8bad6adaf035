"""Calls in tasks of their own, which may outlive the requests that began them (EXEC-44 to EXEC-46).

A call that its request waits for costs a task and no more. One that is to outlive its request takes a place first:
places are bounded in number, for each owner and in all, and the answer of an ended call holds its place until it was
given, or was kept long enough.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from wicketgate.access.shares import RETRY_AFTER_S, SCOPES, CountedShares, Lease, Scope, ShareRefused, Shares
from wicketgate.errors import InputRequired, RateLimited, UpstreamLost, WicketgateError
from wicketgate.ports import AnswerTime, Caller

log = logging.getLogger("wicketgate.calls")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RunningLimits:
    """*after_s*: so long a request waits for its call, and then leaves it running; 0: as long as the call takes.
    *most*: calls that have outlived their requests, the ended ones that were not asked for among them. *per_owner*:
    those of one owner; None shares the places by what each owner holds. *kept_s*: so long an ended one is kept.
    *most_bytes*: the size of all results that are kept."""

    after_s: float = 25.0
    most: int = 256
    per_owner: int | None = None
    kept_s: float = 900.0
    most_bytes: int = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Progress:
    """The last progress of a call in its server's own words."""

    progress: float
    total: float | None
    message: str | None


class AttendedCaller:
    """Implements Caller for a call whose client may leave, and come back with another request.

    What the server says goes to the client that waits now, and to nobody while none does. A question waits for the next
    one; it is put again if the client that was asked leaves without an answer. What the client can answer is taken from
    the request that began the call.
    """

    def __init__(self, caller: Caller) -> None:
        self._first = caller
        self._present: Caller | None = caller
        self.absent: Caller | None = None
        """Takes what the server says while no client of this process waits."""
        # Counts those that came and left. The event is made when someone waits, which is seldom.
        self._visit = 0
        self._changed: asyncio.Event | None = None
        self._questions = 0
        self.last: Progress | None = None

    @property
    def asks(self) -> bool:
        """True while a question is not answered yet."""
        return self._questions > 0

    def attend(self, caller: Caller) -> None:
        """Speak to *caller* from now on."""
        self._present, self._visit = _client_of(caller), self._visit + 1
        self._tell()

    def leave(self, caller: Caller | None = None) -> None:
        """Speaks to ``absent`` from now on, unless another client than *caller* is there, where that is given."""
        if caller is None or self._present is _client_of(caller):
            self._present, self._visit = self.absent, self._visit + 1
            self._tell()

    async def answered(self) -> None:
        """Wait until no question is open."""
        while self._questions:
            await self._change()

    @property
    def answers(self) -> AnswerTime:
        return self._first.answers

    @property
    def capabilities(self) -> Mapping[str, Any]:
        return self._first.capabilities

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.last = Progress(progress, total, message)
        if self._present is not None:
            await self._present.progress(progress, total, message)

    async def log(self, level: str, data: object, logger: str | None) -> None:
        if self._present is not None:
            await self._present.log(level, data, logger)

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        with self.pending():
            while True:
                while self._present is None:
                    await self._change()
                if (answer := await self._ask(self._present, method, params)) is not None:
                    return answer

    @contextmanager
    def pending(self) -> Iterator[None]:
        self._questions += 1
        try:
            yield
        finally:
            self._questions -= 1
            self._tell()

    async def page_done(self, elicitation_id: str) -> None:
        if self._present is not None:
            await self._present.page_done(elicitation_id)

    async def _change(self) -> None:
        """Wait until another is there, or nobody, or a question is over."""
        if self._changed is None:
            self._changed = asyncio.Event()
        await self._changed.wait()

    def _tell(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    async def _end_of(self, visit: int) -> None:
        while self._visit == visit:
            await self._change()

    async def _ask(self, client: Caller, method: str, params: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The answer of *client*; None if it leaves without one."""
        asking = asyncio.ensure_future(client.ask(method, params))
        leaving = asyncio.ensure_future(self._end_of(self._visit))
        try:
            await asyncio.wait((asking, leaving), return_when=asyncio.FIRST_COMPLETED)
            return asking.result() if asking.done() else None
        finally:
            asking.cancel()
            leaving.cancel()


def _client_of(caller: Caller) -> Caller | None:
    """The client itself: *caller* may be that of another request, which speaks to one."""
    return caller._present if isinstance(caller, AttendedCaller) else caller


@dataclass(eq=False, repr=False)
class RunningCall(Generic[T]):
    """One call in a task of its own. *label* is the id of its tool, *began* seconds on the clock of its owner object,
    *key_id* the key that began it. *request* is what its owner object's user wants to know of it while it runs,
    *door* what the door keeps with it for its client's later requests."""

    id: str
    owner: str
    label: str
    began: float
    _task: "asyncio.Task[T]"
    key_id: str = ""
    caller: AttendedCaller | None = None
    request: Any = None
    door: Any = None

    def __post_init__(self) -> None:
        self.ended_at: float | None = None
        self.bytes = 0
        """The size of a large result, set before it ends."""
        self.why = "it was cancelled"
        self.given = False
        self._last: Progress | None = None

    @property
    def progress(self) -> Progress | None:
        """The last progress that its server has reported."""
        return self._last if self.caller is None else self.caller.last

    def let_go(self) -> None:
        """Forget the request that began it, which may be large; an ended call needs it for a second attempt only."""
        self._last, self.caller = self.progress, None
        if self.question is None:
            self.request = None

    @property
    def ended(self) -> bool:
        return self._task.done()

    @property
    def cancelled(self) -> bool:
        """True if it has ended without an outcome of its own."""
        return self._task.cancelled()

    async def settled(self, timeout_s: float | None) -> bool:
        """Wait for its end, for *timeout_s* at the longest; true if it has ended. Cancelling the waiter leaves the call
        alone."""
        if self._task.done():
            return True
        # As asyncio.wait, which costs three times as much for one task.
        loop = asyncio.get_running_loop()
        over = loop.create_future()

        def wake(_: object = None) -> None:
            if not over.done():
                over.set_result(None)

        self._task.add_done_callback(wake)
        timer = None if timeout_s is None else loop.call_later(timeout_s, wake)
        try:
            await over
        finally:
            self._task.remove_done_callback(wake)
            if timer is not None:
                timer.cancel()
        return self._task.done()

    def at_end(self, told: Callable[[], None]) -> None:
        """Call *told* when it has ended."""
        self._task.add_done_callback(lambda _: told())

    async def unasked(self) -> None:
        """Wait until no question of its server is open, or it has ended."""
        if self.caller is None or self._task.done():
            return
        answered = asyncio.ensure_future(self.caller.answered())
        try:
            await asyncio.wait((self._task, answered), return_when=asyncio.FIRST_COMPLETED)
        finally:
            answered.cancel()

    @property
    def question(self) -> InputRequired | None:
        """The question that ended it, for a client that answers with a second attempt."""
        if not self._task.done() or self._task.cancelled():
            return None
        error = self._task.exception()
        return error if isinstance(error, InputRequired) else None

    def outcome(self) -> T:
        """The result of an ended call. Raises what it raised, and UpstreamLost for one that was cancelled."""
        if self._task.cancelled():
            raise UpstreamLost(
                f"The call was ended before its result came: {self.why}. Whether it took effect is not known.",
                path=self.label,
            )
        return self._task.result()

    def cancel(self, why: str = "") -> None:
        """End the call where it waits, upstream too. *why* completes "the call was ended: " for its owner."""
        if not self._task.done():
            self.why = why or self.why
            self._task.cancel()


_ASK = "Ask for the results of those that have ended."
_REFUSALS: Mapping[Scope, str] = {
    "actor": f"Too many calls of this actor go on without a request. {_ASK}",
    "all": f"Too many calls go on without a request. {_ASK}",
    "away": "The calls of this actor that go on without a request cannot be counted at the moment. Try again later.",
}


class RunningCalls:
    """The calls of a runtime that are under way in tasks of their own, by owner. *now* is a clock in seconds; *new_id*
    gives each call its id, which says nothing. *shares* has the places, where processes count them together. Implements
    ShareCounts: *refused* are calls that found no place."""

    kind = "running"

    def __init__(
        self,
        limits: RunningLimits,
        *,
        now: Callable[[], float],
        new_id: Callable[[], str],
        shares: Shares | None = None,
    ) -> None:
        self.limits = limits
        self.most = limits.most
        self._shares = shares or CountedShares(self.kind, limits.most, limits.per_owner)
        self._leases: dict[RunningCall[Any], Lease] = {}
        self._now = now
        self._new_id = new_id
        self._all: set[RunningCall[Any]] = set()
        self._held: dict[tuple[str, str], RunningCall[Any]] = {}
        self._draining = False
        self.on_drop: Callable[[RunningCall[Any]], None] = lambda call: None
        """Called with a held call that is forgotten, because its answer was given or its place is needed."""
        self.refused: dict[Scope, int] = dict.fromkeys(SCOPES, 0)

    @property
    def held(self) -> int:
        """The number of calls that have outlived their requests and whose answers were not given."""
        self._forget_old()
        return len(self._held)

    def begin(
        self,
        owner: str,
        label: str,
        work: Coroutine[Any, Any, T],
        *,
        key_id: str = "",
        caller: AttendedCaller | None = None,
        request: Any = None,
        door: Any = None,
    ) -> RunningCall[T]:
        """Start *work* for a request that waits for it. It takes no place, and must not be left without ``hold``: when
        the request ends, it is cancelled. *caller* is the one that *work* speaks to; the other arguments are as in
        RunningCall."""
        task = asyncio.get_running_loop().create_task(work, name=f"call of {label}")
        call = RunningCall(
            self._new_id(), owner, label, self._now(), task, key_id=key_id, caller=caller, request=request, door=door
        )
        self._all.add(call)
        task.add_done_callback(lambda _: self._ended(call))
        return call

    async def hold(self, call: RunningCall[Any]) -> None:
        """Let *call* outlive its request, for ``get``. Raises RateLimited where no place is left; then the call goes
        on, and is still its request's. It may have ended in the meantime: places may be counted in a store."""
        if self.is_held(call):
            return
        lease = await self._place(call.owner)
        if self.is_held(call):
            self._shares.give_back(lease)
            return
        self._keep(call, lease)
        if call.ended:
            self._keep_no_longer_than_it_may()

    def get(self, owner: str, id: str) -> RunningCall[Any] | None:
        """The call that is held under this id; None where *owner* has none. Another owner's does not exist."""
        self._forget_old()
        return self._held.get((owner, id))

    def is_held(self, call: RunningCall[Any]) -> bool:
        return self._held.get((call.owner, call.id)) is call

    def seconds(self, call: RunningCall[Any]) -> float:
        """The age of the call."""
        return self._now() - call.began

    def give(self, call: RunningCall[Any]) -> None:
        """Its answer was given. It may be asked for again, as long as no other call needs its place."""
        call.given = True

    def drop(self, call: RunningCall[Any]) -> None:
        """Forget it: its answer was given, and nobody will ask again. Later calls do nothing."""
        if self._held.pop((call.owner, call.id), None) is None:
            return
        self._shares.give_back(self._leases.pop(call))
        self.on_drop(call)

    def end_of(self, key_id: str) -> Mapping[str, int]:
        """Cancel the held calls of this key, and forget them; returns their number."""
        ended = [call for call in self._held.values() if call.key_id == key_id]
        for call in ended:
            call.cancel("its key is no longer valid")
            self.drop(call)
        return {"calls": len(ended)}

    def begin_drain(self) -> None:
        """Let no more calls outlive their requests. Those that do are ended with their servers, or by ``aclose``."""
        self._draining = True

    async def aclose(self) -> None:
        """Cancel every call, and return when each has ended."""
        self._draining = True
        calls = list(self._all)
        for call in calls:
            call.cancel("the gate is being stopped")
        if tasks := [call._task for call in calls]:
            await asyncio.wait(tasks)
        self._held.clear()
        while self._leases:
            self._shares.give_back(self._leases.popitem()[1])

    def _ended(self, call: RunningCall[Any]) -> None:
        self._all.discard(call)
        call.ended_at = self._now()
        call.let_go()
        if self.is_held(call):
            self._keep_no_longer_than_it_may()
        if call._task.cancelled():
            return
        error = call._task.exception()
        if error is not None and not isinstance(error, WicketgateError):
            log.error("%s: the call failed", call.label, exc_info=error)

    def _keep_no_longer_than_it_may(self) -> None:
        """An answer that nobody fetches must not be kept for as long as nobody calls."""
        self._make_room_for_bytes()
        if not self._draining:
            asyncio.get_running_loop().call_later(self.limits.kept_s + 1, self._forget_old)

    def _keep(self, call: RunningCall[Any], lease: Lease) -> None:
        self._held[call.owner, call.id] = call
        self._leases[call] = lease

    def _forget_old(self) -> None:
        oldest = self._now() - self.limits.kept_s
        for call in [c for c in self._held.values() if c.ended_at is not None and c.ended_at <= oldest]:
            self.drop(call)

    async def _place(self, owner: str) -> Lease:
        """Takes a place, that of the oldest call whose answer was given if there is no other. Raises RateLimited."""
        self._check_drain()
        self._forget_old()
        try:
            try:
                lease = await self._shares.take(owner)
            except ShareRefused as refused:
                if not self._make_room(owner, refused.scope):
                    raise
                lease = await self._shares.take(owner)
        except ShareRefused as refused:
            self.refused[refused.scope] = self.refused.get(refused.scope, 0) + 1
            raise RateLimited(
                _REFUSALS[refused.scope],
                details={"scope": refused.scope, "retry_after_s": RETRY_AFTER_S},
            ) from None
        if self._draining:
            self._shares.give_back(lease)
            self._check_drain()
        return lease

    def _check_drain(self) -> None:
        if self._draining:
            raise RateLimited("The gate is being stopped; no call can outlive its request.")

    def _make_room_for_bytes(self) -> None:
        """Forget results until the rest is small enough: of the owner with most, the given ones first, then the
        oldest (EXEC-49)."""
        ended = [call for call in self._held.values() if call.bytes and call.ended]
        kept: dict[str, int] = {}
        for call in ended:
            kept[call.owner] = kept.get(call.owner, 0) + call.bytes
        while sum(kept.values()) > self.limits.most_bytes:
            owner = max(kept, key=kept.__getitem__)
            call = min((one for one in ended if one.owner == owner), key=lambda one: not one.given)
            log.warning("%s: a result of %d bytes was dropped: too many are stored", call.label, call.bytes)
            kept[owner] -= call.bytes
            ended.remove(call)
            self.drop(call)

    def _make_room(self, owner: str, full: Scope) -> bool:
        """Forget the oldest call whose answer was given; true if there was one."""
        if full == "away":
            return False
        given = (call for call in self._held.values() if call.given and (full == "all" or call.owner == owner))
        oldest = next(given, None)
        if oldest is not None:
            self.drop(oldest)
        return oldest is not None
