"""McpServerUpstream: one configured MCP server, kept connected by one supervisor (UP-1, UP-3).

Calls run in the tasks of their callers, and every call has a deadline of its own, so that no call can hurt another one.
A process that has not answered in time is reported as down and waited for all the same: ended and started again, it
would be no faster (UP-65).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from wicketgate.errors import ConnectRequired, LoginNeeded, ScopesNeeded, UpstreamUnavailable
from wicketgate.fleet.member import loop_time
from wicketgate.fleet.server_log import ServerEventKind
from wicketgate.fleet.turns import Turns
from wicketgate.mcp_names import METHOD_NOT_FOUND
from wicketgate.net.outgoing import told, trouble_of
from wicketgate.ports import CallContext, PingAnswer, UpstreamStatus
from wicketgate.upstreams.mcp.asking import offered
from wicketgate.upstreams.mcp.call import (
    NOT_REACHED,
    Gone,
    Malformed,
    Refused,
    Status,
    clean,
    reported,
    timed_out,
)
from wicketgate.upstreams.mcp.client import Connect, Connection, McpClient
from wicketgate.upstreams.mcp.eras import Mode
from wicketgate.upstreams.mcp.features import McpFeatures
from wicketgate.upstreams.mcp.session import ACKNOWLEDGED, LIST_CHANGED
from wicketgate.upstreams.mcp.silence import PING_S, Silence
from wicketgate.upstreams.mcp.task_follower import TaskBounds, TaskFollower
from wicketgate.upstreams.mcp.tasks import is_task, left_task

log = logging.getLogger("wicketgate.upstream")

_FIRST_DELAY_S = 0.2
_MAX_DELAY_S = 10.0
_LASTED_S = 30.0
NOTICE_S = 5.0
"""Seconds after which the log says what is waited for."""
PATIENCE = 10
"""So many times the timeout of connecting a process that lives is waited for."""


class McpServerUpstream:
    """Implements Upstream, HasPing, HasSpellings and HasFeatures. It is of use while ``supervise`` runs."""

    def __init__(
        self,
        name: str,
        connect: Connect,
        *,
        connect_timeout_s: float,
        jitter: Callable[[], float],
        turns: Turns | None = None,
        mode: Mode = "auto",
        forward: Collection[str] = (),
        ping_s: float = PING_S,
        instructions: bool = False,
        tried: str = "",
        fetches: str = "",
        notice_s: float = NOTICE_S,
        patience: float = PATIENCE,
        tasks: TaskBounds | None = None,
        note: Callable[[ServerEventKind, str], None] = lambda kind, why: None,
    ) -> None:
        """*jitter* returns 0 to 1 and spreads reconnections. *turns* are shared with other upstreams, so that not all
        connect at once. *forward*: capabilities of clients besides questions that it may use. *instructions*: the
        server's words for a model are taken. *tried* is the command or the origin of the URL, as the operator is told
        it. *fetches* is the program that may have to fetch the server first. *note* is told when a session begins, when
        one ends, and when none comes about, with the reason."""
        self._name = name
        self._connect = connect
        self._connect_timeout_s = connect_timeout_s
        self._jitter = jitter
        self._turns = turns or Turns()
        self._mode = mode
        self._mode_now = mode
        self._forward = frozenset(forward)
        self._ping_s = ping_s
        self._tried = tried
        self._fetches = fetches
        self._note = note
        self._notice_s = notice_s
        self._patience = patience
        self._noticed = False
        self._has_answered = False
        self._client: McpClient | None = None
        self._silence = Silence(_nothing, _no_words)
        self._status = UpstreamStatus("connecting")
        self._spellings: tuple[str, ...] = ()
        self._tasks = TaskFollower(name, self._ask_of_task, tasks)
        self.features = McpFeatures(name, self._ask, connect_timeout_s, instructions=instructions)

    @property
    def name(self) -> str:
        return self._name

    @property
    def status(self) -> UpstreamStatus:
        return self._status

    @property
    def spellings(self) -> tuple[str, ...]:
        return self._spellings

    @property
    def left_out(self) -> Sequence[str]:
        return self._client.left_out if self._client is not None else ()

    async def supervise(self, changed: Callable[[str], None]) -> None:
        """Between sessions it waits, ever longer while they answer no call and do not last, up to ten seconds."""
        delay = Delay(self._jitter)
        while True:
            began, self._has_answered = loop_time(), False
            connected = await self._serve_one_session(changed)
            await delay.wait(lasted_s=loop_time() - began if connected else 0, served=self._has_answered)

    async def list_tools(self) -> Sequence[Mapping[str, Any]]:
        client = self._connected()
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                return await client.list_tools()
        except TimeoutError:
            raise timed_out(self._name, self._connect_timeout_s) from None
        except Refused as error:
            # A server of skills, resources or prompts alone.
            if error.code == METHOD_NOT_FOUND and client.agreement.capabilities.tools is None:
                return []
            raise reported(self._name, error) from error
        except (Malformed, Gone):
            raise UpstreamUnavailable(f"{self._name} did not give its tools.") from None

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], context: CallContext, timeout_s: float
    ) -> Mapping[str, Any]:
        context = offered(context, self._forward)  # for what follows the answer of a task too
        left = left_task(context.answers)
        if left is not None and context.answers is not None:
            return await self._tasks.resumed(left, context.answers, context)
        result = await self._answered(self._connected().call_tool(name, arguments, context))
        self._has_answered = True
        if not is_task(result):
            return result
        return await self._tasks.result(result, context)

    async def ping(self, timeout_s: float) -> PingAnswer:
        try:
            await self._connected().ping()
        except Refused:
            return "answered"  # it knows no ping
        except Malformed:
            return "reached"  # such as the HTTP status of a proxy
        except Gone as gone:
            raise UpstreamUnavailable(f"{self._name} cannot be reached ({gone.how}).") from None
        return "answered"

    async def _ask(self, method: str, params: Mapping[str, Any], context: CallContext | None) -> Mapping[str, Any]:
        return await self._answered(self._connected().ask(method, params, context))

    async def _ask_of_task(self, method: str, params: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
        return await self._answered(self._connected().ask_of_task(method, params, context))

    async def _answered(self, answer: Awaitable[dict[str, Any]]) -> dict[str, Any]:
        silence = self._silence
        call = silence.begin()
        given_up = False
        try:
            return await answer
        except (Refused, Malformed, Gone) as error:
            raise reported(self._name, error) from error
        except asyncio.CancelledError:
            # By its deadline, or because its caller left: a ping finds out which, if several follow one another.
            given_up = True
            raise
        finally:
            silence.unanswered(call) if given_up else silence.end(call)

    def _connected(self) -> McpClient:
        if self._client is None:
            raise UpstreamUnavailable(f"{self._name} is not connected ({self._status.error or 'connecting'}).")
        return self._client

    async def _serve_one_session(self, changed: Callable[[str], None]) -> bool:
        """Connect and stay until the session is lost; False if it never came about."""
        ending = _Ending()
        connected = False
        opened: Connection | None = None
        loop, timeout_s = asyncio.get_running_loop(), self._connect_timeout_s
        turn = await self._turns.take()

        def late() -> None:
            if ending.how:
                return  # it has ended already, and its connection is being closed
            if opened is None or not opened.shows_its_end:
                attempt.reschedule(loop.time())
                return
            longest_s = timeout_s * self._patience
            mend = f"its process still runs and is waited for, up to {longest_s:g} s; raise connect_timeout_s"
            self._gone(f"no answer within {timeout_s:g} s", f"{mend} if it always takes so long")
            attempt.reschedule(began + longest_s)

        def notice() -> None:
            self._notice(starts=opened is not None and opened.shows_its_end)

        began = loop.time()
        timers = [loop.call_later(timeout_s, late), loop.call_later(self._notice_s, notice)]
        try:
            async with asyncio.timeout(None) as attempt, self._connect(ending.lost) as opened:
                client = await McpClient.open(self._name, opened, self._mode_now, ending.lost, self._forward)
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
            elif opened is not None and opened.shows_its_end:
                self._gone(f"no answer within {timeout_s * self._patience:g} s", "it is ended and started again")
            else:
                self._gone(f"no answer within {timeout_s:g} s", "raise connect_timeout_s if it is only slow")
        except Exception as error:
            why, mend = _why(error)
            if isinstance(error, Refused) and self._status.error != why:
                log.warning(
                    "%s: it answered the handshake with error %d: %s", self._name, error.code, clean(error.message)
                )
            if not why:
                log.error("%s: connection failed unexpectedly", self._name, exc_info=error)
            elif ending.how:
                why = ending.how if connected else f"{ending.how} before it was ready"
            # A server that ends because it was asked for the newer era first is not down yet: it is asked again.
            if not (ending.how and not connected and self._is_new and self._next_mode(opened) == "legacy"):
                self._gone(why or ("it failed" if connected else "it does not speak MCP"), mend)
        finally:
            for timer in timers:
                timer.cancel()
            turn.end()
            self._client = None
        self._mode_now = self._mode if connected else self._next_mode(opened)
        return connected

    def _next_mode(self, opened: Connection | None) -> Mode:
        """The mode after an attempt that failed: it may be a server that ends, or says nothing, when it is first asked
        for the newer era."""
        return "legacy" if opened is not None and opened.one_era and self._mode_now == "auto" else self._mode

    @property
    def _is_new(self) -> bool:
        return self._status.phase == "connecting"

    async def _serve(
        self, client: McpClient, connection: Connection, ending: "_Ending", changed: Callable[[str], None]
    ) -> None:
        """Answer calls, and follow the server's changes, until the session is lost."""

        def heard(method: str, params: object) -> None:
            if LIST_CHANGED.get(method) == "tools":
                changed(self._name)
            else:
                self.features.heard(method, params)

        # In force from here on, with a first reading of its tools.
        connection.exchange.announced = heard
        self.features.begin(client.agreement, lambda: changed(self._name))
        self._ready(client, connection)
        changed(self._name)
        # What goes on beside the calls, until the session is lost.
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.features.serve(client)), group.create_task(self._give_up(ending))]
            tools = client.agreement.capabilities.tools
            if client.agreement.modern and tools is not None and tools.list_changed:
                tasks.append(group.create_task(self._listen(client, changed)))
            await ending.event.wait()
            # At once, so that no new call goes to a session that is gone.
            self._gone(ending.how)
            for task in tasks:
                task.cancel()

    async def _listen(self, client: McpClient, changed: Callable[[str], None]) -> None:
        """Hold the stream of changed tools of the newer era. A change before it was open is asked for."""

        def heard(method: str, params: object) -> None:
            if method == ACKNOWLEDGED or LIST_CHANGED.get(method) == "tools":
                changed(self._name)

        delay = Delay(self._jitter)
        while True:
            began = loop_time()
            with suppress(Refused, Malformed, Gone):  # a server that is gone is found so by the next attempt
                await client.listen(["tools"], (), heard)
            await delay.wait(lasted_s=loop_time() - began)

    async def _give_up(self, ending: "_Ending") -> None:
        await self._silence.lasting()
        ending.lost("it answers nothing any more")

    def _ready(self, client: McpClient, connection: Connection) -> None:
        before, exchange = self._status, connection.exchange
        self._client = client
        self._spellings = client.agreement.spellings
        self._silence = Silence(client.ping, lambda: exchange.heard, self._ping_s)
        self._status = UpstreamStatus("ready", "", before.connections + 1, before.report)
        self._noticed = False
        self._note("ready", "")
        log.info("%s: connected, protocol %s", self._name, client.agreement.version)

    def _notice(self, *, starts: bool) -> None:
        """Say once, until it is connected, what is waited for."""
        if self._noticed or self._notice_s >= self._connect_timeout_s:
            return
        self._noticed = True
        waits = f"after {self._notice_s:g} s"
        if starts:
            waits += f" ({self._fetches} fetches the server at the first run)" if self._fetches else ""
        log.info(
            "%s: still %s %s; waits until connect_timeout_s = %g",
            self._name,
            "starting" if starts else "connecting",
            waits,
            self._connect_timeout_s,
        )

    def _gone(self, reason: str, mend: str = "") -> None:
        """*reason* is a fixed phrase; *mend* is for the operator, and may name settings, paths and hosts."""
        self._client = None
        before = self._status
        detail = told(reason, self._tried, mend) if mend else ""
        if (before.phase, before.error) != ("down", reason):
            log.warning("%s: %s", self._name, detail or reason)
        self._note("down", detail or reason)
        self._status = UpstreamStatus("down", reason, before.connections, detail or reason, detail)


class _Ending:
    """The first reason for which a session ends."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.how = ""

    def lost(self, how: str) -> None:
        self.how = self.how or how
        self.event.set()


class Delay:
    """The pause before the next attempt: it doubles while attempts neither serve nor last."""

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


async def _nothing() -> None:
    """The ping while there is no server."""


def _no_words() -> int:
    """The number of things that no server has said."""
    return 0


def _why(error: Exception) -> tuple[str, str]:
    """A fixed phrase for an expected failure of a connection, because an exception's own text may hold paths and
    addresses, and the mend for the operator. Empty for any other failure."""
    match error:
        case LoginNeeded(mend=mend):
            return "it needs a login by its operator", mend
        case ScopesNeeded(message=message):
            return message, ""
        case UpstreamUnavailable(message=message):
            return message, "a line of the log with 'no token' says why; look at oauth"
        case ConnectRequired():
            return "its user has to log in anew", ""
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
