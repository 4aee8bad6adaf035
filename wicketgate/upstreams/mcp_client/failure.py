"""What can go wrong with one request to an MCP server, and what its caller is told of it (S1 "Error shape", gateway 126
to 128): our words, with the server's own beside them as content."""

import logging
from collections.abc import Mapping

from wicketgate.errors import (
    GatewayError,
    UpstreamError,
    UpstreamLost,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnavailable,
)

log = logging.getLogger("wicketgate.upstream")

_MAX_MESSAGE = 256


class Refused(Exception):
    """The server answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(code)
        self.code = code
        self.message = message
        self.data = data


class Malformed(Exception):
    """What came is no answer that MCP knows, or is larger than what is taken. The argument is a fixed phrase."""


class Gone(Exception):
    """There is no connection, or no longer. *carried*: the request may have reached the server. *how*: a fixed phrase
    such as ``it ended with code 3``."""

    def __init__(self, how: str, *, carried: bool) -> None:
        super().__init__(how)
        self.how = how
        self.carried = carried


NOT_VALID = "gave an answer that is not a valid MCP result"
TOO_LARGE = "gave an answer that is larger than what is taken"


def refusal(error: object) -> Exception:
    """The exception for the ``error`` member of an answer."""
    match error:
        case {"code": int(code), "message": str(message)}:
            return Refused(code, message, error.get("data") if isinstance(error, Mapping) else None)
    return Malformed(NOT_VALID)


def no_answer(status: int) -> Malformed:
    """For what came with an HTTP *status* in the place of an MCP answer."""
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


def told(name: str, error: Refused | Malformed | Gone) -> GatewayError:
    """What the caller is told."""
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
    """An upstream's words, made safe to show: one line, bounded (gateway 128)."""
    return "".join(char if char.isprintable() else " " for char in message[:_MAX_MESSAGE]).strip()
