"""JSON-RPC messages judged as they come, with our own error texts (FACE-4, FACE-5, ROUTE-2).

The SDK refuses malformed messages too, but with the text of its parser, without an id that could be read, or not at
all.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

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


def read_message(text: bytes | str) -> dict[str, Any] | Fault:
    """The request, notification or response in *text*, or what is wrong with it."""
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
    request_id = usable_id(message.get("id"))
    if message.get("jsonrpc") != "2.0":
        return Fault(INVALID_REQUEST, 'A message must have "jsonrpc": "2.0".', request_id)
    if "method" not in message and ("result" in message or "error" in message):
        return message
    if "id" in message and request_id is None:
        return Fault(INVALID_REQUEST, "The id of a request must be a string or an integer.")
    if not isinstance(message.get("method"), str):
        return Fault(INVALID_REQUEST, "A request must name its method.", request_id)
    if not isinstance(message.get("params", {}), dict):
        return Fault(INVALID_PARAMS, "params must be an object.", request_id)
    return message


class _Error(msgspec.Struct):
    code: int
    message: str
    data: Any = None


class ReplyMessage(msgspec.Struct):
    """A client's answer to a request of the gate: a *result* or an *error*."""

    jsonrpc: Literal["2.0"]
    id: int | str | None
    result: dict[str, Any] | None = None
    error: _Error | None = None


class Heading(msgspec.Struct):
    """The members of a message that say what it is. Values that nobody asks for are skipped without being built."""

    id: Any = msgspec.UNSET
    method: Any = msgspec.UNSET
    params: msgspec.Raw = msgspec.Raw()

    @property
    def begins(self) -> bool:
        """True for a request. A notification or the answer to a question begins nothing."""
        return self.method is not msgspec.UNSET and self.id is not msgspec.UNSET


class _Params(msgspec.Struct):
    state: Any = msgspec.field(default=None, name="requestState")


_reply = msgspec.json.Decoder(ReplyMessage).decode
_heading = msgspec.json.Decoder(Heading).decode
_params = msgspec.json.Decoder(_Params).decode


def heading_of(body: bytes) -> Heading | None:
    """Returns None for what is no JSON object."""
    try:
        return _heading(body)
    except (ValueError, RecursionError):
        return None


def reply_in(body: bytes) -> ReplyMessage | None:
    """Returns the answer in *body*; None for any other message, and for one that the SDK would refuse."""
    try:
        reply = _reply(body)
    except (ValueError, RecursionError):
        return None
    whole = (reply.result is None) is not (reply.error is None) and (reply.id is not None or reply.result is None)
    return reply if whole else None


def request_in(body: bytes) -> tuple[bool, int | str | None]:
    """Returns whether *body* begins something new, and its id if there is one to read. What cannot be read counts as a
    request."""
    heading = heading_of(body)
    return (True, None) if heading is None else (heading.begins, usable_id(heading.id))


def is_second_attempt(body: bytes) -> bool:
    """Returns true for a request with the state of a call that was begun before, and asked its client."""
    heading = heading_of(body)
    try:
        return heading is not None and isinstance(_params(heading.params).state, str)
    except (ValueError, RecursionError):
        return False


def usable_id(given: object) -> int | str | None:
    """Returns *given* if it can be the id of a request."""
    return given if isinstance(given, int | str) and not isinstance(given, bool) else None
