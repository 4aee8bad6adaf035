"""A face as an MCP server: what it answers, whichever way a request came in (``sdk_server``, ``direct``).

A face's failures are results with ``isError``, never exceptions (the SDK shows an exception's text to clients of the
older era), unless the face itself answers with JSON-RPC errors. Long lists go out in pages.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from wicketgate.access.identity import Identity
from wicketgate.access.seal import Seal
from wicketgate.access.shares import CountedShares
from wicketgate.errors import GatewayError, InputRequired, UpstreamError
from wicketgate.faces.apps import SHOWS_APPS
from wicketgate.faces.assembly import Face
from wicketgate.faces.mcp.caller import ANSWERS_WITHIN_S, QUESTIONS, AskingApprover, HeldAnswers, McpCaller
from wicketgate.faces.mcp.fit import MISSING_KEY, ToolListings, ToolNames, failure_json, result_json
from wicketgate.faces.mcp.held import Asked, HeldCall, HeldCaller, HeldCalls, NotHeld
from wicketgate.faces.mcp.request import McpRequest, RpcError, code_mode, is_answered_by, mcp_error, result_form
from wicketgate.faces.mcp.sdk import SERVER, imported
from wicketgate.faces.mcp.tasks import Elsewhere, TaskRow, Tasks, became_task, not_now
from wicketgate.faces.surface import Introduced, Offer, Refusal, SurfaceTool, UnknownTool
from wicketgate.gateway.kept_calls import CallUnreadable
from wicketgate.gateway.running_calls import AttendedCaller
from wicketgate.log_text import correlation_id
from wicketgate.mcp_names import HANDSHAKE_PROTOCOL_VERSIONS, INVALID_PARAMS
from wicketgate.ports import CallContext, Caller, CallMarks, InputAnswers, session_key, source_of
from wicketgate.travelling_meta import travelling

if TYPE_CHECKING:
    from wicketgate.faces.mcp.sdk_server import SdkServer

log = logging.getLogger("wicketgate.mcp")

MAX_STREAMS = 4_096

# A client of the era without sessions may name its browsing session under this key of ``_meta`` (BROWSE-25).
SESSION_META_KEY = "wicketgate/session"
# A client whose key has this permission may send the user's own words, which then count as known (ACCESS-263).
SAID_META_KEY = "wicketgate/said"
SAY = "flow:say"

# Under this key a client of either era asks for cache-stable order, or for the best first (BROWSE-27).
ORDER_META_KEY = "wicketgate/cache_stable"

# The sender of the request being served, because the SDK asks for a tool's schema without naming the caller.
calling: ContextVar[Identity | None] = ContextVar("calling", default=None)

TOOLS_FRESH_MS = 60_000
_NOT_HELD = (
    "The call that these answers are for is not held any more: it has ended, or nobody answered in time. Make the call "
    "again without the requestState."
)

R = TypeVar("R")

_MAY_ASK = frozenset({"tools/call", "prompts/get", "resources/read"})
"""The methods that may be answered with questions (``input_required``)."""
_CHANGING: Mapping[Offer, Mapping[str, Any]] = {
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {"listChanged": True},
    "completions": {},
}


class McpDoor:
    """One face as an MCP server.

    *seal* protects the state that travels with clients between two attempts. *local* is the caller on stdio, without an
    HTTP request that names one. A server's question in the middle of a call waits for *answer_s* at most.
    """

    def __init__(
        self,
        face: Face,
        *,
        name: str,
        version: str,
        seal: Seal,
        max_streams_per_actor: int | None = None,
        local: Identity | None = None,
        new_id: Callable[[], str] = lambda: "-",
        answer_s: float = ANSWERS_WITHIN_S,
    ) -> None:
        self.surface = face.surface
        self.offers = face.offers
        self.name = name
        self.seal = seal
        self.info = {"name": "wicketgate", "version": version}
        self._instructions = face.instructions
        self._result_form = face.result_form
        self._local = local
        self.new_id = new_id
        self.listings = ToolListings()
        self._held = HeldCalls(face.running, answer_s, face.may_still_use)
        self._elsewhere = Elsewhere(name, face.kept, self._held)
        self.tasks = Tasks(self._held, self._elsewhere, seal, name, self.who)
        self._known = STRANGER
        self._names = ToolNames()
        # The streams of both eras on which clients listen, in this process (FACE-39).
        self.streams = CountedShares(f"streams_{name}", MAX_STREAMS, max_streams_per_actor)
        self.has_sdk = False

    @cached_property
    def sdk(self) -> "SdkServer":
        """The SDK's server of this face. Import its module with ``imported`` before."""
        from wicketgate.faces.mcp.sdk_server import SdkServer

        self.has_sdk = True
        return SdkServer(self)

    def list_changed(self) -> None:
        """Call it when the catalog has changed. Without the SDK's server no client listens."""
        if self.has_sdk:
            self.sdk.list_changed()

    def access_changed(self) -> None:
        """Call it when access rules or permissions have changed."""
        if self.has_sdk:
            self.sdk.access_changed()

    def ask_no_more(self) -> None:
        """Tell the servers of held calls that nobody answers, because no answer is taken from now on (FACE-76)."""
        self._held.give_up()

    async def answered(self) -> None:
        """Return when no held call waits for its client, nor a client for one."""
        await self._held.answered()

    def prepare(self, identity: Identity) -> Awaitable[None]:
        """Work out beside the event loop what requests of this caller ask at once, the SDK included (BROWSE-59)."""
        return self.surface.prepare(self._of(identity))

    def introduced(self, context: CallContext, version: str) -> dict[str, Any]:
        """The answer to ``initialize`` of a client of the handshake era, with which *version* was agreed."""
        answer = {"protocolVersion": version, "capabilities": self.capabilities(), "serverInfo": self.info}
        text = self.instructions(context)
        return answer if text is None else {**answer, "instructions": text}

    def capabilities(self) -> dict[str, Any]:
        """Returns the capabilities declared to clients of both eras."""
        can: dict[str, Any] = {"tools": {"listChanged": True}, "logging": {}}
        if self.offers is not None:
            can |= {offer: what for offer, what in _CHANGING.items() if self.offers.offered(offer)}
            if extensions := self.offers.extensions():
                can["extensions"] = dict(extensions)
        return can

    def instructions(self, context: CallContext) -> str | None:
        if self.offers is not None:
            return self.offers.instructions(context)
        if isinstance(self.surface, Introduced):
            return f"{self._instructions} {self.surface.introduction(context)}".rstrip()
        return self._instructions

    async def tools_shown(self, context: CallContext) -> tuple[Sequence[SurfaceTool], Mapping[str, Any]]:
        """The tools that a caller is shown, and what else its page of them says."""
        await self.surface.prepare(context)
        tools = self.surface.tools(context)
        if self.offers is None or not (missing := self.offers.missing(context)):
            return tools, {}
        # What is missing may be there in a moment.
        return tools, {"_meta": {MISSING_KEY: dict(missing)}, "ttlMs": 0}

    # Returns the awaitable and awaits nothing itself: one frame less on the way of a call.
    def call_tool(
        self,
        asked: McpRequest,
        caller: McpCaller,
        name: str,
        arguments: object,
        given: InputAnswers | HeldAnswers | None = None,
    ) -> Awaitable[Mapping[str, Any]]:
        """The result of a call of the tool *name* in wire JSON, or the questions to the client. Raises RpcError."""
        return self.carry(
            asked,
            caller,
            given,
            lambda context: self._run_tool(asked, name, arguments, context),
            failed=partial(self._failed, name, asked),
        )

    async def sealed(self, asked: McpRequest, result: Mapping[str, Any]) -> Mapping[str, Any]:
        """*result* with its state sealed, for a request that came past the SDK. Raises RpcError."""
        await imported(SERVER)
        return await self.sdk.sealed(asked, result)

    async def _run_tool(self, asked: McpRequest, name: str, arguments: object, context: CallContext) -> dict[str, Any]:
        """The result of a call of the tool *name*, in wire JSON. Raises RpcError and InputRequired."""
        try:
            result = await self.surface.call(name, arguments, context)
        except Exception as error:
            return self._failed(name, asked, error)
        if result.refused is not None and is_answered_by(result.refused, asked):
            raise mcp_error(result.refused, asked)
        answer = result_json(result, asked.protocol_version, result_form(asked, self._result_form))
        # Clients check structured content against the schema that they were shown, that of an error too.
        if result.is_error and result.as_it_came is None and self._is_typed(name, asked):
            answer.pop("structuredContent", None)
        return answer

    def _failed(self, name: str, ctx: McpRequest, error: Exception) -> dict[str, Any]:
        """The result of a call of the tool *name* that failed with *error*. Raises RpcError and InputRequired, which
        are no results; call it where *error* is handled."""
        match error:
            case RpcError() | InputRequired():
                raise error
            case Refusal():
                raise mcp_error(error, ctx) from None
            case UnknownTool():
                raise RpcError(INVALID_PARAMS, f"Unknown tool: {name}") from None
            case GatewayError():
                return failure_json(error, typed=self._is_typed(name, ctx))
        log.exception("tools/call failed")
        failed = UpstreamError("The call failed inside the gateway.")
        return failure_json(failed, typed=self._is_typed(name, ctx))

    async def carry(
        self,
        asked: McpRequest,
        caller: McpCaller,
        given: InputAnswers | HeldAnswers | None,
        run: Callable[[CallContext], Awaitable[Mapping[str, Any]]],
        failed: Callable[[Exception], Mapping[str, Any]] | None = None,
    ) -> Mapping[str, Any]:
        """Run it for the client that waits: it is notified, may be asked, and may leave.

        Raises RpcError, GatewayError if the client cannot be asked, and the other errors of *run*, unless *failed*
        makes a result of one.
        """
        try:
            with caller.within_exchange():
                async with caller:
                    answer = await self._run_for(asked, caller, given, run)
        except InputRequired as question:
            questions = await imported(QUESTIONS)
            try:
                return cast(dict[str, Any], questions.ask_later(caller.capabilities, question))
            except GatewayError as error:
                if failed is None:
                    raise
                return failed(error)
        except NotHeld:
            raise RpcError(INVALID_PARAMS, _NOT_HELD, {"reason": "not_held"}) from None
        except Exception as error:
            if isinstance(error, Refusal):
                raise mcp_error(error, asked) from None
            if failed is None:
                raise
            return failed(error)
        match answer:
            case Asked():
                return cast(dict[str, Any], (await imported(QUESTIONS)).ask_held(answer.id, answer.requests))
            case HeldCall():
                return self.tasks.created(asked, became_task(answer))
            case TaskRow():
                return self.tasks.created(asked, answer)
        return answer

    def _run_for(
        self,
        asked: McpRequest,
        caller: McpCaller,
        given: InputAnswers | HeldAnswers | None,
        run: Callable[[CallContext], Awaitable[R]],
    ) -> Awaitable[R | Asked | HeldCall[R] | TaskRow]:
        """Run it for *caller*, or go on with the call that its answers are for. Raises NotHeld, and as *run*."""
        after_s = self.tasks.after_s(asked, caller.capabilities)
        if isinstance(given, HeldAnswers):
            return self._resumed(asked, caller, given, after_s)
        may_be_held = caller.answers == "later" and asked.method in _MAY_ASK
        if not may_be_held and after_s is None:
            return run(self.context_of(asked, AttendedCaller(caller), given))

        def run_held(held: HeldCaller, given: InputAnswers | None) -> Awaitable[R]:
            # A client that knows tasks needs no handle.
            context = self.context_of(asked, AttendedCaller(held) if after_s is None else held, given)
            return run(context.having(on_tool=held.tools.add, asked_in_line=lambda: held.has_no_request))

        label = str((asked.params or {}).get("name", ""))
        return self._held.begin(caller, self.who(asked), label, run_held, given=given, after_s=after_s)

    async def _resumed(self, asked: McpRequest, caller: McpCaller, given: HeldAnswers, after_s: float | None) -> Any:
        try:
            return await self._elsewhere.resume(caller, self.who(asked), given, after_s)
        except CallUnreadable as error:
            raise not_now(error) from None

    def input_schema(self, name: str) -> Mapping[str, Any] | None:
        """The schema of a tool, for the sender of the request being served."""
        tool = self._tool(name, self.context_of_caller())
        return None if tool is None else tool.input_schema

    def _is_typed(self, name: str, ctx: McpRequest) -> bool:
        """True for a tool that is shown with an output schema."""
        tool = self.shown(name, ctx)
        return tool is not None and tool.output_schema is not None

    def shown(self, name: str, ctx: McpRequest) -> SurfaceTool | None:
        """The tool of that name as the caller of *ctx* may know it."""
        return self._tool(name, self._of(self.who(ctx)))

    def _tool(self, name: str, context: CallContext) -> SurfaceTool | None:
        return self._names.find(self.surface.tools(context), name)

    def context_of_caller(self) -> CallContext:
        return self._of(calling.get() or self._local or _NOBODY)

    def _of(self, identity: Identity) -> CallContext:
        """The context of whatever this caller asks."""
        known = self._known
        if known.identity is not identity:
            known = self._known = CallContext(identity, "-", "-", SHOWS_APPS)
        return known

    def context_of(
        self, ctx: McpRequest, caller: Caller | None = None, given: InputAnswers | None = None
    ) -> CallContext:
        """The context of a request of *caller*, whose identity the middleware left on it."""
        identity = self.who(ctx)
        if ctx.request is None:
            trace, session, source, named = self.new_id(), session_key("stdio", identity.actor, ""), "", False
            correlation_id.set(trace)
        else:
            trace, (session, named) = correlation_id.get(), _session(ctx, identity, ctx.request.headers)
            source = source_of(ctx.request.scope)
        if caller is None:
            return CallContext(identity, trace, session, source=source)
        asked = (ctx.meta or {}).get(ORDER_META_KEY)
        headers: Mapping[str, str] = {} if ctx.request is None else ctx.request.headers
        # From the one that is at hand, at a third of the cost of a context of its own.
        return self._of(identity).having(
            correlation_id=trace,
            session=session,
            caller=caller,
            answers=given,
            approver=AskingApprover(caller),
            marks=CallMarks(),
            source=source,
            door="stdio" if ctx.request is None else "mcp",
            cache_stable=asked if isinstance(asked, bool) else None,
            meta=travelling((ctx.params or {}).get("_meta"), headers),
            named=named,
            said=_said(ctx, identity),
            code_mode=code_mode(ctx),
        )

    def who(self, ctx: McpRequest) -> Identity:
        if ctx.request is not None:
            identity: Identity = ctx.request.scope["state"]["identity"]
            return identity
        if self._local is None:
            raise RuntimeError("a door without HTTP requests needs a local identity")
        return self._local


_NOBODY = Identity("nobody")
STRANGER = CallContext(_NOBODY, "-", "-", SHOWS_APPS)
EVERYBODY = CallContext(Identity("everybody", ("*",)), "-", "-", SHOWS_APPS)


def _session(ctx: McpRequest, identity: Identity, headers: Mapping[str, str]) -> tuple[str, bool]:
    """The browsing session (BROWSE-25): that of the handshake, or in the newer era, which ignores that header, the one
    that the client names, otherwise the actor's. The second is true where the client has named it (ACCESS-262)."""
    if ctx.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS:
        return session_key("mcp", identity.actor, headers.get("mcp-session-id", "")), False
    named = (ctx.meta or {}).get(SESSION_META_KEY)
    name = named if isinstance(named, str) else ""
    return session_key("named", identity.actor, name), bool(name)


def _said(ctx: McpRequest, identity: Identity) -> Sequence[str]:
    """The user's own words, if the client sends them, and may (ACCESS-263)."""
    given = (ctx.meta or {}).get(SAID_META_KEY)
    if given is None or not identity.allows(SAY):
        return ()
    return [each for each in (given if isinstance(given, list) else [given]) if isinstance(each, str)]
