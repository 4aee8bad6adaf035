"""The MCP client of one call: progress and log messages to it, and questions that it answers (FACE-11).

A client of the handshake era answers while its call runs. A newer one answers with a second attempt (2026-07-28,
``input_required``). Between the attempts the tool server's own state travels with the client; that of an older server,
which has none, is the call itself, which is held (``held.py``). The state is sealed and bound to actor, tool, the
tool's definition, arguments, face and an expiry, so that it opens only for the same call.
"""

import asyncio
import json
import secrets
import unicodedata
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from wicketgate.errors import Forbidden
from wicketgate.faces.mcp.request import McpRequest, RpcError, within_exchange
from wicketgate.faces.mcp.sdk import imported
from wicketgate.mcp_names import HANDSHAKE_PROTOCOL_VERSIONS
from wicketgate.ports import AnswerTime, Caller, CannotAsk, PendingCall, approval_required

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

_ASKABLE = frozenset({"elicitation", "sampling", "roots"})
_MAX_WAITING = 1_000
_REJECTED = -1
"""The code with which a client says that its person refused a request."""

ANSWERS_WITHIN_S = 600.0
QUESTIONS = "wicketgate.faces.mcp.questions"
"""The module that knows questions and answers, with the SDK's types. Import it with ``imported`` before."""

_MAX_SHOWN_CHARS = 4_000
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


class Outbox:
    """Notifications on their way to a client while its call runs. It writes one after another, so that none delays the
    tool server. They wait here, bounded, until the client has read the earlier ones."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], Awaitable[None]]] = deque(maxlen=_MAX_WAITING)  # drops the oldest first
        self._writing: asyncio.Task[None] | None = None

    def put(self, write: Callable[[], Awaitable[None]]) -> None:
        self._waiting.append(write)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_out())

    async def close(self, *, written: bool) -> None:
        """*written*: not before all is written. Nothing is written afterwards."""
        if self._writing is None:
            return
        try:
            if written:
                await self._writing
        finally:
            self._writing.cancel()

    async def _write_out(self) -> None:
        while self._waiting:
            await self._waiting.popleft()()


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
        from wicketgate.faces.mcp.questions import read_question

        with suppress(ValueError):
            return can_answer(self.capabilities, method, params) and bool(read_question(method, params))
        return False

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.answers != "now" or not can_answer(self.capabilities, method, params):
            raise CannotAsk(method)
        if params.get("mode") == "url" and params.get("elicitationId") is None:
            # A server of the newer era gives none, and the handshake era takes no page without one (FACE-99).
            params = {**params, "elicitationId": secrets.token_hex(16)}
        await imported(QUESTIONS)
        try:
            return await self._put(method, params)
        except (RpcError, ValueError) as error:
            rejected = isinstance(error, RpcError) and error.code == _REJECTED
            raise CannotAsk(method, rejected=rejected) from error

    def pending(self) -> AbstractContextManager[None]:
        return nullcontext()

    async def page_done(self, elicitation_id: str) -> None:
        if self._asked.protocol_version not in HANDSHAKE_PROTOCOL_VERSIONS:
            return  # the newer era has no word for it
        self._send("notifications/elicitation/complete", {"elicitationId": elicitation_id})

    @abstractmethod
    async def _put(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Put the question to the client while its request runs, and return its valid answer. Raises RpcError for one
        that is an error, or that cannot be asked for, and ValueError for what is not valid MCP."""

    @abstractmethod
    def _send(self, method: str, params: Mapping[str, Any]) -> None:
        """Write a notification to the client with its request, in its turn."""


def reaches(level: str, wanted: str) -> bool:
    """True if a client that *wanted* so much gets messages of this level; without a wish it gets all."""
    if wanted not in LEVELS:
        return level in LEVELS
    return level in LEVELS and LEVELS.index(level) >= LEVELS.index(wanted)


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
            "message": "\n".join(
                filter(None, (f"May {call.tool_id} be run with these arguments?", shown, call.flow.for_person()))
            ),
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


@dataclass(frozen=True, slots=True)
class HeldAnswers:
    """The answers of a second attempt, by key, for the call *id* that is held here."""

    id: str
    responses: Mapping[str, Any]
