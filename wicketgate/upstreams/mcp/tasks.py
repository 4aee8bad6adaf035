"""Tasks of servers of 2026-07-28 (the extension ``io.modelcontextprotocol/tasks``), as they stand on the wire.

A server may answer ``tools/call`` with a task in place of the result, and is then asked for its state. A client that
gives its answers with a second attempt brings the name of the task back in its request state (UP-110).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from wicketgate.ports import InputAnswers
from wicketgate.upstreams.mcp.call import NOT_VALID, Malformed

EXTENSION = "io.modelcontextprotocol/tasks"
GET, UPDATE, CANCEL = "tasks/get", "tasks/update", "tasks/cancel"
DECLARING = frozenset({"tools/call", GET, UPDATE, CANCEL})
"""The methods whose requests declare the extension."""

Status = Literal["working", "input_required", "completed", "failed", "cancelled"]

_STATE = "wicketgate-task:"
_MAX_ID = 2_000
"""Characters of a task's id, which travels in a header too."""
_MAX_MESSAGE = 2_000
_MAX_ANSWERED = 256
"""Questions of one task that are answered in all."""
_SHORTEST_POLL_S = 0.05
_LONGEST_POLL_S = 60.0
_POLL_S = 1.0
"""Between two looks at a task whose server names no interval."""


@dataclass(frozen=True, slots=True)
class Task:
    """One state of a task. *poll_s* is within our bounds. *ttl_s* counts from its creation; None: without end.
    *requests* are the questions that are open, *result* that of a completed task, *error* that of a failed one."""

    id: str
    status: Status
    message: str = ""
    poll_s: float = _POLL_S
    ttl_s: float | None = None
    requests: Mapping[str, Any] = field(default_factory=dict)
    result: Any = None
    error: Any = None


def declared(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """*capabilities* of a caller with those of the gate for a call that it can follow as a task."""
    extensions = capabilities.get("extensions")
    own = extensions if extensions is not None and isinstance(extensions, Mapping) else {}
    return {**capabilities, "extensions": {**own, EXTENSION: {}}}


def is_task(result: Mapping[str, Any]) -> bool:
    return result.get("resultType") == "task"


def task_of(result: Mapping[str, Any]) -> Task:
    """The task in the answer to a call, or to ``tasks/get``. Times and intervals that make no sense are passed over.
    Raises Malformed."""
    match result:
        case {
            "taskId": str(task_id),
            "status": ("working" | "input_required" | "completed" | "failed" | "cancelled") as status,
        } if 0 < len(task_id) <= _MAX_ID and result.get("resultType") in (None, "complete", "task"):
            pass
        case _:
            raise Malformed(NOT_VALID)
    requests = result.get("inputRequests") or {}
    if not isinstance(requests, Mapping):
        raise Malformed(NOT_VALID)
    message = result.get("statusMessage")
    interval_s, ttl_s = _seconds(result.get("pollIntervalMs")), _seconds(result.get("ttlMs"))
    return Task(
        task_id,
        status,
        message[:_MAX_MESSAGE] if isinstance(message, str) else "",
        _POLL_S if interval_s is None else min(max(interval_s, _SHORTEST_POLL_S), _LONGEST_POLL_S),
        ttl_s,
        requests if status == "input_required" else {},
        result.get("result"),
        result.get("error"),
    )


def _seconds(milliseconds: object) -> float | None:
    """None for what is no positive number."""
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int | float) or not milliseconds > 0:
        return None
    return min(milliseconds, 1e15) / 1_000


@dataclass(frozen=True, slots=True)
class LeftTask:
    """A task that waits at its server while its caller fetches answers. *answered*: the keys of the questions that have
    their answer already."""

    id: str
    answered: frozenset[str] = frozenset()

    def with_answers(self, keys: Mapping[str, Any]) -> "LeftTask":
        """Raises Malformed where there is no end to the questions."""
        answered = self.answered | keys.keys()
        if len(answered) > _MAX_ANSWERED:
            raise Malformed("asked for input again and again")
        return LeftTask(self.id, answered)

    @property
    def state(self) -> str:
        """The request state by which a second attempt finds the task again."""
        return _STATE + json.dumps([self.id, *sorted(self.answered)])


def left_task(answers: InputAnswers | None) -> LeftTask | None:
    """The task that the second attempt with *answers* is about; None for any other attempt. A server that writes such
    a state itself is only asked for a task of its own."""
    state = None if answers is None else answers.request_state
    if state is None or not state.startswith(_STATE):
        return None
    try:
        match json.loads(state.removeprefix(_STATE)):
            case [str(task_id), *answered] if all(isinstance(key, str) for key in answered):
                return LeftTask(task_id, frozenset(answered))
    except ValueError:
        pass
    return None
