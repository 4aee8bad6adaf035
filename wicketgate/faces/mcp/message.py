"""JSON-RPC messages judged as they come, with our own error texts (FACE-4, FACE-5, ROUTE-2).

The SDK refuses malformed messages too, but with the text of its parser, without an id that could be read, or not at
all. Needs none of the SDK, so that a service can refuse before it is imported.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wicketgate.mcp_names import INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR


@dataclass(frozen=True, slots=True)
class Fault:
    """The refusal of a message. *id* is that of the message if it can be read."""

    code: int
    message: str
    id: int | str | None = None
    data: Mapping[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        error: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.data is not None:
            error["data"] = dict(self.data)
        return {"jsonrpc": "2.0", "id": self.id, "error": error}


def fault_of(text: bytes | str) -> Fault | None:
    """The fault of *text*, or None for a request, a notification or a response."""
    try:
        message = json.loads(text)
    except RecursionError:
        return Fault(INVALID_REQUEST, "The message is nested too deeply.")
    except ValueError:
        return Fault(PARSE_ERROR, "The message is not valid JSON.")
    if isinstance(message, list):
        return Fault(INVALID_REQUEST, "A batch is not part of MCP: send one message at a time.")
    if not isinstance(message, dict):
        return Fault(INVALID_REQUEST, "A message must be a JSON object.")
    request_id = _id_of(message)
    if message.get("jsonrpc") != "2.0":
        return Fault(INVALID_REQUEST, 'A message must have "jsonrpc": "2.0".', request_id)
    if "method" not in message and ("result" in message or "error" in message):
        return None
    if "id" in message and request_id is None:
        return Fault(INVALID_REQUEST, "The id of a request must be a string or an integer.")
    if not isinstance(message.get("method"), str):
        return Fault(INVALID_REQUEST, "A request must name its method.", request_id)
    if not isinstance(message.get("params", {}), dict):
        return Fault(INVALID_PARAMS, "params must be an object.", request_id)
    return None


def request_in(body: bytes) -> tuple[bool, int | str | None]:
    """Returns whether *body* begins something new, and its id if there is one to read.

    A notification or the answer to a question begins nothing; what cannot be read counts as a request.
    """
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return True, None
    if not isinstance(message, dict):
        return True, None
    return "method" in message and "id" in message, _id_of(message)


def is_second_attempt(body: bytes) -> bool:
    """Returns true for a request with the state of a call that was begun before, and asked its client."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return False
    params = message.get("params") if isinstance(message, dict) else None
    return isinstance(params, dict) and isinstance(params.get("requestState"), str)


def _id_of(message: Mapping[str, Any]) -> int | str | None:
    given = message.get("id")
    return given if isinstance(given, int | str) and not isinstance(given, bool) else None
