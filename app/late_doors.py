"""The MCP doors, whose modules are imported with the first request for them (OPS-370 to OPS-373).

The SDK's server and its types are a third of what there is to import, and a fifth of the memory of a service at rest;
only requests at ``/mcp`` need them. A thread imports them beside the loop. What comes in that time waits for them. A
process that others may ask about sessions and tasks opens its doors when it listens, before anybody has come.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Receive, Scope, Send

from app.mcp_refusals import unavailable
from wicketgate.access.shares import SCOPES, ShareCounts
from wicketgate.access.shares import Scope as FullScope
from wicketgate.daemon_threads import DaemonThreads
from wicketgate.errors import ConfigError
from wicketgate.gateway.options import HeapKeeper
from wicketgate.task_end import end_tasks

if TYPE_CHECKING:
    from app.mcp_door import McpDoors

log = logging.getLogger("wicketgate.service")

WAITS_S = 30.0
_NOT_YET = "The service is starting, and cannot serve MCP yet; nothing was run. Try again"
_NEVER = "The service cannot serve MCP until its operator has installed it again; nothing was run"
_NEEDED = ("mcp", "mcp_types")


def import_doors() -> None:
    """Imports what the doors need: about a third of a second of a core."""
    from app import mcp_door  # noqa: F401


class LateDoors:
    """*endpoints* by the names of *faces*. *make* is called on the loop when *load* has returned, in a thread.

    *load* begins with the first request; *at_start*: with ``begin``, inside ``running``. A request waits for it for
    *waits_s* seconds at most. *heap* keeps the garbage collector from what was imported. *max_sessions*: of a face.
    Raises ConfigError if the SDK is not installed.
    """

    def __init__(
        self,
        faces: Iterable[str],
        make: "Callable[[], McpDoors]",
        *,
        at_start: bool,
        max_sessions: int = 0,
        load: Callable[[], object] = import_doors,
        heap: HeapKeeper | None = None,
        waits_s: float = WAITS_S,
    ) -> None:
        missing = [name for name in _NEEDED if find_spec(name) is None]
        if missing:
            raise _cannot_open(f"no module named {missing[0]!r}")
        self._make = make
        self._at_start = at_start
        self._load = load
        self._heap = heap
        self._waits_s = waits_s
        self._wanted = asyncio.Event()
        self._opened = asyncio.Event()
        self._answerable = asyncio.Event()
        self._ended = asyncio.Event()
        self._doors: McpDoors | None = None
        self._failure: ConfigError | None = None
        self._listening_ended = False
        self.endpoints: Mapping[str, ASGIApp] = {face: _Endpoint(self, face) for face in faces}
        self._no_sessions: Sequence[ShareCounts] = [
            _NoSessions(f"sessions_{face}", max_sessions) for face in self.endpoints
        ]

    def begin(self) -> None:
        """Notes that the service listens."""
        if self._at_start:
            self._wanted.set()

    @property
    def ready(self) -> bool:
        """True when requests are served, the first of them when the modules are there."""
        return self._failure is None and (self._doors is not None or not self._at_start)

    async def wait_ready(self) -> None:
        """Raises ConfigError if the modules cannot be imported at the start."""
        if self._at_start:
            await self._opened.wait()
            if self._failure is not None:
                raise self._failure

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        # One task opens and closes the doors, as their cancel scopes demand.
        task = asyncio.create_task(self._run(), name="MCP doors")
        try:
            yield
        finally:
            if self._doors is None:
                await end_tasks(task)
            self._ended.set()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        await self._wanted.wait()
        thread = DaemonThreads(1, "imports of the MCP doors")
        try:
            with nullcontext() if self._heap is None else self._heap.refreshing():
                await thread.run(self._load)
            doors = self._make()
        except Exception as error:
            log.exception("the MCP doors cannot be opened")
            self._failure = _cannot_open(str(error))
            self._settle()
            return
        finally:
            thread.close()
        if self._heap is not None:
            self._heap.settle()
        async with doors.running():
            if self._listening_ended:
                doors.end_listening()
            self._doors = doors
            self._settle()
            await self._ended.wait()

    def _settle(self) -> None:
        self._opened.set()
        self._answerable.set()

    async def find(self, face: str) -> "ASGIApp | None":
        """Returns the endpoint of *face* when it is there; None if that takes too long, or the service stops. Raises
        ConfigError if it cannot be."""
        if self._doors is None:
            if not self._listening_ended:
                self._wanted.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._waits_s):
                    await self._answerable.wait()
        if self._failure is not None:
            raise self._failure
        return None if self._doors is None else self._doors.endpoints[face]

    # What the doors are told, and asked, as long as there are none too.

    def end_listening(self) -> None:
        self._listening_ended = True
        self._answerable.set()  # what waits is not worth the wait: the service stops
        if self._doors is not None:
            self._doors.end_listening()

    def ask_no_more(self) -> None:
        if self._doors is not None:
            self._doors.ask_no_more()

    async def answered(self) -> None:
        if self._doors is not None:
            await self._doors.answered()

    def end_of(self, key_id: str) -> Mapping[str, int]:
        return {"sessions": 0} if self._doors is None else self._doors.end_of(key_id)

    def session_counts(self) -> Sequence[ShareCounts]:
        return self._no_sessions if self._doors is None else self._doors.session_counts()

    def catalog_changed(self) -> None:
        if self._doors is not None:
            self._doors.catalog_changed()

    def access_changed(self) -> None:
        if self._doors is not None:
            self._doors.access_changed()


def _cannot_open(reason: str) -> ConfigError:
    return ConfigError(f"The MCP doors cannot be opened ({reason}). Install the program again")


class _Endpoint:
    """ASGI. An object, because the framework takes a function for one of its own kind."""

    def __init__(self, doors: LateDoors, face: str) -> None:
        self._doors = doors
        self._face = face
        self._endpoint: ASGIApp | None = None

    # Returns the awaitable and awaits nothing itself: one frame less for each step of a request.
    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return (self._endpoint or self._when_there)(scope, receive, send)

    async def _when_there(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._endpoint = await self._doors.find(self._face)
        except ConfigError:
            await unavailable(_NEVER)(scope, receive, send)
            return
        endpoint = self._endpoint or unavailable(_NOT_YET, later=True)
        await endpoint(scope, receive, send)


@dataclass(frozen=True, slots=True)
class _NoSessions:
    """Implements ShareCounts for a face whose door is not open yet."""

    kind: str
    most: int
    held: int = 0
    refused: Mapping[FullScope, int] = field(default_factory=lambda: dict.fromkeys(SCOPES, 0))
