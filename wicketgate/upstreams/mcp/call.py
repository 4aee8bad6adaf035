"""One request on its way to an MCP server, and the ways in which it fails (EXEC-11, FACE-9, FACE-10).

The caller gets the server's notifications in order, and before the answer. Of a failure a caller reads our words; the
server's own words go beside them, as content (EXEC-12, EXEC-13).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from wicketgate.errors import (
    GatewayError,
    UpstreamError,
    UpstreamLost,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from wicketgate.ports import SILENT, CallContext, Caller
from wicketgate.upstreams.mcp import wire

_MAX_MESSAGE = 256


class Refused(Exception):
    """The server answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(code)
        self.code = code
        self.message = message
        self.data = data


class Malformed(Exception):
    """An answer that MCP does not know, or that is larger than the limit. The argument is a fixed phrase that completes
    "the server ..."."""


class Gone(Exception):
    """There is no connection, or no longer. *carried*: the request may have reached the server. *how*: a fixed phrase
    such as ``it ended with code 3``."""

    def __init__(self, how: str, *, carried: bool) -> None:
        super().__init__(how)
        self.how = how
        self.carried = carried


NOT_VALID = "gave an answer that is not a valid MCP result"
CONNECTION_LOST = "the connection was lost"
NOT_REACHED = "it cannot be reached"
RESTARTED = "it went away, or has been restarted"
NOT_TRUSTED = "it has a certificate that is not trusted here"


def too_large(max_bytes: int) -> Malformed:
    return Malformed(f"gave an answer of more than {max_bytes} bytes, which is not taken")


def refusal(error: object) -> Exception:
    """The exception for the ``error`` member of an answer."""
    match error:
        case {"code": int(code), "message": str(message)}:
            return Refused(code, message, error.get("data") if isinstance(error, Mapping) else None)
    return Malformed(NOT_VALID)


def no_answer(status: int) -> Malformed:
    """The failure of a request that got an HTTP *status* in the place of an MCP answer."""
    match status:
        case 401 | 403:
            return Malformed(f"refused the gateway's credentials (HTTP status {status})")
        case 301 | 302 | 303 | 307 | 308:
            return Malformed("redirects to another place, which is not followed; configure its new address")
        case 429:
            return Malformed(f"takes no more requests for now (HTTP status {status})")
        case _:
            return Malformed(f"gave no MCP answer (HTTP status {status})")


def timed_out(name: str, timeout_s: float) -> UpstreamTimeout:
    return UpstreamTimeout(f"{name} did not answer within {timeout_s:g} s.")


def reported(name: str, error: Refused | Malformed | Gone) -> GatewayError:
    """The error for the caller of a request that failed with *error* at the server *name*."""
    match error:
        case Gone(how=how, carried=True):
            return UpstreamLost(
                f"The connection to {name} was lost while the tool ran ({how}); whether it took effect is not known."
            )
        case Gone(how=how):
            return UpstreamUnavailable(f"{name} cannot be reached ({how}).")
        case Refused(code=code, message=message, data=data):
            return UpstreamRefused(f"{name} refused the call.", code=code, refusal=clean(message), data=data)
        case _:
            return UpstreamError(f"{name} {error}.")


def clean(message: str) -> str:
    """A server's words, made safe to show: one line, bounded (EXEC-13)."""
    return "".join(char if char.isprintable() else " " for char in message[:_MAX_MESSAGE]).strip()


_MAX_WAITING = 1_000

Heard = Callable[[str, Any], None]
"""Gets the method and the parameters of a notification. Called on the event loop; must not wait."""


class Call:
    """Settled by the task that reads from the server, awaited by the task that asked.

    *token* is the id and the progress token. *context* is None for requests that no client asked for; *heard* then gets
    the events of a subscription. *carried*: the request may have reached the server. *cancellable*: the server may be
    asked to cancel it.
    """

    __slots__ = (
        "_answer",
        "_failure",
        "_heard",
        "_news",
        "_passing",
        "_wakes",
        "caller",
        "cancellable",
        "carried",
        "context",
        "token",
    )

    def __init__(self, token: str, context: CallContext | None, heard: Heard | None = None) -> None:
        self.token = token
        self.context = context
        self.carried = False
        self.cancellable = True
        self.caller: Caller = SILENT if context is None else context.caller
        self._heard = heard
        self._news: deque[tuple[str, Mapping[str, Any]]] = deque()
        self._passing: asyncio.Lock | None = None
        self._wakes: asyncio.Future[None] | None = None
        self._answer: Any = None
        self._failure: Exception | None = None

    @property
    def silent(self) -> bool:
        """True if its caller gets nothing until the call is over."""
        return self.caller is SILENT

    @property
    def settled(self) -> bool:
        return self._answer is not None or self._failure is not None

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
        """Wait for the result, and pass on the news that came before it. Raises the failure of the call."""
        while True:
            await self.pass_on()
            if self._failure is not None:
                raise self._failure
            if self._answer is not None:
                return await _object(self._answer)
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
                await _forward(self.caller, *self._news.popleft())

    def _wake(self) -> None:
        if self._wakes is not None and not self._wakes.done():
            self._wakes.set_result(None)


async def _object(result: object) -> dict[str, Any]:
    """A result that may still be encoded. Raises Malformed unless it is an object."""
    if isinstance(result, wire.Raw):
        try:
            result = await asyncio.to_thread(wire.whole, result)
        except wire.DAMAGED:
            raise Malformed(NOT_VALID) from None
    if not isinstance(result, dict):
        raise Malformed(NOT_VALID)
    return result


async def _forward(caller: Caller, method: str, params: Mapping[str, Any]) -> None:
    """Pass one notification of the server on; one that is not well-formed is dropped."""
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
