"""The state of a run between two turns of its model, kept so that another process can go on with it (CHAT-123).

It is written in parts: the first says who runs what, each further one what a complete turn has added. No credential is
among them: an identity is kept by its key's id and its permissions, and judged again by the process that goes on.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from itertools import takewhile
from typing import Any, Literal, cast

from wicketgate.access.identity import Identity
from wicketgate.engine.contract import ChatRequest, OnDisconnect, message_json
from wicketgate.engine.events import is_end
from wicketgate.gateway.options import TokenCost
from wicketgate.models.provider import Kept, Message, Usage
from wicketgate.ports import CallContext

_VERSION = 1


@dataclass(frozen=True, slots=True)
class RunState:
    """A run before its model is asked again. *call_ids* are those that its stream has used, *turns* counts those that
    called tools, *standing* are the ids of approvals that wait for their calls. *waiting*: a call of the last round
    waits for its owner, *connecting*: for a login of its caller, so that the run ends."""

    messages: Sequence[Message]
    call_ids: Collection[str]
    usage: Usage = field(default_factory=Usage)
    cost: TokenCost = field(default_factory=TokenCost)
    turns: int = 0
    standing: Sequence[str] = ()
    waiting: bool = False
    connecting: bool = False


Fate = Literal["over", "goes_on", "lost"]


def fate(
    last: int, last_event: bytes | None, kept_until: int | None, unfinished: Sequence[str], shown: int = 0
) -> Fate:
    """The fate of a run whose process is gone. *last* is its last position in the journal, *kept_until* that of its
    last part, *unfinished* the calls that were claimed and have no result, *shown* a position that a reader has seen.

    ``over``: it had ended. ``goes_on``: nothing of the interrupted turn was shown, and no call is under way: it waited
    for the first word of its model. Otherwise ``lost``: what was shown cannot be taken back, and what a call did cannot
    be known.
    """
    if last_event is not None and is_end(last_event):
        return "over"
    if kept_until is None or kept_until != last or unfinished or shown > last:
        return "lost"
    return "goes_on"


@dataclass(frozen=True, slots=True)
class Saved:
    """A run as its parts have it: go on with *start* in *context*. *recorder* writes its further parts."""

    context: CallContext
    on_disconnect: OnDisconnect
    start: "ChatRequest | RunState"
    recorder: "Recorder"


class Recorder:
    """Writes the parts of one run. Together they have *most_bytes* at most: then, and where a state cannot be written,
    there is no further part, and the run cannot be gone on with."""

    def __init__(self, most_bytes: int) -> None:
        self._left_bytes = most_bytes
        self._written: list[Message] = []
        self.resumes = True
        """False while the run has decisions to act on, of which nothing is kept yet: it would not be begun again."""

    def first(self, request: ChatRequest, context: CallContext, on_disconnect: OnDisconnect) -> bytes:
        """The part with which a run begins; empty if it cannot be written."""
        identity, metadata = context.identity, request.metadata
        self.resumes = not metadata.approvals
        messages = [message_json(message) for message in request.messages]
        return self._part(
            {
                "version": _VERSION,
                "actor": identity.actor,
                "permissions": identity.permissions,
                "key_id": identity.key_id,
                "token": identity.row()[3:],
                "correlation_id": context.correlation_id,
                "session": context.session,
                "named": context.named,
                "source": context.source,
                "meta": dict(context.meta),
                "on_disconnect": on_disconnect,
                "decides": bool(metadata.approvals),
            },
            messages,
        )

    def next(self, state: RunState) -> bytes:
        """The part of a state; empty if it cannot be written."""
        self.resumes = True
        return self._part(
            {
                "usage": astuple(state.usage),
                "cost": astuple(state.cost),
                "turns": state.turns,
                "call_ids": sorted(state.call_ids),
                "standing": state.standing,
                "waiting": state.waiting,
                "connecting": state.connecting,
            },
            state.messages,
        )

    def _part(self, fields: Mapping[str, Any], messages: Sequence[Message]) -> bytes:
        if self._left_bytes < 0:
            return b""
        # The history grows at its end, except where decisions and results of its own calls come in.
        pairs = zip(self._written, messages, strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        try:
            added = [_written(message) for message in messages[same:]]
            part = json.dumps({**fields, "from": same, "messages": added}, separators=(",", ":")).encode()
        except (TypeError, ValueError, RecursionError):
            part = b""
        self._left_bytes = self._left_bytes - len(part) if part else -1
        if self._left_bytes < 0:
            return b""
        self._written = list(messages)
        return part

    @classmethod
    def after(cls, parts: Sequence[bytes], messages: Sequence[Message], most_bytes: int) -> "Recorder":
        """A recorder that goes on behind *parts*, which hold *messages*."""
        recorder = cls(most_bytes - sum(map(len, parts)))
        recorder._written = list(messages)
        return recorder


def read_parts(parts: Sequence[bytes], most_bytes: int) -> Saved:
    """The run of these parts. Raises ValueError if they are not whole, or are those of a run that is not begun again:
    it had decisions to act on, and what came of them is not known."""
    try:
        return _read(parts, most_bytes)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("not the parts of a run") from error


def _read(parts: Sequence[bytes], most_bytes: int) -> Saved:
    first, *others = [json.loads(part) for part in parts]
    if first["version"] != _VERSION:
        raise ValueError("parts of another version")
    # Parts that were written before there were tokens have none.
    identity = Identity.of_row([first["actor"], first["permissions"], first["key_id"], *first.get("token", ())])
    context = CallContext(
        identity,
        first["correlation_id"],
        first["session"],
        source=first["source"],
        door="chat",
        meta=dict(first["meta"]),
        named=first["named"],
        said=[message["content"] for message in first["messages"] if message["role"] == "user"],
    )
    messages: list[Message] = []
    for part in (first, *others):
        if part["from"] > len(messages):
            raise ValueError("a part is missing")
        messages[part["from"] :] = map(_message, part["messages"])
    start: ChatRequest | RunState
    if others:
        latest = others[-1]
        start = RunState(
            messages,
            frozenset(latest["call_ids"]),
            Usage(*latest["usage"]),
            TokenCost(*latest["cost"]),
            latest["turns"],
            tuple(latest["standing"]),
            latest["waiting"],
            latest.get("connecting", False),
        )
    elif first["decides"]:
        raise ValueError("a run that had decisions to act on is not begun again")
    else:
        start = ChatRequest.model_validate(
            {"messages": messages, "metadata": {"correlation_id": context.correlation_id}}
        )
    recorder = Recorder.after(parts, messages, most_bytes)
    return Saved(context, cast(OnDisconnect, first["on_disconnect"]), start, recorder)


def _written(message: Message) -> Mapping[str, Any]:
    kept = message.get("kept")
    return {**message, "kept": [kept.origin, kept.data, kept.text]} if isinstance(kept, Kept) else message


def _message(written: Mapping[str, Any]) -> Message:
    return {**written, "kept": Kept(*written["kept"])} if "kept" in written else written
