"""One request on its way to an MCP server: what the server says meanwhile reaches the caller in order, before the
answer (gatekit G48 to G50)."""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from typing import Any

from wicketgate.ports import SILENT, CallContext, Caller
from wicketgate.upstreams.mcp_client import json_rpc
from wicketgate.upstreams.mcp_client.failure import NOT_VALID, Malformed, refusal

log = logging.getLogger("wicketgate.upstream")

PROGRESS = "notifications/progress"
LOG = "notifications/message"
_MAX_WAITING = 1_000


class Call:
    """Settled by whoever reads from the server, awaited by whoever asked.

    *context* is None for what no client asked for, such as a list of tools. *token* is the id and the progress token.
    *carried*: it may have reached the server.
    """

    __slots__ = ("_answer", "_failure", "_news", "_notes", "caller", "carried", "context", "token")

    def __init__(self, token: str, context: CallContext | None) -> None:
        self.token = token
        self.context = context
        self.carried = False
        self.caller: Caller = SILENT if context is None else context.caller
        self._news: asyncio.Future[None] | None = None
        self._notes: deque[tuple[str, Mapping[str, Any]]] = deque()
        self._answer: Any = None
        self._failure: Exception | None = None

    @property
    def silent(self) -> bool:
        return self.caller is SILENT

    @property
    def settled(self) -> bool:
        return self._answer is not None or self._failure is not None

    def note(self, method: str, params: object) -> None:
        """Something was said meanwhile. Of a caller that is too slow, the oldest news are dropped."""
        if self.silent or not isinstance(params, Mapping):
            return
        if len(self._notes) == _MAX_WAITING:
            self._notes.popleft()
        self._notes.append((method, params))
        self._wake()

    def settle(self, message: json_rpc.Message) -> None:
        """The answer came. One with both result and error, or with neither, is none (gatekit G68)."""
        has_result = message.result is not json_rpc.ABSENT
        has_error = message.error is not json_rpc.ABSENT and message.error is not None
        if has_result == has_error:
            self.fail(Malformed(NOT_VALID))
        elif has_error:
            self.fail(refusal(message.error))
        elif not self.settled:
            if message.result is None:
                self._failure = Malformed(NOT_VALID)
            self._answer = message.result
            self._wake()

    def fail(self, error: Exception) -> None:
        if not self.settled:
            self._failure = error
            self._wake()

    async def answer(self) -> dict[str, Any]:
        """The result, after everything that was said before it has been passed on. Raises what it failed with."""
        while True:
            while self._notes:
                await tell(self.caller, *self._notes.popleft())
            if self._failure is not None:
                raise self._failure
            if self._answer is not None:
                return await result_object(self._answer)
            self._news = asyncio.get_running_loop().create_future()
            await self._news

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)


async def result_object(result: object) -> dict[str, Any]:
    """A result that may still be encoded. Raises Malformed for what is no object."""
    if isinstance(result, json_rpc.Raw):
        try:
            result = await asyncio.to_thread(json_rpc.whole, result)
        except json_rpc.DAMAGED:
            raise Malformed(NOT_VALID) from None
    if not isinstance(result, dict):
        raise Malformed(NOT_VALID)
    return result


async def tell(caller: Caller, method: str, params: Mapping[str, Any]) -> None:
    """Pass one notification of the server on; what is not well-formed is dropped."""
    match method, params:
        case ("notifications/progress", {"progress": int() | float() as progress}) if not isinstance(progress, bool):
            total, message = params.get("total"), params.get("message")
            await caller.progress(
                progress,
                float(total) if isinstance(total, int | float) and not isinstance(total, bool) else None,
                message if isinstance(message, str) else None,
            )
        case ("notifications/message", {"level": str(level), "data": data}):
            logger = params.get("logger")
            await caller.log(level, data, logger if isinstance(logger, str) else None)
