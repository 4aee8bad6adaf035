"""McpServerUpstream: one configured MCP server, kept connected by one supervisor (UP-1, UP-3).

Each call runs in its caller's task and has its own deadline, so that calls do not affect each other. A process that
does not answer in time is reported as down but keeps running: a restart would not make it faster (UP-65).

A server with ``idle_s`` sleeps while nobody needs it (UP-294 to UP-297): its session is closed, its tools stay listed,
and the next request waits for a new session.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from wicketgate.errors import (
    ConnectRequired,
    LoginNeeded,
    ScopesNeeded,
    UpstreamError,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from wicketgate.fleet.member import loop_time
from wicketgate.fleet.server_log import ServerEventKind
from wicketgate.fleet.turns import Turns
from wicketgate.mcp_names import METHOD_NOT_FOUND
from wicketgate.net.outgoing import told, trouble_of
from wicketgate.ports import CallContext, UpstreamStatus
from wicketgate.tracing import tool_error, traced
from wicketgate.upstreams.mcp.asking import asked_as_it_runs, offered
from wicketgate.upstreams.mcp.call import (
    NOT_REACHED,
    Gone,
    Malformed,
    Refused,
    Status,
    clean,
    reported,
)
from wicketgate.upstreams.mcp.client import Connect, Connection, McpClient
from wicketgate.upstreams.mcp.eras import Agreement, Mode
from wicketgate.upstreams.mcp.exchange import ACKNOWLEDGED, LIST_CHANGED
from wicketgate.upstreams.mcp.features import McpFeatures
from wicketgate.upstreams.mcp.open_sessions import Ending, HandshakeSession
from wicketgate.upstreams.mcp.silence import PING_S
from wicketgate.upstreams.mcp.task_follower import FollowedTask, TaskBounds
from wicketgate.upstreams.mcp.tasks import EXTENSION, LeftTask, Task, is_task, left_task, task_of

log = logging.getLogger("wicketgate.upstream")

_FIRST_DELAY_S = 0.2
_MAX_DELAY_S = 10.0
_LASTED_S = 30.0
NOTICE_S = 5.0
"""Seconds after which the log says what is waited for."""
PATIENCE = 10
"""A running process may take this many times the connect timeout."""


@dataclass(eq=False, repr=False)
class McpServerUpstream:
    """Implements Upstream, HasPing, HasSpellings and HasFeatures. Works only while ``supervise`` runs.

    *jitter* returns 0 to 1 and spreads reconnections. *turns* limits how many upstreams connect concurrently.
    *forward*: client capabilities other than elicitation that the server may use. *instructions*: show the server's
    instructions to models. *tried* is the command, or the origin of the URL, for messages to the operator. *fetches* is
    the program that may have to download the server first. *note* is called when a session begins, ends or cannot be
    opened, with the reason. *idle_s*: the server sleeps after so long without a request; None is never.
    """

    name: str
    _connect: Connect
    connect_timeout_s: float
    jitter: Callable[[], float]
    turns: Turns = field(default_factory=Turns)
    mode: Mode = "auto"
    forward: Collection[str] = ()
    ping_s: float = PING_S
    instructions: bool = False
    tried: str = ""
    fetches: str = ""
    notice_s: float = NOTICE_S
    patience: float = PATIENCE
    tasks: TaskBounds = field(default_factory=TaskBounds)
    note: Callable[[ServerEventKind, str], None] = lambda kind, why: None
    idle_s: float | None = None

    def __post_init__(self) -> None:
        self._asleep = False
        self._wake = asyncio.Event()
        self._awake = asyncio.Event()
        self._uses = 0
        self._used_at = 0.0
        self._listed: Sequence[Mapping[str, Any]] | None = None
        self._other_now = frozenset[object]()
        self._mode_now = self.mode
        self._noticed = False
        self._has_answered = False
        self._client: McpClient | None = None
        self._handshake: HandshakeSession | None = None
        self.status = UpstreamStatus("connecting")
        self.spellings: tuple[str, ...] = ()
        self.features = McpFeatures(self.name, self._ask, self.connect_timeout_s, instructions=self.instructions)

    @property
    def left_out(self) -> Sequence[str]:
        return self._client.left_out if self._client is not None else ()

    async def supervise(self, changed: Callable[[str], None]) -> None:
        """Connects again after each session. The pause doubles, up to ten seconds, while sessions neither answer a call
        nor last."""
        delay = Delay(self.jitter)
        while True:
            began, self._has_answered = loop_time(), False
            connected = await self._serve_one_session(changed)
            if self._asleep:
                await self._wake.wait()
                continue
            await delay.wait(lasted_s=loop_time() - began if connected else 0, served=self._has_answered)

    async def list_tools(self) -> Sequence[Mapping[str, Any]]:
        if self._asleep:
            return self._listed or ()
        self._listed = await self._tools_of(self._connected())
        self._other_now = frozenset()
        return self._listed

    async def _tools_of(self, client: McpClient) -> Sequence[Mapping[str, Any]]:
        try:
            async with asyncio.timeout(self.connect_timeout_s):
                return await client.list_tools()
        except TimeoutError:
            raise UpstreamTimeout(f"{self.name} did not answer within {self.connect_timeout_s:g} s.") from None
        except UpstreamRefused as refused:
            # A server of skills, resources or prompts alone.
            if refused.upstream_code == METHOD_NOT_FOUND and client.agreement.capabilities.tools is None:
                return []
            raise

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], context: CallContext, timeout_s: float
    ) -> Mapping[str, Any]:
        with self._in_use():
            return await self._call(name, arguments, offered(context, self.forward))

    async def _call(self, name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        """*context* is an offered one, because requests about a task use it too."""
        if (left := left_task(context.answers)) is not None:
            return await self._followed(left, context, None)
        client = await self._client_for(context)
        if name in self._other_now:
            raise UpstreamError(
                f"{self.name} defines this tool differently since it woke; nothing was run. Look again."
            )
        ask = partial(client.ask, "tools/call", {"name": name, "arguments": arguments})
        noted = {"mcp.method.name": "tools/call", "gen_ai.tool.name": name}
        result = await traced(f"tools/call {name}", "CLIENT", noted, context, ask, tool_error)
        self._has_answered = True
        if not is_task(result):
            return result
        try:
            task = task_of(result)
        except Malformed as error:
            raise reported(self.name, error) from error
        return await self._followed(LeftTask(task.id), context, task)

    async def _followed(self, left: LeftTask, context: CallContext, task: Task | None) -> Mapping[str, Any]:
        return await FollowedTask(self.name, self._ask_of_task, self.tasks, left, context).result(task)

    async def ping(self, timeout_s: float) -> None:
        if self._asleep:
            return
        try:
            with suppress(Refused, Malformed):  # an answer of any kind
                await self._connected().ping()
        except Gone as gone:
            raise UpstreamUnavailable(f"{self.name} cannot be reached ({gone.how}).") from None

    async def _ask(self, method: str, params: Mapping[str, Any], context: CallContext | None) -> Mapping[str, Any]:
        with self._in_use():
            if context is None:
                await self._woken()
                return await self._connected().ask(method, params, None)
            context = offered(context, self.forward)
            ask = partial((await self._client_for(context)).ask, method, params)
            return await traced(method, "CLIENT", {"mcp.method.name": method}, context, ask)

    async def _ask_of_task(self, method: str, params: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
        return await self._connected().ask_of_task(method, params, context)

    async def _client_for(self, context: CallContext) -> McpClient:
        """Returns the client of the session for *context*, an offered one. Raises UpstreamUnavailable."""
        await self._woken()
        if self._handshake is not None and asked_as_it_runs(context.caller):
            client = await self._handshake.client()
            if client is not None:
                return client
        return self._connected()

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        self._uses += 1
        try:
            yield
        finally:
            self._uses -= 1
            self._used_at = loop_time()

    async def _woken(self) -> None:
        """Returns when the server is awake, or could not be started."""
        if self._asleep:
            self._wake.set()
            await self._awake.wait()

    async def _fall_asleep(self, client: McpClient, ending: Ending) -> None:
        """Ends the session when nobody has needed it for *idle_s*: no request, no subscription, no task of its own."""
        capabilities = client.agreement.capabilities
        if self.idle_s is None or EXTENSION in (capabilities.extensions or {}):
            return
        self._used_at = loop_time()
        while True:
            needed = self._uses or self.features.follows or self._listed is None
            left_s = self.idle_s if needed else self._used_at + self.idle_s - loop_time()
            if left_s <= 0:
                break
            await asyncio.sleep(left_s)
        # In one step, so that no request takes the session that ends.
        self._asleep, self._client, self._handshake = True, None, None
        self._wake.clear()
        self._awake.clear()
        self.status = UpstreamStatus("ready", "", self.status.connections, self.status.last_error, asleep=True)
        self.note("asleep", "")
        log.info("%s: asleep, nobody needed it for %g s", self.name, self.idle_s)
        ending.lost("asleep")

    async def _compare(self, client: McpClient) -> None:
        """Finds the tools whose definitions are others now than those that callers know (UP-296): all of them, if it
        does not list them."""
        known = self._listed or ()
        now: dict[object, Mapping[str, Any]] = {}
        with suppress(UpstreamError):
            now = {tool.get("name"): tool for tool in await self._tools_of(client)}
        self._other_now = frozenset(tool.get("name") for tool in known if now.get(tool.get("name")) != tool)

    def _connected(self) -> McpClient:
        if self._client is None:
            raise UpstreamUnavailable(f"{self.name} is not connected ({self.status.error or 'connecting'}).")
        return self._client

    async def _serve_one_session(self, changed: Callable[[str], None]) -> bool:
        """Connects and waits until the session is lost. Returns False if it could not be opened."""
        ending = Ending()
        connected = False
        opened: Connection | None = None
        loop, timeout_s = asyncio.get_running_loop(), self.connect_timeout_s
        turn = await self.turns.take()

        def late() -> None:
            if ending.how:
                return  # its connection is already being closed
            if opened is None or not opened.is_process:
                attempt.reschedule(loop.time())
                return
            longest_s = timeout_s * self.patience
            mend = f"its process still runs and is waited for, up to {longest_s:g} s; raise connect_timeout_s"
            self._gone(f"no answer within {timeout_s:g} s", f"{mend} if it always takes so long")
            attempt.reschedule(began + longest_s)

        def notice() -> None:
            self._notice(starts=opened is not None and opened.is_process)

        began = loop.time()
        timers = [loop.call_later(timeout_s, late), loop.call_later(self.notice_s, notice)]
        try:
            async with asyncio.timeout(None) as attempt, self._connect(ending.lost) as opened:
                client = await McpClient.open(self.name, opened, self._mode_now, ending.lost, self.forward, self.ping_s)
                # The deadline is for connecting only.
                attempt.reschedule(None)
                for timer in timers:
                    timer.cancel()
                turn.end()
                connected = True
                await self._serve(client, opened, ending, changed)
        except TimeoutError:
            if not attempt.expired():
                self._gone(NOT_REACHED)
            elif opened is not None and opened.is_process:
                self._gone(f"no answer within {timeout_s * self.patience:g} s", "it is ended and started again")
            else:
                self._gone(f"no answer within {timeout_s:g} s", "raise connect_timeout_s if it is only slow")
        except Exception as error:
            why, mend = _why(error)
            if isinstance(error, Refused) and self.status.error != why:
                log.warning(
                    "%s: it answered the handshake with error %d: %s", self.name, error.code, clean(error.message)
                )
            if not why:
                log.error("%s: connection failed unexpectedly", self.name, exc_info=error)
            elif ending.how:
                why = ending.how if connected else f"{ending.how} before it was ready"
            # A server that ends at the request of the newer era is not down yet: the handshake is tried next.
            if not (
                ending.how
                and not connected
                and self.status.phase == "connecting"
                and self._next_mode(opened) == "handshake"
            ):
                self._gone(why or ("it failed" if connected else "it does not speak MCP"), mend)
        finally:
            for timer in timers:
                timer.cancel()
            turn.end()
            self._client = self._handshake = None
        # A sleeper is woken in the era that it knew.
        if not (connected and self._asleep):
            self._mode_now = self.mode if connected else self._next_mode(opened)
        return connected

    def _next_mode(self, opened: Connection | None) -> Mode:
        """Returns the mode after a failed attempt. Some handshake-era servers end, or do not answer, when the first
        request is of the newer era."""
        return "handshake" if opened is not None and opened.is_process and self._mode_now == "auto" else self.mode

    async def _serve(
        self, client: McpClient, connection: Connection, ending: Ending, changed: Callable[[str], None]
    ) -> None:
        """Answers calls and follows the server's changes until the session is lost."""

        def heard(method: str, params: object) -> None:
            if LIST_CHANGED.get(method) == "tools":
                changed(self.name)
            else:
                self.features.heard(method, params)

        # Calls may begin now; the tools are read for the first time.
        connection.exchange.announced = heard
        if self._asleep:
            await self._compare(client)
        self.features.begin(client.agreement, lambda: changed(self.name), self._wake.set)
        self._ready(client)
        self._handshake = handshake = self._beside(client.agreement, connection)
        changed(self.name)
        # Background work until the session is lost.
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self.features.serve(client)),
                    group.create_task(client.give_up()),
                    group.create_task(self._fall_asleep(client, ending)),
                ]
                tools = client.agreement.capabilities.tools
                if client.agreement.modern and tools is not None and tools.list_changed:
                    tasks.append(group.create_task(self._listen(client, changed)))
                await ending.event.wait()
                # Before anything is awaited, so that no new call uses the lost session.
                if not self._asleep:
                    self._gone(ending.how)
                for task in tasks:
                    task.cancel()
        finally:
            if handshake is not None:
                await handshake.close()

    def _beside(self, agreement: Agreement, connection: Connection) -> HandshakeSession | None:
        """Returns the second session, if the server may have one (UP-280, UP-283)."""
        if self.mode != "auto" or not agreement.modern or connection.beside is None:
            return None
        if EXTENSION in (agreement.capabilities.extensions or {}):
            return None  # the handshake era has no such tasks, so long calls would end at their deadline
        return HandshakeSession(self.name, connection.beside, self.ping_s, self.forward)

    async def _listen(self, client: McpClient, changed: Callable[[str], None]) -> None:
        """Keeps the newer era's stream of tool changes open. Reads the tools when it opens, for changes before that."""

        def heard(method: str, params: object) -> None:
            if method == ACKNOWLEDGED or LIST_CHANGED.get(method) == "tools":
                changed(self.name)

        delay = Delay(self.jitter)
        while True:
            began = loop_time()
            with suppress(Refused, Malformed, Gone):  # if the server is gone, the next attempt finds out
                await client.listen(["tools"], (), heard)
            await delay.wait(lasted_s=loop_time() - began)

    def _ready(self, client: McpClient) -> None:
        before = self.status
        self._client = client
        self._stir()
        self.spellings = client.agreement.spellings
        self.status = UpstreamStatus("ready", "", before.connections + 1, before.report)
        self._noticed = False
        self.note("ready", "")
        log.info("%s: connected, protocol %s", self.name, client.agreement.version)

    def _stir(self) -> None:
        self._asleep = False
        self._awake.set()

    def _notice(self, *, starts: bool) -> None:
        """Logs what the connection is waiting for, once until it is ready."""
        if self._noticed or self.notice_s >= self.connect_timeout_s:
            return
        self._noticed = True
        waits = f"after {self.notice_s:g} s"
        if starts:
            waits += f" ({self.fetches} fetches the server at the first run)" if self.fetches else ""
        log.info(
            "%s: still %s %s; waits until connect_timeout_s = %g",
            self.name,
            "starting" if starts else "connecting",
            waits,
            self.connect_timeout_s,
        )

    def _gone(self, reason: str, mend: str = "") -> None:
        """Reports the server as down. *reason* is a fixed phrase; *mend* is for the operator only, and may name
        settings, paths and hosts."""
        self._client = self._handshake = self.features.support = None
        self._stir()
        before = self.status
        detail = told(reason, self.tried, mend) if mend else ""
        if (before.phase, before.error) != ("down", reason):
            log.warning("%s: %s", self.name, detail or reason)
        self.note("down", detail or reason)
        self.status = UpstreamStatus("down", reason, before.connections, detail or reason, detail)


class Delay:
    """The pause before the next attempt; doubles while sessions neither answer a call nor last."""

    def __init__(self, jitter: Callable[[], float]) -> None:
        self._jitter = jitter
        self._next_s = _FIRST_DELAY_S

    async def wait(self, *, lasted_s: float, served: bool = False) -> None:
        await asyncio.sleep(self.next_s(lasted_s=lasted_s, served=served))

    def next_s(self, *, lasted_s: float, served: bool) -> float:
        if served or lasted_s > _LASTED_S:
            self._next_s = _FIRST_DELAY_S
        pause_s, self._next_s = self._next_s, min(self._next_s * 2, _MAX_DELAY_S)
        return pause_s * (0.5 + self._jitter() / 2)


def _why(error: Exception) -> tuple[str, str]:
    """Returns a fixed phrase for an expected connection failure, and the mend for the operator; both empty for any
    other failure. The text of an exception may contain paths and addresses."""
    match error:
        case LoginNeeded(mend=mend):
            return "it needs a login by its operator", mend
        case ScopesNeeded(message=message):
            return message, ""
        case UpstreamUnavailable(message=message):
            return message, "a line of the log with 'no token' says why; look at oauth"
        case ConnectRequired():
            return "its user has to log in again", ""
        case Gone(how=how, mend=mend):
            return how, mend
        case Malformed(mend=mend):
            return f"it {error}", mend
        case Refused(status=Status(status=401 | 403, mend=mend) as status):
            return f"it {status}", mend
        case Refused(status=status):
            return f"it refused the MCP handshake{'' if status is None else f' (HTTP status {status.status})'}", ""
        case OSError():
            trouble = trouble_of(error)
            return trouble.why, trouble.mend_for("url")
        case _:
            return "", ""
