"""The outcomes that a caller can distinguish, each with its own wire code (EXEC-11, CHAT-37).

Two families cross a door. A ``GatewayError`` is an answer of a meta-tool and goes back to the model, which can
often mend its call. An ``EngineError`` ends a chat stream; its text is fixed, so nothing of the cause can leak.
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

_MAX_CHARS = 1_000
"""An answer repeats the caller's input, but not all of it, however long it is."""


class WicketgateError(Exception):
    """Root of everything this program raises on purpose."""


class CatalogError(WicketgateError, ValueError):
    """A tool id, card or set of tools breaks the rules of CARD-1 to CARD-25."""


class ConfigError(WicketgateError):
    """The configuration cannot be used; the text names the field and says what to do."""


class SessionFileError(WicketgateError):
    """A session file (CHAT-84) cannot be used; the text names the line."""


class StoreUnavailable(WicketgateError):
    """Raised if the store cannot be read or written at the moment. What was to be written may have been written all the
    same. The message is the end of a log line."""


class GatewayError(WicketgateError):
    """A refused or failed meta-tool call, in the shape of EXEC-11 plus ``retryable``.

    *message* is shown to the client: it is made of our words and the caller's own input, never of another
    exception's text. *path* is the offending path, tool id or handle.
    """

    code: ClassVar[str]
    retryable: bool = False

    def __init__(self, message: str, *, path: str = "", details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.details = dict(details) if details else None

    def as_dict(self) -> dict[str, Any]:
        """``{error, message, path, retryable, details?}``."""
        body: dict[str, Any] = {
            "error": self.code,
            "message": self.message[:_MAX_CHARS],
            "path": self.path[:_MAX_CHARS],
            "retryable": self.retryable,
        }
        if self.details is not None:
            body["details"] = self.details
        return body


class PathInvalid(GatewayError):
    code = "PATH_INVALID"


class PathNotFound(GatewayError):
    code = "PATH_NOT_FOUND"


class ArgsInvalid(GatewayError):
    code = "ARGS_INVALID"


class SchemaInvalid(GatewayError):
    """The upstream declared a schema that nothing can be validated against."""

    code = "SCHEMA_INVALID"


class HydrateFailed(GatewayError):
    """No such tool, or none that this caller may see: the two are one answer on purpose."""

    code = "HYDRATE_FAILED"


class ViewFailed(GatewayError):
    code = "VIEW_FAILED"


class UpstreamError(GatewayError):
    code = "UPSTREAM_ERROR"


class UpstreamRefused(UpstreamError):
    """The server answered with an error of its own protocol. What it said is content, like any result: *refusal* is its
    message, bounded and on one line, *data* as it came. *name* is what was called there, once that is known. *status*
    is the HTTP status beside it, if that was one of failure."""

    def __init__(
        self, message: str, *, code: int, refusal: str, data: object = None, name: str = "", status: int = 0
    ) -> None:
        http = {"status": status} if status else {}
        super().__init__(message, details={"upstream_code": code, "upstream_message": refusal, **http})
        self.status = status
        self.upstream_code = code
        self.refusal = refusal
        self.data = data
        self.name = name


class UpstreamBusy(UpstreamError):
    """The server, or what stands in front of it, answered 429 or 503: it takes no call now, but may later. Callers get
    the same code."""

    retryable = True


class SkillChanged(UpstreamError):
    """A file of a skill is not what the skill's entry says of it, so nothing of it is shown. Callers get the same
    code."""

    retryable = True


class UnknownServer(UpstreamError):
    """A plugin sent the call to a server that does not exist; nothing ran. Callers get the same code."""


class UpstreamLost(UpstreamError):
    """The connection was lost while the call ran, so its effect is unknown. Callers get the same code."""


class UpstreamUnclear(UpstreamError):
    """The server got the call, and its answer does not say what became of it. Callers get the same code."""


class UpstreamTimeout(GatewayError):
    code = "UPSTREAM_TIMEOUT"
    retryable = True


class UpstreamUnavailable(GatewayError):
    code = "UPSTREAM_UNAVAILABLE"
    retryable = True


class LoginNeeded(UpstreamUnavailable):
    """The operator has to log in at this server first. *mend*, for the operator, says how. Callers get the same
    code."""

    def __init__(self, message: str, mend: str) -> None:
        super().__init__(message)
        self.mend = mend


class UpstreamResting(UpstreamUnavailable):
    """The upstream failed too often lately, so the call was not tried; a second try at once is of no use. Callers get
    the same code."""


class IssuerAway(UpstreamUnavailable):
    """No credential for the call could be had: the issuer of the caller's login, or the store of logins, is away. The
    server itself was not asked. Callers get the same code."""


class RateLimited(GatewayError):
    code = "RATE_LIMITED"
    retryable = True


class Forbidden(GatewayError):
    """The caller may see this tool, but not call it, or not like this."""

    code = "FORBIDDEN"


class ScopesNeeded(Forbidden):
    """The credential for the server *name* may not do this (403 ``insufficient_scope``); *mend* is what its operator
    does. Callers get the same code."""

    def __init__(self, name: str, scopes: Iterable[str], mend: str) -> None:
        wanted = sorted(scopes)
        named = f" ({' '.join(wanted)})" if wanted else ""
        details = {"status": 403, "scopes": wanted}
        words = f"{name} wants more scopes for this call{named}; an operator can change that: {mend}."
        super().__init__(words, details=details)


class ProgramInvalid(GatewayError):
    """The program cannot be read; *details* have the line."""

    code = "PROGRAM_INVALID"


class ProgramFailed(GatewayError):
    """The program raised an error that it did not handle; *details* say which calls have run."""

    code = "PROGRAM_FAILED"


class ProgramLimit(GatewayError):
    """The program was ended at a limit, which *details* name."""

    code = "PROGRAM_LIMIT"


class ProgramLost(GatewayError):
    """The program cannot go on. Whether its last call took effect is not known."""

    code = "PROGRAM_LOST"


class OutOfOrder(GatewayError):
    """Not one tool or server failed, but what every call needs: something that must be kept could not be. Callers get
    the code of the class beside it; a chat stream ends (CHAT-104)."""


class NotAdmitted(Forbidden, OutOfOrder):
    """Nothing was run, because what must be kept of it cannot be kept now."""


class NotRecorded(UpstreamError, OutOfOrder):
    """The record that an answer needs could not be kept, so the answer is withheld."""


class ApprovalRequired(GatewayError):
    """Nothing ran: the owner has to approve this very call first (CHAT-65)."""

    code = "APPROVAL_REQUIRED"
    question: Mapping[str, Any] | None = None
    """The question to the owner, for a client that answers it with a second attempt."""


class ConnectRequired(GatewayError):
    """Nothing ran: the caller has first to connect its own account at this tool server, in a browser. *upstream* is the
    server's name, *url* the page where that is done, *expires_at* when the page ends (seconds since the epoch). *flow*
    names the login that waits, for who waits with it."""

    code = "CONNECT_REQUIRED"

    def __init__(self, message: str, *, upstream: str, url: str = "", expires_at: float = 0.0, flow: str = "") -> None:
        super().__init__(message)
        self.upstream = upstream
        self.url = url
        self.expires_at = expires_at
        self.flow = flow

    @property
    def connect(self) -> dict[str, Any]:
        """``{upstream, url, expires_at}``, for the client."""
        return {"upstream": self.upstream, "url": self.url, "expires_at": self.expires_at}

    def as_dict(self) -> dict[str, Any]:
        """As in every error, with ``connect_required``: the place of the login."""
        return {**super().as_dict(), "connect_required": self.connect}

    def again(self) -> "ConnectRequired":
        """The same for another caller of the same account."""
        return ConnectRequired(
            self.message, upstream=self.upstream, url=self.url, expires_at=self.expires_at, flow=self.flow
        )


class InputRequired(WicketgateError):
    """A tool server has a question, which the client answers with a second attempt (2026-07-28).

    Not a failure: the door passes *requests* (by key, wire JSON) and *request_state* on. *definition* is the digest of
    the tool whose call asks; empty if it is no tool. *approval* is the sealed id of the approval that the gate itself
    asks for; empty if a server asks.
    """

    def __init__(
        self, requests: Mapping[str, Any], request_state: str | None, definition: str = "", approval: str = ""
    ) -> None:
        super().__init__("input required")
        self.approval = approval
        self.definition = definition
        self.requests = requests
        self.request_state = request_state


class EngineError(WicketgateError):
    """An unrecoverable failure in a chat stream (CHAT-37).

    The argument is for the log only; clients get ``code`` and ``safe_message``, whatever happened.
    """

    code: ClassVar[str]
    safe_message: ClassVar[str]


class ProviderError(EngineError):
    """*status* is that of the provider's answer, if it was a refusal over HTTP. *unreached* says why no answer of it
    came, *mend* what to do about that, with ``{setting}`` for the place of its URL. All three are for the operator."""

    code = "provider_error"
    safe_message = "The model provider could not complete the request."
    status: int | None = None
    unreached: str = ""
    mend: str = ""


class ProviderUnavailable(ProviderError):
    """The provider answered nothing, but may at a second try, after *retry_after_s* if the provider gave it."""

    def __init__(self, detail: str, retry_after_s: float | None = None) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class ProviderSilent(ProviderError):
    """The provider used up the time for a first event: no second try of it, but of the next provider."""


class ToolError(EngineError):
    code = "tool_error"
    safe_message = "A tool could not be run."


class ContextOverflow(EngineError):
    code = "context_overflow"
    safe_message = "The conversation is longer than the model's context window."
