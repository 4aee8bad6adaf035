"""UserUpstream: one MCP server, with a session for each of its callers' own accounts (UP-170 to UP-176).

A session is a McpServerUpstream of its own, under the credentials of one grant and no other. It is opened by the first
call, and closed when nothing has used it for a while, when another needs its place, or when its grant has ended. The
tools are those that the first account was shown: they are listed for everybody, and a call that another account may not
make is answered by the server.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from wicketgate.access.identity import Identity
from wicketgate.access.shares import RETRY_AFTER_S
from wicketgate.errors import ConnectRequired, IssuerAway, RateLimited, UpstreamUnavailable
from wicketgate.fleet.features import FeatureChange, FeatureKind, FeatureList, FeatureSupport
from wicketgate.fleet.server_log import ServerEventKind
from wicketgate.login.user_credentials import GrantName, UserCredentials
from wicketgate.net import Credentials
from wicketgate.ports import CallContext, UpstreamStatus
from wicketgate.upstreams.mcp.account_session import AccountSession
from wicketgate.upstreams.mcp.upstream import McpServerUpstream

log = logging.getLogger("wicketgate.upstream")

IDLE_S = 300.0
MAX_SESSIONS = 200
WAITS = "waits for a first login"
_DOWN_S = 60.0
"""Nothing is tried without a caller, so a failure says nothing of the server after a while."""
_GIVES_S = 86_400.0
"""After so long without a session of the account that gave the tools, another gives them."""

Note = Callable[[ServerEventKind, str], None]
Make = Callable[[Credentials, Note], McpServerUpstream]
"""Makes the upstream of one session, which notes when it begins and ends."""


@dataclass(eq=False, repr=False)
class UserUpstream:
    """Implements Upstream, PerUser, HasSpellings, HasLeftOut and HasFeatures. It is of use while ``supervise`` runs.

    *now* is a clock in seconds. *note* is told when the server can be reached, and when it cannot.
    """

    name: str
    _users: UserCredentials
    _make: Make
    now: Callable[[], float]
    max_sessions: int = MAX_SESSIONS
    idle_s: float = IDLE_S
    note: Note = lambda kind, why: None

    def __post_init__(self) -> None:
        self._sessions: dict[GrantName, AccountSession] = {}
        self._group: asyncio.TaskGroup | None = None
        self._changed: Callable[[str], None] = lambda name: None
        self._connections = 0
        self._trouble = UpstreamStatus("ready")
        self._down_until = 0.0
        self._observed = False
        # The account that gave the tools, and what it gave.
        self._giver: GrantName | None = None
        self._gives_until = 0.0
        self._tools: Sequence[Mapping[str, Any]] | None = None
        self.left_out: Sequence[str] = ()
        self.spellings: tuple[str, ...] = ()
        self.features = UserFeatures(self)

    @property
    def waits(self) -> bool:
        return self._tools is None

    @property
    def status(self) -> UpstreamStatus:
        """``down`` for a minute after an attempt that did not reach the server, or until another does."""
        trouble, connections = self._trouble, self._connections
        if trouble.phase == "down" and self.now() < self._down_until:
            return UpstreamStatus("down", trouble.error, connections, trouble.last_error, trouble.detail)
        if self._group is None:
            return UpstreamStatus("connecting", "", connections)
        if self.waits and not any(session.is_open for session in self._sessions.values()):
            return UpstreamStatus("waiting", WAITS, connections, trouble.last_error)
        return UpstreamStatus("ready", "", connections, trouble.last_error)

    @property
    def sessions(self) -> int:
        """The number of accounts that have a session now."""
        return len(self._sessions)

    async def supervise(self, changed: Callable[[str], None]) -> None:
        """Sessions live within this."""
        if not self._observed:
            self._observed = True
            self._users.observe(self._ended, lambda: self._sessions)
        self._changed = changed
        async with asyncio.TaskGroup() as self._group:
            self._group.create_task(self._users.watch(), name="grants in use")
            try:
                await asyncio.Event().wait()
            finally:
                self._group = None
                for session in list(self._sessions.values()):
                    self._close(session)

    async def list_tools(self) -> Sequence[Mapping[str, Any]]:
        """Returns the tools of the first account, read again while it has a session. Raises UpstreamUnavailable if no
        account is known yet."""
        session = None if self._giver is None else self._sessions.get(self._giver)
        if session is None or not session.is_open:
            return self._known_tools()
        with session.in_use():
            try:
                tools = await session.upstream.list_tools()
            except (ConnectRequired, IssuerAway):
                return self._known_tools()
            self.left_out, self.spellings = session.upstream.left_out, session.upstream.spellings
        self._tools = tools
        return tools

    def _known_tools(self) -> Sequence[Mapping[str, Any]]:
        if self._tools is None:
            raise UpstreamUnavailable(f"{self.name} {WAITS}.")
        return self._tools

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], context: CallContext, timeout_s: float
    ) -> Mapping[str, Any]:
        async with self.session_of(context.identity) as session:
            call = partial(session.upstream.call_tool, name, arguments, timeout_s=timeout_s)
            return await session.run(context, call)

    async def account_of(self, identity: Identity) -> GrantName | None:
        return await self._users.known(identity)

    async def connect(self, identity: Identity) -> None:
        async with self.session_of(identity):
            pass

    @asynccontextmanager
    async def session_of(self, identity: Identity) -> AsyncIterator[AccountSession]:
        """The open session of this caller's account, which stays for as long as the block lasts. Raises
        ConnectRequired, UpstreamUnavailable and RateLimited."""
        async with self.session_at(await self._users.named(identity)) as session:
            yield session

    @asynccontextmanager
    async def session_at(self, grant: GrantName) -> AsyncIterator[AccountSession]:
        """As ``session_of``, by the name of the account's grant."""
        session = self._sessions.get(grant) or self._opened(grant)
        with session.in_use():
            await session.ready()
            yield session

    def follow(self, actor: str) -> None:
        """The resources that *actor* follows are others now."""
        for session in self._sessions.values():
            if session.grant.actor in ("", actor):
                session.follow(self.features.followed_by(session.grant))

    def _opened(self, grant: GrantName) -> AccountSession:
        """A new session, which is being opened. Raises UpstreamUnavailable and RateLimited."""
        if self._group is None:
            raise UpstreamUnavailable(f"{self.name} is not connected (connecting).")
        if len(self._sessions) >= self.max_sessions:
            self._make_room()
        session = AccountSession(self.name, self._users, grant, self.idle_s, self.now, self._close)
        session.upstream = self._make(session.credentials, lambda kind, why: self._noted(session, kind, why))
        session.upstream.features.watch(partial(self.features.heard, grant))
        session.follow(self.features.followed_by(grant))
        self._sessions[grant] = session
        session.task = self._group.create_task(self._run(session), name=f"session at {self.name}")
        return session

    async def _run(self, session: AccountSession) -> None:

        def changed(_: str) -> None:
            if self._giver == session.grant:
                self._changed(self.name)

        try:
            await session.upstream.supervise(changed)
        except Exception:
            log.exception("%s: a session of one account failed", self.name)
        finally:
            self._close(session)

    def _noted(self, session: AccountSession, kind: ServerEventKind, why: str) -> None:
        """A session has begun, has ended, or did not come about."""
        if kind == "ready":
            self._connections += 1
            if self._trouble.phase == "down" or self._connections == 1:
                self.note("ready", "")
            self._trouble = UpstreamStatus("ready", "", 0, self._trouble.report)
            giver = self._giver
            if giver is None or giver.actor == session.grant.actor or self.now() > self._gives_until:
                self._giver, self._gives_until = session.grant, self.now() + _GIVES_S
                self.features.supported_by(session.upstream)
            session.opened()
            return
        trouble = session.credentials.trouble
        if trouble is None and kind == "down":
            # The state of the upstream is that of the server, as the last session found it.
            found = session.upstream.status
            if self._trouble.error != why:
                self.note("down", why)
            self._trouble = UpstreamStatus("down", found.error or why, 0, why, why)
            self._down_until = self.now() + _DOWN_S
        session.failed(trouble or UpstreamUnavailable(f"{self.name} cannot be reached ({why})."))
        if not session.follows:
            self._close(session)

    def _ended(self, grant: GrantName) -> None:
        """The grant has ended, or another one took its place."""
        if self._giver == grant:
            self._giver = None
        if (session := self._sessions.get(grant)) is not None:
            self._close(session)

    def _make_room(self) -> None:
        idle = [session for session in self._sessions.values() if not session.users]
        if not idle:
            raise RateLimited(
                f"{self.name} has the maximum number of account sessions. Nothing ran; try again later.",
                details={"scope": "upstream", "limit": self.max_sessions, "retry_after_s": RETRY_AFTER_S},
            )
        self._close(min(idle, key=lambda session: (bool(session.follows), session.used_at)))

    def _close(self, session: AccountSession) -> None:
        if self._sessions.get(session.grant) is session:
            del self._sessions[session.grant]
        session.close()


class UserFeatures:
    """Implements Features, which differ by account. What the server supports is what the first account was told; its
    instructions, which may speak of that account, are shown to nobody."""

    def __init__(self, upstream: UserUpstream) -> None:
        self.accounts = upstream
        self.support: FeatureSupport | None = None
        self._watchers: list[Callable[[FeatureChange], None]] = []
        self._follows: dict[str, frozenset[str]] = {}

    def supported_by(self, upstream: McpServerUpstream) -> None:
        """Take over what the server of this open session supports."""
        support = upstream.features.support
        self.support = None if support is None else replace(support, instructions="")

    async def list_all(self, kind: FeatureKind, account: GrantName | None = None) -> FeatureList:
        if account is None:
            return FeatureList(())
        async with self.accounts.session_at(account) as session:
            return await session.list_all(kind)

    async def request(
        self, method: str, params: Mapping[str, Any], context: CallContext, timeout_s: float
    ) -> Mapping[str, Any]:
        async with self.accounts.session_of(context.identity) as session:
            call = partial(session.upstream.features.request, method, params, timeout_s=timeout_s)
            return await session.run(context, call)

    def follow(self, uris: frozenset[str], actor: str = "") -> None:
        if uris:
            self._follows[actor] = uris
        else:
            self._follows.pop(actor, None)
        self.accounts.follow(actor)

    def followed_by(self, grant: GrantName) -> frozenset[str]:
        """The resources that a session under *grant* follows."""
        if grant.actor:
            return self._follows.get(grant.actor, frozenset())
        return frozenset().union(*self._follows.values())

    def watch(self, heard: Callable[[FeatureChange], None]) -> None:
        self._watchers.append(heard)

    def heard(self, grant: GrantName, change: FeatureChange) -> None:
        """Pass on what the session of *grant* was told, as news for its actor alone."""
        for heard in self._watchers:
            heard(replace(change, actor=grant.actor or None))
