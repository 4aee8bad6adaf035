"""The tools of one turn, run at once; each ends in a result, whatever happens (S3 "Tool calls", E44 to E62)."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Protocol

from wicketgate.engine.approvals import REQUIRED, Redeemed, RunApprovals
from wicketgate.engine.events import ToolFailure, ToolOutput, ToolResult
from wicketgate.engine.limits import Interruption
from wicketgate.engine.loop_guard import LoopGuard
from wicketgate.faces.surface import ToolSurface, UnknownTool
from wicketgate.gateway.options import TokenCost
from wicketgate.models.provider import ToolCall
from wicketgate.ports import Approver, CallContext


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """*max_iterations* counts turns that called tools; None is no cap (S3 "What is NOT in the request"). *loop_guard*:
    from which identical call on with the same result none is run. *tool_timeout_s* is longer than any server's own
    deadline: it ends what those do not bound, such as a plugin, a store or an audit sink that hangs."""

    max_iterations: int | None = None
    tool_timeout_s: float = 30.0
    max_parallel_tools: int = 8
    max_calls_per_turn: int = 128
    loop_guard: int | None = 3


class CallOwner(Approver, Protocol):
    """Who is asked about one call; *waiting* is the id under which it now waits, if it does."""

    @property
    def waiting(self) -> str: ...


class ToolRounds:
    """Of one stream. *cost* sums what its calls took; *waiting* is true once a call waits for the owner."""

    def __init__(
        self,
        surface: ToolSurface,
        context: CallContext,
        limits: EngineLimits,
        interruption: Interruption,
        guard: LoopGuard,
    ) -> None:
        self._surface = surface
        self._context = context
        self._limits = limits
        self._interruption = interruption
        self._guard = guard
        self.cost = TokenCost()
        self.waiting = False

    async def asked(
        self, calls: Sequence[ToolCall], approvals: RunApprovals | None
    ) -> AsyncGenerator[Sequence[ToolResult], None]:
        """The calls that the model has made in one turn, results as they come (E44)."""
        most = self._limits.max_calls_per_turn
        if len(calls) > most:
            too_many = f"not run: more than {most} calls in one turn"
            yield [ToolFailure(call.id, too_many) for call in calls[most:]]
        run: list[tuple[ToolCall, CallOwner | None]] = []
        refused: list[ToolResult] = []
        for call in calls[:most]:
            if refusal := self._guard.refusal(call):
                refused.append(ToolFailure(call.id, refusal))
            else:
                run.append((call, approvals.approver(call) if approvals else None))
        if refused:
            yield refused
        made = {call.id: call for call, _ in run}
        async with aclosing(self._run(run)) as finished:
            async for results in finished:
                for result in results:
                    self._guard.note(made[result.id], text_of(result))
                yield results

    async def resumed(self, approvals: RunApprovals) -> AsyncGenerator[Sequence[ToolResult], None]:
        """The calls of the history that the owner has decided on: run, or answered with why not."""
        refused = [ToolFailure(each.call.id, each.refusal) for each in approvals.resumed if each.approval is None]
        if refused:
            yield refused
        approved = [(each.call, Redeemed(each.approval)) for each in approvals.resumed if each.approval is not None]
        async with aclosing(self._run(approved)) as finished:
            async for results in finished:
                yield results

    async def _run(
        self, calls: Sequence[tuple[ToolCall, CallOwner | None]]
    ) -> AsyncGenerator[Sequence[ToolResult], None]:
        """All at once; leaving early cancels what still runs."""
        places = asyncio.Semaphore(self._limits.max_parallel_tools)
        running = {asyncio.create_task(self._call(call, owner, places)) for call, owner in calls}
        try:
            while running:
                finished, running = await self._interruption.wait(
                    asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                )
                yield [task.result() for task in finished]
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _call(self, call: ToolCall, owner: CallOwner | None, places: asyncio.Semaphore) -> ToolResult:
        if call.arguments is None:
            return ToolFailure(call.id, "invalid arguments: the arguments of a tool call must be one JSON object")
        context = self._context if owner is None else replace(self._context, approver=owner)
        async with places:
            try:
                async with asyncio.timeout(self._limits.tool_timeout_s) as deadline:
                    result = await self._surface.call(call.name, call.arguments, context)
            except UnknownTool:
                return ToolFailure(call.id, f"Unknown tool: {call.name}")
            except TimeoutError:
                if not deadline.expired():
                    raise
                return ToolFailure(call.id, f"{call.name} timed out after {self._limits.tool_timeout_s:g}s")
        self.cost += result.cost
        if owner is not None and owner.waiting:
            self.waiting = True
            return ToolFailure(call.id, f"{REQUIRED}{owner.waiting}")
        return ToolFailure(call.id, result.text) if result.is_error else ToolOutput(call.id, result.text)


def text_of(result: ToolResult) -> str:
    return result.output if isinstance(result, ToolOutput) else result.error
