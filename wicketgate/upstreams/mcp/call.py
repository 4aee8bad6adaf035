"""One request on its way to an MCP server, and the ways in which it fails (EXEC-11, FACE-9, FACE-10).

The caller gets the server's notifications in order, and before the answer. Of a failure a caller reads our words; the
server's own words go beside them, as content (EXEC-12, EXEC-13).
"""

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from wicketgate.answer_room import AnswerHold, hold_in_force
from wicketgate.errors import (
    GatewayError,
    ScopesNeeded,
    UpstreamBusy,
    UpstreamError,
    UpstreamLost,
    UpstreamRefused,
    UpstreamUnavailable,
    UpstreamUnclear,
)
from wicketgate.heavy_work import VERY_LARGE_BYTES, run_queued
from wicketgate.ports import SILENT, CallContext, Caller
from wicketgate.upstreams.mcp import wire

_MAX_MESSAGE = 256


class OutgoingRequest(msgspec.Struct, frozen=True):
    """A request without its id. *headers* go with it where the transport is HTTP."""

    method: str
    params: Mapping[str, Any]
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)


class Refused(Exception):
    """The server answered with a JSON-RPC error. *status* is the HTTP status beside it, if that was one of failure."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(code)
        self.code = code
        self.message = message
        self.data = data
        self.status: Status | None = None


class Malformed(Exception):
    """An answer that MCP does not know, or that is larger than the limit. *how* is a fixed phrase that completes
    "the server ...". *mend* is for the operator."""

    def __init__(self, how: str, mend: str = "") -> None:
        super().__init__(how)
        self.mend = mend


class Status(Malformed):
    """An HTTP *status* in the place of an answer. *retry_after_s*: the wait that the server asks for; None: it names
    none. *scopes* are those that the credential lacks, as the server names them; None: it lacks none."""

    def __init__(
        self,
        how: str,
        status: int,
        retry_after_s: float | None,
        mend: str = "",
        scopes: Collection[str] | None = None,
    ) -> None:
        super().__init__(how, mend)
        self.status = status
        self.retry_after_s = retry_after_s
        self.scopes = scopes


class Unfinished(Malformed):
    """A large answer that had room and did not come to its end in time (UP-275)."""

    def __init__(self) -> None:
        super().__init__("did not come to the end of its answer in time")


class Gone(Exception):
    """There is no connection, or no longer. *carried*: the request may have reached the server. *how*: a fixed phrase
    such as ``it ended with code 3``. *mend* is for the operator, and may name settings, paths and hosts."""

    def __init__(self, how: str, *, carried: bool, mend: str = "") -> None:
        super().__init__(how)
        self.how = how
        self.carried = carried
        self.mend = mend


NOT_VALID = "returned an answer that is not a valid MCP result"
CONNECTION_LOST = "the connection was lost"
NOT_REACHED = "it cannot be reached"
RESTARTED = "it went away, or has been restarted"


def too_large(max_bytes: int) -> Malformed:
    return Malformed(f"gave an answer of more than {max_bytes} bytes, which is not taken")


def refusal(error: object) -> Exception:
    """The exception for the ``error`` member of an answer."""
    match error:
        case {"code": int(code), "message": str(message)}:
            return Refused(code, message, error.get("data") if isinstance(error, Mapping) else None)
    return Malformed(NOT_VALID)


_BUSY = (429, 503)
_MAX_WAIT_S = 86_400


def no_answer(
    status: int,
    retry_after: str = "",
    *,
    authorized: bool = True,
    transport: str = "",
    login: str = "",
    scopes: Collection[str] | None = None,
) -> Status:
    """The failure of a request that got an HTTP *status* in the place of an MCP answer. *retry_after* is the value of
    that header; a date is not read. *authorized*: it carried a credential. *transport*: the one in use. *login*: the
    name of the server, if one logs in there. *scopes*: see Status."""
    mend = ""
    match status:
        case 403 if scopes is not None and authorized:
            how = f"wants more scopes (HTTP status {status})"
            mend = "give its credential these scopes"
        case 401 | 403 if not authorized:
            how = f"wants a credential (HTTP status {status})"
            mend = "give it one in headers (Authorization) or by oauth"
            if login:
                mend = f"it needs a login: write oauth: {{}} at this upstream, then wicketgate login {login}"
        case 401 | 403:
            how = f"refused the gateway's credentials (HTTP status {status})"
            mend = "correct the credential in headers or oauth; has it expired, or too few rights?"
        case 404 | 405 | 406 | 501:
            how = f"has no MCP endpoint at this path (HTTP status {status})"
            mend = PATH_MEND.get(transport, "correct the path in url")
        case 407:
            how = f"is behind a proxy that wants a credential (HTTP status {status})"
            mend = "write user and password into HTTP_PROXY"
        case 301 | 302 | 303 | 307 | 308:
            how = "redirects to another place, which is not followed; configure its new address"
        case 429 | 503:
            how = f"takes no more requests for now (HTTP status {status})"
        case _:
            how = f"gave no MCP answer (HTTP status {status})"
            mend = "look at the log of that server" if status >= 500 else "is it an MCP server? correct url"
    seconds = retry_after.strip()
    wait_s = (
        float(min(int(seconds), _MAX_WAIT_S)) if seconds.isascii() and seconds.isdigit() and len(seconds) < 10 else None
    )
    return Status(how, status, wait_s, mend, scopes)


PATH_MEND = {
    "http": "correct the path in url, often /mcp; or transport: sse, if it is a server of the older HTTP+SSE transport",
    "sse": "correct the path in url, often /sse; or leave out transport: sse, if it speaks streamable HTTP",
}


def no_mcp(kind: str, transport: str) -> Malformed:
    """The failure of a request that got an answer of the media type *kind*, which MCP does not know."""
    if kind in ("text/html", "application/xhtml+xml"):
        return Malformed("answers with a web page, not with MCP", PATH_MEND[transport])
    return Malformed(NOT_VALID, f"is it an MCP server? {PATH_MEND[transport]}")


def reported(name: str, error: Refused | Malformed | Gone) -> GatewayError:
    """The error for the caller of a request that failed with *error* at the server *name*."""
    match error:
        case Gone(how=how, carried=True):
            return UpstreamLost(f"The connection to {name} was lost while the tool ran ({how}).")
        case Gone(how=how):
            return UpstreamUnavailable(f"{name} cannot be reached ({how}).")
        case Refused(code=code, message=message, data=data):
            status = error.status.status if error.status is not None else 0
            return UpstreamRefused(
                f"{name} refused the call.", code=code, refusal=clean(message), data=data, status=status
            )
        case Status(scopes=Collection() as scopes, mend=mend):
            return ScopesNeeded(name, scopes, mend)
        case Status(status=status) if status in _BUSY:
            wait = {} if error.retry_after_s is None else {"retry_after_s": error.retry_after_s}
            return UpstreamBusy(f"{name} {error}.", details={"status": status, **wait})
        case Status(status=status):
            kind = UpstreamUnclear if status >= 500 else UpstreamError
            return kind(f"{name} {error}.", details={"status": status})
        case _:
            return UpstreamUnclear(f"{name} {error}.")


def clean(message: str) -> str:
    """A server's words, made safe to show: one line, bounded (EXEC-13)."""
    return "".join(char if char.isprintable() else " " for char in message[:_MAX_MESSAGE]).strip()


_MAX_WAITING = 1_000

Heard = Callable[[str, Any], None]
"""Gets the method and the parameters of a notification. Called on the event loop; must not wait."""


@dataclass(slots=True, eq=False, repr=False)
class Call:
    """Settled by the task that reads from the server, awaited by the task that asked.

    *token* is the id and the progress token. *context* is None for requests that no client asked for; *heard* then gets
    the events of a subscription. *carried*: the request may have reached the server. *cancellable*: the server may be
    asked to cancel it.
    """

    token: str
    context: CallContext | None
    _heard: Heard | None = None
    hold: AnswerHold | None = field(default_factory=hold_in_force.get)
    """The room of its answer; None if it is not counted: one that no client asked for."""
    carried: bool = False
    cancellable: bool = True
    settled: bool = False
    caller: Caller = field(init=False)
    _news: deque[tuple[str, Mapping[str, Any]]] = field(default_factory=deque)
    _passing: asyncio.Lock | None = None
    _wakes: asyncio.Future[None] | None = None
    _answer: Any = None
    _failure: Exception | None = None

    def __post_init__(self) -> None:
        self.caller = SILENT if self.context is None else self.context.caller

    @property
    def silent(self) -> bool:
        """True if its caller gets nothing until the call is over."""
        return self.caller is SILENT

    def note(self, method: str, params: object) -> None:
        """Keep one notification for the caller. If the caller is too slow, the oldest ones are dropped."""
        if self._heard is not None:
            self._heard(method, params)
        elif not self.silent and isinstance(params, Mapping):
            if len(self._news) == _MAX_WAITING:
                self._news.popleft()
            self._news.append((method, params))
            self._wake()

    def settle(self, message: wire.Message) -> None:
        """Take the answer. One with both result and error, or with neither, is not valid (UP-10)."""
        has_result = message.result is not wire.ABSENT
        has_error = message.error is not wire.ABSENT and message.error is not None
        if has_result == has_error:
            self.fail(Malformed(NOT_VALID))
        elif has_error:
            self.fail(refusal(wire.error_of(message)))
        elif not self.settled:
            self.settled = True
            if message.result is None:
                self._failure = Malformed(NOT_VALID)
            self._answer = message.result
            self._wake()

    def fail(self, error: Exception) -> None:
        if not self.settled:
            self.settled = True
            self._failure = error
            self._wake()

    async def answer(self) -> dict[str, Any]:
        """Wait for the result, and pass on the news that came before it. Raises the failure of the call."""
        while True:
            if self._news or self._passing is not None:
                await self.pass_on()
            if self._failure is not None:
                raise self._failure
            if self._answer is not None:
                if type(self._answer) is dict:
                    return self._answer
                return await _object(self._answer, "" if self.context is None else self.context.identity.actor)
            self._wakes = asyncio.get_running_loop().create_future()
            await self._wakes

    async def pass_on(self) -> None:
        """Give the caller the news that wait, in order even if two tasks do so at once."""
        if not self._news and (self._passing is None or not self._passing.locked()):
            return
        if self._passing is None:
            self._passing = asyncio.Lock()
        async with self._passing:
            while self._news:
                await self._forward(*self._news.popleft())

    async def _forward(self, method: str, params: Mapping[str, Any]) -> None:
        """Pass one notification of the server on; one that is not well-formed is dropped."""
        match method, params:
            case ("notifications/progress", {"progress": value}) if (progress := _finite(value)) is not None:
                if self.context is not None:
                    self.context.marks.progress = progress
                message = params.get("message")
                text = message if isinstance(message, str) else None
                await self.caller.progress(progress, _finite(params.get("total")), text)
            case ("notifications/message", {"level": str(level), "data": data}):
                logger = params.get("logger")
                await self.caller.log(level, data, logger if isinstance(logger, str) else None)

    def _wake(self) -> None:
        if self._wakes is not None and not self._wakes.done():
            self._wakes.set_result(None)


async def _object(result: object, actor: str) -> dict[str, Any]:
    """A result that may still be encoded. Raises Malformed unless it is an object."""
    if isinstance(result, wire.Raw):
        try:
            whole = partial(wire.whole, result)
            very_large = len(memoryview(result)) > VERY_LARGE_BYTES
            result = await (run_queued(whole, actor) if very_large else asyncio.to_thread(whole))
        except wire.DAMAGED:
            raise Malformed(NOT_VALID) from None
    if not isinstance(result, dict):
        raise Malformed(NOT_VALID)
    return result


def _finite(value: object) -> float | None:
    """Returns None for what is no number, and for a number beyond all that JSON readers understand."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        return None
    return value
