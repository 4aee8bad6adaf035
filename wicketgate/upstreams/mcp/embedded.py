"""McpClientUpstream: a session that an embedder keeps, as an upstream (S1).

The session is anything with the methods ``list_tools()`` and ``call_tool(name, arguments)`` of the MCP SDK's session;
its owner connects and closes it. ``McpServerUpstream`` keeps a configured server connected by itself.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import mcp_types as t

from wicketgate.errors import GatewayError, UpstreamError
from wicketgate.ports import CallContext, UpstreamStatus
from wicketgate.upstreams.mcp.failures import CONNECTION_LOST, Gone, Refused, reported, timed_out
from wicketgate.upstreams.mcp.listing import read_listing

log = logging.getLogger("wicketgate.upstream")


class McpSession(Protocol):
    """The two methods of the SDK's session that are used. Results are pydantic models or wire JSON."""

    @property
    def list_tools(self) -> Callable[..., Any]:
        """A coroutine function. Pages after the first are asked for by ``cursor`` or ``params``, if it has one."""
        ...

    @property
    def call_tool(self) -> Callable[..., Any]:
        """A coroutine function of the tool's name and its arguments."""
        ...


class McpClientUpstream:
    """Implements Upstream over *session*. It is ready at once, and has no connection of its own to supervise."""

    def __init__(self, session: McpSession, *, name: str = "mcp") -> None:
        self.status = UpstreamStatus("ready")
        self._session = session
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    async def supervise(self, changed: Callable[[str], None]) -> None:
        changed(self._name)
        await asyncio.Event().wait()

    async def list_tools(self) -> Sequence[Mapping[str, Any]]:
        """Raises UpstreamError, UpstreamTimeout."""
        parameters = inspect.signature(self._session.list_tools).parameters

        async def page(cursor: str | None) -> Mapping[str, Any]:
            if cursor is None:
                return _wire_json(await self._session.list_tools())
            if "cursor" in parameters:
                return _wire_json(await self._session.list_tools(cursor=cursor))
            if "params" in parameters:
                return _wire_json(await self._session.list_tools(params=t.PaginatedRequestParams(cursor=cursor)))
            log.warning("%s: the session cannot ask for a second page of tools; the rest is left out", self._name)
            return {"tools": []}

        try:
            return (await read_listing(self._name, page, mirrors=False)).tools
        except Exception as error:
            raise self._reported(error) from error

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], context: CallContext, timeout_s: float
    ) -> Mapping[str, Any]:
        """Raises UpstreamError, UpstreamTimeout."""
        try:
            return _wire_json(await self._session.call_tool(name, dict(arguments)))
        except Exception as error:
            raise self._reported(error, timeout_s) from error

    def _reported(self, error: Exception, timeout_s: float = 0) -> GatewayError:
        """The SDK's errors are known by their shape, because importing it loads a web framework."""
        shape = getattr(error, "error", error)
        code, message = getattr(shape, "code", None), getattr(shape, "message", None)
        if isinstance(code, int) and isinstance(message, str):
            match code:
                case t.CONNECTION_CLOSED:
                    return reported(self._name, Gone(CONNECTION_LOST, carried=True))
                case t.REQUEST_TIMEOUT:
                    return timed_out(self._name, timeout_s)
            return reported(self._name, Refused(code, message, getattr(shape, "data", None)))
        log.warning("%s: the session failed", self._name, exc_info=error)
        return UpstreamError(f"{self._name} failed; whether the tool took effect is not known.")


def _wire_json(result: Any) -> dict[str, Any]:
    """A result as wire JSON. Raises TypeError for one that is neither a model nor an object."""
    if isinstance(result, Mapping):
        return dict(result)
    if callable(dump := getattr(result, "model_dump", None)):
        wire: dict[str, Any] = dump(mode="json", by_alias=True, exclude_none=True)
        return wire
    raise TypeError(f"a result of type {type(result).__name__}")
