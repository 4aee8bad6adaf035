"""McpClientUpstream: one MCP server, one supervised session, calls that cannot hurt it or one another (S1).

One task enters and leaves the SDK's client (guide "Upstreams"); calls run in their callers' own tasks beside it, and
every call has a deadline of its own.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import anyio
from mcp import Client
from mcp import types as t
from mcp.client.context import ClientRequestContext
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp.types import CONNECTION_CLOSED
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from wicketgate.errors import UpstreamUnavailable
from wicketgate.ports import CallContext, UpstreamStatus
from wicketgate.upstreams.mcp_client.connection import Connect, Connection
from wicketgate.upstreams.mcp_client.failure import Gone, Malformed, Refused, timed_out, told
from wicketgate.upstreams.mcp_client.features import McpFeatures
from wicketgate.upstreams.mcp_client.session import McpSession
from wicketgate.upstreams.mcp_client.silence import PROBE_S, Silence

log = logging.getLogger("wicketgate.upstream")

_FIRST_DELAY_S = 0.2
_MAX_DELAY_S = 10.0
_LASTED_S = 30.0
_SLACK_S = 0.05
_LOST = "the connection was lost"


class McpClientUpstream:
    """Implements Upstream. It is of use while ``supervise`` runs."""

    def __init__(
        self,
        name: str,
        connect: Connect,
        *,
        connect_timeout_s: float,
        jitter: Callable[[], float],
        mode: str = "auto",
        probe_s: float = PROBE_S,
    ) -> None:
        """*jitter* gives 0 to 1 and spreads reconnections. *mode*: ``auto``, or ``legacy`` for the handshake."""
        self._name = name
        self._connect = connect
        self._connect_timeout_s = connect_timeout_s
        self._jitter = jitter
        self._mode = mode
        self._mode_now = mode
        self._probe_s = probe_s
        self._live: McpSession | None = None
        self._silence = Silence(_nothing)
        self._status = UpstreamStatus("connecting")
        self.features = McpFeatures(name, self._ask, connect_timeout_s)

    @property
    def name(self) -> str:
        return self._name

    @property
    def status(self) -> UpstreamStatus:
        return self._status

    async def supervise(self, changed: Callable[[str], None]) -> None:
        """Between sessions it waits, ever longer while they do not last, up to ten seconds."""
        delay = _FIRST_DELAY_S
        while True:
            began = anyio.current_time()
            if await self._serve_one_session(changed) and anyio.current_time() - began > _LASTED_S:
                delay = _FIRST_DELAY_S
            await anyio.sleep(delay * (0.5 + self._jitter() / 2))
            delay = min(delay * 2, _MAX_DELAY_S)

    async def list_tools(self) -> Sequence[Mapping[str, Any]]:
        session = self._session()
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                return await session.list_tools()
        except TimeoutError:
            raise timed_out(self._name, self._connect_timeout_s) from None
        except Refused as error:
            raise told(self._name, error) from error
        except (Malformed, Gone):
            raise UpstreamUnavailable(f"{self._name} did not give its tools.") from None

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], context: CallContext, timeout_s: float
    ) -> Mapping[str, Any]:
        return await self._within(timeout_s, self._session().call_tool(name, arguments, context))

    async def _ask(
        self, method: str, params: Mapping[str, Any], context: CallContext | None, timeout_s: float
    ) -> Mapping[str, Any]:
        return await self._within(timeout_s, self._session().ask(method, params, context))

    async def _within(self, timeout_s: float, answer: Awaitable[dict[str, Any]]) -> dict[str, Any]:
        silence, now = self._silence, asyncio.get_running_loop().time
        began = now()
        silence.in_flight += 1
        try:
            async with asyncio.timeout(timeout_s) as deadline:
                result = await answer
            silence.heard()
            return result
        except TimeoutError:
            if not deadline.expired():
                raise
            silence.unanswered()
            raise timed_out(self._name, timeout_s) from None
        except (Refused, Malformed, Gone) as error:
            if not isinstance(error, Gone):
                silence.heard()
            raise told(self._name, error) from error
        except asyncio.CancelledError:
            if now() - began > timeout_s - _SLACK_S:  # the caller's own deadline came first
                silence.unanswered()
            raise
        finally:
            silence.in_flight -= 1

    def _session(self) -> McpSession:
        if self._live is None:
            raise UpstreamUnavailable(f"{self._name} is not connected ({self._status.error or 'connecting'}).")
        return self._live

    async def _serve_one_session(self, changed: Callable[[str], None]) -> bool:
        """Connect and stay until the session is lost; False if it never came about."""
        connected = False
        opened: Connection | None = None
        lost = asyncio.Event()
        reason = _LOST

        def on_lost(how: str) -> None:
            nonlocal reason
            reason = how
            lost.set()

        async def on_message(message: object) -> None:
            if isinstance(message, t.ToolListChangedNotification):
                changed(self._name)
            else:
                self.features.heard(message)

        try:
            # One scope for the attempt; once connected its deadline goes, for scopes must nest with the Client's own.
            with anyio.CancelScope(deadline=anyio.current_time() + self._connect_timeout_s) as attempt:
                async with self._connect(on_lost) as opened:
                    client = Client(
                        nullcontext(opened.streams),
                        cache=None,
                        message_handler=on_message,
                        elicitation_callback=_declined,
                        mode=self._mode_now,
                    )
                    async with client, anyio.create_task_group() as listening:
                        attempt.deadline = math.inf
                        connected = True
                        self._ready(McpSession(self._name, opened, client.session, lost), client.protocol_version)
                        changed(self._name)
                        listening.start_soon(self.features.serve, client)
                        listening.start_soon(self._give_up, self._silence, on_lost)
                        if client.protocol_version in MODERN_PROTOCOL_VERSIONS and _announces_changes(client):
                            listening.start_soon(self._listen, client, changed, lost)
                        await lost.wait()
                        self._gone(reason)
                        listening.cancel_scope.cancel()
            if attempt.cancelled_caught:
                self._gone(f"no answer within {self._connect_timeout_s:g} s")
        except Exception as error:
            why = _why(error)
            if why is None:
                log.error("%s: connection failed unexpectedly", self._name, exc_info=error)
            elif lost.is_set():
                why = f"{reason} before it was ready"
            elif opened is not None:
                why = opened.refusal() or why
            self._gone(reason if connected else why or "it does not speak MCP")
        finally:
            self._live = None
        # It may be one that ends, or says nothing, when it is asked for the newer era before anything else.
        one_era = opened is not None and opened.one_era and not connected and self._mode_now == "auto"
        self._mode_now = "legacy" if one_era else self._mode
        return connected

    async def _listen(self, client: Client, changed: Callable[[str], None], lost: asyncio.Event) -> None:
        """Changes of the newer era come over a stream of their own; what came before it was open is asked for."""
        delay = _FIRST_DELAY_S
        while True:
            began = anyio.current_time()
            try:
                async with client.listen(tools_list_changed=True) as subscription:
                    changed(self._name)
                    async for _ in subscription:
                        changed(self._name)
            except MCPError as error:
                if error.code == CONNECTION_CLOSED:
                    lost.set()
                    return
            except (SubscriptionLost, TimeoutError):
                pass
            if anyio.current_time() - began > _LASTED_S:
                delay = _FIRST_DELAY_S
            await anyio.sleep(delay * (0.5 + self._jitter() / 2))
            delay = min(delay * 2, _MAX_DELAY_S)

    @staticmethod
    async def _give_up(silence: Silence, lost: Callable[[str], None]) -> None:
        await silence.lasting()
        lost("it answers nothing any more")

    def _ready(self, session: McpSession, version: str) -> None:
        before = self._status
        self._live = session
        ping = "server/discover" if version in MODERN_PROTOCOL_VERSIONS else "ping"
        self._silence = Silence(partial(session.ask, ping, {}, None), self._probe_s)
        self._status = UpstreamStatus("ready", "", before.connections + 1, before.error)
        log.info("%s: connected, protocol %s", self._name, version)

    def _gone(self, reason: str) -> None:
        self._live = None
        before = self._status
        if (before.phase, before.error) != ("down", reason):
            log.warning("%s: %s", self._name, reason)
        self._status = UpstreamStatus("down", reason, before.connections, reason)


async def _nothing() -> None:
    """There is nobody to probe."""


async def _declined(context: ClientRequestContext, params: t.ElicitRequestParams) -> t.ElicitResult:
    """Makes the SDK declare that we can be asked; what is asked is taken off its streams before it sees it."""
    return t.ElicitResult(action="decline")


def _announces_changes(client: Client) -> bool:
    tools = client.server_capabilities.tools
    return tools is not None and bool(tools.list_changed)


def _why(error: BaseException) -> str | None:
    """A fixed phrase for why a connection could not be made, for what is thrown may hold paths and addresses; None
    for what nobody expects."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    match error:
        case FileNotFoundError():
            return "the command was not found"
        case NotADirectoryError():
            return "its working directory was not found"
        case PermissionError():
            return "the command may not be run"
        case UpstreamUnavailable(message=message):
            return message
        case MCPError(code=code) if code == CONNECTION_CLOSED:
            return "it cannot be reached, or ended before it was ready"
        case MCPError():
            return "it refused the MCP handshake"
        case OSError() | anyio.BrokenResourceError() | anyio.ClosedResourceError():
            return "it cannot be reached"
        case ValidationError():
            return "it does not speak MCP"
        case RuntimeError(args=(str(text), *_)) if text.startswith("Unsupported protocol version"):
            return "it speaks no version of MCP that is known here"
        case _:
            return None
