"""An open connection to an MCP server, as the connector uses it: the SDK keeps its session, calls go beside it."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import mcp.types as t
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from wicketgate.upstreams.mcp_client.call import Call
from wicketgate.upstreams.mcp_client.exchange import Exchange
from wicketgate.upstreams.mcp_client.json_rpc import ABSENT, DAMAGED, Message, params_of, whole


class DirectCalls(Protocol):
    """Requests of 2026-07-28 on HTTP connections of their own."""

    async def request(
        self, method: str, params: Mapping[str, Any], headers: Mapping[str, str], call: Call
    ) -> dict[str, Any]:
        """The result. Raises Refused, Malformed, Gone."""
        ...


@dataclass(frozen=True, slots=True)
class Connection:
    """*streams* are the session's. *direct* is for sessions of 2026-07-28, if there is another way for them than
    *exchange*. *one_era*: a server of the handshake era may end, or say nothing, when it is asked for another.
    *tells_end*: its end shows by itself, with the reason; else it is a request that finds out.
    *refusal*: how the server last refused to speak MCP at all, as a phrase; empty if it never did."""

    streams: TransportStreams
    exchange: Exchange
    direct: DirectCalls | None = None
    one_era: bool = False
    tells_end: bool = False
    refusal: Callable[[], str] = str


Lost = Callable[[str], None]
"""To be called once when the other side is gone; the argument says how, such as ``it ended with code 3``."""

Connect = Callable[[Lost], AbstractAsyncContextManager[Connection]]


def for_session(message: Message) -> SessionMessage | None:
    """What the SDK's session is to see of a message that is not for us; None if it cannot be one."""
    try:
        if message.method is None:
            if message.id is None:
                return None
            if message.error is not ABSENT and message.error is not None:
                return SessionMessage(t.JSONRPCError(jsonrpc="2.0", id=message.id, error=message.error))
            return SessionMessage(t.JSONRPCResponse(jsonrpc="2.0", id=message.id, result=whole(message.result)))
        params = params_of(message)
        given = {} if params is None else {"params": params}
        if message.id is None:
            return SessionMessage(t.JSONRPCNotification(jsonrpc="2.0", method=message.method, **given))
        return SessionMessage(t.JSONRPCRequest(jsonrpc="2.0", id=message.id, method=message.method, **given))
    except (ValidationError, *DAMAGED):
        if message.method is None and message.id is not None:
            failure = t.ErrorData(code=t.INTERNAL_ERROR, message="not a valid answer")
            return SessionMessage(t.JSONRPCError(jsonrpc="2.0", id=message.id, error=failure))
        return None


def from_session(message: t.JSONRPCMessage) -> Message:
    """A message that the SDK's transport has decoded."""
    match message:
        case t.JSONRPCResponse():
            return Message(message.id, result=message.result)
        case t.JSONRPCError():
            return Message(message.id, error=message.error.model_dump(exclude_unset=True))
        case t.JSONRPCRequest():
            return Message(message.id, message.method, message.params)
        case _:
            return Message(None, message.method, message.params)
