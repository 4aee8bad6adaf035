"""Failures of calls as JSON, for another process or a later one."""

from collections.abc import Iterator, Mapping
from typing import Any

from wicketgate.errors import ConnectRequired, GatewayError, InputRequired, UpstreamError, UpstreamRefused


def pack_error(error: BaseException) -> dict[str, Any]:
    """Anything that is no outcome for a caller becomes one that says nothing of it."""
    match error:
        case InputRequired():
            return {
                "type": "InputRequired",
                "requests": dict(error.requests),
                "state": error.request_state,
                "definition": error.definition,
                "approval": error.approval,
            }
        case UpstreamRefused():
            own = {"code": error.upstream_code, "refusal": error.refusal, "data": error.data, "name": error.name}
            own["status"] = error.status
            return {"type": "UpstreamRefused", "message": error.message, "own": own}
        case ConnectRequired():
            own = {**error.connect, "flow": error.flow}
            return {"type": "ConnectRequired", "message": error.message, "path": error.path, "own": own}
        case GatewayError():
            return {
                "type": next(kind.__name__ for kind in type(error).__mro__ if kind in _KINDS.values()),
                "message": error.message,
                "path": error.path,
                "details": error.details,
                "retryable": error.retryable,
            }
    return {"type": "UpstreamError", "message": "The call failed inside the gateway.", "path": "", "details": None}


def unpack_error(packed: Mapping[str, Any]) -> GatewayError | InputRequired:
    match packed["type"]:
        case "InputRequired":
            return InputRequired(packed["requests"], packed["state"], packed["definition"], packed.get("approval", ""))
        case "UpstreamRefused":
            return UpstreamRefused(packed["message"], **packed["own"])
        case "ConnectRequired":
            required = ConnectRequired(packed["message"], **packed["own"])
            required.path = packed["path"]
            return required
    kind = _KINDS.get(packed["type"], UpstreamError)
    error = kind(packed["message"], path=packed["path"], details=packed["details"])
    error.retryable = packed.get("retryable", error.retryable)
    return error


def _kinds(of: type[GatewayError]) -> Iterator[type[GatewayError]]:
    yield of
    for each in of.__subclasses__():
        yield from _kinds(each)


_KINDS = {each.__name__: each for each in _kinds(GatewayError) if each.__module__ == GatewayError.__module__}
