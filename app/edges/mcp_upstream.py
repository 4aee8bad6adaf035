"""McpClientUpstream: one MCP server, one supervised session, calls that cannot hurt it or one another (S1).

Rules of the SDK that shape this file (guide "Upstreams"): one task enters and leaves a Client; calls run in that
task's group while their callers only wait; every call has a deadline of its own.
"""

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import anyio
from anyio.abc import TaskGroup
from mcp import Client
from mcp import types as t
from mcp.client._transport import TransportStreams
from mcp.client.session import ClientSession
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from mcp.types import CONNECTION_CLOSED, INTERNAL_ERROR, REQUEST_TIMEOUT
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from app.edges.mcp_transport import MALFORMED
from app.errors import GatewayError, UpstreamError, UpstreamLost, UpstreamTimeout, UpstreamUnavailable
from app.gateway.ports import CallContext, UpstreamStatus
from app.wire.correlation import META_KEY

log = logging.getLogger("wicketgate.upstream")

T = TypeVar("T")

Connect = Callable[[Callable[[], None]], AbstractAsyncContextManager[TransportStreams]]
"""Opens a transport; the argument is to be called when the other side is gone."""

_RAW: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])
_FIRST_DELAY_S = 0.2
_MAX_DELAY_S = 10.0
_LASTED_S = 30.0
_MAX_PAGES = 1_000
_MAX_MESSAGE = 256


@dataclass(frozen=True, slots=True)
class _Live:
    """A connected session and the task group that its calls run in."""

    client: Client
    calls: TaskGroup
    lost: anyio.Event


class McpClientUpstream:
    """Implements Upstream. It is of use while ``supervise`` runs."""

    def __init__(
        self,
        name: str,
        connect: Connect,
        *,
        connect_timeout_s: float,
        jitter: Callable[[], float],
        mode: str = "auto",
    ) -> None:
        """*jitter* gives 0 to 1 and spreads reconnections. *mode*: ``auto``, or ``legacy`` for the handshake."""
        self._name = name
        self._connect = connect
        self._connect_timeout_s = connect_timeout_s
        self._jitter = jitter
        self._mode = mode
        self._live: _Live | None = None
        self._status = UpstreamStatus("connecting")

    @property
    def name(self) -> str:
        return self._name

    @property
    def status(self) -> UpstreamStatus:
        return self._status

    async def supervise(self, changed: Callable[[str], None]) -> None:
        """Between sessions it waits, ever longer while they do not last, up to ten seconds."""
        delay = _FIRST_DELAY_S
        while True:
            began = anyio.current_time()
            if await self._serve_one_session(changed) and anyio.current_time() - began > _LASTED_S:
                delay = _FIRST_DELAY_S
            await anyio.sleep(delay * (0.5 + self._jitter() / 2))
            delay = min(delay * 2, _MAX_DELAY_S)

    async def list_tools(self) -> Sequence[Mapping[str, Any]]:
        async def carry(client: Client) -> list[dict[str, Any]]:
            return [tool async for tool in _all_tools(client)]

        try:
            return await self._run(carry, self._connect_timeout_s)
        except UpstreamError as error:
            if error.details is not None:
                raise
            raise UpstreamUnavailable(f"{self._name} did not give its tools.") from None

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], context: CallContext, timeout_s: float
    ) -> Mapping[str, Any]:
        meta = cast(t.RequestParamsMeta, {META_KEY: context.correlation_id})
        params = t.CallToolRequestParams(name=name, arguments=dict(arguments), _meta=meta)

        async def carry(client: Client) -> dict[str, Any]:
            # Untyped on purpose: what the SDK's result type does not know would be dropped, and its check of the
            # result against the tool's outputSchema would turn an answer that was given into a failure.
            return await client.session.send_request(  # type: ignore[type-var]  # the adapter is not of a model
                t.CallToolRequest(params=params), _RAW, request_read_timeout_seconds=timeout_s
            )

        result = await self._run(carry, timeout_s)
        if result.get("resultType") == "input_required":
            raise UpstreamError(f"{self._name} asks for input before it can run this tool; that is not supported yet.")
        return result

    async def _serve_one_session(self, changed: Callable[[str], None]) -> bool:
        """Connect and stay until the session is lost; False if it never came about."""
        connected = False
        lost = anyio.Event()

        async def on_message(message: object) -> None:
            if isinstance(message, t.ToolListChangedNotification):
                changed(self._name)

        try:
            # One scope for the attempt; once connected its deadline goes, for scopes must nest with the Client's own.
            with anyio.CancelScope(deadline=anyio.current_time() + self._connect_timeout_s) as attempt:
                client = Client(self._connect(lost.set), cache=None, message_handler=on_message, mode=self._mode)
                async with client, anyio.create_task_group() as calls:
                    attempt.deadline = math.inf
                    connected = True
                    self._live = _Live(client, calls, lost)
                    before = self._status
                    self._status = UpstreamStatus("ready", "", before.connections + 1, before.error)
                    log.info("%s: connected, protocol %s", self._name, client.protocol_version)
                    changed(self._name)
                    if client.protocol_version in MODERN_PROTOCOL_VERSIONS and _announces_changes(client):
                        calls.start_soon(self._listen, client, changed, lost)
                    await lost.wait()
                    self._gone("the connection was lost")
                    calls.cancel_scope.cancel()
            if attempt.cancelled_caught:
                self._gone(f"no answer within {self._connect_timeout_s:g} s")
        except Exception as error:
            reason = _why(error)
            if reason is None:
                log.error("%s: connection failed unexpectedly", self._name, exc_info=error)
            self._gone("the connection was lost" if connected else reason or "it does not speak MCP")
        finally:
            self._live = None
        return connected

    async def _listen(self, client: Client, changed: Callable[[str], None], lost: anyio.Event) -> None:
        """Changes of the newer era come over a stream of their own; what came before it was open is asked for."""
        delay = _FIRST_DELAY_S
        while True:
            try:
                async with client.listen(tools_list_changed=True) as subscription:
                    delay = _FIRST_DELAY_S
                    changed(self._name)
                    async for _ in subscription:
                        changed(self._name)
            except MCPError as error:
                if error.code == CONNECTION_CLOSED:
                    lost.set()
                    return
            except (SubscriptionLost, TimeoutError):
                pass
            await anyio.sleep(delay * (0.5 + self._jitter() / 2))
            delay = min(delay * 2, _MAX_DELAY_S)

    def _gone(self, reason: str) -> None:
        self._live = None
        before = self._status
        if (before.phase, before.error) != ("down", reason):
            log.warning("%s: %s", self._name, reason)
        self._status = UpstreamStatus("down", reason, before.connections, reason)

    async def _run(self, carry: Callable[[Client], Awaitable[T]], timeout_s: float) -> T:
        """Run *carry* in the session's own task group and wait for it; leaving early cancels it there."""
        live = self._live
        if live is None:
            raise UpstreamUnavailable(f"{self._name} is not connected ({self._status.error or 'connecting'}).")
        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        scope = anyio.CancelScope()

        async def job() -> None:
            try:
                with scope:
                    result = await carry(live.client)
                    if not outcome.done():
                        outcome.set_result(result)
            except Exception as error:
                if not outcome.done():
                    outcome.set_exception(error)
            finally:
                if not outcome.done():
                    outcome.set_exception(ConnectionAbortedError())

        try:
            live.calls.start_soon(job)
        except RuntimeError:  # the group closed between the look-up and here
            raise UpstreamUnavailable(f"{self._name} is not connected (the connection was lost).") from None
        try:
            # The SDK's own timeout starts after the write, and a server that reads nothing never gets that far.
            async with asyncio.timeout(timeout_s + 0.5):
                return await outcome
        except TimeoutError:
            raise UpstreamTimeout(f"{self._name} did not answer within {timeout_s:g} s.") from None
        except Exception as error:
            raise self._translate(error, live, timeout_s) from error
        finally:
            outcome.cancel()
            scope.cancel()

    def _translate(self, error: Exception, live: _Live, timeout_s: float) -> GatewayError:
        lost_meanwhile = UpstreamLost(
            f"The connection to {self._name} was lost while the tool ran; whether it took effect is not known."
        )
        match error:
            case MCPError(code=code) if code == REQUEST_TIMEOUT:
                return UpstreamTimeout(f"{self._name} did not answer within {timeout_s:g} s.")
            case MCPError(code=code, data=data) if code == CONNECTION_CLOSED:
                live.lost.set()
                if isinstance(data, dict) and data.get("carried") is False:
                    return UpstreamUnavailable(f"{self._name} cannot be reached.")
                return lost_meanwhile
            case MCPError(message=message) if message == MALFORMED:
                return UpstreamError(f"{self._name} gave an answer that is not a valid MCP result.")
            case MCPError(message="Session not found"):
                live.lost.set()  # the server was restarted and refused the call unseen; a new session heals it
                return UpstreamUnavailable(f"{self._name} has been restarted; the call was not run.")
            case MCPError(code=code, message=message):
                return UpstreamError(
                    f"{self._name} refused the call.",
                    details={"upstream_code": code, "upstream_message": _clean(message)},
                )
            case ValidationError():
                return UpstreamError(f"{self._name} gave an answer that is not a valid MCP result.")
            case ConnectionAbortedError():
                return lost_meanwhile
            case _:
                log.error("%s: unexpected failure of a call", self._name, exc_info=error)
                return UpstreamError(f"The call to {self._name} failed.")


async def _all_tools(client: Client) -> AsyncGenerator[dict[str, Any], None]:
    """Every definition of every page, as wire JSON. A server that repeats a cursor, or never ends, is cut off."""
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(_MAX_PAGES):
        page = await _raw_page(client.session, cursor)
        tools = page.get("tools")
        if not isinstance(tools, list):
            raise MCPError(INTERNAL_ERROR, MALFORMED)
        refused = _mirror_headers(client.session, tools)
        for tool in tools:
            if not isinstance(tool, dict) or tool.get("name") not in refused:
                yield tool
        cursor = page.get("nextCursor")
        if not isinstance(cursor, str) or not cursor or cursor in seen:
            return
        seen.add(cursor)
    log.warning("tools/list did not end after %d pages; the rest is left out", _MAX_PAGES)


async def _raw_page(session: ClientSession, cursor: str | None) -> dict[str, Any]:
    """One page as it came. ``session.list_tools`` refuses a whole page for one bad definition (gateway 121, 122), and
    checks and dumps every tool on the loop; the catalog reads each by itself, off the loop."""
    request = t.ListToolsRequest(params=t.PaginatedRequestParams(cursor=cursor))
    data = request.model_dump(by_alias=True, mode="json", exclude_none=True)
    options: CallOptions = {}
    session._stamp(data, options)
    page = await session._dispatcher.send_raw_request(data["method"], data.get("params"), options)
    return dict(page)


def _mirror_headers(session: ClientSession, tools: Sequence[Any]) -> set[str]:
    """Tell the session of arguments that travel in headers too (2026-07-28, ``x-mcp-header``); the names of tools whose
    annotations are invalid, which a client must not use."""
    marked = []
    for tool in tools:
        if isinstance(tool, dict) and "x-mcp-header" in repr(tool.get("inputSchema")):
            try:
                marked.append(t.Tool.model_validate(tool, by_name=False))
            except ValidationError:
                continue  # the catalog says what is wrong with it
    if not marked:
        return set()
    kept = session._absorb_tool_listing(t.ListToolsResult(tools=list(marked)), complete=False).tools
    return {tool.name for tool in marked} - {tool.name for tool in kept}


def _announces_changes(client: Client) -> bool:
    tools = client.server_capabilities.tools
    return tools is not None and bool(tools.list_changed)


def _why(error: BaseException) -> str | None:
    """A fixed phrase for why a connection could not be made, for what is thrown may hold paths and addresses; None
    for what nobody expects."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    match error:
        case FileNotFoundError():
            return "the command was not found"
        case PermissionError():
            return "the command may not be run"
        case MCPError(code=code) if code == CONNECTION_CLOSED:
            return "it cannot be reached, or ended before it was ready"
        case MCPError():
            return "it refused the MCP handshake"
        case OSError():
            return "it cannot be reached"
        case ValidationError():
            return "it does not speak MCP"
        case _:
            return None


def _clean(message: str) -> str:
    """An upstream's words, made safe to show: one line, bounded (gateway 128)."""
    return "".join(char if char.isprintable() else " " for char in message[:_MAX_MESSAGE]).strip()
