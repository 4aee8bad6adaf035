"""A request as a door knows it, whichever way it came in: through the SDK's server, or past it.

The parts that a door reads, the errors with which it is answered by the era of its client (FACE-54 to FACE-56), and the
HTTP exchange that it came in: what runs for the request ends with that (FACE-13, FACE-40).

2026-07-28 reserves -32768 to -32000: what a server says there, and what older clients know from us, gets another code.
A request that opens a listening stream is small: its body is kept as long as the stream (FACE-46).
"""

import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType
from typing import Any, Protocol

import anyio

from wicketgate import mcp_names as names
from wicketgate.faces.surface import Refusal, ResultForm
from wicketgate.mcp_names import INVALID_PARAMS, REQUEST_TIMEOUT
from wicketgate.task_end import EndableBlock

RESULT_KEY = "wicketgate/result"
_FORMS: Mapping[str, ResultForm] = {"text": "text", "json": "json", "both": "both"}
_FORM = re.compile(rb"(?:^|&)result=(text|json|both)(?:&|$)")
_NO_CODE = re.compile(rb"(?:^|&)code(?:mode)?=false(?:&|$)")

_RESERVED = range(-32768, -32000 + 1)
_OURS_OFFSET = 1_000
"""Added to a code of the gate for the newer era: -32004 is -31004 there."""
_PASSED = frozenset(
    {names.PARSE_ERROR, names.INVALID_REQUEST, names.METHOD_NOT_FOUND, names.INVALID_PARAMS, names.INTERNAL_ERROR}
    | {names.MISSING_REQUIRED_CLIENT_CAPABILITY}
)
HTTP_STATUS = {**dict.fromkeys(_PASSED - {names.INTERNAL_ERROR}, 400), names.METHOD_NOT_FOUND: 404}
"""The statuses of answers with an error in the newer era. It is 200 for any other code."""
# -32002 is that of older versions. Older SDKs answer 0 to a read that fails, mostly because there is no such resource.
_NOT_FOUND = (-32002, 0)
_READ = "resources/read"

# The endpoint puts the size of a request's body under this key of the ASGI scope.
BODY_BYTES = "wicketgate.body_bytes"
# The endpoint puts a function under this key of the ASGI scope that stops counting the request as a call under way.
COUNTED = "wicketgate.counted"
SMALL_BYTES = 64 * 1024
# The endpoint puts the Exchange under this key of the ASGI scope.
EXCHANGE = "wicketgate.exchange"


def result_form(asked: "McpRequest", default: ResultForm) -> ResultForm:
    """Returns the form of results that the request asks for, in ``_meta`` or in the query of its URL (FACE-176)."""
    wanted = asked.meta and asked.meta.get(RESULT_KEY)
    if isinstance(wanted, str) and wanted in _FORMS:
        return _FORMS[wanted]
    query = asked.request.scope.get("query_string") if asked.request is not None else None
    named = _FORM.search(query) if query else None
    return _FORMS[named[1].decode()] if named else default


def code_mode(asked: "McpRequest") -> bool:
    """Returns false if the URL of the request switches programs off (EXEC-141)."""
    query = asked.request.scope.get("query_string") if asked.request is not None else None
    return not (query and _NO_CODE.search(query))


class HttpRequest(Protocol):
    """The HTTP side of a request. The names of *headers* are in small letters."""

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def scope(self) -> MutableMapping[str, Any]: ...


class McpRequest(Protocol):
    """*meta* are the values of ``_meta`` in *params*. *request* is None over stdio. The SDK's context is one."""

    @property
    def method(self) -> str: ...

    @property
    def params(self) -> Mapping[str, Any] | None: ...

    @property
    def meta(self) -> Mapping[str, Any] | None: ...

    @property
    def protocol_version(self) -> str: ...

    @property
    def request(self) -> HttpRequest | None: ...


class RpcError(Exception):
    """A JSON-RPC error as the answer to a request. The SDK's server gets it as an error of its own."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


def mcp_error(refusal: Refusal, ctx: McpRequest) -> RpcError:
    """*refusal* as an error for the client of *ctx*."""
    code, data = refusal.code, refusal.data
    asked = (ctx.params or {}).get("uri") if ctx.method == _READ else None
    # A client knows the resource by the URI that it asked for.
    if asked is not None and isinstance(data, Mapping) and "uri" in data:
        data = {**data, "uri": asked}
    if ctx.protocol_version not in names.MODERN_PROTOCOL_VERSIONS:
        return RpcError(code, refusal.message, data)
    if refusal.theirs and asked is not None and code in _NOT_FOUND:
        return RpcError(names.INVALID_PARAMS, refusal.message, {**_with_code(data, code), "uri": asked})
    if asked is not None and code == names.INVALID_PARAMS and data is None:
        return RpcError(code, refusal.message, {"uri": asked})
    if code in _PASSED or code not in _RESERVED:
        return RpcError(code, refusal.message, data)
    if refusal.theirs:
        return RpcError(names.INTERNAL_ERROR, refusal.message, _with_code(data, code))
    return RpcError(own_code(code, ctx.protocol_version), refusal.message, data)


def is_answered_by(refusal: Refusal, ctx: McpRequest) -> bool:
    """True if the era of *ctx* knows the code of *refusal*, the error of a server behind a meta-tool."""
    return refusal.code in _PASSED or ctx.protocol_version not in names.MODERN_PROTOCOL_VERSIONS


def own_code(code: int, version: str) -> int:
    """*code*, our own, as a client that speaks *version* is given it."""
    return code + _OURS_OFFSET if version in names.MODERN_PROTOCOL_VERSIONS else code


def _with_code(data: object, code: int) -> dict[str, Any]:
    known = {"upstream_code": code}
    if isinstance(data, Mapping):
        return {**data, **known}
    return known if data is None else {"upstream_data": data, **known}


def check_small(ctx: McpRequest) -> None:
    """Raises RpcError for a request over HTTP that is too large to be kept."""
    if ctx.request is not None and ctx.request.scope.get(BODY_BYTES, 0) > SMALL_BYTES:
        raise RpcError(INVALID_PARAMS, f"A request that opens a listening stream has {SMALL_BYTES} bytes at most.")


class Exchange:
    """A handle on what runs for one request, maybe in a task of its session."""

    def __init__(self) -> None:
        self.reason = "The client has left."
        self.over = False
        self._cancel: Callable[[], None] | None = None

    def end(self, reason: str = "") -> None:
        """Cancels what runs. *reason* is for a client that is still there. Later calls do nothing."""
        if self.over:
            return
        self.over = True
        self.reason = reason or self.reason
        if self._cancel is not None:
            self._cancel()

    def runs(self, cancel: Callable[[], None] | None) -> Callable[[], None] | None:
        """Sets the function that cancels the running work; None if nothing can be cancelled. Returns the one before."""
        before, self._cancel = self._cancel, cancel
        if self.over and cancel is not None:
            cancel()
        return before


def within_exchange(ctx: McpRequest) -> AbstractContextManager[None]:
    """Cancels the block when the exchange of this request is over. Raises RpcError then.

    Without an HTTP request, as over stdio, it does nothing.
    """
    return nullcontext() if ctx.request is None else within(ctx.request.scope[EXCHANGE], ctx.protocol_version)


@contextmanager
def within(exchange: Exchange, version: str) -> Iterator[None]:
    """As ``within_exchange``, for a client that speaks *version*. Blocks may be nested."""
    scope = anyio.CancelScope()
    before = exchange.runs(scope.cancel)
    try:
        with scope:
            yield
    finally:
        exchange.runs(before)
    if scope.cancelled_caught:
        raise _ended(version, exchange)


class WithinOwnExchange:
    """As ``within_exchange``, where the block runs in the task of its own HTTP request and has no scopes of the SDK in
    it."""

    __slots__ = ("_block", "_ctx", "_exchange")

    def __init__(self, ctx: McpRequest) -> None:
        assert ctx.request is not None
        self._ctx = ctx
        self._exchange: Exchange = ctx.request.scope[EXCHANGE]
        self._block = EndableBlock()

    def __enter__(self) -> None:
        self._block.__enter__()
        self._exchange.runs(self._block.end)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._exchange.runs(None)
        if self._block.__exit__(kind, error, traceback):
            raise _ended(self._ctx.protocol_version, self._exchange) from None


def _ended(version: str, exchange: Exchange) -> RpcError:
    return RpcError(own_code(REQUEST_TIMEOUT, version), exchange.reason)
