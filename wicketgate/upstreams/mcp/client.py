"""The client of one connected MCP server: the transport interface, the negotiated version, and all requests.

A server of 2026-07-28 that needs answers from a client returns ``input_required``, and is called again with them
(FACE-11, UP-101)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, Self

from wicketgate.errors import InputRequired, UpstreamError
from wicketgate.log_text import META_KEY
from wicketgate.mcp_names import HEADER_MISMATCH, URL_ELICITATION_REQUIRED
from wicketgate.ports import CallContext, CannotAsk, InputAnswers
from wicketgate.task_end import end_tasks
from wicketgate.upstreams.mcp import tasks
from wicketgate.upstreams.mcp.asking import CAPABILITY, ELICIT, offered_methods
from wicketgate.upstreams.mcp.call import NOT_VALID, Call, Gone, Heard, Malformed, OutgoingRequest, Refused, reported
from wicketgate.upstreams.mcp.eras import ANNOTATION, Agreement, Mirrored, Mode, Negotiation, Stamp, mirrored_arguments
from wicketgate.upstreams.mcp.exchange import Exchange
from wicketgate.upstreams.mcp.silence import PING_S, Silence

log = logging.getLogger("wicketgate.upstream")

_DISCOVER_S = 10.0
"""Some servers of the handshake era never answer ``server/discover``."""
_MAX_PAGES = 1_000
_MAX_TOOLS = 100_000
_MAX_ROUNDS = 8
_MAX_REQUESTS = 32
_PAUSE_S = 0.05
_MAY_ASK = frozenset({"tools/call", "resources/read", "prompts/get"})
"""The methods that may be answered with ``input_required``."""

Attempt = Callable[[InputAnswers | None], Awaitable[dict[str, Any]]]

Page = Callable[[str | None], Awaitable[Mapping[str, Any]]]
"""Returns one page, by its cursor."""


class Connection(Protocol):
    """An open connection to one MCP server, for concurrent requests."""

    exchange: Exchange
    is_process: bool = False
    """The server is a child process. Its end is noticed at once. It may end, or not answer, if the first request is of
    the other era."""
    handshake_only: bool = False
    """The transport does not exist in 2026-07-28."""
    has_headers: bool = False
    """Requests of 2026-07-28 have headers on this transport."""
    beside: "Connect | None" = None
    """Opens another session at the same server, to be closed before this one. None if that needs another process, or
    the transport has one era."""

    async def request(self, outgoing: OutgoingRequest, call: Call) -> dict[str, Any]:
        """Returns the result. Cancels the request on the server if the caller is cancelled. Raises Refused, Malformed,
        Gone."""
        ...

    async def agreed(self, agreement: Agreement) -> None:
        """Completes the handshake, if the version has one, and opens the stream of its era."""
        ...


Lost = Callable[[str], None]
"""Called once when the connection is lost, with a phrase such as ``it ended with code 3``."""

Connect = Callable[[Lost], AbstractAsyncContextManager[Connection]]


@dataclass(eq=False, repr=False)
class McpClient:
    """Lives as long as its connection. A request that finds the connection gone calls *lost*."""

    _name: str
    _connection: Connection
    agreement: Agreement
    _lost: Callable[[str], None]
    _forward: Collection[str]
    _ping_s: float

    def __post_init__(self) -> None:
        self._silence = Silence(self.ping, lambda: self._connection.exchange.heard, self._ping_s)
        self._stamp = Stamp(self.agreement, self._forward)
        self._modern = self.agreement.modern
        self._has_headers = self._connection.has_headers
        self._mirrored: Mapping[str, Mirrored] = {}
        self.left_out: Sequence[str] = ()

    @classmethod
    async def open(
        cls,
        name: str,
        connection: Connection,
        mode: Mode,
        lost: Callable[[str], None],
        forward: Collection[str] = (),
        ping_s: float = PING_S,
    ) -> Self:
        """Negotiates the version. *forward*: client capabilities other than elicitation that the server may use. Raises
        Refused, Malformed, Gone. Call it with a deadline."""
        connection.exchange.passed_on = offered_methods(forward)
        negotiation = Negotiation("handshake" if connection.handshake_only else mode, forward)
        while negotiation.agreement is None:
            request = negotiation.request
            deadline_s = _DISCOVER_S if request.method == "server/discover" else None
            try:
                async with asyncio.timeout(deadline_s) as deadline:
                    negotiation.answered(await _answer(connection, request))
            except (Refused, Malformed, Gone) as error:
                if isinstance(error, Gone) and connection.is_process:
                    raise
                negotiation.failed(error)
            except TimeoutError as error:
                if not deadline.expired():
                    raise
                negotiation.failed(error)
        await connection.agreed(negotiation.agreement)
        return cls(name, connection, negotiation.agreement, lost, forward, ping_s)

    async def list_tools(self) -> list[Any]:
        """Returns all definitions unchanged (CARD-11, UP-2). Raises GatewayError.

        The catalog parses each one separately, so that a bad definition affects no other.
        """
        with self._in_flight():
            return await self._read_tools()

    async def ask(self, method: str, params: Mapping[str, Any], context: CallContext | None) -> dict[str, Any]:
        """Sends any request, for the caller of *context*, an offered one. Returns the result, or a task
        (``tasks.is_task``). Raises GatewayError, and InputRequired for questions to be answered with another call."""
        with self._in_flight():
            try:
                return await self._ask(method, params, context)
            except Refused as refused:
                if refused.code != HEADER_MISMATCH or method != "tools/call" or not self._modern:
                    raise
            # Refused before it ran: the tool's schema has changed, or the tool was never listed.
            await self._read_tools()
            return await self._ask(method, params, context)

    async def ask_of_task(self, method: str, params: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
        """Sends a request about a task. Raises GatewayError."""
        with self._in_flight():
            return whole_or_task(await self._request(method, params, context))

    async def give_up(self) -> None:
        """Waits until the server has been silent for too long, then reports the connection as lost."""
        await self._silence.lasting()
        self._lost("it answers nothing any more")

    @contextmanager
    def _in_flight(self) -> Iterator[None]:
        """Notes whether the server answers the request that is sent within, and raises its failures as GatewayError."""
        call, given_up = self._silence.begin(), False
        try:
            yield
        except (Refused, Malformed, Gone) as error:
            raise reported(self._name, error) from error
        except asyncio.CancelledError:
            # At its deadline, or because the caller left. After several in a row a ping finds out which.
            given_up = True
            raise
        finally:
            self._silence.unanswered(call) if given_up else self._silence.end(call)

    async def _read_tools(self) -> list[Any]:
        async def page(cursor: str | None) -> dict[str, Any]:
            return whole(await self._request("tools/list", {"cursor": cursor} if cursor is not None else {}, None))

        tools, complete = await read_pages(page, "tools", _MAX_TOOLS, _MAX_PAGES)
        if not complete:
            log.warning("%s: tools/list did not end after %d tools; the rest is omitted", self._name, len(tools))
        mirrored: dict[str, Mirrored] = {}
        left_out: list[str] = []
        tools = _usable(self._name, tools, mirrored, left_out) if self._modern else tools
        self._mirrored, self.left_out = mirrored, left_out
        return tools

    async def _ask(self, method: str, params: Mapping[str, Any], context: CallContext | None) -> dict[str, Any]:
        if not self._modern:
            try:
                return whole(await self._request(method, params, context))
            except Refused as refused:
                if context is not None and method in _MAY_ASK and (pages := _pages_to_open(refused, context)):
                    raise InputRequired(pages, None) from None
                raise
        if context is None:
            return whole(await self._request(method, params, None))

        async def attempt(answers: InputAnswers | None) -> dict[str, Any]:
            more = dict(params)
            if answers is not None and answers.responses:
                more["inputResponses"] = answers.responses
            if answers is not None and answers.request_state is not None:
                more["requestState"] = answers.request_state
            return await self._request(method, more, context)

        return await with_answers(self._name, attempt, context, whole_or_task if method == "tools/call" else whole)

    async def ping(self) -> None:
        """Sends the cheapest request of the era. Raises Refused, Malformed, Gone."""
        await self._request("server/discover" if self._modern else "ping", {}, None)

    async def listen(self, lists: Sequence[str], uris: Sequence[str], heard: Heard) -> None:
        """Reads the stream of changes of *lists* (``tools``, ``prompts``, ``resources``) and of the resources *uris*
        until the server ends it. *heard* gets the server's acknowledgement first. Only in 2026-07-28.

        Raises Refused, Malformed, Gone.
        """
        wanted: dict[str, Any] = {f"{name}ListChanged": True for name in lists}
        if uris:
            wanted["resourceSubscriptions"] = list(uris)
        await self._request("subscriptions/listen", {"notifications": wanted}, None, heard)

    async def _request(
        self, method: str, params: Mapping[str, Any], context: CallContext | None, heard: Heard | None = None
    ) -> dict[str, Any]:
        call = self._connection.exchange.new_call(context, heard)
        stamped = {**params, "_meta": self._meta(call, method)}
        mirrored = self._mirrored.get(params["name"]) if method == "tools/call" else None
        headers = self._stamp.headers(method, params, mirrored) if self._has_headers else {}
        try:
            return await self._connection.request(OutgoingRequest(method, stamped, headers), call)
        except Gone as gone:
            if not gone.carried and not self._connection.is_process:
                self._lost(gone.how)
            raise

    def _meta(self, call: Call, method: str) -> dict[str, Any]:
        if call.context is None:
            return self._stamp.meta()
        shown = dict(call.caller.capabilities)
        if method in tasks.DECLARING:
            shown = tasks.declared(shown)
        meta = self._stamp.meta(capabilities=shown, progress_token=None if call.silent else call.token)
        return {**call.context.meta, **meta, META_KEY: call.context.correlation_id}


async def _answer(connection: Connection, request: OutgoingRequest) -> dict[str, Any]:
    """Returns the answer to a negotiation request, which must not be cancelled on the server."""
    call = connection.exchange.new_call(None)
    call.cancellable = False
    return await connection.request(request, call)


def whole(result: dict[str, Any]) -> dict[str, Any]:
    """Returns *result*. Raises Malformed unless it is complete: for another kind, such as a task that was not agreed
    on, the work may not be done."""
    if result.get("resultType") not in (None, "complete"):
        raise Malformed(NOT_VALID)
    return result


def whole_or_task(result: dict[str, Any]) -> dict[str, Any]:
    """As ``whole``, but accepts a task."""
    return result if tasks.is_task(result) else whole(result)


async def with_answers(
    name: str, attempt: Attempt, context: CallContext, checked: Callable[[dict[str, Any]], dict[str, Any]] = whole
) -> dict[str, Any]:
    """Calls *attempt* until the server needs no more answers, and returns the result as *checked* returns it. Raises
    InputRequired if the client sends its answers with another call, Malformed for an unknown kind of result, and
    UpstreamError if the client cannot be asked, or the server keeps asking."""
    answers = context.answers
    for _ in range(_MAX_ROUNDS):
        result = await attempt(answers)
        if result.get("resultType") != "input_required":
            return checked(result)
        answers = await _answered(name, result, context)
    raise UpstreamError(f"{name} asked for input too often; the call was cancelled.")


def _pages_to_open(refused: Refused, context: CallContext) -> dict[str, Any]:
    """Returns the pages of a URL_ELICITATION_REQUIRED error as questions, because 2026-07-28 does not have this error.
    Empty for other errors, and if the pages were already opened or the client cannot show them."""
    caller, answered = context.caller, context.answers is not None
    if refused.code != URL_ELICITATION_REQUIRED or answered or caller.answers != "later":
        return {}
    if "url" not in caller.capabilities.get("elicitation", {}) or not isinstance(refused.data, Mapping):
        return {}
    pages = refused.data.get("elicitations")
    if not isinstance(pages, list) or len(pages) > _MAX_REQUESTS:
        return {}
    return {
        f"page-{number}": {"method": ELICIT, "params": page}
        for number, page in enumerate(pages, 1)
        if isinstance(page, Mapping) and page.get("mode") == "url"
    }


async def _answered(name: str, result: Mapping[str, Any], context: CallContext) -> InputAnswers:
    requests, state = result.get("inputRequests") or {}, result.get("requestState")
    if not isinstance(requests, dict) or not isinstance(state, str | None) or len(requests) > _MAX_REQUESTS:
        raise Malformed(NOT_VALID)
    if not requests:
        # The server only wants the call again, with its state.
        if state is None:
            raise Malformed(NOT_VALID)
        await asyncio.sleep(_PAUSE_S)
        return InputAnswers({}, state)
    # Only capabilities that the server saw for this call may be used.
    for request in requests.values():
        match request:
            case {"method": str(method), "params": dict()} | {"method": "roots/list" as method}:
                if method != ELICIT and CAPABILITY.get(method) not in context.caller.capabilities:
                    raise UpstreamError(
                        f"{name} asks for something other than input (sampling or roots), which is not offered to it."
                    )
            case _:
                raise Malformed(NOT_VALID)
    # The client answers with another call, during this one, or never.
    match context.answers_come:
        case "later":
            raise InputRequired(requests, state)
        case "now":
            try:
                return InputAnswers(await _asked(requests, context), state)
            except CannotAsk:
                pass
    raise UpstreamError(f"{name} needs an answer from a person before it can run this tool; this client cannot ask.")


async def _asked(requests: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
    """Returns the caller's answers by key. Asks concurrently in a task, whose client sees all open questions
    (FACE-156); otherwise one after another, for a person. Raises CannotAsk."""

    async def one(request: Mapping[str, Any]) -> Mapping[str, Any]:
        return await context.caller.ask(request["method"], request.get("params") or {})

    if not context.asked_in_line():
        return {key: await one(request) for key, request in requests.items()}
    asking = [asyncio.create_task(one(request)) for request in requests.values()]
    try:
        return dict(zip(requests, await asyncio.gather(*asking), strict=True))
    finally:
        await end_tasks(*asking)


async def read_pages(page: Page, key: str, max_items: int, max_pages: int) -> tuple[list[Any], bool]:
    """Returns the items under *key* of all pages, and False if the list is incomplete. Stops at a repeated cursor and
    at the limits. Raises Malformed, and what *page* raises."""
    items: list[Any] = []
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(max_pages):
        result = await page(cursor)
        given = result.get(key)
        if not isinstance(given, list):
            raise Malformed(NOT_VALID)
        items += given
        cursor = result.get("nextCursor")
        if not isinstance(cursor, str) or not cursor or cursor in seen:
            return items, True
        if len(items) > max_items:
            break
        seen.add(cursor)
    return items, False


def _usable(name: str, tools: Sequence[Any], mirrored: dict[str, Mirrored], left_out: list[str]) -> list[Any]:
    """Returns the tools with valid header annotations; adds the others to *left_out*."""
    kept = []
    for tool in tools:
        schema = tool.get("inputSchema") if isinstance(tool, dict) else None
        if isinstance(schema, dict) and isinstance(tool.get("name"), str) and ANNOTATION in repr(schema):
            arguments = mirrored_arguments(schema)
            if arguments is None:
                log.warning("%s: the tool %.100r is left out: its header annotations are invalid", name, tool["name"])
                left_out.append(f"{tool['name']:.100}: its header annotations are invalid")
                continue
            mirrored[tool["name"]] = arguments
        kept.append(tool)
    return kept
