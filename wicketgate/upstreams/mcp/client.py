"""The client of one connected MCP server: the port to its transport, the agreement with it, every kind of request.

A server of 2026-07-28 that needs answers of a client answers ``input_required``, and is called again with them
(FACE-11, UP-101)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, Self

from wicketgate.errors import InputRequired, UpstreamError
from wicketgate.log_text import META_KEY
from wicketgate.mcp_names import HEADER_MISMATCH, URL_ELICITATION_REQUIRED
from wicketgate.ports import CallContext, CannotAsk, InputAnswers
from wicketgate.task_end import end_tasks
from wicketgate.upstreams.mcp import tasks
from wicketgate.upstreams.mcp.asking import CAPABILITY, ELICIT, offered, offered_methods
from wicketgate.upstreams.mcp.call import NOT_VALID, Call, Gone, Heard, Malformed, Refused
from wicketgate.upstreams.mcp.eras import ANNOTATION, Agreement, Mirrored, Mode, Negotiation, Stamp, mirrored_arguments
from wicketgate.upstreams.mcp.exchange import Exchange
from wicketgate.upstreams.mcp.session import OutgoingRequest

log = logging.getLogger("wicketgate.upstream")

_DISCOVER_S = 10.0
"""A server of the handshake era may not answer at all to ``server/discover``."""
_MAX_PAGES = 1_000
_MAX_TOOLS = 100_000
_MAX_ROUNDS = 8
_MAX_REQUESTS = 32
_PAUSE_S = 0.05
_MAY_ASK = frozenset({"tools/call", "resources/read", "prompts/get"})
"""The methods whose answer may be a question."""

Attempt = Callable[[InputAnswers | None], Awaitable[dict[str, Any]]]

Page = Callable[[str | None], Awaitable[Mapping[str, Any]]]
"""Returns one page, by its cursor."""


class Connection(Protocol):
    """An open way to one MCP server, on which requests run side by side."""

    @property
    def one_era(self) -> bool:
        """A server of the handshake era may end, or stay silent, when it is asked for another era first."""
        ...

    @property
    def shows_its_end(self) -> bool:
        """Its end shows by itself; otherwise only a request finds out."""
        ...

    @property
    def handshake_only(self) -> bool:
        """The transport is older than 2026-07-28."""
        ...

    @property
    def has_headers(self) -> bool:
        """Requests of 2026-07-28 carry headers on it."""
        ...

    @property
    def exchange(self) -> Exchange: ...

    async def request(self, outgoing: OutgoingRequest, call: Call) -> dict[str, Any]:
        """The result. A caller that leaves early has the request cancelled on the server, and no other one. Raises
        Refused, Malformed, Gone."""
        ...

    async def agreed(self, agreement: Agreement) -> None:
        """The version is settled: complete the handshake, if there is one, and listen where this era listens."""
        ...


Lost = Callable[[str], None]
"""Called once when the other side is gone; the argument says how, such as ``it ended with code 3``."""

Connect = Callable[[Lost], AbstractAsyncContextManager[Connection]]


class McpClient:
    """Lasts as long as its connection. *lost* is called by a request that finds the connection gone."""

    def __init__(
        self,
        name: str,
        connection: Connection,
        agreement: Agreement,
        lost: Callable[[str], None],
        forward: Collection[str],
    ) -> None:
        self.agreement = agreement
        self._name = name
        self._connection = connection
        self._lost = lost
        self._forward = forward
        self._stamp = Stamp(agreement, forward)
        self._modern = agreement.modern
        self._has_headers = connection.has_headers
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
    ) -> Self:
        """Agree with the server on a version. *forward*: capabilities of clients besides questions that it may use.
        Raises Refused, Malformed, Gone; bound it by a deadline."""
        connection.exchange.pass_on(offered_methods(forward))
        negotiation = Negotiation("legacy" if connection.handshake_only else mode, forward)
        while negotiation.agreement is None:
            request = negotiation.request
            deadline_s = _DISCOVER_S if request.method == "server/discover" else None
            try:
                async with asyncio.timeout(deadline_s) as deadline:
                    negotiation.answered(await _answer(connection, request))
            except (Refused, Malformed, Gone) as error:
                if isinstance(error, Gone) and connection.shows_its_end:
                    raise
                negotiation.failed(error)
            except TimeoutError as error:
                if not deadline.expired():
                    raise
                negotiation.failed(error)
        await connection.agreed(negotiation.agreement)
        return cls(name, connection, negotiation.agreement, lost, forward)

    async def list_tools(self) -> list[Any]:
        """Every definition as it came (CARD-11, UP-2). Raises Refused, Malformed, Gone.

        The catalog reads each by itself, so that a bad one costs only itself.
        """

        async def page(cursor: str | None) -> dict[str, Any]:
            return await self.ask("tools/list", {"cursor": cursor} if cursor is not None else {}, None)

        tools, complete = await read_pages(page, "tools", _MAX_TOOLS, _MAX_PAGES)
        if not complete:
            log.warning("%s: tools/list did not end after %d tools; the rest is left out", self._name, len(tools))
        mirrored: dict[str, Mirrored] = {}
        left_out: list[str] = []
        tools = _usable(self._name, tools, mirrored, left_out) if self._modern else tools
        self._mirrored, self.left_out = mirrored, left_out
        return tools

    async def call_tool(self, name: str, arguments: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
        """The result, or the task in its place (``tasks.is_task``). Raises Refused, Malformed, Gone, and InputRequired
        or UpstreamError for unanswered questions."""
        params = {"name": name, "arguments": arguments}
        try:
            return await self.ask("tools/call", params, context)
        except Refused as refused:
            if refused.code != HEADER_MISMATCH or not self._modern:
                raise
        # It was refused unseen: the tool has another schema by now, or was never listed.
        await self.list_tools()
        return await self.ask("tools/call", params, context)

    async def ask(self, method: str, params: Mapping[str, Any], context: CallContext | None) -> dict[str, Any]:
        """Any request. Raises as ``call_tool``."""
        if context is not None:
            context = offered(context, self._forward)
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
            more = params if answers is None else {**params, **_second(answers)}
            return await self._request(method, more, context)

        return await with_answers(self._name, attempt, context, whole_or_task if method == "tools/call" else whole)

    async def ask_of_task(self, method: str, params: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
        """A request about a task. Raises Refused, Malformed, Gone."""
        return whole_or_task(await self._request(method, params, context))

    async def ping(self) -> None:
        """Ask for something that costs the server nothing. Raises Refused, Malformed, Gone."""
        await self._request("server/discover" if self._modern else "ping", {}, None)

    async def listen(self, lists: Sequence[str], uris: Sequence[str], heard: Heard) -> None:
        """Hold a stream of changes of *lists* (``tools``, ``prompts``, ``resources``) and of the resources *uris*;
        *heard* first gets the server's acknowledgement. Only in 2026-07-28.

        Returns when the server ends the stream. Raises Refused, Malformed, Gone.
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
            if not gone.carried and not self._connection.shows_its_end:
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
    """The answer to a request of the negotiation, which must not be cancelled on the server."""
    call = connection.exchange.new_call(None)
    call.cancellable = False
    return await connection.request(request, call)


def _second(answers: InputAnswers) -> dict[str, Any]:
    """The parameters that a second attempt has more than the first."""
    params: dict[str, Any] = {}
    if answers.responses:
        params["inputResponses"] = answers.responses
    if answers.request_state is not None:
        params["requestState"] = answers.request_state
    return params


def whole(result: dict[str, Any]) -> dict[str, Any]:
    """*result*, which is complete. Raises Malformed for one of another kind, such as the task of an extension that was
    not offered: what was asked for may not be over."""
    if result.get("resultType") not in (None, "complete"):
        raise Malformed(NOT_VALID)
    return result


def whole_or_task(result: dict[str, Any]) -> dict[str, Any]:
    """As ``whole``, where the server may answer with a task."""
    return result if tasks.is_task(result) else whole(result)


async def with_answers(
    name: str, attempt: Attempt, context: CallContext, checked: Callable[[dict[str, Any]], dict[str, Any]] = whole
) -> dict[str, Any]:
    """Call until the server needs no more answers; the result as *checked* gives it. Raises InputRequired where the
    answers come with another call of the client, Malformed for a result of an unknown kind, and UpstreamError where no
    one can be asked, or there is no end to it."""
    answers = context.answers
    for _ in range(_MAX_ROUNDS):
        result = await attempt(answers)
        if result.get("resultType") != "input_required":
            return checked(result)
        answers = await _answered(name, result, context)
    raise UpstreamError(f"{name} asked for input again and again; the call was given up.")


def _pages_to_open(refused: Refused, context: CallContext) -> dict[str, Any]:
    """The questions of a client of the newer era in place of an error that only older versions have: the pages that a
    person must open before the call. Empty for another error, and where they were opened or cannot be shown."""
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
        # It only wants to be asked again, with its state.
        if state is None:
            raise Malformed(NOT_VALID)
        await asyncio.sleep(_PAUSE_S)
        return InputAnswers({}, state)
    # Only what the server was shown for this call can be passed on.
    for request in requests.values():
        match request:
            case {"method": str(method), "params": dict()} | {"method": "roots/list" as method}:
                if method != ELICIT and CAPABILITY.get(method) not in context.caller.capabilities:
                    raise UpstreamError(
                        f"{name} asks for something other than input (sampling or roots), which is not offered to it."
                    )
            case _:
                raise Malformed(NOT_VALID)
    # The client answers with another call, now, or not at all.
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
    """The answers of the caller by key: to all at once in a task, whose client is shown what is open (FACE-156), and
    otherwise one after the other, as they are put to a person. Raises CannotAsk."""

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
    """The items under *key*, page after page; False if the list went on. A server that repeats a cursor, or never
    ends, is cut off. Raises Malformed, and the exceptions of *page*."""
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
    """The tools without those whose annotations are invalid, which are noted in *left_out*."""
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
