"""A face as an MCP server, in both protocol eras, through the official SDK and over any transport.

A face's failures are results with ``isError``, never exceptions (the SDK shows an exception's text to clients of the
older era), unless the face itself answers with JSON-RPC errors. Long lists go out in pages.
"""

import asyncio
import logging
import operator
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar, cast

import anyio
from mcp import types as t
from mcp.server.caching import CacheHint
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.subscriptions import PromptsListChanged, ResourcesListChanged, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS
from mcp_types.methods import INPUT_REQUIRED_METHODS
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from wicketgate.access.identity import Identity
from wicketgate.access.seal import Seal
from wicketgate.errors import GatewayError, InputRequired, UpstreamError
from wicketgate.faces.apps import SHOWS_APPS
from wicketgate.faces.assembly import Face
from wicketgate.faces.mcp.caller import (
    ANSWERS_WITHIN_S,
    AskingApprover,
    ClientCaller,
    HeldAnswers,
    McpCaller,
    ask_held,
    ask_later,
    read_answers,
    restore_log_level,
    seal_state,
    seal_states,
    set_log_level,
)
from wicketgate.faces.mcp.changes import Announcer
from wicketgate.faces.mcp.codes import is_answered_by, mcp_error
from wicketgate.faces.mcp.elsewhere import Elsewhere, TaskState, not_now, state_of
from wicketgate.faces.mcp.envelope import RequestCheck
from wicketgate.faces.mcp.extensions import ShownExtensions
from wicketgate.faces.mcp.fit import ToolListings, ToolNames, failure_json, result_json
from wicketgate.faces.mcp.held import Asked, HeldCall, HeldCaller, HeldCalls, NotHeld
from wicketgate.faces.mcp.kept_sessions import KeptSession
from wicketgate.faces.mcp.offers import MISSING_KEY, OFFERS_FRESH, OfferMethods
from wicketgate.faces.mcp.request import McpRequest, result_form
from wicketgate.faces.mcp.tasks import Tasks
from wicketgate.faces.meta_tool import LARGE
from wicketgate.faces.surface import Introduced, Offer, Offers, Refusal, SurfaceTool, UnknownTool
from wicketgate.gateway.kept_calls import HomeAway
from wicketgate.gateway.running_calls import AttendedCaller
from wicketgate.log_text import correlation_id
from wicketgate.ports import CallContext, Caller, CallMarks, InputAnswers, session_key, source_of
from wicketgate.travelling_meta import travelling

log = logging.getLogger("wicketgate.mcp")

# A client of the era without sessions may name its browsing session under this key of ``_meta`` (BROWSE-25).
SESSION_META_KEY = "wicketgate/session"

# Under this key a client of either era asks for cache-stable order, or for the best first (BROWSE-27).
ORDER_META_KEY = "wicketgate/cache_stable"

# The sender of the request being served, because the SDK asks for a tool's schema without naming the caller.
calling: ContextVar[Identity | None] = ContextVar("calling", default=None)

TOOLS_FRESH_MS = 60_000
_NOT_HELD = (
    "The call that these answers are for is not held any more: it has ended, or nobody answered in time. Make the call "
    "again without the requestState."
)

Ctx = ServerRequestContext[Any, Any]
R = TypeVar("R")


class McpDoor:
    """One face as an MCP server, with the notifications to its clients.

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
        self._surface = face.surface
        self._offers = face.offers
        self._result_form = face.result_form
        self._local = local
        self._new_id = new_id
        self.listings = ToolListings()
        self._elsewhere = Elsewhere(name, face.kept)
        self._held = HeldCalls(face.running, answer_s, face.may_still_use, self._elsewhere.keep)
        self._elsewhere.attach(self._held)
        self._tasks = Tasks(self._held, self._elsewhere, seal, name, self._who)
        self._known = _STRANGER
        self._shown: Sequence[SurfaceTool] = ()
        self._names = ToolNames()
        self._catalog_changed = asyncio.Event()
        self.announcer = Announcer(lambda ctx: self._who(ctx).actor, max_streams_per_actor)
        self.server: Server[Any] = _Server(
            face.offers,
            face.surface if isinstance(face.surface, Introduced) else None,
            lambda: self._context_of_caller(),
            "wicketgate",
            version=version,
            instructions=face.instructions,
            on_subscriptions_listen=self._listen,
            get_tool_input_schema=self._input_schema,
            cache_hints={"tools/list": CacheHint(TOOLS_FRESH_MS, "private"), **OFFERS_FRESH},
        )
        # Added by method, because these answer with wire JSON, which the SDK validates once.
        self.server.add_request_handler("tools/list", t.PaginatedRequestParams, self._list_tools)
        self.server.add_request_handler("tools/call", t.CallToolRequestParams, self._call_tool)
        self.server.add_request_handler("logging/setLevel", t.SetLevelRequestParams, set_log_level)
        self.server.add_notification_handler(
            "notifications/initialized", t.NotificationParams, self.announcer.session_opened
        )
        self._offer_methods: OfferMethods | None = None
        if face.offers is not None:
            self._offer_methods = OfferMethods(face.offers, self.announcer, self._carry, self.context_of)
            self._offer_methods.add_to(self.server)
        self.server.middleware.append(RequestCheck(self.server))
        if face.offers is not None:
            self.server.middleware.append(ShownExtensions(face.offers))
        self._states = seal_states(seal, name, self._who)
        self.server.middleware.append(self._states)
        self._tasks.add_to(self.server)

    @property
    def opens_with_offers(self) -> bool:
        """True if the answer to a client's first request depends on what the servers offer."""
        return self._offers is not None

    def list_changed(self) -> None:
        """Call it when the catalog has changed: clients are notified if the list of tools differs. Returns at once."""
        self._catalog_changed.set()

    async def announcing(self) -> None:
        """Notify clients of what changes, until cancelled."""
        async with anyio.create_task_group() as group:
            group.start_soon(self.announcer.run)
            while True:
                await self._catalog_changed.wait()
                self._catalog_changed.clear()
                try:
                    await self.compare_list()
                except Exception:
                    log.exception("clients may not know that tools have changed")  # the next change may succeed

    async def compare_list(self) -> None:
        """Announce the list of tools if it differs from the last one. A large one is made and compared beside the event
        loop (BROWSE-59)."""
        await self._surface.prepare(_EVERYBODY)
        tools, before = self._surface.tools(_EVERYBODY), self._shown
        if tools is before:
            return
        differs = partial(operator.ne, tools, before)
        if await asyncio.to_thread(differs) if len(tools) > LARGE else differs():
            self._shown = tools
            self.announcer.announce(ToolsListChanged())

    def access_changed(self) -> None:
        """Call it when access rules or permissions have changed: all clients are notified of lists that depend on the
        caller, and hear no more of resources that they may not read."""
        self.announcer.recheck()
        tools = self._surface.tools(_EVERYBODY)
        if tools is not self._surface.tools(_STRANGER):
            self._shown = tools
            self.announcer.announce(ToolsListChanged())
        if self._offers is not None and self._offers.offered("prompts"):
            self.announcer.announce(PromptsListChanged())
        if self._offers is not None and self._offers.offered("resources"):
            self.announcer.announce(ResourcesListChanged())

    def ask_no_more(self) -> None:
        """Tell the servers of held calls that nobody answers, because no answer is taken from now on (FACE-76)."""
        self._held.give_up()

    async def answered(self) -> None:
        """Return when no held call waits for its client, nor a client for one."""
        await self._held.answered()

    async def take_up(
        self, connection: Connection, session_id: str, session: KeptSession, identity: Identity, *, listens: bool
    ) -> None:
        """Bring what the client of a session has set, maybe at another process, to the connection that it has here.
        *listens*: it hears of changes through this connection."""
        restore_log_level(connection, session.log_level)
        if not listens:
            return
        self.announcer.follow(connection, identity.actor)
        if self._offer_methods is not None:
            key = session_key("mcp", identity.actor, session_id)
            await self._offer_methods.follow(connection, session.uris, CallContext(identity, self._new_id(), key))

    def prepare(self, identity: Identity) -> Awaitable[None]:
        """Work out beside the event loop what requests of this caller ask at once, the SDK included (BROWSE-59)."""
        return self._surface.prepare(self._of(identity))

    async def _listen(self, ctx: Ctx, params: t.SubscriptionsListenRequestParams) -> t.SubscriptionsListenResult:
        """For a face with tools alone: nothing else is acknowledged (FACE-61)."""
        honoured = t.SubscriptionFilter(tools_list_changed=params.notifications.tools_list_changed)
        return await self.announcer.listen(ctx, params.model_copy(update={"notifications": honoured}))

    async def _list_tools(self, ctx: Ctx, params: t.PaginatedRequestParams) -> dict[str, Any]:
        tools, more = await self.tools_shown(self.context_of(ctx, ClientCaller(ctx)))
        return {**self.listings.page(tools, params.cursor, ctx.protocol_version), **more}

    async def tools_shown(self, context: CallContext) -> tuple[Sequence[SurfaceTool], Mapping[str, Any]]:
        """The tools that a caller is shown, and what else its page of them says."""
        await self._surface.prepare(context)
        tools = self._surface.tools(context)
        if self._offers is None or not (missing := self._offers.missing(context)):
            return tools, {}
        # What is missing may be there in a moment.
        return tools, {"_meta": {MISSING_KEY: dict(missing)}, "ttlMs": 0}

    async def _call_tool(self, ctx: Ctx, params: t.CallToolRequestParams) -> dict[str, Any] | t.InputRequiredResult:
        return await self.call_tool(ctx, ClientCaller(ctx), params.name, params.arguments, read_answers(ctx))

    async def call_tool(
        self,
        asked: McpRequest,
        caller: McpCaller,
        name: str,
        arguments: object,
        given: InputAnswers | HeldAnswers | None = None,
    ) -> dict[str, Any] | t.InputRequiredResult:
        """The result of a call of the tool *name* in wire JSON, or the questions to the client. Raises MCPError."""
        try:
            return await self._carry_for(
                asked, caller, given, lambda context: self._run_tool(asked, name, arguments, context)
            )
        except Exception as error:
            return self._failed(name, asked, error)

    async def sealed(self, asked: McpRequest, result: Mapping[str, Any]) -> Mapping[str, Any]:
        """*result* with its state sealed, for a request that came past the SDK. Raises MCPError."""
        return await seal_state(self._states, asked, result)

    async def _run_tool(self, asked: McpRequest, name: str, arguments: object, context: CallContext) -> dict[str, Any]:
        """The result of a call of the tool *name*, in wire JSON. Raises MCPError and InputRequired."""
        try:
            result = await self._surface.call(name, arguments, context)
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
        """The result of a call of the tool *name* that failed with *error*. Raises MCPError and InputRequired, which
        are no results; call it where *error* is handled."""
        match error:
            case MCPError() | InputRequired():
                raise error
            case Refusal():
                raise mcp_error(error, ctx) from None
            case UnknownTool():
                raise MCPError(INVALID_PARAMS, f"Unknown tool: {name}") from None
            case GatewayError():
                return failure_json(error, typed=self._is_typed(name, ctx))
        log.exception("tools/call failed")
        failed = UpstreamError("The call failed inside the gateway.")
        return failure_json(failed, typed=self._is_typed(name, ctx))

    async def _carry(self, ctx: Ctx, run: Callable[[CallContext], Awaitable[R]]) -> R | t.InputRequiredResult:
        """As ``_carry_for``, for a request that came through the SDK."""
        return await self._carry_for(ctx, ClientCaller(ctx), read_answers(ctx), run)

    async def _carry_for(
        self,
        asked: McpRequest,
        caller: McpCaller,
        given: InputAnswers | HeldAnswers | None,
        run: Callable[[CallContext], Awaitable[R]],
    ) -> R | t.InputRequiredResult:
        """Run it for the client that waits: it is notified, may be asked, and may leave.

        Raises MCPError, GatewayError if the client cannot be asked, and the other errors of *run*.
        """
        try:
            with caller.within_exchange():
                async with caller:
                    answer = await self._run_for(asked, caller, given, run)
        except Refusal as refusal:
            raise mcp_error(refusal, asked) from None
        except InputRequired as question:
            return ask_later(caller.capabilities, question)
        except NotHeld:
            raise MCPError(t.INVALID_PARAMS, _NOT_HELD, {"reason": "not_held"}) from None
        match answer:
            case Asked():
                return ask_held(answer.id, answer.requests)
            case HeldCall():
                return cast(R, self._tasks.created(asked, state_of(answer)))
            case TaskState():
                return cast(R, self._tasks.created(asked, answer))
        return answer

    async def _run_for(
        self,
        asked: McpRequest,
        caller: McpCaller,
        given: InputAnswers | HeldAnswers | None,
        run: Callable[[CallContext], Awaitable[R]],
    ) -> R | Asked | HeldCall[R] | TaskState:
        """Run it for *caller*, or go on with the call that its answers are for. Raises NotHeld, and as *run*."""
        after_s = self._tasks.after_s(asked, caller.capabilities)
        if isinstance(given, HeldAnswers):
            try:
                return await self._elsewhere.resume(caller, self._who(asked), given, after_s)
            except HomeAway as error:
                raise not_now(error) from None
        may_be_held = caller.answers == "later" and asked.method in INPUT_REQUIRED_METHODS
        if not may_be_held and after_s is None:
            return await run(self.context_of(asked, AttendedCaller(caller), given))

        def run_held(held: HeldCaller, given: InputAnswers | None) -> Awaitable[R]:
            # A client that knows tasks needs no handle.
            context = self.context_of(asked, AttendedCaller(held) if after_s is None else held, given)
            return run(context.having(on_tool=held.tools.add, asked_in_line=lambda: held.has_no_request))

        label = str((asked.params or {}).get("name", ""))
        return await self._held.begin(caller, self._who(asked), label, run_held, given=given, after_s=after_s)

    def _input_schema(self, name: str) -> Mapping[str, Any] | None:
        """The schema of a tool. Without this the SDK lists all tools before each call of the newer era."""
        tool = self._tool(name, self._context_of_caller())
        return None if tool is None else tool.input_schema

    def _is_typed(self, name: str, ctx: McpRequest) -> bool:
        """True for a tool that is shown with an output schema."""
        tool = self.shown(name, ctx)
        return tool is not None and tool.output_schema is not None

    def shown(self, name: str, ctx: McpRequest) -> SurfaceTool | None:
        """The tool of that name as the caller of *ctx* may know it."""
        return self._tool(name, self._of(self._who(ctx)))

    def _tool(self, name: str, context: CallContext) -> SurfaceTool | None:
        return self._names.find(self._surface.tools(context), name)

    def _context_of_caller(self) -> CallContext:
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
        identity = self._who(ctx)
        if ctx.request is None:
            trace, session, source = self._new_id(), session_key("stdio", identity.actor, ""), ""
            correlation_id.set(trace)
        else:
            trace, session = correlation_id.get(), _session(ctx, identity, ctx.request.headers)
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
        )

    def _who(self, ctx: McpRequest) -> Identity:
        if ctx.request is not None:
            identity: Identity = ctx.request.scope["state"]["identity"]
            return identity
        if self._local is None:
            raise RuntimeError("a door without HTTP requests needs a local identity")
        return self._local


class _Server(Server[Any]):
    """Gives each client its own instructions and capabilities.

    It also declares changing lists to clients of the handshake era, because the HTTP manager asks without options.
    """

    def __init__(
        self,
        offers: Offers | None,
        surface: Introduced | None,
        who: Callable[[], CallContext],
        *args: Any,
        **kwargs: Any,
    ) -> None:
        self._offers = offers
        self._surface = surface
        self._who = who
        super().__init__(*args, **kwargs)

    @property
    def instructions(self) -> str | None:
        if self._offers is not None:
            return self._offers.instructions(self._who())
        if self._surface is None:
            return self._own_instructions
        return f"{self._own_instructions} {self._surface.introduction(self._who())}".rstrip()

    @instructions.setter
    def instructions(self, text: str | None) -> None:
        self._own_instructions = text

    def get_capabilities(self, *args: Any, **kwargs: Any) -> t.ServerCapabilities:
        can = super().get_capabilities(*args, **kwargs)
        if self._offers is None:
            return can
        names: tuple[Offer, ...] = ("resources", "prompts", "completions")
        changes: dict[str, Any] = {name: None for name in names if not self._offers.offered(name)}
        if extensions := self._offers.extensions():
            changes["extensions"] = {**(can.extensions or {}), **extensions}
        return can.model_copy(update=changes)

    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *args: Any, **kwargs: Any
    ) -> InitializationOptions:
        changes = notification_options or NotificationOptions(
            tools_changed=True, resources_changed=True, prompts_changed=True
        )
        return super().create_initialization_options(changes, *args, **kwargs)


_NOBODY = Identity("nobody")
_STRANGER = CallContext(_NOBODY, "-", "-", SHOWS_APPS)
_EVERYBODY = CallContext(Identity("everybody", ("*",)), "-", "-", SHOWS_APPS)


def _session(ctx: McpRequest, identity: Identity, headers: Mapping[str, str]) -> str:
    """The browsing session (BROWSE-25): that of the handshake, or in the newer era, which ignores that header, the one
    that the client names, otherwise the actor's."""
    if ctx.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS:
        return session_key("mcp", identity.actor, headers.get("mcp-session-id", ""))
    named = (ctx.meta or {}).get(SESSION_META_KEY)
    return session_key("named", identity.actor, named if isinstance(named, str) else "")
