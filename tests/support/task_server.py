"""A server of 2026-07-28 whose tool ``job`` always becomes a task, with a script of what the task says.

tasks = ScriptedTasks(WORKING, {**WORKING, "statusMessage": "half"}, done("text"))
async with task_server(tasks) as server:
    ... server.upstream ... server.seen("tasks/get") ... await tasks.came("tasks/cancel")

Each ``tasks/get`` gets the next state; the last one stays. A state may be a call of the parameters, and then also give
``{"error": ...}``.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from tests.support.scripted_server import Outcome, ScriptedServer, scripted_server
from wicketgate.upstreams.mcp.task_follower import TaskBounds

EXTENSION = "io.modelcontextprotocol/tasks"
ID = "task-1"
TASK: Mapping[str, Any] = {
    "taskId": ID,
    "createdAt": "2026-08-01T10:00:00Z",
    "lastUpdatedAt": "2026-08-01T10:00:00Z",
    "ttlMs": None,
    "pollIntervalMs": 1,
}
WORKING: Mapping[str, Any] = {**TASK, "status": "working"}
CANCELLED: Mapping[str, Any] = {**TASK, "status": "cancelled", "statusMessage": "out of paper"}
FORM: Mapping[str, Any] = {
    "message": "Who?",
    "mode": "form",
    "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
}

State = Mapping[str, Any] | Callable[[Mapping[str, Any]], Outcome]


def done(text: str = "done", **more: Any) -> dict[str, Any]:
    return {**TASK, "status": "completed", "result": {"content": [{"type": "text", "text": text}], **more}}


def failed(code: int, message: str, data: object = None) -> dict[str, Any]:
    return {**TASK, "status": "failed", "error": {"code": code, "message": message, "data": data}}


def asking(*keys: str, method: str = "elicitation/create", params: Mapping[str, Any] = FORM) -> dict[str, Any]:
    requests = {key: {"method": method, "params": dict(params)} for key in keys}
    return {**TASK, "status": "input_required", "inputRequests": requests}


class ScriptedTasks:
    """*created*: the members of the first answer besides its type. *update*: the answer to ``tasks/update``. Once
    answers came, the states of *after* follow, if there are any."""

    def __init__(
        self,
        *states: State,
        created: Mapping[str, Any] = WORKING,
        update: Outcome | None = None,
        after: tuple[State, ...] = (),
    ) -> None:
        self._states = list(states)
        self._after = list(after)
        self._created = created
        self._update = update or {"result": {"resultType": "complete"}}
        self._came: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.answers = {
            "tools/call": self._call,
            "tasks/get": self._get,
            "tasks/update": self._updated,
            "tasks/cancel": self._cancel,
        }

    async def came(self, method: str) -> None:
        """Wait until the server has got *method*."""
        async with asyncio.timeout(30):
            await self._came[method].wait()

    def now(self, *states: State) -> None:
        """From now on, these are what the task says."""
        self._states = list(states)

    def _call(self, params: Mapping[str, Any]) -> Outcome:
        self._came["tools/call"].set()
        return {"result": {**self._created, "resultType": "task"}}

    def _get(self, params: Mapping[str, Any]) -> Outcome:
        self._came["tasks/get"].set()
        state = self._states.pop(0) if len(self._states) > 1 else self._states[0]
        return state(params) if callable(state) else {"result": {"resultType": "complete", **state}}

    def _updated(self, params: Mapping[str, Any]) -> Outcome:
        self._came["tasks/update"].set()
        if self._after:
            self._states, self._after = self._after, []
        return self._update

    def _cancel(self, params: Mapping[str, Any]) -> Outcome:
        self._came["tasks/cancel"].set()
        return {"result": {"resultType": "complete"}}


@asynccontextmanager
async def task_server(
    tasks: ScriptedTasks, *, bounds: TaskBounds | None = None, name: str = "raw"
) -> AsyncIterator[ScriptedServer]:
    capabilities: Any = {"tools": {}, "extensions": {EXTENSION: {}}}
    async with scripted_server(tasks.answers, capabilities=capabilities, name=name, tasks=bounds) as server:
        yield server
