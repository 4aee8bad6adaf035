"""Requests that are answered without the SDK's server, by the same door with the same answers (FACE-135)."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import ERROR_CODE_HTTP_STATUS
from mcp.types import INTERNAL_ERROR, SERVER_INFO_META_KEY
from pydantic import ValidationError

from wicketgate.errors import InputRequired, UpstreamError
from wicketgate.faces.mcp.caller import reaches
from wicketgate.faces.mcp.direct_requests import MODERN, DirectRequest, names_header
from wicketgate.faces.mcp.exchange import WithinOwnExchange
from wicketgate.faces.mcp.fit import fitted, written
from wicketgate.faces.mcp.outbox import Outbox
from wicketgate.faces.mcp.server import TOOLS_FRESH_MS, McpDoor
from wicketgate.gateway.running_calls import AttendedCaller
from wicketgate.ports import AnswerTime, CallContext, CannotAsk

log = logging.getLogger("wicketgate.mcp")

_MAX_KNOWN = 10_000

Say = Callable[[bytes], Awaitable[None]]
"""Writes a message to the client before the answer."""


class Answer(NamedTuple):
    """A JSON-RPC message with its HTTP status."""

    status: int
    message: bytes


class DirectDoor:
    """The requests that *door* answers without the SDK's server."""

    def __init__(self, door: McpDoor) -> None:
        self._door = door
        self._with_headers: dict[str, tuple[object, bool]] = {}

    def takes(self, asked: DirectRequest) -> bool:
        """False for a call whose arguments may stand in headers too."""
        if asked.method != "tools/call" or asked.protocol_version != MODERN or not asked.arguments:
            return True
        tool = self._door.shown(asked.name, asked)
        if tool is None:
            return True
        known = self._with_headers.get(asked.name)
        if known is None or known[0] is not tool.input_schema:
            if len(self._with_headers) >= _MAX_KNOWN:
                self._with_headers.clear()
            known = self._with_headers[asked.name] = tool.input_schema, names_header(tool.input_schema)
        return not known[1]

    async def answer(self, asked: DirectRequest, say: Say) -> Answer:
        """Never raises but for a cancellation of its task. The exchange of the request ends what runs."""
        caller = DirectCaller(asked, say)
        try:
            with WithinOwnExchange(asked):
                result = await self._result(asked, caller)
                await caller.outbox.close(written=True)
        except MCPError as error:
            return refused(asked, error.error.code, error.error.message, error.error.data)
        except Exception:
            log.exception("%s failed", asked.method)
            return refused(asked, INTERNAL_ERROR, "Internal server error")
        finally:
            await caller.outbox.close(written=False)
        if asked.protocol_version == MODERN:
            result = {**result, "_meta": self._stamped(result.get("_meta"))}
        return Answer(200, bytes(written({"jsonrpc": "2.0", "id": asked.id, "result": result})))

    async def _result(self, asked: DirectRequest, caller: "DirectCaller") -> Mapping[str, Any]:
        """Raises MCPError."""
        match asked.method:
            case "tools/call":
                return await self._called(asked, self._door.context_of(asked, AttendedCaller(caller)))
            case "tools/list":
                return await self._listed(asked, self._door.context_of(asked, caller))
            case _:
                return {}

    async def _called(self, asked: DirectRequest, context: CallContext) -> Mapping[str, Any]:
        try:
            result = await self._door.run_tool(asked, asked.name, asked.arguments, context)
        except InputRequired as question:
            wanted = next((str(each.get("method")) for each in question.requests.values()), "a question")
            cannot = UpstreamError(f"The tool needs an answer to {wanted}, which this client cannot give.")
            result = self._door.failed(asked.name, asked, cannot)
        try:
            return fitted(result, asked.protocol_version)
        except ValidationError:
            log.exception("a result of %r is not valid MCP", asked.name)
            raise MCPError(INTERNAL_ERROR, "Handler returned an invalid result") from None

    async def _listed(self, asked: DirectRequest, context: CallContext) -> Mapping[str, Any]:
        tools, more = await self._door.tools_shown(context)
        page = self._door.listings.written(tools, asked.cursor, asked.protocol_version)
        if asked.protocol_version == MODERN:
            return {**page, "ttlMs": TOOLS_FRESH_MS, **more}
        return {**page, **({"_meta": more["_meta"]} if "_meta" in more else {})}

    def _stamped(self, meta: object) -> Mapping[str, Any]:
        stamp = {SERVER_INFO_META_KEY: self._door.server.server_info_stamp}
        return {**stamp, **meta} if isinstance(meta, Mapping) else stamp


class DirectCaller:
    """Implements Caller for a client that is asked nothing, and hears what its server logs."""

    answers: AnswerTime = "never"

    def __init__(self, asked: DirectRequest, say: Say) -> None:
        self.capabilities = asked.capabilities
        self.outbox = Outbox()
        self._asked = asked
        self._say = say

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        return

    async def log(self, level: str, data: object, logger: str | None) -> None:
        # A client of the newer era that wants to hear of it does not come this way.
        if self._asked.protocol_version == MODERN or not reaches(level, self._asked.log_level):
            return
        params = {"level": level, "data": data, **({} if logger is None else {"logger": logger})}
        message = bytes(written({"jsonrpc": "2.0", "method": "notifications/message", "params": params}))
        self.outbox.put(lambda: self._say(message))

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        raise CannotAsk(method)

    def pending(self) -> AbstractContextManager[None]:
        return nullcontext()

    async def page_done(self, elicitation_id: str) -> None:
        return


def refused(asked: DirectRequest, code: int, message: str, data: object = None) -> Answer:
    error = {"code": code, "message": message, **({} if data is None else {"data": data})}
    status = ERROR_CODE_HTTP_STATUS.get(code, 200) if asked.protocol_version == MODERN else 200
    return Answer(status, bytes(written({"jsonrpc": "2.0", "id": asked.id, "error": error})))
