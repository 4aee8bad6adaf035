"""Tool calls in the spellings of the servers: fragments joined, arguments parsed, ids mapped (CHAT-49).

Servers disagree on ``index`` and ``id``: Ollama gives every call index 0, vLLM empties the id of a continuation, sglang
repeats it, Gemini leaves the index out, Mistral sends the string "null". The rules here read all of them.
"""

import re
from base64 import b32encode
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import msgspec

from wicketgate.models.provider import ToolCall
from wicketgate.models.turn_reading import encodable

_NO_ID = ("", "null")

_MAX_UNREADABLE_CHARS = 4_000
# As JSON, as <function=name ...>, or plainly before its arguments.
_NAME = re.compile(r'"name"\s*:\s*"([\w-]{1,64})"|<function=([\w-]{1,64})|^\s*([\w-]{1,64})\s*[{(]')


def accepted_id(call_id: str, accepted: re.Pattern[str]) -> str:
    """*call_id* if it matches *accepted*; otherwise nine letters and digits made from it, always the same."""
    if accepted.fullmatch(call_id):
        return call_id
    return b32encode(blake2b(call_id.encode("utf-8", "surrogatepass"), digest_size=8).digest()).decode()[:9]


def parse_arguments(raw: str, *, cut: bool) -> dict[str, Any] | None:
    """The arguments in *raw*; None if it is not one JSON object. Empty text is ``{}``, unless the turn was *cut*."""
    return _parse_object(raw) if raw.strip() else None if cut else {}


def unreadable_call(error: object) -> ToolCall:
    """The call that stands for one that the server itself could not read (Groq). Its result will explain that."""
    while isinstance(error, dict) and isinstance(error.get("error"), dict):
        error = error["error"]
    written = error.get("failed_generation") if isinstance(error, dict) else None
    raw = encodable(written[:_MAX_UNREADABLE_CHARS]) if isinstance(written, str) else ""
    name = _NAME.search(raw)
    return ToolCall("call_0", name[name.lastindex or 0] if name else "unreadable_call", None, raw)


@dataclass(slots=True)
class _OpenCall:
    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    extra: Any = None

    def is_whole(self) -> bool:
        # The look at the last piece keeps this from parsing at every fragment.
        if not self.pieces or not self.pieces[-1].rstrip().endswith("}"):
            return False
        return _parse_object("".join(self.pieces)) is not None


class CallAssembly:
    """Joins the fragments of one turn's calls."""

    def __init__(self) -> None:
        self._calls: list[_OpenCall] = []
        self._at_index: dict[int, _OpenCall] = {}

    def add(
        self, index: int | None, call_id: str | None, name: str | None, arguments: object, extra: object = None
    ) -> None:
        """Add one fragment. *arguments* is a piece of the JSON text, or the whole object from servers that send that.

        *extra* is data that the server wants back with this call.
        """
        call_id = "" if call_id is None or call_id in _NO_ID else call_id
        name = name or ""
        if isinstance(arguments, str) or arguments is None:
            piece = arguments or ""
        else:
            piece = msgspec.json.encode(arguments).decode()
        # Find the call that the fragment continues, or begin one.
        call = self._find(index, call_id)
        if call is None or _begins_call(call, call_id, name, piece):
            if not (call_id or name or piece):
                return
            call = _OpenCall()
            self._calls.append(call)
            if index is not None:
                self._at_index[index] = call
        # The first id and name count; pieces add up.
        call.id = call.id or call_id
        call.name = call.name or name
        call.extra = call.extra or extra
        if piece:
            call.pieces.append(piece)

    def extras(self) -> list[Any]:
        """The data to be sent back with each call, None for most; empty if there is none at all."""
        extras = [call.extra for call in self._calls]
        return extras if any(extras) else []

    def finished(self, *, cut: bool) -> list[ToolCall]:
        """All calls in the order in which they began. No arguments at all are ``{}``, unless the turn was *cut*."""
        found = []
        for position, call in enumerate(self._calls):
            raw = encodable("".join(call.pieces))
            found.append(ToolCall(call.id or f"call_{position}", call.name, parse_arguments(raw, cut=cut), raw))
        return found

    def __bool__(self) -> bool:
        return bool(self._calls)

    def _find(self, index: int | None, call_id: str) -> _OpenCall | None:
        if index is not None:
            return self._at_index.get(index)
        same_id = (call for call in self._calls if call_id and call.id == call_id)
        return next(same_id, self._calls[-1] if self._calls else None)


def _begins_call(call: _OpenCall, call_id: str, name: str, piece: str) -> bool:
    """True if the fragment begins a new call although *call* is the one it points to.

    Only a fragment with a name can: a call without one could not be run, and some servers send a new id every time.
    """
    if not name:
        return False
    # Two ids decide, then two names.
    if call_id and call.id:
        return call_id != call.id
    if call.name and name != call.name:
        return True
    # A name repeated without an id: a call whose arguments are already whole takes no more.
    return piece.lstrip().startswith("{") and call.is_whole()


def _parse_object(text: str) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
