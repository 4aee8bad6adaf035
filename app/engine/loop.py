"""The agent loop: call the model, run the tools it asks for, repeat until it has nothing more to ask (S3).

The loop imposes no cap of its own; ``max_iterations`` is the deployment's choice. Whatever happens, the last event
is one ``done`` or one ``error``, and nothing comes after it.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from app.auth.identity import Identity
from app.engine.call_context import call_context
from app.engine.contract import ChatRequest, message_json
from app.engine.events import Done, ErrorEvent, Event, ToolFailure, ToolOutput, ToolResult
from app.engine.limits import Interrupted, Interruption
from app.engine.model import Message, ModelRequest, ModelTool, Provider, ToolCall, Usage
from app.engine.turn import Turn
from app.engine.window import ModelWindow
from app.errors import EngineError, ProviderError, ToolError
from app.faces.surface import ToolSurface, UnknownTool
from app.gateway.meter import Meter, NoMeter, TokenCost
from app.gateway.ports import CallContext

log = logging.getLogger("wicketgate.engine")


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """*max_iterations* counts turns that called tools; None is no cap (S3 "What is NOT in the request")."""

    max_iterations: int | None = None
    tool_timeout_s: float = 30.0
    max_parallel_tools: int = 8


class Engine:
    """One provider and one face, wired at start-up; everything else comes with the request."""

    def __init__(
        self,
        provider: Provider,
        surface: ToolSurface,
        window: ModelWindow,
        limits: EngineLimits | None = None,
        meter: Meter | None = None,
    ) -> None:
        self._provider = provider
        self._surface = surface
        self._window = window
        self.limits = limits or EngineLimits()
        """Others may be assigned at any time, for streams that begin then."""
        self._meter = meter or NoMeter()

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
        run = _Run(self._provider, self._surface, self._window, self.limits, request, context, interruption)
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
        request: ChatRequest,
        context: CallContext,
        interruption: Interruption,
    ) -> None:
        self._provider = provider
        self._surface = surface
        self._window = window
        self._limits = limits
        self._context = context
        self._interruption = interruption
        self._messages: list[Message] = [message_json(message) for message in request.messages]
        self._call_ids = {call.id for message in request.messages for call in message.tool_calls or ()}
        self.usage = Usage()
        self.cost = TokenCost()
        self.in_tools = False

    async def events(self) -> AsyncGenerator[Sequence[Event], None]:
        tools = [
            ModelTool(tool.name, tool.description, tool.input_schema) for tool in self._surface.tools(self._context)
        ]
        turns_with_tools = 0
        while True:
            turn = Turn(self._call_ids)
            model_request = ModelRequest(await self._shown(tools), tools, self._context.correlation_id)
            async with aclosing(self._provider.stream(model_request)) as stream:
                while (batch := await self._interruption.wait(anext(stream, None))) is not None:
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
            async with aclosing(self._run_tools(turn.calls)) as finished:
                async for results_now in finished:
                    results.update((result.id, result) for result in results_now)
                    yield results_now
            self._messages.append(turn.message())
            self._messages.extend(_tool_message(results[call.id]) for call in turn.calls)
            self.in_tools = False

            turns_with_tools += 1
            if turns_with_tools == self._limits.max_iterations:
                yield [Done("max_iterations", self.usage, self.cost)]
                return

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

    async def _run_tools(self, calls: Sequence[ToolCall]) -> AsyncGenerator[Sequence[ToolResult], None]:
        """All calls of a turn at once, results as they come (E44); leaving early cancels what still runs."""
        places = asyncio.Semaphore(self._limits.max_parallel_tools)
        running = {asyncio.create_task(self._run_tool(call, places)) for call in calls}
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

    async def _run_tool(self, call: ToolCall, places: asyncio.Semaphore) -> ToolResult:
        if call.arguments is None:
            return ToolFailure(call.id, "invalid arguments: the arguments of a tool call must be one JSON object")
        async with places:
            try:
                async with asyncio.timeout(self._limits.tool_timeout_s) as deadline:
                    result = await self._surface.call(call.name, call.arguments, self._context)
            except UnknownTool:
                return ToolFailure(call.id, f"Unknown tool: {call.name}")
            except TimeoutError:
                if not deadline.expired():
                    raise
                return ToolFailure(call.id, f"{call.name} timed out after {self._limits.tool_timeout_s:g}s")
        self.cost += result.cost
        return ToolFailure(call.id, result.text) if result.is_error else ToolOutput(call.id, result.text)


def _tool_message(result: ToolResult) -> Message:
    content = result.output if isinstance(result, ToolOutput) else result.error
    return {"role": "tool", "tool_call_id": result.id, "content": content}
