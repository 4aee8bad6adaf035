"""What calls need of a connected session: the stamp that each request carries in its era, the headers that mirror it,
and the way on which it goes (guide "Upstreams").

The stamp is the SDK's own, taken once a session; nothing else of the SDK is touched by a call.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from mcp.client.session import ClientSession
from mcp.shared.dispatcher import CallOptions
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
    mcp_param_headers,
)
from mcp.types import CLIENT_CAPABILITIES_META_KEY, HEADER_MISMATCH, LOG_LEVEL_META_KEY
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from wicketgate.ports import CallContext, InputAnswers
from wicketgate.text.correlation import META_KEY
from wicketgate.upstreams.mcp_client.call import Call
from wicketgate.upstreams.mcp_client.connection import Connection, DirectCalls
from wicketgate.upstreams.mcp_client.elicitation import with_answers
from wicketgate.upstreams.mcp_client.failure import Gone, Refused
from wicketgate.upstreams.mcp_client.listing import Listing, read_listing

log = logging.getLogger("wicketgate.upstream")

_LOG_LEVEL = "info"
"""Servers of 2026-07-28 log only for requests that ask for it; what is below it is rarely worth a stream."""


class McpSession:
    """Calls over one connection, for as long as it lasts. *lost* is set by a request that finds it gone."""

    def __init__(self, name: str, connection: Connection, session: ClientSession, lost: asyncio.Event) -> None:
        version = session.protocol_version or ""
        self._name = name
        self._exchange = connection.exchange
        self._tells_end = connection.tells_end
        self._lost = lost
        self._modern = version in MODERN_PROTOCOL_VERSIONS
        self._direct: DirectCalls | None = connection.direct if self._modern else None
        self._meta, self._headers = _stamp(session)
        capabilities = {**self._meta.get(CLIENT_CAPABILITIES_META_KEY, {})}
        capabilities.pop("elicitation", None)
        self._unasked = {**self._meta, CLIENT_CAPABILITIES_META_KEY: capabilities} if self._modern else self._meta
        self._mirrored: Mapping[str, Mapping[tuple[str, ...], str]] = {}

    async def list_tools(self) -> list[Any]:
        """Every definition as wire JSON. Raises Refused, Malformed, Gone."""

        async def page(cursor: str | None) -> dict[str, Any]:
            return await self._request("tools/list", {"cursor": cursor} if cursor is not None else {}, None)

        listing: Listing = await read_listing(self._name, page, mirrors=self._modern)
        self._mirrored = listing.mirrored
        return listing.tools

    async def call_tool(self, name: str, arguments: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
        """The result. Raises Refused, Malformed, Gone; InputRequired, UpstreamError when it asks and nobody answers."""

        async def attempt(answers: InputAnswers | None) -> dict[str, Any]:
            params = {"name": name, "arguments": arguments, **_answers(answers)}
            return await self._request("tools/call", params, context)

        if not self._modern:
            return await attempt(None)
        try:
            return await with_answers(self._name, attempt, context)
        except Refused as refused:
            if refused.code != HEADER_MISMATCH:
                raise
        # It was refused unseen: the tool has another schema by now, or was never listed.
        await self.list_tools()
        return await with_answers(self._name, attempt, context)

    async def ask(self, method: str, params: Mapping[str, Any], context: CallContext | None) -> dict[str, Any]:
        """Any other request; raises as ``call_tool`` does."""

        async def attempt(answers: InputAnswers | None) -> dict[str, Any]:
            return await self._request(method, {**params, **_answers(answers)}, context)

        if context is None or not self._modern:
            return await attempt(None)
        return await with_answers(self._name, attempt, context)

    async def _request(self, method: str, params: dict[str, Any], context: CallContext | None) -> dict[str, Any]:
        call = self._exchange.new_call(context)
        params["_meta"] = self._stamped(call)
        try:
            if self._direct is not None:
                return await self._direct.request(method, params, self._request_headers(method, params), call)
            return await self._exchange.request(method, params, call)
        except Gone as gone:
            if not gone.carried and not self._tells_end:
                self._lost.set()
            raise

    def _stamped(self, call: Call) -> dict[str, Any]:
        context = call.context
        if context is None:
            return dict(self._meta)
        meta = dict(self._unasked if call.caller.answers == "never" else self._meta)
        meta[META_KEY] = context.correlation_id
        if not call.silent:
            meta["progressToken"] = call.token
            if self._modern:
                meta[LOG_LEVEL_META_KEY] = _LOG_LEVEL
        return meta

    def _request_headers(self, method: str, params: Mapping[str, Any]) -> dict[str, str]:
        headers = {**self._headers, MCP_METHOD_HEADER: method}
        if (key := NAME_BEARING_METHODS.get(method)) is not None:
            headers[MCP_NAME_HEADER] = encode_header_value(params[key])
            if method == "tools/call" and (mirrored := self._mirrored.get(params[key])):
                headers.update(mcp_param_headers(mirrored, params["arguments"]))
        return headers


def _answers(answers: InputAnswers | None) -> dict[str, Any]:
    """What a second attempt has more than the first."""
    params: dict[str, Any] = {}
    if answers is not None:
        if answers.responses:
            params["inputResponses"] = answers.responses
        if answers.request_state is not None:
            params["requestState"] = answers.request_state
    return params


def _stamp(session: ClientSession) -> tuple[dict[str, Any], dict[str, str]]:
    """``_meta`` and headers of a request without content. ``_stamp`` is private in 2.3.0; there is no public way."""
    data: dict[str, Any] = {"method": "tools/list"}
    options: CallOptions = {}
    session._stamp(data, options)
    headers = dict(options.get("headers", {}))
    headers.pop(MCP_METHOD_HEADER, None)
    return data.get("params", {}).get("_meta", {}), headers
