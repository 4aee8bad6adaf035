"""The agent loop: call the model, run the tools it asks for, repeat until it has nothing more to ask (S3).

The loop imposes no cap of its own; ``max_iterations`` is the deployment's choice. Whatever happens, the last event
is one ``done`` or one ``error``, and nothing comes after it.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from wicketgate.access.identity import Identity
from wicketgate.engine.approvals import ApprovalDesk, RunApprovals
from wicketgate.engine.call_context import call_context
from wicketgate.engine.contract import ChatRequest, message_json
from wicketgate.engine.events import Done, ErrorEvent, Event, ToolCallEvent, ToolResult
from wicketgate.engine.limits import Interrupted, Interruption
from wicketgate.engine.loop_guard import LoopGuard
from wicketgate.engine.tool_rounds import EngineLimits, ToolRounds, text_of
from wicketgate.engine.turn import Turn
from wicketgate.engine.window import ModelWindow
from wicketgate.errors import EngineError, ProviderError, ToolError
from wicketgate.faces.surface import ToolSurface
from wicketgate.gateway.options import Meter, NoMeter, TokenCost
from wicketgate.models.provider import Message, ModelRequest, ModelTool, Provider, Usage
from wicketgate.ports import CallContext

log = logging.getLogger("wicketgate.engine")


class Engine:
    """One provider and one face, wired at start-up; everything else comes with the request."""

    def __init__(
        self,
        provider: Provider,
        surface: ToolSurface,
        window: ModelWindow,
        limits: EngineLimits | None = None,
        meter: Meter | None = None,
        approvals: ApprovalDesk | None = None,
    ) -> None:
        """Without *approvals* a call that needs one is refused for good."""
        self._provider = provider
        self._surface = surface
        self._window = window
        self.limits = limits or EngineLimits()
        """Others may be assigned at any time, for streams that begin then."""
        self._meter = meter or NoMeter()
        self._approvals = approvals

    async def run(self, request: ChatRequest, identity: Identity) -> AsyncGenerator[Event, None]:
        """The events of one stream, one by one: the contract as a direct function call (S3 "Same-Process Option").

        Closing the generator (``contextlib.aclosing``) cancels the model and the tools.
        """
        async with aclosing(self.batches(request, call_context(request, identity))) as batches:
            async for batch in batches:
                for event in batch:
                    yield event

    async def batches(
        self, request: ChatRequest, context: CallContext, interruption: Interruption | None = None
    ) -> AsyncGenerator[Sequence[Event], None]:
        """The same events, grouped as they became known, so that a door can send each group with one write.

        Closing the generator cancels the model and the tools. An *interruption* ends it with ``done`` (cancelled).
        """
        interruption = interruption or Interruption()
        run = _Run(
            self._provider,
            self._surface,
            self._window,
            self.limits,
            self._approvals,
            request,
            context,
            interruption,
        )
        outcome = "disconnected"
        try:
            async with aclosing(run.events()) as events:
                async for batch in events:
                    if isinstance(batch[-1], Done):
                        outcome = batch[-1].finish_reason
                    yield batch
        except Interrupted:
            log.info("cancelled")
            outcome = interruption.reason or "cancelled"
            yield [Done("cancelled", run.usage, run.cost)]
        except EngineError as error:
            log.error("stream failed: %s: %s", error.code, error)
            outcome = error.code
            yield [ErrorEvent(error.code, error.safe_message)]
        except (asyncio.CancelledError, GeneratorExit):
            log.info("cancelled")
            raise
        except Exception:
            # An engine fault is classed by its phase: the contract has no catch-all code.
            fault = ToolError if run.in_tools else ProviderError
            log.exception("stream failed: %s", fault.code)
            outcome = fault.code
            yield [ErrorEvent(fault.code, fault.safe_message)]
        finally:
            self._meter.stream_ended(outcome, run.usage)


class _Run:
    """The state of one stream."""

    def __init__(
        self,
        provider: Provider,
        surface: ToolSurface,
        window: ModelWindow,
        limits: EngineLimits,
        approvals: ApprovalDesk | None,
        request: ChatRequest,
        context: CallContext,
        interruption: Interruption,
    ) -> None:
        self._provider = provider
        self._surface = surface
        self._window = window
        self._max_iterations = limits.max_iterations
        self._desk = approvals
        self._request = request
        self._context = context
        self._interruption = interruption
        self._messages: list[Message] = [message_json(message) for message in request.messages]
        self._call_ids = {call.id for message in request.messages for call in message.tool_calls or ()}
        guard = LoopGuard(limits.loop_guard, self._messages)
        self._rounds = ToolRounds(surface, context, limits, interruption, guard)
        self.usage = Usage()
        self.in_tools = False

    @property
    def cost(self) -> TokenCost:
        return self._rounds.cost

    async def events(self) -> AsyncGenerator[Sequence[Event], None]:
        tools = [
            ModelTool(tool.name, tool.description, tool.input_schema) for tool in self._surface.tools(self._context)
        ]
        approvals = await self._desk.take_up(self._request, self._context.identity.actor) if self._desk else None
        if approvals is not None:
            self._messages = approvals.told(self._messages)
            async with aclosing(self._resume(approvals)) as resumed:
                async for events in resumed:
                    yield events
        wait = self._interruption.wait
        turns_with_tools = 0
        while True:
            turn = Turn(self._call_ids)
            model_request = ModelRequest(await self._shown(tools), tools, self._context.correlation_id)
            async with aclosing(self._provider.stream(model_request)) as stream:
                while True:
                    try:
                        batch = await wait(stream.__anext__())
                    except StopAsyncIteration:
                        break
                    if events := turn.take(batch):
                        yield events
            if turn.finish is None:
                raise ProviderError("the provider ended its stream without a finish")
            if turn.finish.usage is not None:
                self.usage += turn.finish.usage
            if not turn.calls:
                reason = turn.finish.reason
                yield [Done("stop" if reason == "tool_calls" else reason, self.usage, self.cost)]
                return

            self.in_tools = True
            results: dict[str, ToolResult] = {}
            async with aclosing(self._rounds.asked(turn.calls, approvals)) as finished:
                async for results_now in finished:
                    results.update((result.id, result) for result in results_now)
                    yield results_now
            self._messages.append(turn.message())
            self._messages.extend(_tool_message(call.id, results[call.id]) for call in turn.calls)
            self.in_tools = False

            turns_with_tools += 1
            if self._rounds.waiting:
                yield [Done("approval_required", self.usage, self.cost)]
                return
            if turns_with_tools == self._max_iterations:
                yield [Done("max_iterations", self.usage, self.cost)]
                return

    async def _resume(self, approvals: RunApprovals) -> AsyncGenerator[Sequence[Event], None]:
        """Calls of the history that wait no longer: shown, run or refused, and answered where they stand."""
        if not approvals.resumed:
            return
        self.in_tools = True
        self._call_ids.update(each.call.id for each in approvals.resumed)
        yield [ToolCallEvent(each.call.id, each.call.name, each.call.arguments or {}) for each in approvals.resumed]
        places = {each.call.id: each.index for each in approvals.resumed}
        async with aclosing(self._rounds.resumed(approvals)) as finished:
            async for results in finished:
                for result in results:
                    place = places[result.id]
                    self._messages[place] = {**self._messages[place], "content": text_of(result)}
                yield results
        self.in_tools = False

    async def _shown(self, tools: Sequence[ModelTool]) -> Sequence[Message]:
        """What of the history the model is shown; the history itself stays whole. Raises ContextOverflow."""
        built = await self._interruption.wait(self._window.show(self._messages, tools))
        if built.dropped_turns or built.dropped_steps or built.shrunk_results:
            log.info(
                "history reduced to %d tokens: %d turns and %d steps dropped, %d results shrunk",
                built.tokens,
                built.dropped_turns,
                built.dropped_steps,
                built.shrunk_results,
            )
        return built.messages


def _tool_message(call_id: str, result: ToolResult) -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": text_of(result)}
