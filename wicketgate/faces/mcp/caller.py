"""The MCP client of one call, as far as a tool server may speak to it meanwhile: progress, log messages and questions,
in the words of its era (DESIGN §3 "MCP eras").

What is told never holds up who tells it: it waits here, bounded, until the client has read what came before, and is
written out before the result is.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Self, get_args

from mcp import types as t
from mcp.server.connection import Connection, allowed_log_levels
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import ValidationError

from wicketgate.ports import AnswerTime, CannotAsk

Ctx = ServerRequestContext[Any, Any]

_LEVELS: tuple[str, ...] = get_args(t.LoggingLevel)
_LEVEL_KEY = "wicketgate.log_level"
_MAX_WAITING = 1_000

_QUESTIONS: dict[str, tuple[type[t.ElicitRequest | t.CreateMessageRequest | t.ListRootsRequest], type[t.Result]]] = {
    "elicitation/create": (t.ElicitRequest, t.ElicitResult),
    "sampling/createMessage": (t.CreateMessageRequest, t.CreateMessageResultWithTools),
    "roots/list": (t.ListRootsRequest, t.ListRootsResult),
}

_BY_LINK: tuple[str, Mapping[str, Any]] = ("elicitation/create", {"mode": "url"})
_WAYS: tuple[tuple[str, Mapping[str, Any]], ...] = (*((method, {}) for method in _QUESTIONS), _BY_LINK)


class ClientCaller:
    """Implements Caller. To be entered around the call: leaving it writes out what was told."""

    def __init__(self, ctx: Ctx) -> None:
        self._ctx = ctx
        self._told: deque[Callable[[], Awaitable[None]]] = deque(maxlen=_MAX_WAITING)  # the oldest news go first
        self._writing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writing is None:
            return
        try:
            if error is None:
                await self._writing
        finally:
            self._writing.cancel()

    @property
    def answers(self) -> AnswerTime:
        if not any(can_answer(self._ctx, method, params) for method, params in _WAYS):
            return "never"
        return "now" if self._ctx.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS else "later"

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        if (self._ctx.meta or {}).get("progress_token") is not None:
            self._tell(lambda: self._ctx.session.report_progress(progress, total, message))

    async def log(self, level: str, data: object, logger: str | None) -> None:
        if not self._wants(level):
            return
        params = t.LoggingMessageNotificationParams(level=level, data=data, logger=logger)  # type: ignore[arg-type]
        news = t.LoggingMessageNotification(params=params)
        self._tell(lambda: self._ctx.session.send_notification(news, related_request_id=self._ctx.request_id))

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.answers != "now" or not can_answer(self._ctx, method, params):
            raise CannotAsk(method)
        request_type, result_type = _QUESTIONS[method]
        try:
            request = request_type.model_validate({"method": method, "params": params}, by_name=False)
            result = await self._ctx.session.send_request(
                request, result_type, metadata=ServerMessageMetadata(related_request_id=self._ctx.request_id)
            )
        except (MCPError, NoBackChannelError, ValidationError) as error:
            raise CannotAsk(method) from error
        return result.model_dump(by_alias=True, mode="json", exclude_none=True, exclude={"result_type"})

    def _wants(self, level: str) -> bool:
        """By the level that the client asked for: with this request in the newer era, for its session before."""
        if level not in _LEVELS:
            return False
        if self._ctx.protocol_version not in HANDSHAKE_PROTOCOL_VERSIONS:
            return level in allowed_log_levels(self._ctx.protocol_version, self._ctx.meta)
        wanted = connection_of(self._ctx).state.get(_LEVEL_KEY, _LEVELS[0])
        return _LEVELS.index(level) >= _LEVELS.index(wanted)

    def _tell(self, write: Callable[[], Awaitable[None]]) -> None:
        self._told.append(write)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_out())

    async def _write_out(self) -> None:
        while self._told:
            await self._told.popleft()()


def can_answer(ctx: Ctx, method: str, params: Mapping[str, Any]) -> bool:
    """Whether the client declared that it answers *method* (an elicitation by link is a capability of its own)."""
    can = ctx.session.client_capabilities
    if can is None:
        return False
    match method:
        case "elicitation/create":
            if can.elicitation is None:
                return False
            by_link = params.get("mode") == "url"
            # Who names neither mode means forms: there was nothing else when it was written.
            return (
                can.elicitation.url is not None
                if by_link
                else can.elicitation.form is not None or not can.elicitation.url
            )
        case "sampling/createMessage":
            return can.sampling is not None
        case "roots/list":
            return can.roots is not None
        case _:
            return False


async def set_log_level(ctx: Ctx, params: t.SetLevelRequestParams) -> t.EmptyResult:
    """``logging/setLevel`` of the handshake era: from now on this session hears no less than this."""
    connection_of(ctx).state[_LEVEL_KEY] = params.level
    return t.EmptyResult()


def connection_of(ctx: Ctx) -> Connection:
    """What lasts as long as the client's session. Private in 2.3.0, and there is no public way to it."""
    return ctx.session._connection
