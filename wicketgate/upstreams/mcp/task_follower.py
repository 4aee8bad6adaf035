"""A call that its server answered with a task, followed to its end (UP-107 to UP-114).

The state of the task is asked for until there is a result, also over a connection that was lost and came back.
Questions of the task go the way of all questions. Anyone who gives the call up has the task cancelled.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from wicketgate.errors import (
    GatewayError,
    InputRequired,
    UpstreamBusy,
    UpstreamError,
    UpstreamLost,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnavailable,
    UpstreamUnclear,
)
from wicketgate.mcp_names import INVALID_PARAMS, METHOD_NOT_FOUND
from wicketgate.ports import CallContext, InputAnswers
from wicketgate.upstreams.mcp.call import NOT_VALID, Malformed, Refused, clean, refusal, reported
from wicketgate.upstreams.mcp.client import whole, with_answers
from wicketgate.upstreams.mcp.exchange import to_its_end
from wicketgate.upstreams.mcp.tasks import CANCEL, GET, UPDATE, LeftTask, Task, task_of

log = logging.getLogger("wicketgate.upstream")

CANCELLED_CODE = -32800
"""The code of a call that its server cancelled, as for a request that its client cancelled."""
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_LONGEST_BUSY_S = 60.0

Ask = Callable[[str, Mapping[str, Any], CallContext], Awaitable[dict[str, Any]]]
"""Sends one request about a task on the connection of this moment; the complete result. Raises GatewayError."""


@dataclass(frozen=True, slots=True)
class TaskBounds:
    """*answer_s*: within which each request about a task is answered. *lost_s*: how long a server may be out of reach
    while a task of it runs. *failures*: refusals and invalid answers in a row after which the call is given up.
    *cancel_s*: how long the cancelling of a task may hold up the end of its call. *ttl_grace_s*: how long after its
    time to live a task is still looked at."""

    answer_s: float = 60.0
    lost_s: float = 300.0
    failures: int = 3
    cancel_s: float = 2.0
    ttl_grace_s: float = 5.0


class FollowedTask:
    """One call at the server *name* that waits for one task. *left* grows with each question that is answered."""

    def __init__(self, name: str, ask: Ask, bounds: TaskBounds, left: LeftTask, context: CallContext) -> None:
        self._name = name
        self._ask = ask
        self._bounds = bounds
        self._left = left
        self._context = context
        self._asking: asyncio.Task[Mapping[str, Any]] | None = None
        self._now = asyncio.get_running_loop().time
        self._began = self._now()
        self._said = ""
        self._over = False
        self._unheard: UpstreamError | None = None

    async def result(self, task: Task | None) -> dict[str, Any]:
        """The result of the call. *task* is its first state; None for the second attempt of a client, which brings
        answers to questions of the task. Raises as a plain call, but never UpstreamUnavailable: the call has left."""
        if self._context.marks.prolong is not None:
            self._context.marks.prolong()
        try:
            return await self._end_of(await self._resumed() if task is None else task)
        except InputRequired:
            raise  # it waits at its server, and the caller comes back
        except (Refused, Malformed) as error:
            await self._give_up()
            raise reported(self._name, error) from error
        except BaseException:
            await self._give_up()
            raise
        finally:
            if self._asking is not None:
                self._asking.cancel()
                await asyncio.gather(self._asking, return_exceptions=True)

    async def _resumed(self) -> Task:
        """Brings the caller's answers to the task, and looks at it."""
        if self._context.answers is not None and (answers := self._context.answers.responses):
            self._left = self._left.with_answers(answers)
            await self._give(answers)
        return await self._look()

    async def _end_of(self, task: Task) -> dict[str, Any]:
        """The result, once *task* has ended. Raises Refused for a task that failed, Malformed and GatewayError."""
        while True:
            match task.status:
                case "completed":
                    self._over = True
                    if not isinstance(task.result, dict):
                        raise Malformed(NOT_VALID)
                    return whole(task.result)
                case "failed":
                    self._over = True
                    raise refusal(task.error)
                case "cancelled":
                    self._over = True
                    raise UpstreamRefused(
                        f"{self._name} cancelled the call.", code=CANCELLED_CODE, refusal=clean(task.message)
                    )
            await self._tell(task)
            self._put_questions(task)
            self._check_age(task)
            await self._pause(task)
            task = await self._look()

    async def _give_up(self) -> None:
        """Ask the server to cancel the task, unless it has ended; within its bound, so that no server holds up the end
        of a call."""
        if not self._over:
            self._over = True
            await to_its_end(self._cancel)

    async def _cancel(self) -> None:
        try:
            async with asyncio.timeout(self._bounds.cancel_s):
                await self._ask(CANCEL, {"taskId": self._left.id}, self._context)
        except (GatewayError, TimeoutError) as error:
            log.warning("%s: a task could not be cancelled: %s", self._name, type(error).__name__)

    async def _tell(self, task: Task) -> None:
        """Show the caller the words of the task, where they are new, as progress."""
        marks = self._context.marks
        if task.message and task.message != self._said:
            self._said = task.message
            marks.progress += 1
            await self._context.caller.progress(marks.progress, None, task.message)

    def _put_questions(self, task: Task) -> None:
        """Ask what has not been asked yet; while a person answers, the task is still looked at. Raises the refusal of
        answers for which the task still waits."""
        new = {key: request for key, request in task.requests.items() if key not in self._left.answered}
        if self._unheard is not None and task.requests and not new:
            raise self._unheard
        if not new or self._asking is not None:
            return
        self._unheard = None
        state, self._left = self._left.state, self._left.with_answers(new)
        # In a task of its own: a question may be open for hours, and its task may end in the meantime.
        self._asking = asyncio.get_running_loop().create_task(self._answers(new, state))

    async def _answers(self, requests: Mapping[str, Any], state: str) -> Mapping[str, Any]:
        """As those of a plain call. Raises InputRequired where they come with a second attempt."""
        given: dict[str, Any] = {}

        async def attempt(answers: InputAnswers | None) -> dict[str, Any]:
            if answers is None:
                return {"resultType": "input_required", "inputRequests": requests, "requestState": state}
            given.update(answers.responses)
            return {}

        await with_answers(self._name, attempt, replace(self._context, answers=None))
        return given

    def _check_age(self, task: Task) -> None:
        """Raises UpstreamError for a task that is older than its server keeps tasks."""
        if task.ttl_s is not None and self._now() - self._began > task.ttl_s + task.poll_s + self._bounds.ttl_grace_s:
            raise UpstreamUnclear(
                f"{self._name} did not finish the task of this call within the time that it keeps tasks."
            )

    async def _pause(self, task: Task) -> None:
        """Wait until the next look; less where a question is answered before."""
        if self._asking is None:
            await asyncio.sleep(task.poll_s)
            return
        await asyncio.wait({self._asking}, timeout=task.poll_s)
        if self._asking.done():
            asking, self._asking = self._asking, None
            await self._give(asking.result())

    async def _give(self, answers: Mapping[str, Any]) -> None:
        """Bring *answers* to the task. What came of a refusal shows at the next look: the task may be over."""
        try:
            await self._tried(UPDATE, {"taskId": self._left.id, "inputResponses": answers})
        except UpstreamRefused as refused:
            self._unheard = refused

    async def _look(self) -> Task:
        """The state of the task. Raises UpstreamError and Malformed."""
        try:
            return task_of(await self._tried(GET, {"taskId": self._left.id}))
        except UpstreamRefused as refused:
            self._over = refused.upstream_code == INVALID_PARAMS
            log.warning("%s: it answered tasks/get with error %d", self._name, refused.upstream_code)
            what = "does not know the task of this call any more" if self._over else "does not tell of the task"
            raise UpstreamUnclear(f"{self._name} {what}.") from None

    async def _tried(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """The result of a request about the task, which may be sent twice. Tried again for as long as its bounds allow.

        Raises UpstreamRefused, UpstreamLost and UpstreamError.
        """
        failures, pause_s, lost_at = 0, _FIRST_PAUSE_S, self._now()
        while True:
            try:
                async with asyncio.timeout(self._bounds.answer_s) as deadline:
                    return await self._ask(method, params, self._context)
            except TimeoutError:
                if not deadline.expired():
                    raise
            except GatewayError as error:
                if not _out_of_reach(error):
                    failures += 1
                    # A refusal that stays: there is no such task, or nothing is known of tasks.
                    code = error.upstream_code if isinstance(error, UpstreamRefused) else 0
                    if failures >= self._bounds.failures or code in (INVALID_PARAMS, METHOD_NOT_FOUND):
                        raise
                pause_s = max(pause_s, _wait_wanted(error))
            if self._now() - lost_at > self._bounds.lost_s:
                raise UpstreamLost(
                    f"The connection to {self._name} was lost while the tool ran, and did not come back."
                )
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)


def _out_of_reach(error: GatewayError) -> bool:
    """True where the server, which may have the task still, was not asked or did not answer."""
    if isinstance(error, UpstreamUnavailable | UpstreamTimeout | UpstreamLost | UpstreamBusy):
        return True
    status = (error.details or {}).get("status")
    return isinstance(status, int) and status >= 500


def _wait_wanted(error: GatewayError) -> float:
    """Seconds that a busy server asks for, as far as they are heeded."""
    wanted_s = (error.details or {}).get("retry_after_s")
    return min(wanted_s, _LONGEST_BUSY_S) if isinstance(wanted_s, int | float) else 0.0
