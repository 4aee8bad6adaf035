"""The MCP client of one call: progress and log messages to it, and questions that it answers (FACE-11).

A client of the handshake era answers while its call runs. A newer one answers with a second attempt (2026-07-28,
``input_required``). Between the attempts the tool server's own state travels with the client; that of an older server,
which has none, is the call itself, which is held (``held.py``). The state is sealed and bound to actor, tool, the
tool's definition, arguments, face and an expiry, so that it opens only for the same call.
"""

import json
import secrets
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import Any, Self, cast, get_args

from mcp import types as t
from mcp.server.connection import Connection, allowed_log_levels
from mcp.server.context import ServerRequestContext
from mcp.server.request_state import InvalidRequestState, RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import ValidationError

from wicketgate.access.identity import Identity
from wicketgate.access.seal import Seal
from wicketgate.errors import Forbidden, InputRequired, UpstreamError
from wicketgate.faces.mcp.exchange import within_exchange
from wicketgate.faces.mcp.kept_sessions import CHANGES_KEY, SessionChange, SessionChanges, SessionsAway
from wicketgate.faces.mcp.outbox import Outbox
from wicketgate.faces.mcp.request import McpRequest
from wicketgate.gateway.lent_callers import LentCaller
from wicketgate.ports import AnswerTime, Caller, CannotAsk, InputAnswers, PendingCall, approval_required

Ctx = ServerRequestContext[Any, Any]

_LEVELS: tuple[str, ...] = get_args(t.LoggingLevel)
_LEVEL_KEY = "wicketgate.log_level"

Question = t.ElicitRequest | t.CreateMessageRequest | t.ListRootsRequest
Notification = t.LoggingMessageNotification | t.ElicitCompleteNotification

_QUESTIONS: dict[str, tuple[type[Question], type[t.Result]]] = {
    "elicitation/create": (t.ElicitRequest, t.ElicitResult),
    "sampling/createMessage": (t.CreateMessageRequest, t.CreateMessageResultWithTools),
    "roots/list": (t.ListRootsRequest, t.ListRootsResult),
}
_ASKABLE = frozenset({"elicitation", "sampling", "roots"})
_REJECTED = -1
"""The code with which a client says that its person refused a request."""

ANSWERS_WITHIN_S = 600.0
_PURPOSE = "request state"
# The sealed text is one of these, because a tool server may ask without a state of its own, then the digest of the
# tool's definition, a colon, and the server's state. A call that is held here has its id instead of all that, and one
# that waits for its owner's approval the sealed id of the approval.
_STATE, _NO_STATE, _HELD, _APPROVAL = "t", "n", "h", "a"

_MAX_SHOWN_CHARS = 4_000
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


class McpCaller(ABC):
    """Implements Caller for the client of a request, whichever way that came in. Enter it around the call.

    Notifications never delay the tool server. All are written when the block ends, before the result.
    """

    def __init__(self, asked: McpRequest) -> None:
        self._asked = asked
        self._outbox = Outbox()

    async def __aenter__(self) -> Self:
        return self

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Awaitable[None]:
        return self._outbox.close(written=error is None)

    def within_exchange(self) -> AbstractContextManager[None]:
        """Ends its block when the exchange of the request is over."""
        return within_exchange(self._asked)

    @property
    @abstractmethod
    def capabilities(self) -> Mapping[str, Any]: ...

    @property
    def answers(self) -> AnswerTime:
        if _ASKABLE.isdisjoint(self.capabilities):
            return "never"
        return "now" if self._asked.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS else "later"

    @abstractmethod
    async def progress(self, progress: float, total: float | None, message: str | None) -> None: ...

    @abstractmethod
    async def log(self, level: str, data: object, logger: str | None) -> None: ...

    def may_be_asked(self, method: str, params: Mapping[str, Any]) -> bool:
        """True if the client declared that it answers this, and it is valid MCP."""
        return may_be_asked(self.capabilities, method, params)

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.answers != "now" or not can_answer(self.capabilities, method, params):
            raise CannotAsk(method)
        request_type, result_type = _QUESTIONS[method]
        if params.get("mode") == "url" and params.get("elicitationId") is None:
            # A server of the newer era gives none, and the handshake era takes no page without one (FACE-99).
            params = {**params, "elicitationId": secrets.token_hex(16)}
        try:
            request = request_type.model_validate({"method": method, "params": params}, by_name=False)
            result = await self._put(request, result_type)
        except (MCPError, NoBackChannelError, ValidationError) as error:
            rejected = isinstance(error, MCPError) and error.error.code == _REJECTED
            raise CannotAsk(method, rejected=rejected) from error
        return _wire(result)

    def pending(self) -> AbstractContextManager[None]:
        return nullcontext()

    async def page_done(self, elicitation_id: str) -> None:
        if self._asked.protocol_version not in HANDSHAKE_PROTOCOL_VERSIONS:
            return  # the newer era has no word for it
        params = t.ElicitCompleteNotificationParams(elicitation_id=elicitation_id)
        self._send(t.ElicitCompleteNotification(params=params))

    @abstractmethod
    async def _put(self, question: Question, result_type: type[t.Result]) -> t.Result:
        """Put *question* to the client while its request runs, and return its valid answer. Raises MCPError,
        NoBackChannelError and ValidationError."""

    @abstractmethod
    def _send(self, notification: Notification) -> None:
        """Write it to the client with its request, in its turn."""


class ClientCaller(McpCaller):
    """The client of a request that came through the SDK."""

    def __init__(self, ctx: Ctx) -> None:
        super().__init__(ctx)
        self._ctx = ctx

    @cached_property
    def capabilities(self) -> Mapping[str, Any]:
        can = self._ctx.session.client_capabilities
        return {} if can is None else can.model_dump(by_alias=True, mode="json", exclude_none=True)

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        if (self._ctx.meta or {}).get("progress_token") is not None:
            self._outbox.put(lambda: self._ctx.session.report_progress(progress, total, message))

    async def log(self, level: str, data: object, logger: str | None) -> None:
        if not self._wants(level):
            return
        params = t.LoggingMessageNotificationParams(level=level, data=data, logger=logger)  # type: ignore[arg-type]
        self._send(t.LoggingMessageNotification(params=params))

    async def _put(self, question: Question, result_type: type[t.Result]) -> t.Result:
        metadata = ServerMessageMetadata(related_request_id=self._ctx.request_id)
        return await self._ctx.session.send_request(question, result_type, metadata=metadata)

    def _send(self, notification: Notification) -> None:
        session, id = self._ctx.session, self._ctx.request_id
        self._outbox.put(lambda: session.send_notification(notification, related_request_id=id))

    def _wants(self, level: str) -> bool:
        """Compares with the level that the client set, with this request in the newer era or for its session."""
        if level not in _LEVELS:
            return False
        if self._ctx.protocol_version not in HANDSHAKE_PROTOCOL_VERSIONS:
            return level in allowed_log_levels(self._ctx.protocol_version, self._ctx.meta)
        return reaches(level, connection_of(self._ctx).state.get(_LEVEL_KEY, ""))


def reaches(level: str, wanted: str) -> bool:
    """True if a client that *wanted* so much gets messages of this level; without a wish it gets all."""
    if wanted not in _LEVELS:
        return level in _LEVELS
    return level in _LEVELS and _LEVELS.index(level) >= _LEVELS.index(wanted)


def may_be_asked(can: Mapping[str, Any], method: str, params: Mapping[str, Any]) -> bool:
    """True if a client with these capabilities answers this, and it is valid MCP."""
    if not can_answer(can, method, params):
        return False
    try:
        _QUESTIONS[method][0].model_validate({"method": method, "params": params}, by_name=False)
    except ValidationError:
        return False
    return True


class LentClient(LentCaller):
    """A client of another process, for a call that is held here."""

    def may_be_asked(self, method: str, params: Mapping[str, Any]) -> bool:
        return may_be_asked(self.capabilities, method, params)


def can_answer(can: Mapping[str, Any], method: str, params: Mapping[str, Any]) -> bool:
    """True if a client with these capabilities answers *method*. An elicitation by link is a capability of its own."""
    match method:
        case "elicitation/create" if "elicitation" in can:
            modes = can["elicitation"]
            if params.get("mode") == "url":
                return "url" in modes
            # A client that declares neither mode means forms, the only mode of older versions.
            return "form" in modes or "url" not in modes
        case "sampling/createMessage" if "sampling" in can:
            return "tools" in can["sampling"] or not params.keys() & {"tools", "toolChoice"}
        case "roots/list":
            return "roots" in can
        case _:
            return False


def answer_of(method: str, response: object) -> Mapping[str, Any] | None:
    """A client's answer to *method* as wire JSON; None if it is not valid MCP."""
    try:
        return _wire(_QUESTIONS[method][1].model_validate(response, by_name=False))
    except ValidationError:
        return None


def _wire(result: t.Result) -> Mapping[str, Any]:
    return result.model_dump(by_alias=True, mode="json", exclude_none=True, exclude={"result_type"})


async def set_log_level(ctx: Ctx, params: t.SetLevelRequestParams) -> t.EmptyResult:
    """``logging/setLevel`` of the handshake era: the lowest level that this session gets from now on."""
    await keep_change(ctx, SessionChange(log_level=params.level))
    restore_log_level(connection_of(ctx), params.level)
    return t.EmptyResult()


def restore_log_level(connection: Connection, level: str) -> None:
    """The level that the client of this connection has set, maybe at another process; empty for none."""
    if level in _LEVELS:
        connection.state[_LEVEL_KEY] = level


async def keep_change(ctx: Ctx, change: SessionChange) -> None:
    """Keep what the client has set for all processes that serve its session. Raises MCPError."""
    changes: SessionChanges | None = connection_of(ctx).state.get(CHANGES_KEY)
    if changes is None:
        return
    try:
        await changes.changed(change)
    except SessionsAway:
        raise MCPError(t.INTERNAL_ERROR, "This cannot be kept at the moment. Try again.") from None


def connection_of(ctx: Ctx) -> Connection:
    """The connection, which lasts as long as the client's session. The SDK 2.3.0 has no public access to it."""
    return ctx.session._connection


class AskingApprover:
    """Implements Approver by asking the client while its call runs (CHAT-65 to CHAT-71).

    Raises ApprovalRequired if the client cannot be asked now or does not answer; with the question for a client that
    answers later.
    """

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def approve(self, call: PendingCall) -> None:
        shown = _visible_args(call)
        # The owner must see all of the arguments, and is asked only for what is the owner's to decide.
        if call.needs or len(shown) > _MAX_SHOWN_CHARS:
            raise approval_required(call)
        question = {
            "message": f"May {call.tool_id} be run with these arguments?\n{shown}",
            "requestedSchema": {"type": "object", "properties": {}},
        }
        if self._caller.answers == "later" and can_answer(self._caller.capabilities, "elicitation/create", question):
            required = approval_required(call)
            required.question = {"method": "elicitation/create", "params": {"mode": "form", **question}}
            raise required
        if self._caller.answers != "now":
            raise approval_required(call)
        try:
            answer = await self._caller.ask("elicitation/create", question)
        except CannotAsk:
            raise approval_required(call) from None
        match answer.get("action"):
            case "accept":
                return
            case "decline":
                raise Forbidden("Denied by the owner. It was not run.", path=call.tool_id)
            case _:
                raise approval_required(call)


def _visible_args(call: PendingCall) -> str:
    """The arguments as JSON with every invisible or direction-changing character escaped."""
    text = json.dumps(dict(call.args), ensure_ascii=False)
    return "".join(f"\\u{ord(c):04x}" if unicodedata.category(c) in _HIDDEN else c for c in text)


class _Codec:
    """Seals states for the SDK, which adds the claims (actor, tool, arguments, face) to the sealed text."""

    def __init__(self, seal: Seal) -> None:
        self._seal = seal

    def seal(self, payload: bytes) -> str:
        return self._seal.seal(_PURPOSE, "", payload.decode(), ANSWERS_WITHIN_S)

    def unseal(self, token: str) -> bytes:
        sealed = self._seal.open(_PURPOSE, "", token)
        if sealed is None or self._seal.expired(sealed):
            raise InvalidRequestState("not sealed here, or expired")
        return sealed.text.encode()


def seal_states(seal: Seal, audience: str, who: Callable[[Ctx], Identity]) -> RequestStateBoundary:
    """Middleware that seals a state that goes out, and opens one that comes back or refuses the call (-32602)."""
    security = RequestStateSecurity(
        codec=_Codec(seal), ttl=ANSWERS_WITHIN_S, bind_principal=lambda ctx: who(ctx).actor, audience=audience
    )
    return RequestStateBoundary(security, default_audience=audience)


async def seal_state(boundary: RequestStateBoundary, asked: McpRequest, result: Mapping[str, Any]) -> Mapping[str, Any]:
    """*result* as *boundary* lets it out. Of *asked* the SDK reads what an McpRequest has. Raises MCPError."""

    async def answered(ctx: Any) -> Any:
        return result

    sealed: Any = await boundary(cast(Any, asked), answered)
    return cast(Mapping[str, Any], sealed)


def ask_later(can: Mapping[str, Any], question: InputRequired) -> t.InputRequiredResult:
    """The answer that makes a client with the capabilities *can* ask its user.

    Raises UpstreamError if this client cannot, or if the question is not valid MCP.
    """
    kind = _NO_STATE if question.request_state is None else _STATE
    state = f"{kind}{question.definition}:{question.request_state or ''}"
    if question.approval:
        state = f"{_APPROVAL}:{question.approval}"
    try:
        result = t.InputRequiredResult.model_validate(
            {"inputRequests": dict(question.requests), "requestState": state}, by_name=False
        )
    except ValidationError:
        raise UpstreamError("The tool asks for input in a way that is not valid MCP.") from None
    for request in (result.input_requests or {}).values():
        params = request.params.model_dump(by_alias=True, exclude_none=True) if request.params else {}
        if not can_answer(can, request.method, params):
            raise UpstreamError(f"The tool needs an answer to {request.method}, which this client cannot give.")
    return result


@dataclass(frozen=True, slots=True)
class HeldAnswers:
    """The answers of a second attempt, by key, for the call *id* that is held here."""

    id: str
    responses: Mapping[str, Any]


def ask_held(id: str, requests: Mapping[str, Mapping[str, Any]]) -> t.InputRequiredResult:
    """The answer that makes the client ask its user, while the call *id* is held."""
    questions = {"inputRequests": dict(requests), "requestState": f"{_HELD}:{id}"}
    return t.InputRequiredResult.model_validate(questions, by_name=False)


def read_answers(ctx: Ctx) -> InputAnswers | HeldAnswers | None:
    """The answers of a second attempt, whose state is open by now (``seal_states``); None for a first attempt.

    Answers without the state that came with their questions belong to nothing here. They are passed over, and the call
    is a new one, as any client may make it (FACE-100): the server is given no answer and asks anew. A call that is held
    for the questions is left as it is.

    Raises MCPError for a state that was written by another version.
    """
    params = ctx.params or {}
    responses, state = params.get("inputResponses"), params.get("requestState")
    if state is None:
        return None
    head, _, own = state.partition(":")
    if head == _HELD:
        return HeldAnswers(own, dict(responses or {}))
    if head == _APPROVAL:
        return InputAnswers(dict(responses or {}), None, approval=own)
    if not head.startswith((_STATE, _NO_STATE)):
        raise MCPError(t.INVALID_PARAMS, "This requestState is no longer valid. Make the call again without it.")
    return InputAnswers(dict(responses or {}), own if head.startswith(_STATE) else None, head[1:])
