"""Requests that are answered without the SDK's server, by the same door with the same answers (FACE-135). Notifications
and questions reach their client before the answer (FACE-143).

A question goes out as a request of the gate's own. Its answer comes with another request of the session, maybe to
another process, and is judged as the SDK judges it.
"""

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from wicketgate import mcp_names as names
from wicketgate.faces.mcp.caller import McpCaller, reaches
from wicketgate.faces.mcp.direct_requests import MODERN, DirectRequest, names_header
from wicketgate.faces.mcp.fit import fitted, json_rpc
from wicketgate.faces.mcp.message import ReplyMessage
from wicketgate.faces.mcp.request import HTTP_STATUS, RpcError, WithinOwnExchange
from wicketgate.faces.mcp.server import TOOLS_FRESH_MS, McpDoor
from wicketgate.heavy_work import run_queued
from wicketgate.results.bulk import seems_to_outweigh

log = logging.getLogger("wicketgate.mcp")

_CORE = frozenset({"complete", "input_required"})
_MAX_KNOWN = 10_000
_LONG_TO_WRITE = 262_144
"""Units of ``seems_to_outweigh``, values or sixteen characters: writing them takes some ten milliseconds."""


class Answer(NamedTuple):
    """A JSON-RPC message with its HTTP status. *refused*: it is an error."""

    status: int
    message: bytes
    refused: bool = False


class Channel(Protocol):
    """The way to the client of a request, until that is answered."""

    async def say(self, message: bytes) -> None:
        """Write a message; does nothing once the request is answered or its client has left."""
        ...

    async def ask(self, method: str, params: Mapping[str, Any] | None) -> ReplyMessage:
        """Ask the client. A question that is given up is withdrawn before the request is answered."""
        ...


class DirectCaller(McpCaller):
    """The client of a request that came past the SDK. It has asked for no progress."""

    capabilities: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, asked: DirectRequest, channel: Channel) -> None:
        super().__init__(asked)
        self._direct = asked
        self.capabilities = asked.capabilities
        self._channel = channel

    def within_exchange(self) -> AbstractContextManager[None]:
        # The task is that of the request, unless the call may be held for an answer.
        return WithinOwnExchange(self._direct) if self.answers == "never" else super().within_exchange()

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        return

    async def log(self, level: str, data: object, logger: str | None) -> None:
        # A client of the newer era that wants to hear of it does not come this way.
        if self._direct.protocol_version == MODERN or not reaches(level, self._direct.log_level):
            return
        named = {} if logger is None else {"logger": logger}
        self._send("notifications/message", {"level": level, "data": data, **named})

    async def _put(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        from wicketgate.faces.mcp.questions import read_answer, read_question, wire

        asked = wire(read_question(method, params)[0])
        params = {key: value for key, value in asked.get("params", {}).items() if key != "_meta" or value}
        reply = await self._channel.ask(method, params)
        if reply.error is not None:
            raise RpcError(reply.error.code, reply.error.message, reply.error.data)
        return read_answer(method, reply.result, self._direct.protocol_version)

    def _send(self, method: str, params: Mapping[str, Any]) -> None:
        message = json_rpc({"method": method, "params": params})
        self._outbox.put(lambda: self._channel.say(message))


class DirectDoor:
    """The requests that *door* answers without the SDK's server."""

    def __init__(self, door: McpDoor) -> None:
        self._door = door
        self._stamp = {names.SERVER_INFO_META_KEY: door.info}
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
        if asked.method == "notifications/initialized":
            return Answer(202, b"")
        caller = DirectCaller(asked, channel)
        result: Mapping[str, Any]
        try:
            match asked.method:
                case "tools/call":
                    called = await self._door.call_tool(asked, caller, asked.name, asked.arguments)
                    result = await self._fitted(asked, called)
                case "tools/list":
                    result = await self._listed(asked, caller)
                case "initialize":
                    result = self._door.introduced(self._door.context_of(asked, caller), asked.protocol_version)
                case _:
                    result = {}
            if asked.protocol_version == MODERN:
                result = {**result, "_meta": self._stamped(result.get("_meta"))}
            return await answer_with(asked.id, result, self._door.who(asked).actor)
        except RpcError as error:
            status = HTTP_STATUS.get(error.code, 200) if asked.protocol_version == MODERN else 200
            return refused(asked.id, error.code, error.message, error.data, status=status)
        except Exception:
            log.exception("%s failed", asked.method)
            return refused(asked.id, names.INTERNAL_ERROR, "Internal server error")

    async def _fitted(self, asked: DirectRequest, answer: Mapping[str, Any]) -> Mapping[str, Any]:
        """Raises RpcError."""
        if asked.protocol_version == MODERN and answer.get("resultType", "complete") not in _CORE:
            return answer  # of an extension
        try:
            result = await fitted(answer, asked.protocol_version)
        except ValueError:
            log.exception("a result of %r is not valid MCP", asked.name)
            raise RpcError(names.INTERNAL_ERROR, "Handler returned an invalid result") from None
        return await self._door.sealed(asked, result) if "requestState" in result else result

    async def _listed(self, asked: DirectRequest, caller: DirectCaller) -> Mapping[str, Any]:
        with WithinOwnExchange(asked):
            tools, more = await self._door.tools_shown(self._door.context_of(asked, caller))
        page = await self._door.listings.written(tools, asked.cursor, asked.protocol_version)
        if asked.protocol_version == MODERN:
            return {**page, "ttlMs": TOOLS_FRESH_MS, **more}
        return {**page, **({"_meta": more["_meta"]} if "_meta" in more else {})}

    def _stamped(self, meta: object) -> Mapping[str, Any]:
        return {**self._stamp, **meta} if isinstance(meta, Mapping) else self._stamp


async def answer_with(id: int | str | None, result: Mapping[str, Any], actor: str) -> Answer:
    """The answer with *result*, which is written beside the event loop if it is large."""
    if seems_to_outweigh(result, _LONG_TO_WRITE):
        return Answer(200, await run_queued(partial(json_rpc, {"id": id, "result": result}), actor))
    return Answer(200, json_rpc({"id": id, "result": result}))


def refused(id: int | str | None, code: int, message: str, data: object = None, *, status: int = 200) -> Answer:
    """*data* that cannot be written, such as what is nested too deeply, is left out."""
    error = {"code": code, "message": message, **({} if data is None else {"data": data})}
    try:
        return Answer(status, json_rpc({"id": id, "error": error}), refused=True)
    except (TypeError, ValueError, RecursionError):
        if data is None:
            raise
        return refused(id, code, message, status=status)
