"""Requests that are answered without the SDK's server, by the same door with the same answers (FACE-135)."""

import logging
from collections.abc import Awaitable, Mapping
from functools import partial
from typing import Any, NamedTuple

from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import ERROR_CODE_HTTP_STATUS
from mcp.types import INTERNAL_ERROR, SERVER_INFO_META_KEY, InputRequiredResult
from mcp_types import CORE_RESULT_TYPES
from pydantic import ValidationError

from wicketgate.faces.mcp.direct_caller import Channel, DirectCaller
from wicketgate.faces.mcp.direct_requests import MODERN, DirectRequest, names_header
from wicketgate.faces.mcp.exchange import WithinOwnExchange
from wicketgate.faces.mcp.fit import fitted, written, written_in_parts
from wicketgate.faces.mcp.server import TOOLS_FRESH_MS, McpDoor
from wicketgate.heavy_work import in_line
from wicketgate.results.bulk import seems_to_outweigh

log = logging.getLogger("wicketgate.mcp")

_MAX_KNOWN = 10_000
_LONG_TO_WRITE = 262_144
"""Units of ``seems_to_outweigh``, values or sixteen characters: writing them takes some ten milliseconds."""


class Answer(NamedTuple):
    """A JSON-RPC message with its HTTP status."""

    status: int
    message: bytes


class DirectDoor:
    """The requests that *door* answers without the SDK's server."""

    def __init__(self, door: McpDoor) -> None:
        self._door = door
        self._stamp = {SERVER_INFO_META_KEY: door.server.server_info_stamp}
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

    async def answer(self, asked: DirectRequest, channel: Channel) -> Answer:
        """Never raises but for a cancellation of its task. The exchange of the request ends what runs."""
        caller = DirectCaller(asked, channel)
        try:
            result = await self._result(asked, caller)
            if asked.protocol_version == MODERN:
                result = {**result, "_meta": self._stamped(result.get("_meta"))}
            message = {"jsonrpc": "2.0", "id": asked.id, "result": result}
            if seems_to_outweigh(result, _LONG_TO_WRITE):
                actor = self._door.context_of(asked, caller).identity.actor
                return Answer(200, await in_line(partial(written_in_parts, message), actor))
            return Answer(200, bytes(written(message)))
        except MCPError as error:
            return refused(asked, error.error.code, error.error.message, error.error.data)
        except Exception:
            log.exception("%s failed", asked.method)
            return refused(asked, INTERNAL_ERROR, "Internal server error")
        finally:
            await caller.withdraw()

    def _result(self, asked: DirectRequest, caller: DirectCaller) -> Awaitable[Mapping[str, Any]]:
        """Raises MCPError when it is awaited."""
        match asked.method:
            case "tools/call":
                return self._called(asked, caller)
            case "tools/list":
                return self._listed(asked, caller)
            case _:
                return _nothing()

    async def _called(self, asked: DirectRequest, caller: DirectCaller) -> Mapping[str, Any]:
        """Raises MCPError."""
        answer = await self._door.call_tool(asked, caller, asked.name, asked.arguments)
        if isinstance(answer, InputRequiredResult):
            answer = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
        if asked.protocol_version == MODERN and answer.get("resultType", "complete") not in CORE_RESULT_TYPES:
            return answer  # of an extension
        try:
            result = fitted(answer, asked.protocol_version)
        except ValidationError:
            log.exception("a result of %r is not valid MCP", asked.name)
            raise MCPError(INTERNAL_ERROR, "Handler returned an invalid result") from None
        return await self._door.sealed(asked, result) if "requestState" in result else result

    async def _listed(self, asked: DirectRequest, caller: DirectCaller) -> Mapping[str, Any]:
        with WithinOwnExchange(asked):
            tools, more = await self._door.tools_shown(self._door.context_of(asked, caller))
        page = self._door.listings.written(tools, asked.cursor, asked.protocol_version)
        if asked.protocol_version == MODERN:
            return {**page, "ttlMs": TOOLS_FRESH_MS, **more}
        return {**page, **({"_meta": more["_meta"]} if "_meta" in more else {})}

    def _stamped(self, meta: object) -> Mapping[str, Any]:
        return {**self._stamp, **meta} if isinstance(meta, Mapping) else self._stamp


async def _nothing() -> Mapping[str, Any]:
    return {}


def refused(asked: DirectRequest, code: int, message: str, data: object = None) -> Answer:
    """*data* that cannot be written, such as what is nested too deeply, is left out."""
    error = {"code": code, "message": message, **({} if data is None else {"data": data})}
    status = ERROR_CODE_HTTP_STATUS.get(code, 200) if asked.protocol_version == MODERN else 200
    try:
        return Answer(status, bytes(written({"jsonrpc": "2.0", "id": asked.id, "error": error})))
    except (TypeError, ValueError, RecursionError):
        if data is None:
            raise
        return refused(asked, code, message)
