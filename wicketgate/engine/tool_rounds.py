"""The tools of one turn, run at once; each ends in a result, whatever happens (CHAT-42 to CHAT-55)."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial

from wicketgate.access.identity import Standing, always_good
from wicketgate.engine.approvals import REQUIRED, CallApprover, Redeemed, RunApprovals
from wicketgate.engine.events import ToolFailure, ToolOutput, ToolResult, text_for_model
from wicketgate.engine.limits import Interrupted, Interruption
from wicketgate.errors import ConnectRequired
from wicketgate.faces.surface import ModelSurface, UnknownTool
from wicketgate.gateway.options import TokenCost
from wicketgate.models.provider import Message, ToolCall
from wicketgate.ports import CallContext

ClaimCall = Callable[[str], Awaitable[bool]]
"""Takes the id of a call. True the first time that this call is claimed. Raises NotAdmitted."""

MAX_CALLS_PER_TURN = 128
"""Far more than models make in one turn; a model that writes calls without end is stopped here."""
_MAX_PARALLEL = 8
"""Calls of one turn that run concurrently. Each server has its own bound besides."""
_LOOP_PREFIX = "loop_guard: "
_CONNECT = f'{{"error":"{ConnectRequired.code}"'


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """*max_iterations* counts turns that called tools; None is no cap (CHAT-53). *loop_guard*
    is the number of the first identical call with the same result that is not run. *tool_timeout_s* is longer than any
    server's own deadline: it ends work that those do not bound, such as a plugin, a store or an audit sink that hangs.
    *task_s* is the time of a call that its server goes on with as a task, which that end is put off by.
    """

    max_iterations: int | None = None
    tool_timeout_s: float = 30.0
    loop_guard: int | None = 3
    task_s: float = 3_600.0


class LoopGuard:
    """Answers for the tool when the same call keeps having the same result (CHAT-54).

    *most* is the number of the first identical call that is not run; None is never. *history* counts since the last
    message of the user, including parts that the model is not shown any more. A result that changes begins again:
    polling is no loop. What may be refused at all is not decided here (CHAT-98).
    """

    def __init__(self, most: int | None, history: Iterable[Message] = ()) -> None:
        self._most = most
        self._seen: dict[tuple[str, str], tuple[str, int]] = {}
        if most is not None:
            self._read(history)

    def refusal(self, call: ToolCall) -> str:
        """The reason why *call* is not run; empty if it may be."""
        if self._most is None:
            return ""
        _, times = self._seen.get(_key(call), ("", 0))
        if times < max(self._most - 1, 1):
            return ""
        return (
            f"{_LOOP_PREFIX}this very call has had the same result {times} times, so it was not run again. "
            "Use that result, change the arguments, or do something else."
        )

    def note(self, call: ToolCall, result: str) -> None:
        # A call that waits for a login is made again when that has come about, as often as it takes.
        if self._most is None or result.startswith((_LOOP_PREFIX, _CONNECT)):
            return
        key = _key(call)
        seen, times = self._seen.get(key, (result, 0))
        self._seen[key] = (result, times + 1 if seen == result else 1)

    def _read(self, history: Iterable[Message]) -> None:
        calls: dict[str, ToolCall] = {}
        for message in history:
            match message["role"]:
                case "user":
                    self._seen.clear()
                case "assistant":
                    for call in message.get("tool_calls") or ():
                        function = call["function"]
                        calls[call["id"]] = ToolCall(call["id"], function["name"], None, function["arguments"])
                case "tool" if (made := calls.get(message["tool_call_id"])) is not None:
                    self.note(made, message["content"])


@dataclass(eq=False, repr=False)
class ToolRounds:
    """Runs the tools of one stream. *cost* sums the tokens of its calls; *waiting* is true once one waits for the
    owner, *connecting* once one waits for a login of its caller, *out_of_order* once one failed for a reason that fails
    every other too."""

    _surface: ModelSurface
    _context: CallContext
    _limits: EngineLimits
    _interruption: Interruption
    _guard: LoopGuard
    _standing: Standing = always_good
    _claim: ClaimCall | None = None

    def __post_init__(self) -> None:
        self.cost = TokenCost()
        self.waiting = False
        self.connecting = False
        self.out_of_order = False

    async def run_turn(
        self, calls: Sequence[ToolCall], approvals: RunApprovals | None, cut_off: tuple[str, str] | None = None
    ) -> AsyncGenerator[Sequence[ToolResult], None]:
        """Run the calls that the model has made in one turn; results as they come (CHAT-44). *cut_off* is the id of one
        that is not whole, with its answer."""
        # Calls over the limit, and calls that repeat and change nothing, are refused first.
        too_many = f"not run: more than {MAX_CALLS_PER_TURN} calls in one turn"
        refused: list[ToolResult] = [ToolFailure(call.id, too_many) for call in calls[MAX_CALLS_PER_TURN:]]
        made: dict[str, ToolCall] = {}
        for call in calls[:MAX_CALLS_PER_TURN]:
            if cut_off is not None and call.id == cut_off[0]:
                refused.append(ToolFailure(*cut_off))
                continue
            refusal = self._guard.refusal(call)
            if refusal and not self._may_write(call):
                refused.append(ToolFailure(call.id, refusal))
            else:
                made[call.id] = call
        if refused:
            yield refused
        # The others run; their results count for later rounds.
        run = [(call, CallApprover(approvals, call) if approvals else None) for call in made.values()]
        async with aclosing(self._run(run)) as finished:
            async for results in finished:
                for result in results:
                    self._guard.note(made[result.id], text_for_model(result))
                yield results

    async def run_resumed(self, approvals: RunApprovals) -> AsyncGenerator[Sequence[ToolResult], None]:
        """Run the decided calls of the history, or answer them with the refusal."""
        refused = [ToolFailure(each.call.id, each.refusal) for each in approvals.resumed if each.approval is None]
        if refused:
            yield refused
        approved = [
            (each.call, Redeemed(each.approval, each.granted))
            for each in approvals.resumed
            if each.approval is not None
        ]
        async with aclosing(self._run(approved)) as finished:
            async for results in finished:
                yield results

    def _may_write(self, call: ToolCall) -> bool:
        return call.arguments is not None and self._surface.may_write(call.name, call.arguments, self._context)

    async def _run(
        self, calls: Sequence[tuple[ToolCall, CallApprover | Redeemed | None]]
    ) -> AsyncGenerator[Sequence[ToolResult], None]:
        """Run all at once. Closing early cancels those that still run.

        Raises Interrupted, and runs none, if the key of this run is not good any more (CHAT-93).
        """
        if not self._standing(self._context.identity):
            self._interruption.request("revoked")
            raise Interrupted
        parallel = asyncio.Semaphore(_MAX_PARALLEL)
        running = {asyncio.create_task(self._call(call, approver, parallel)) for call, approver in calls}
        self._interruption.helpers = running
        try:
            while running:
                finished, running = await self._interruption.wait(
                    asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                )
                yield [task.result() for task in finished]
        finally:
            # No task outlives the round.
            self._interruption.cancel_helpers()
            await asyncio.gather(*running, return_exceptions=True)

    async def _call(
        self, call: ToolCall, approver: CallApprover | Redeemed | None, parallel: asyncio.Semaphore
    ) -> ToolResult:
        if call.arguments is None:
            return ToolFailure(call.id, "invalid arguments: the arguments of a tool call must be one JSON object")
        # The call itself, bounded in number and time. Its failures are results for the model.
        context = self._context if approver is None else replace(self._context, approver=approver)
        if self._claim is not None:
            context = context.having(claim=partial(self._claim, call.id))
        async with parallel:
            try:
                async with asyncio.timeout(self._limits.tool_timeout_s) as deadline:
                    context = context.having(on_task=partial(_put_off, deadline, self._limits.task_s))
                    result = await self._surface.call(call.name, call.arguments, context)
            except UnknownTool:
                return ToolFailure(call.id, f"Unknown tool: {call.name}")
            except TimeoutError:
                if not deadline.expired():
                    raise
                return ToolFailure(call.id, f"{call.name} timed out after {self._limits.tool_timeout_s:g}s")
        # A call that waits for the owner ends the stream after this round.
        self.cost += result.cost
        self.out_of_order |= result.out_of_order
        self.connecting |= result.connects
        if approver is not None and approver.waiting:
            self.waiting = True
            return ToolFailure(call.id, f"{REQUIRED}{approver.waiting}")
        if approver is not None and approver.refusal:
            return ToolFailure(call.id, approver.refusal)
        if result.is_error:
            return ToolFailure(call.id, result.text, result.shown)
        return ToolOutput(call.id, result.text, result.shown)


def _key(call: ToolCall) -> tuple[str, str]:
    """Name and arguments in one spelling; text that is not JSON is compared as it was written."""
    try:
        arguments = call.arguments if call.arguments is not None else json.loads(call.raw)
        return call.name, json.dumps(arguments, sort_keys=True, separators=(",", ":"))
    except (ValueError, RecursionError):
        return call.name, call.raw


def _put_off(deadline: asyncio.Timeout, seconds: float) -> None:
    until = deadline.when()
    if until is not None and not deadline.expired():
        deadline.reschedule(until + seconds)
