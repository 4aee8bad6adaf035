"""The MCP client of a request that came past the SDK: what it is told and asked before the answer (FACE-143).

A question goes out as a request of the gate's own. Its answer comes with another request of the session, maybe to
another process, and is judged as the SDK judges it.
"""

import asyncio
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from types import MappingProxyType
from typing import Any, Protocol

import pydantic_core
from mcp import types as t
from mcp.shared.exceptions import MCPError
from mcp_types.jsonrpc import jsonrpc_message_adapter
from mcp_types.methods import validate_client_result

from wicketgate.faces.mcp.caller import McpCaller, Notification, Question, reaches
from wicketgate.faces.mcp.direct_requests import MODERN, DirectRequest
from wicketgate.faces.mcp.exchange import WithinOwnExchange
from wicketgate.faces.mcp.fit import written

_LAST_WORDS_S = 5.0

Reply = t.JSONRPCResponse | t.JSONRPCError


class OpenQuestion:
    """A question to a client, until it has answered."""

    def __init__(self) -> None:
        self.reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    def take(self, body: bytes) -> bool:
        """Take the client's answer; returns false for what is no response of JSON-RPC."""
        try:
            message = jsonrpc_message_adapter.validate_python(pydantic_core.from_json(body), by_name=False)
        except ValueError:
            return False
        if not isinstance(message, Reply):
            return False
        if not self.reply.done():
            self.reply.set_result(message)
        return True


class Channel(Protocol):
    """The way to the client of a request, until that is answered."""

    async def say(self, message: bytes) -> None:
        """Write a message; does nothing once the request is answered or its client has left."""
        ...

    def asking(self, question: OpenQuestion) -> AbstractContextManager[int]:
        """Within the block *question* is open, under the id that this gives."""
        ...


class DirectCaller(McpCaller):
    """The client of a request that came past the SDK. It has asked for no progress. ``withdraw`` must be awaited before
    the request is answered."""

    capabilities: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, asked: DirectRequest, channel: Channel) -> None:
        super().__init__(asked)
        self._direct = asked
        self.capabilities = asked.capabilities
        self._channel = channel
        self._unanswered: set[int] = set()

    def within_exchange(self) -> AbstractContextManager[None]:
        # The task is that of the request, unless the call may be held for an answer.
        return WithinOwnExchange(self._direct) if self.answers == "never" else super().within_exchange()

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        return

    async def log(self, level: str, data: object, logger: str | None) -> None:
        # A client of the newer era that wants to hear of it does not come this way.
        if self._direct.protocol_version == MODERN or not reaches(level, self._direct.log_level):
            return
        params = {"level": level, "data": data, **({} if logger is None else {"logger": logger})}
        self._say_in_turn({"method": "notifications/message", "params": params})

    async def withdraw(self) -> None:
        """Tell the client of each question that nobody waits for its answer any more."""
        if self._unanswered:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAST_WORDS_S):
                    for id in tuple(self._unanswered):
                        await self._withdraw(id)

    async def _put(self, question: Question, result_type: type[t.Result]) -> t.Result:
        asked = question.model_dump(by_alias=True, mode="json", exclude_none=True)
        params = {key: value for key, value in asked.get("params", {}).items() if key != "_meta" or value}
        open = OpenQuestion()
        with self._channel.asking(open) as id:
            self._unanswered.add(id)
            try:
                more = {"params": params} if params else {}
                await self._channel.say(_message({"id": id, "method": question.method, **more}))
                reply = await open.reply
            except asyncio.CancelledError:
                self._outbox.put(lambda: self._withdraw(id))
                raise
        self._unanswered.discard(id)
        if isinstance(reply, t.JSONRPCError):
            raise MCPError(reply.error.code, reply.error.message, reply.error.data)
        with suppress(KeyError):  # a version that does not know the method
            validate_client_result(question.method, self._direct.protocol_version, reply.result)
        return result_type.model_validate(reply.result, by_name=False)

    def _send(self, notification: Notification) -> None:
        self._say_in_turn(notification.model_dump(by_alias=True, mode="json", exclude_none=True))

    def _say_in_turn(self, notification: Mapping[str, Any]) -> None:
        message = _message(notification)
        self._outbox.put(lambda: self._channel.say(message))

    async def _withdraw(self, id: int) -> None:
        if id in self._unanswered:
            self._unanswered.discard(id)
            params = {"requestId": id, "reason": "caller cancelled"}
            await self._channel.say(_message({"method": "notifications/cancelled", "params": params}))


def _message(content: Mapping[str, Any]) -> bytes:
    return bytes(written({"jsonrpc": "2.0", **content}))
