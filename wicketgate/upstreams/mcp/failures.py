"""The ways in which one request to an MCP server fails, and the error that its caller gets for each (S1 "Error shape").

A caller reads our words; the server's own words go beside them, as content (gateway 126 to 128).
"""

from collections.abc import Mapping

from wicketgate.errors import (
    GatewayError,
    UpstreamError,
    UpstreamLost,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnavailable,
)

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
    """A server's words, made safe to show: one line, bounded (gateway 128)."""
    return "".join(char if char.isprintable() else " " for char in message[:_MAX_MESSAGE]).strip()
