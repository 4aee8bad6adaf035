"""Messages of a client within a session that belong to one process: the one where the call runs that they are about
(FACE-118)."""

import secrets
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

RequestId = int | str

_COUNTED = 20


class QuestionIds:
    """Ids of questions that no other process uses in the same session, because an answer may come to any of them:
    integers that every client can read."""

    def __init__(self) -> None:
        self._last = secrets.randbits(52 - _COUNTED) << _COUNTED

    def next(self) -> int:
        self._last += 1
        return self._last


@dataclass(frozen=True, slots=True)
class Addressed:
    """``answer``: to question *id*. ``progress``: of question *id*. ``cancel``: of the client's request *id*."""

    kind: Literal["answer", "progress", "cancel"]
    id: RequestId


class _Message(msgspec.Struct):
    """Values that nobody asks for are skipped without being built."""

    id: Any = msgspec.UNSET
    method: Any = msgspec.UNSET
    params: msgspec.Raw = msgspec.Raw()


class _Cancelled(msgspec.Struct):
    request: Any = msgspec.field(default=None, name="requestId")


class _Progress(msgspec.Struct):
    token: Any = msgspec.field(default=None, name="progressToken")


_message = msgspec.json.Decoder(_Message).decode
_cancelled = msgspec.json.Decoder(_Cancelled).decode
_progress = msgspec.json.Decoder(_Progress).decode


def addressed(body: bytes) -> Addressed | None:
    """Returns what a message is about; None for a request, any other notification, and what is no message."""
    try:
        message = _message(body)
        if message.method is msgspec.UNSET:
            return _about("answer", message.id)
        if message.id is not msgspec.UNSET:
            return None
        if message.method == "notifications/cancelled":
            return _about("cancel", _cancelled(message.params).request)
        if message.method == "notifications/progress":
            return _about("progress", _progress(message.params).token)
    except (msgspec.DecodeError, RecursionError):
        return None
    return None


def same(id: object) -> object:
    """Returns *id* as the SDK compares it: an integer in a string is that integer."""
    if isinstance(id, str):
        try:
            return int(id)
        except ValueError:
            return id
    return id


def _about(kind: Literal["answer", "progress", "cancel"], id: object) -> Addressed | None:
    return Addressed(kind, id) if isinstance(id, int | str) and not isinstance(id, bool) else None
