"""The port between one MCP server's client and its transports."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from wicketgate.ports import CallContext
from wicketgate.upstreams.mcp.call import Call, Heard
from wicketgate.upstreams.mcp.eras import Agreement
from wicketgate.upstreams.mcp.exchange import Exchange
from wicketgate.upstreams.mcp.session import McpRequest


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

    def new_call(self, context: CallContext | None, heard: Heard | None = None) -> Call: ...

    async def request(self, outgoing: McpRequest, call: Call) -> dict[str, Any]:
        """The result. A caller that leaves early has the request cancelled on the server, and no other one. Raises
        Refused, Malformed, Gone."""
        ...

    async def agreed(self, agreement: Agreement) -> None:
        """The version is settled: complete the handshake, if there is one, and listen where this era listens."""
        ...


Lost = Callable[[str], None]
"""Called once when the other side is gone; the argument says how, such as ``it ended with code 3``."""

Connect = Callable[[Lost], AbstractAsyncContextManager[Connection]]
