"""Upstreams of a program that embeds the gate: a stub without a wire, and an MCP session that the program keeps open
(UP-21, LIB-5).

A session is anything with ``list_tools`` and ``call_tool`` as the SDK's ``ClientSession`` and ``Client`` have them; its
answers are pydantic models or mappings. It is called from the event loop that it belongs to. Servers that the gate
itself starts and watches have an upstream of their own.
"""

import asyncio
import copy
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from wicketgate.errors import (
    GatewayError,
    UpstreamError,
    UpstreamLost,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnavailable,
    UpstreamUnclear,
)
from wicketgate.log_text import META_KEY
from wicketgate.mcp_names import CONNECTION_CLOSED, REQUEST_TIMEOUT
from wicketgate.ports import CallContext, UpstreamStatus

Handler = Callable[[str, Mapping[str, Any], CallContext], Awaitable[Mapping[str, Any]]]


class StubUpstream:
    """Answers from *handler*; without one, every call is an error result. Keeps the calls that arrived.

    *tools* are definitions of ``tools/list`` in wire JSON. With a *name*, that is the namespace of all of them;
    without, the tools' own names give their namespaces.
    """

    def __init__(
        self,
        tools: Sequence[Mapping[str, Any]],
        handler: Handler | None = None,
        *,
        name: str = "",
    ) -> None:
        self.tools = list(tools)
        self.calls: list[tuple[str, Mapping[str, Any], CallContext]] = []
        self.status = UpstreamStatus("ready")
        self.name = name
        self._handler = handler

    async def supervise(self, changed: Callable[[str], None]) -> None:
        changed(self.name)
        await asyncio.Event().wait()

    async def list_tools(self) -> Sequence[Mapping[str, Any]]:
        return copy.deepcopy(self.tools)

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], context: CallContext, timeout_s: float
    ) -> Mapping[str, Any]:
        self.calls.append((name, dict(arguments), context))
        if self._handler is None:
            return {"content": [{"type": "text", "text": "the stub has no handler"}], "isError": True}
        return await self._handler(name, arguments, context)


log = logging.getLogger("wicketgate.upstream")

_MAX_PAGES = 1_000
_MAX_MESSAGE_CHARS = 256


class ToolSession(Protocol):
    """The part of the SDK's session that is used."""

    @property
    def list_tools(self) -> Callable[..., Any]: ...

    @property
    def call_tool(self) -> Callable[..., Any]: ...


class McpClientUpstream:
    """Implements Upstream over *session*, which the caller opens, initializes and closes.

    With a *name*, that is the namespace of all its tools; without, their own names give their namespaces.
    """

    def __init__(self, session: ToolSession, *, name: str = "") -> None:
        self.status = UpstreamStatus("ready")
        self._session = session
        self.name = name
        self._shown_name = name or "The MCP server"
        # What the session takes differs between versions of the SDK.
        self._listing = frozenset(inspect.signature(session.list_tools).parameters)
        self._calling = frozenset(inspect.signature(session.call_tool).parameters)

    async def supervise(self, changed: Callable[[str], None]) -> None:
        changed(self.name)
        await asyncio.Event().wait()

    async def list_tools(self) -> Sequence[Mapping[str, Any]]:
        """Every page of the list. Raises UpstreamUnavailable, UpstreamTimeout or UpstreamError."""
        tools: list[Any] = []
        seen: set[str] = set()
        cursor = None
        for _ in range(_MAX_PAGES):
            try:
                page = _wire(await self._session.list_tools(**self._page(cursor)))
            except Exception as error:
                raise self._failure(error, carried=False) from error
            given = None if page is None else page.get("tools")
            if page is None or not isinstance(given, list):
                raise UpstreamError(f"{self._shown_name} returned an invalid list of tools.")
            tools += (tool if (wire := _wire(tool)) is None else wire for tool in given)
            cursor = page.get("nextCursor")
            # A server that repeats a cursor would never end.
            if not isinstance(cursor, str) or not cursor or cursor in seen:
                return tools
            seen.add(cursor)
        log.warning("%s: tools/list did not end after %d pages", self._shown_name, _MAX_PAGES)
        return tools

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], context: CallContext, timeout_s: float
    ) -> Mapping[str, Any]:
        extras: dict[str, Any] = {}
        if "progress_callback" in self._calling:
            extras["progress_callback"] = context.caller.progress
        if "meta" in self._calling:
            extras["meta"] = {**context.meta, META_KEY: context.correlation_id}
        try:
            async with asyncio.timeout(timeout_s):
                result = _wire(await self._session.call_tool(name, dict(arguments), **extras))
        except Exception as error:
            raise self._failure(error, carried=True) from error
        # One of another type, such as a task, is not over.
        if result is None or result.get("resultType") not in (None, "complete"):
            raise UpstreamUnclear(f"{self._shown_name} gave a result that is not valid.")
        return result

    def _page(self, cursor: str | None) -> dict[str, Any]:
        if cursor is None:
            return {}
        if "cursor" in self._listing:
            return {"cursor": cursor}
        if "params" in self._listing:
            # Such a session is the SDK's, so its types are there.
            from mcp_types import PaginatedRequestParams

            return {"params": PaginatedRequestParams(cursor=cursor)}
        raise UpstreamError(f"{self._shown_name} has more tools than its session can list: list_tools takes no cursor.")

    def _failure(self, error: Exception, *, carried: bool) -> GatewayError:
        """The failure for callers, in our words. *carried*: the tool may have run."""
        if isinstance(error, GatewayError):
            return error
        # As the SDK's exception for a JSON-RPC error has it.
        refused = getattr(error, "error", None)
        code, message = getattr(refused, "code", None), getattr(refused, "message", None)
        if isinstance(error, TimeoutError) or code == REQUEST_TIMEOUT:
            return UpstreamTimeout(f"{self._shown_name} did not answer in time.")
        if isinstance(error, ConnectionError) or code == CONNECTION_CLOSED or type(error).__name__ in _CLOSED:
            if not carried:
                return UpstreamUnavailable(f"{self._shown_name} cannot be reached.")
            return UpstreamLost(f"The connection to {self._shown_name} was lost while the tool ran.")
        if isinstance(code, int) and isinstance(message, str):
            shown = "".join(char if char.isprintable() else " " for char in message[:_MAX_MESSAGE_CHARS]).strip()
            data = getattr(refused, "data", None)
            return UpstreamRefused(f"{self._shown_name} refused the call.", code=code, refusal=shown, data=data)
        log.error("%s: the session failed", self._shown_name, exc_info=error)
        return UpstreamUnclear(f"The session with {self._shown_name} failed.")


# Of anyio, by name: a stand-in for a session need not use it.
_CLOSED = frozenset({"ClosedResourceError", "BrokenResourceError", "EndOfStream"})


def _wire(answer: object) -> dict[str, Any] | None:
    """A pydantic model or a mapping as wire JSON; None for anything of another kind."""
    if isinstance(answer, Mapping):
        return dict(answer)
    dump = getattr(answer, "model_dump", None)
    if dump is None:
        return None
    dumped: dict[str, Any] = dump(by_alias=True, mode="json", exclude_none=True)
    return dumped
