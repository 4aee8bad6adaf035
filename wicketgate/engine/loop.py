"""The agent loop: call the model, run the tools it asks for, repeat until it asks for no more (CHAT-42).

The loop imposes no cap of its own; ``max_iterations`` is the deployment's choice. Whatever happens, the last event
is one ``done`` or one ``error``, and nothing comes after it.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial

from wicketgate.access.identity import Identity, Standing, always_good
from wicketgate.engine.approval_desk import ApprovalDesk
from wicketgate.engine.approvals import Judging, RunApprovals
from wicketgate.engine.checkpoint import RunState
from wicketgate.engine.contract import ChatRequest, call_context, message_json
from wicketgate.engine.events import Done, DoneReason, ErrorEvent, Event, ToolCallEvent, ToolResult, text_for_model
from wicketgate.engine.limits import Interrupted, Interruption
from wicketgate.engine.tool_rounds import ClaimCall, EngineLimits, LoopGuard, ToolRounds
from wicketgate.engine.turn import MAX_TEXT_CHARS, ModelWindow, Turn
from wicketgate.errors import EngineError, OutOfOrder, ProviderError, ToolError
from wicketgate.faces.surface import ModelSurface
from wicketgate.gateway.options import Meter, NoMeter
from wicketgate.gateway.spending import Spending
from wicketgate.heavy_work import run_queued
from wicketgate.models.provider import Finish, Message, ModelRequest, ModelTool, Provider, TakeText, Usage
from wicketgate.ports import CallContext
from wicketgate.tracing import OpenSpan, parent_of
from wicketgate.tracing import begin as begin_span

log = logging.getLogger("wicketgate.engine")

KeepState = Callable[[RunState], None]
"""Takes the state of a run as it is behind the events that come next. It must not wait."""


class Engine:
    """Runs chats with one provider and one face. *limits* may be replaced at any time, for streams that begin then."""

    def __init__(
        self,
        provider: Provider,
        surface: ModelSurface,
        window: ModelWindow,
        limits: EngineLimits | None = None,
        meter: Meter | None = None,
        approvals: ApprovalDesk | None = None,
        standing: Standing = always_good,
        spending: Spending | None = None,
    ) -> None:
        """Without *approvals* a call that needs one is refused for good. *standing* is asked before each round of
        tools. *spending* counts turns, and may refuse a chat before it begins."""
        self.provider = provider
        self.surface = surface
        self.window = window
        self.limits = limits or EngineLimits()
        self.approvals = approvals
        self.standing = standing
        self.spending = spending
        self._meter = meter or NoMeter()

    async def run(self, request: ChatRequest, identity: Identity) -> AsyncGenerator[Event, None]:
        """The events of one stream, one by one: the contract as a direct function call (CHAT-40).

        Closing the generator (``contextlib.aclosing``) cancels the model and the tools. Raises RateLimited and
        NotAdmitted before the first event, as ``admit`` does.
        """
        await self.admit(identity)
        async with aclosing(self.batches(request, call_context(request, identity))) as batches:
            async for batch in batches:
                for event in batch:
                    yield event

    async def admit(self, identity: Identity, begins: Callable[[], Awaitable[bool]] | None = None) -> str:
        """Checks the budgets of *identity* for a chat, if it *begins*. Returns and raises as ``Spending.admit``."""
        return "" if self.spending is None else await self.spending.admit(identity, begins)

    async def batches(
        self,
        begin: ChatRequest | RunState,
        context: CallContext,
        interruption: Interruption | None = None,
        claim: ClaimCall | None = None,
        keep: KeepState | None = None,
        take_text: TakeText | None = None,
    ) -> AsyncGenerator[Sequence[Event], None]:
        """The same events, grouped as they became known, so that a door can send each group with one write. A run
        *begins* with a request, or goes on with the state that another process has left.

        Closing the generator cancels the model and the tools. An *interruption* ends it with ``done`` (cancelled).
        *claim* is asked for each call that may write, right before it leaves (CHAT-111). *keep* is called right before
        the events that complete a turn, which may be none (CHAT-123). *take_text* is offered texts while the reader
        waits, instead of waking it (see ModelRequest); it gets them in their place among the events.
        """
        interruption = interruption or Interruption()
        state = begin if isinstance(begin, RunState) else await _state_of(begin, self.surface, context)
        span = begin_span("invoke_agent wicketgate", "INTERNAL", _SPAN_ATTRIBUTES, context.meta)
        under = context if span is None else span.under(context)
        run = _Run(self, begin, state, under, interruption, claim, keep, take_text)
        outcome = "disconnected"
        # Whatever happens in the run becomes its one last event; the outcome goes to the metrics.
        try:
            async with aclosing(run.events()) as events:
                async for batch in events:
                    if batch and isinstance(batch[-1], Done):
                        outcome = batch[-1].finish_reason
                    yield batch
        except Interrupted:
            log.info("cancelled")
            try:
                yield run.done("cancelled")
            finally:
                outcome = interruption.reason or "cancelled"
        except OutOfOrder as error:
            log.error("stream failed: %s: %s", ToolError.code, error)
            outcome = ToolError.code
            yield [ErrorEvent(ToolError.code, ToolError.safe_message)]
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
            if span is not None:
                _end_span(span, outcome, run.usage)
            self._meter.stream_ended(outcome)


class _Run:
    """The state of one stream."""

    def __init__(
        self,
        engine: Engine,
        begin: ChatRequest | RunState,
        state: RunState,
        context: CallContext,
        interruption: Interruption,
        claim: ClaimCall | None,
        keep: KeepState | None,
        take_text: TakeText | None,
    ) -> None:
        limits = engine.limits
        self._engine = engine
        self._max_iterations = limits.max_iterations
        self._begin = begin
        self._context = context
        self._interruption = interruption
        self._keep = keep
        self._take_text = take_text
        self._messages = list(state.messages)
        self._call_ids = set(state.call_ids)
        self._turns = state.turns
        guard = LoopGuard(limits.loop_guard, self._messages)
        self._rounds = ToolRounds(engine.surface, context, limits, interruption, guard, engine.standing, claim)
        self._rounds.cost, self._rounds.waiting = state.cost, state.waiting
        self._rounds.connecting = state.connecting
        self._approvals: RunApprovals | None = None
        self.usage = state.usage
        self.in_tools = False

    def done(self, reason: DoneReason) -> Sequence[Event]:
        spending = self._engine.spending
        return [Done(reason, self.usage, self._rounds.cost, spending is not None and spending.rules.priced)]

    async def events(self) -> AsyncGenerator[Sequence[Event], None]:
        surface = self._engine.surface
        await surface.prepare(self._context)
        tools = [ModelTool(tool.name, tool.description, tool.input_schema) for tool in surface.tools(self._context)]
        if self._engine.approvals is not None:
            async with aclosing(self._decide(self._engine.approvals.judging)) as decided:
                async for events in decided:
                    yield events

        wait = self._interruption.wait
        while True:
            # Reasons to stop although the model would go on.
            if (reason := self._stop()) is not None:
                yield self.done(reason)
                return
            # One turn of the model.
            turn = Turn(self._call_ids)
            take_text = None if self._take_text is None else partial(self._pass_on, turn, self._take_text)
            shown, parent = await self._shown(tools), parent_of(self._context.meta)
            model_request = ModelRequest(shown, tools, self._context.correlation_id, take_text, parent)
            try:
                async with aclosing(self._engine.provider.stream(model_request)) as stream:
                    while True:
                        try:
                            batch = await wait(stream.__anext__())
                        except StopAsyncIteration:
                            break
                        events = turn.read(batch)
                        if turn.finish is not None:
                            self._count(turn.finish)
                        if events:
                            yield events
                        if turn.overlong:
                            log.warning(
                                "the model wrote more than %d characters in one turn and was stopped", MAX_TEXT_CHARS
                            )
                            break
            finally:
                self._count_left(turn, shown)
            if turn.finish is None:
                raise ProviderError("the provider ended its stream without a finish")
            # Without calls it is the last one.
            if not turn.calls:
                yield self.done("stop" if turn.finish.reason == "tool_calls" else turn.finish.reason)
                return

            # The round of its tools. The history gets the results in the order of the calls.
            self.in_tools = True
            results: dict[str, ToolResult] = {}
            async with aclosing(self._rounds.run_turn(turn.calls, self._approvals, turn.cut_off())) as finished:
                async for results_now in finished:
                    results.update((result.id, result) for result in results_now)
                    if len(results) == len(turn.calls):
                        self._complete(turn, results)
                    yield results_now
            self._check_order()
            self.in_tools = False

    def _count(self, finish: Finish) -> None:
        if finish.usage is not None:
            self.usage += finish.usage
            if self._engine.spending is not None:
                self._engine.spending.answered(self._context.identity, finish.model, finish.usage)

    def _count_left(self, turn: Turn, shown: Sequence[Message]) -> None:
        """Counts a turn that nobody read to its end, for which the provider is paid all the same: otherwise who leaves
        early would spend nothing."""
        ended = turn.finish is not None and not turn.overlong
        if self._engine.spending is None or ended or not (turn.chars or self._interruption.reason):
            return
        read = sum(len(str(message.get("content") or "")) for message in shown)
        self._engine.spending.left(self._context.identity, read, turn.chars)

    def _pass_on(self, turn: Turn, take: TakeText, text: str) -> bool:
        return self._interruption.reason is None and turn.pass_on(text, take)

    def _stop(self) -> DoneReason | None:
        if self._rounds.waiting:
            return "approval_required"
        if self._rounds.connecting:
            return "connect_required"
        return "max_iterations" if self._turns and self._turns == self._max_iterations else None

    def _complete(self, turn: Turn, results: Mapping[str, ToolResult]) -> None:
        self._messages.append(turn.message())
        self._messages.extend(
            {"role": "tool", "content": text_for_model(results[call.id]), "tool_call_id": call.id}
            for call in turn.calls
        )
        self._turns += 1
        self._keep_state()

    def _keep_state(self) -> None:
        """Gives the state that another process could go on with. There is none where the run is about to fail."""
        if self._keep is None or self._rounds.out_of_order:
            return
        standing = tuple(self._approvals.standing) if self._approvals is not None else ()
        waiting, connecting = self._rounds.waiting, self._rounds.connecting
        cost = self._rounds.cost
        self._keep(
            RunState(self._messages, self._call_ids, self.usage, cost, self._turns, standing, waiting, connecting)
        )

    async def _decide(self, judging: Judging) -> AsyncGenerator[Sequence[Event], None]:
        """Run or refuse the calls of the history that waited for decisions which came with the request."""
        if isinstance(self._begin, RunState):
            self._approvals = judging.stand_again(self._begin.standing, self._context)
            return
        self._approvals = await judging.judge(self._begin, self._context)
        self._messages = self._approvals.for_model(self._messages)
        async with aclosing(self._resume(self._approvals)) as resumed:
            async for events in resumed:
                yield events
        if self._begin.metadata.approvals and not self._approvals.resumed and self._keep is not None:
            self._keep_state()
            yield []

    async def _resume(self, approvals: RunApprovals) -> AsyncGenerator[Sequence[Event], None]:
        """Run or refuse the decided calls of the history; put their results where the calls are answered."""
        if not approvals.resumed:
            return
        self.in_tools = True
        self._call_ids.update(each.call.id for each in approvals.resumed)
        yield [ToolCallEvent(each.call.id, each.call.name, each.call.arguments or {}) for each in approvals.resumed]
        indexes = {each.call.id: each.index for each in approvals.resumed}
        async with aclosing(self._rounds.run_resumed(approvals)) as finished:
            async for results in finished:
                for result in results:
                    index = indexes.pop(result.id)
                    self._messages[index] = {**self._messages[index], "content": text_for_model(result)}
                if not indexes:
                    self._keep_state()
                yield results
        self._check_order()
        self.in_tools = False

    def _check_order(self) -> None:
        """Raises ToolError once no tool can be run: every call has its result by then, and further ones are in vain
        (CHAT-104)."""
        if self._rounds.out_of_order:
            raise ToolError("what every call needs is out of order")

    async def _shown(self, tools: Sequence[ModelTool]) -> Sequence[Message]:
        """The part of the history that the model is shown; the history itself stays whole. Raises ContextOverflow."""
        built = await self._interruption.wait(self._engine.window.fit(self._messages, tools))
        reduced = (built.dropped_turns, built.dropped_steps, built.shrunk_results)
        if any(reduced):
            text = "history reduced to %d tokens: %d turns and %d steps dropped, %d results shrunk"
            log.info(text, built.tokens, *reduced)
        return built.messages


_SPAN_ATTRIBUTES = {
    "gen_ai.operation.name": "invoke_agent",
    "gen_ai.agent.name": "wicketgate",
    "gen_ai.provider.name": "wicketgate",
}


def _end_span(span: OpenSpan, outcome: str, usage: Usage) -> None:
    span.note({"gen_ai.usage.input_tokens": usage.prompt_tokens, "gen_ai.usage.output_tokens": usage.completion_tokens})
    span.end(outcome if outcome.isupper() else "")


_LONG_HISTORY_CHARS = 262_144
"""Reading longer results of tools takes tens of milliseconds."""


async def _state_of(request: ChatRequest, surface: ModelSurface, context: CallContext) -> RunState:
    """Returns the state in which a run begins. A long history is read next to the event loop."""
    results = sum(len(message.content) for message in request.messages if message.tool_call_id is not None)
    if results <= _LONG_HISTORY_CHARS:
        return _read_state(request, surface)
    return await run_queued(partial(_read_state, request, surface), context.identity.actor)


def _read_state(request: ChatRequest, surface: ModelSurface) -> RunState:
    """The messages with results of tools as the model was shown them."""
    messages: list[Message] = []
    called: dict[str, str] = {}
    for message in request.messages:
        called |= {call.id: call.function.name for call in message.tool_calls or ()}
        written = message_json(message)
        if message.tool_call_id is not None:
            name = called.get(message.tool_call_id, "")
            written = {**written, "content": surface.shown_again(name, message.content)}
        messages.append(written)
    return RunState(messages, called.keys())
