"""Servers whose tools are not known before one of their callers has connected an account (UP-176, UP-177).

A caller who has an account already, as after a restart, is not asked: its session is opened, and its tools are there.
For the others such a server is shown by its name alone, and a call of anything in it offers the login.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from wicketgate.access.identity import Identity
from wicketgate.access.policy import AccessPolicy
from wicketgate.catalog.card import ChoiceCard
from wicketgate.catalog.graph import server_of
from wicketgate.errors import CatalogError, ConnectRequired, GatewayError, HydrateFailed
from wicketgate.fleet.member import Member, MultiplexUpstream
from wicketgate.gateway.audited_call import AuditedCall
from wicketgate.gateway.logins import Logins
from wicketgate.ports import CallContext, PerUser
from wicketgate.task_end import cancel_all

log = logging.getLogger("wicketgate.runtime")

CONNECT = "connect"
"""The name after the colon in the id that cards give; any other is as good."""
_PATIENCE_S = 5.0
_AGAIN_S = 15.0
_MAX_NAMED = 5


@dataclass(eq=False, repr=False)
class FirstLogins:
    """*refresh* reads the tools of the servers it is given, *in_force* says if some of a server are in the catalog.
    *now* is a clock in seconds, *logins* asks the person behind a call."""

    _fleet: MultiplexUpstream
    _access: Callable[[], AccessPolicy]
    _refresh: Callable[[Sequence[str]], Awaitable[object]]
    _in_force: Callable[[str], bool]
    _now: Callable[[], float]
    _logins: Logins

    def __post_init__(self) -> None:
        self._read_once: dict[str, PerUser] = {}
        self._members: Mapping[str, Member] | None = None
        self._per_user: Mapping[str, PerUser] = {}
        self._not_before: dict[str, float] = {}
        self._looking: dict[tuple[str, str], asyncio.Task[None]] = {}

    def waiting(self) -> tuple[str, ...]:
        """The names of the servers that wait, in order."""
        if self._members is not self._fleet.members:
            self._members = self._fleet.members
            found = ((name, member.upstream) for name, member in sorted(self._members.items()))
            self._per_user = {name: upstream for name, upstream in found if isinstance(upstream, PerUser)}
        return tuple(name for name in self._per_user if self._waits(name)) if self._per_user else ()

    def _waits(self, name: str) -> bool:
        """True until its tools are in the catalog, which is a moment after they were listed."""
        return not self._in_force(name) and self._read_once.get(name) is not self._per_user[name]

    def shown_to(self, identity: Identity) -> Sequence[str]:
        """The names of those that wait which this caller may know."""
        waiting = self.waiting()
        return [name for name in waiting if self._access().may_know(identity, name)] if waiting else ()

    def unread(self, identity: Identity) -> Sequence[str]:
        """The names of all servers without tools so far that this caller may know, waiting ones included."""
        return [
            name for name in self._fleet.members if not self._in_force(name) and self._access().may_know(identity, name)
        ]

    async def look(self, context: CallContext) -> None:
        """Have the tools of each server that waits, and at which this caller has an account. Never raises; what takes
        long goes on by itself."""
        identity = context.identity
        if not (shown := self.shown_to(identity)):
            return
        names = [name for name in shown if self._not_before.get(name, 0.0) <= self._now()]
        if names:
            await asyncio.wait([self._looking_at(name, identity) for name in names], timeout=_PATIENCE_S)

    async def aclose(self) -> None:
        """End what is being looked at."""
        await cancel_all(self._looking.values())

    async def open(self, asked_for: str, context: CallContext) -> str:
        """Have the tools of the server that *asked_for*, a tool's id or path, is of, if that waits: this caller's
        account is the first. Returns its name, empty if there is no such server. Raises ConnectRequired, and as
        ``PerUser.connect``."""
        name = server_of(asked_for)
        if name not in self.shown_to(context.identity):
            return ""
        await self._per_user[name].connect(context.identity)
        await self._read(name)
        return name

    async def offer(self, asked_for: str, context: CallContext) -> str:
        """As ``open``, but its caller is asked for the login, and waited for."""
        if not self.waiting():
            return ""
        return await self._logins.around(context, partial(self.open, asked_for, context), _allowed)

    async def before_call(self, tool_id: str, context: CallContext, note: AuditedCall) -> None:
        """As ``offer``, within the record of a call. Raises HydrateFailed where *tool_id* is that of a card here."""
        if not self.waiting():
            return
        try:
            opened = await self.offer(tool_id, context)
        except GatewayError as error:
            error.path = tool_id
            if isinstance(error, ConnectRequired):
                note.server = error.upstream
            raise
        if opened and tool_id == f"{opened}:{CONNECT}":
            connected = f"Your account at {opened} is connected now. Browse /{opened} for its tools."
            raise HydrateFailed(connected, path=tool_id)

    def cards(self, context: CallContext, query: str | None = None) -> list[ChoiceCard]:
        """A card for each that waits; with a *query* of those that it names."""
        names = self.shown_to(context.identity)
        if query is not None:
            lower = query.lower()
            names = [name for name in names if name in lower]
        return [card_of(name) for name in names]

    def some_cards(self, context: CallContext) -> list[ChoiceCard]:
        """A few cards, where nothing else was found."""
        return [card_of(name) for name in self.shown_to(context.identity)[:_MAX_NAMED]]

    def _looking_at(self, name: str, identity: Identity) -> "asyncio.Task[None]":
        """The look with this caller's account, once at a time."""
        key = name, identity.actor
        if key not in self._looking:
            task = self._looking[key] = asyncio.get_running_loop().create_task(self._look_at(name, identity))
            task.add_done_callback(lambda _: self._looking.pop(key, None))
        return self._looking[key]

    async def _look_at(self, name: str, identity: Identity) -> None:
        upstream = self._per_user[name]
        try:
            if await upstream.account_of(identity) is None:
                return
            await upstream.connect(identity)
            await self._read(name)
        except GatewayError as error:
            self._not_before[name] = self._now() + _AGAIN_S
            log.warning("%s: its tools could not be listed with an account: %s", name, error.code)
        except Exception:
            log.exception("%s: its tools could not be listed with an account", name)

    async def _read(self, name: str) -> None:
        upstream = self._per_user[name]
        if not self._waits(name):
            return
        try:
            await self._refresh([name])
        except CatalogError as error:
            log.error("catalog not refreshed for %s: %s", name, error)
        if not upstream.waits:
            # An account without a tool has been looked at too.
            self._read_once[name] = upstream


async def _allowed() -> None:
    """Stands for the rules where nothing was allowed yet, and so nothing can be forbidden since."""


def card_of(name: str) -> ChoiceCard:
    """The card of a server that waits: some forty tokens."""
    how = f"not connected yet: run tool_execute with tool_id {name}:{CONNECT} to connect your account"
    return ChoiceCard(f"/{name}", name, how, (), "internal", name, has_schema=False)
