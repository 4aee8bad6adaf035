"""The runtime's needs from outside: upstreams, stores of artifacts and of learned words."""

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, Protocol, runtime_checkable

from wicketgate.access.approvers import Needs, described
from wicketgate.access.flow import NO_FLOW, CallFlow
from wicketgate.access.identity import LOCAL, Identity
from wicketgate.catalog.learned_words import Lesson, ToolWords
from wicketgate.errors import ApprovalRequired
from wicketgate.login.user_credentials import GrantName

UpstreamPhase = Literal["connecting", "ready", "waiting", "down"]
"""``waiting``: it has no tools until one of its callers has connected an account (UP-176)."""

AnswerTime = Literal["now", "later", "never"]

_SHORT_CHARS = 128

Door = Literal["", "chat", "mcp", "stdio", "operations", "console"]


class Caller(Protocol):
    """The client that waits for a call, as far as the tool server may speak to it in the meantime.

    *answers*: ``now``, it can be asked while the call runs (handshake era); ``later``, it sends its answers with a
    second attempt (2026-07-28, ``input_required``); ``never``, it cannot be asked.
    """

    @property
    def answers(self) -> AnswerTime: ...

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities of the client as it declared them: ``elicitation``, ``sampling``, ``roots``, ``extensions``.
        Empty if it declared none. Anyone who shows them to a tool server shows only what that server may use."""
        ...

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Forward progress; nothing happens if the client did not ask for it. Never raises."""
        ...

    async def log(self, level: str, data: object, logger: str | None) -> None:
        """Forward a log message of the tool server. Never raises."""
        ...

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Forward a request such as ``elicitation/create`` and wait for its result, as wire JSON. Where *answers* is
        ``later`` the call is held. Raises CannotAsk when the client cannot answer this, or the call cannot be
        held, and Forbidden when the call may not go on after the answer."""
        ...

    def pending(self) -> AbstractContextManager[None]:
        """Within the block a question counts as unanswered although the client has answered it: a person is still at
        a page that was opened."""
        ...

    async def page_done(self, elicitation_id: str) -> None:
        """Tell the client that the page of this elicitation is done with, in an era that has a word for it. Never
        raises."""
        ...


class SilentCaller:
    """A caller that hears nothing until the call is over, and cannot be asked."""

    answers: AnswerTime = "never"

    def __init__(self, capabilities: Mapping[str, Any] = MappingProxyType({})) -> None:
        self.capabilities = capabilities

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        return

    async def log(self, level: str, data: object, logger: str | None) -> None:
        return

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        raise CannotAsk(method)

    def pending(self) -> AbstractContextManager[None]:
        return nullcontext()

    async def page_done(self, elicitation_id: str) -> None:
        return


class PassingCaller:
    """Implements Caller by passing everything on to *caller*. Subclasses pass it on in their own way."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    @property
    def answers(self) -> AnswerTime:
        return self._caller.answers

    @property
    def capabilities(self) -> Mapping[str, Any]:
        return self._caller.capabilities

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        await self._caller.progress(progress, total, message)

    async def log(self, level: str, data: object, logger: str | None) -> None:
        await self._caller.log(level, data, logger)

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        return await self._caller.ask(method, params)

    def pending(self) -> AbstractContextManager[None]:
        return self._caller.pending()

    async def page_done(self, elicitation_id: str) -> None:
        await self._caller.page_done(elicitation_id)


class CannotAsk(Exception):
    """This client cannot answer a request of a tool server. *rejected*: its person refused to."""

    def __init__(self, method: str = "", *, rejected: bool = False) -> None:
        super().__init__(method)
        self.rejected = rejected


SILENT = SilentCaller()


@dataclass(frozen=True, slots=True)
class InputAnswers:
    """The answers of a client's second attempt after ``InputRequired``, by the key of the request, and the tool
    server's own state, byte for byte. *definition* is the digest of the tool that asked; empty if no tool did.
    *approval* is the sealed id of the approval that the gate asked for, and that the responses decide on."""

    responses: Mapping[str, Any]
    request_state: str | None
    definition: str = ""
    approval: str = ""


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A call that waits for an approval: the tool, the digest of its definition, and the arguments that would be sent.
    *needs*: the approvers whom its rules name; empty where its owner decides. *flow* is the reason, if the call waits
    because of what its session has read."""

    tool_id: str
    definition: str
    args: Mapping[str, Any]
    needs: Needs = ()
    flow: CallFlow = NO_FLOW


TOOL_CHANGED = "the tool has changed"
"""The reason of a refusal, when a person agreed to a call, or answered for it, and the definition differs now."""


class Approver(Protocol):
    """The source of the approval of a call."""

    async def approve(self, call: PendingCall) -> None:
        """Return if the owner, or those whom the call needs, have agreed to this very call, which may then run once.
        Raises ApprovalRequired."""
        ...


class _NoApprover:
    """An approver without an owner behind it: refuses the call, and says why."""

    async def approve(self, call: PendingCall) -> None:
        raise approval_required(call)


def approval_required(call: PendingCall, **details: str) -> ApprovalRequired:
    why = f" {reason}" if (reason := call.flow.for_model()) else ""
    if reason:
        details["why"] = call.flow.for_person()
    if call.needs:
        by = described(call.needs)
        return ApprovalRequired(
            f"This call needs the approval of {by} first, not of its caller. It was not run.{why} It waits on the page "
            "Approvals of the gate's console; once it is approved, make the same call again.",
            path=call.tool_id,
            details={**details, "by": by},
        )
    return ApprovalRequired(
        f"This call needs the owner's approval first. It was not run.{why}", path=call.tool_id, details=details
    )


NO_APPROVER = _NoApprover()


NO_META: Mapping[str, Any] = MappingProxyType({})


@dataclass(slots=True)
class CallMarks:
    """Facts about one call that show only on its way, set there and read when it is over.

    *left*: it was handed to the upstream, after any wait for a slot. *questioned*: the server put a question to a
    person in the meantime, answered or not, so its result is for this one call. *progress* is the last that the server
    reported. *prolong* gives the call, which its server goes on with as a task, the longer deadline of tasks; None
    where nobody keeps a deadline.
    """

    left: bool = False
    questioned: bool = False
    progress: float = 0.0
    prolong: Callable[[], None] | None = None


def _never() -> bool:
    return False


@dataclass(frozen=True)
class CallContext:
    """The caller's identity, trace and browsing session (BROWSE-25), with the ways to reach the caller while
    the call runs, the answers to the tool server's questions, and the owner's approval. *source* is the address of the
    client, empty over stdio and in a program that embeds the runtime. *door* is the one of the call, empty
    in a program that embeds the runtime. *cache_stable* asks for that order of cards, or
    for the best first; None is as the runtime is set (BROWSE-27). *meta* goes with the calls to tool servers
    (UP-81, UP-82). *on_task* is called when the server goes on with the call as a task, which may outlast deadlines
    around the call, *on_tool* with the id of the tool that is called. While *asked_in_line* is true, a caller that
    answers later is asked in the middle of the call: no request is there any more to be answered with questions.
    *claim* is asked right before a call that may write leaves: false if it must not leave, because it may have left
    before (CHAT-111). *named*: the client has named the session. *said*: the user's own words (ACCESS-263).
    *program* is the id of the program that makes the call, and the number of the call in it. *code_mode* false: the
    client has switched programs off (EXEC-141)."""

    identity: Identity
    correlation_id: str
    session: str
    caller: Caller = SILENT
    answers: InputAnswers | None = None
    approver: Approver = NO_APPROVER
    marks: CallMarks = field(default_factory=CallMarks)
    source: str = ""
    door: Door = ""
    cache_stable: bool | None = None
    meta: Mapping[str, Any] = field(default_factory=lambda: NO_META)
    on_task: Callable[[], None] | None = None
    on_tool: Callable[[str], None] | None = None
    claim: Callable[[], Awaitable[bool]] | None = None
    asked_in_line: Callable[[], bool] = _never
    named: bool = False
    said: Sequence[str] = ()
    program: tuple[str, int] = ("", 0)
    code_mode: bool = True

    def having(self, **changes: Any) -> "CallContext":
        """As ``dataclasses.replace``, at a sixth of its cost: each call has several contexts on its way."""
        changed: CallContext = object.__new__(CallContext)
        changed.__dict__.update(self.__dict__, **changes)
        return changed

    @property
    def answers_come(self) -> AnswerTime:
        """The time at which the caller answers a question of this moment."""
        when = self.caller.answers
        return "now" if when == "later" and self.asked_in_line() else when


def own_approver(context: CallContext) -> Approver:
    """The approver that came with the call, and no other."""
    return context.approver


@dataclass(frozen=True, slots=True)
class UpstreamStatus:
    """Health of one upstream. *error* is a fixed phrase that any caller may read, never an exception's text.

    *connections*: how many sessions it has had, this one included; 0 where there is nothing to connect. *last_error*:
    why the session before this one ended, or could not be. *detail*: the error for the operator alone, with the host
    or command that was tried and the setting that mends it; empty if there is no more to say than *error*. *asleep*: it
    is ready, and its process is started by the next request.
    """

    phase: UpstreamPhase
    error: str = ""
    connections: int = 0
    last_error: str = ""
    detail: str = ""
    asleep: bool = False

    @property
    def report(self) -> str:
        """The error as the operator reads it, in logs, commands and the details of ``/readyz``."""
        return self.detail or self.error


class Upstream(Protocol):
    """One tool server. Implementations keep themselves connected; a call never waits for a reconnection."""

    @property
    def name(self) -> str:
        """The configured name, or an empty text."""
        ...

    @property
    def status(self) -> UpstreamStatus: ...

    async def supervise(self, changed: Callable[[str], None]) -> None:
        """Stay connected until cancelled. *changed* is called with our name after each connection, and whenever the
        server says that its tools are others now."""
        ...

    async def list_tools(self) -> Sequence[Mapping[str, Any]]:
        """All tool definitions as MCP wire JSON (camelCase keys), pages followed.

        Raises UpstreamUnavailable, UpstreamTimeout or UpstreamError.
        """
        ...

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], context: CallContext, timeout_s: float
    ) -> Mapping[str, Any]:
        """One call under the upstream's own tool name; the result as MCP wire JSON.

        Cancelling the caller cancels the call upstream, which is how a deadline ends it: ``Member`` enforces
        *timeout_s*, the time that is left. An upstream uses it only for what its protocol says of deadlines. Raises
        UpstreamUnavailable (the call never left), UpstreamTimeout, or UpstreamError (the server refused it, or the
        connection was lost in the meantime). Raises InputRequired when the server needs answers and the caller can give
        them later.
        """
        ...


@runtime_checkable
class PerUser(Protocol):
    """An upstream whose sessions are those of its callers' own accounts (UP-170)."""

    @property
    def waits(self) -> bool:
        """True until the tools are known, which the first account gives; ``list_tools`` raises UpstreamUnavailable."""
        ...

    async def account_of(self, identity: Identity) -> GrantName | None:
        """Return the account that this caller has connected; None if it has none, to whom no login is offered. Raises
        UpstreamUnavailable where that cannot be known now."""
        ...

    async def connect(self, identity: Identity) -> None:
        """Open the session of this caller, whose tools are listed next if none are known. Raises ConnectRequired,
        UpstreamUnavailable and RateLimited."""
        ...


@runtime_checkable
class HasPing(Protocol):
    """An upstream that the gate can try by itself, without any caller's call."""

    async def ping(self, timeout_s: float) -> None:
        """Ask for something that costs the server nothing and changes nothing there. The caller enforces *timeout_s*.

        Raises UpstreamUnavailable when there is no answer, and there will be none.
        """
        ...


@runtime_checkable
class HasSpellings(Protocol):
    """An upstream whose server says how it writes its own name."""

    @property
    def spellings(self) -> tuple[str, ...]:
        """The name and title of the last connection; none before the first. They only help to find its tools."""
        ...


@runtime_checkable
class HasLeftOut(Protocol):
    """An upstream that leaves out some of what its server declares, so that it gives no tool."""

    @property
    def left_out(self) -> Sequence[str]:
        """One line for each, with the reason; for the operator, and in the server's words in part."""
        ...


@runtime_checkable
class HasNotes(Protocol):
    """An upstream that works, and has something to say to the operator all the same."""

    @property
    def notes(self) -> Sequence[str]:
        """One line for each; in the server's words in part."""
        ...


@dataclass(frozen=True, slots=True)
class Artifact:
    """Bytes kept out of the model's context. *handle* is content-addressed (EXEC-28)."""

    handle: str
    media_type: str
    label: str
    data: bytes


PutOutcome = Literal["kept", "too_large", "failed"]


class ArtifactStore(Protocol):
    """Artifacts by owner and handle: another actor's handle does not exist. Bounded in bytes and age."""

    async def put(self, owner: str, artifact: Artifact) -> PutOutcome:
        """Keep it whole, or not at all; never raises for what the store is or holds. The same again renews its age.

        ``too_large``: no store of this size keeps it, and nothing was pushed out for it. ``failed``: the store is out
        of order at the moment, which it logs.
        """
        ...

    async def get(self, owner: str, handle: str) -> Artifact | None:
        """The artifact, which counts as a use but does not renew its age; None if *owner* has no such handle.

        Raises ViewFailed when the store is out of order, or the artifact is damaged.
        """
        ...


@dataclass(frozen=True, slots=True)
class LearnedRows:
    """The changes in a store of learned words up to its *version*: rows of actor, tool id and counts. *whole*: these
    are all rows, not only the changed ones. *left*: the lessons that were not counted, for another try."""

    version: int
    rows: Sequence[tuple[str, str, ToolWords]]
    whole: bool = False
    left: Sequence[Lesson] = ()


class LearnedStore(Protocol):
    """Counts of words that led to tools, by actor and tool id. Bounded, fairly for the actors (BROWSE-48)."""

    @property
    def shared(self) -> bool:
        """True if other processes may write to it too."""
        ...

    def now(self) -> float:
        """The time of the store's clock, in seconds, as in the counts."""
        ...

    async def learn(self, lessons: Sequence[Lesson], since: int) -> LearnedRows | None:
        """Counts *lessons*, and returns what changed after the version *since*; 0 gives the *whole*.

        Returns None if the store is unavailable, which is logged: no lesson was counted as far as is known. Never
        raises for what the store is or holds. Only a *whole* answer shows which rows the store has evicted.
        """
        ...

    async def reset(self, actor: str | None = None, tool_id: str | None = None) -> int:
        """Forget what was learned, of this actor and this tool only if they are given. Returns the number of tools
        that it was forgotten of. Raises ConfigError when the store is out of order."""
        ...


def source_of(scope: Mapping[str, Any]) -> str:
    """The client's address in the ASGI *scope* of a request, empty where there is none, as on a Unix socket."""
    client = scope.get("client")
    return str(client[0] or "") if client else ""


def session_key(kind: str, actor: str, name: str) -> str:
    """``<actor>/<session>``, both hashed: no name that a client chooses reaches another's session, and a store can
    see whose sessions they are."""
    # A name may be long, since its client chooses it.
    return (_known_key if len(name) <= _SHORT_CHARS else _new_key)(kind, actor, name)


def owner_of(session: str) -> str:
    """The part of a key that all sessions of one actor share."""
    return session.partition("/")[0]


def _new_key(kind: str, actor: str, name: str) -> str:
    return f"{_hash_of_actor(actor)}/{_hash([kind, actor, name])}"


_known_key = lru_cache(maxsize=4_096)(_new_key)


@lru_cache(maxsize=4_096)
def _hash_of_actor(actor: str) -> str:
    return _hash([actor])


def _hash(parts: list[str]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


LOCAL_CALL = CallContext(LOCAL, "-", session_key("local", LOCAL.actor, ""))
"""The context of a call from the program that embeds the runtime: all permissions, one browsing session."""
