"""The features of a UserUpstream: what each caller sees of them is what its own account is shown (UP-180)."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from wicketgate.access.identity import Identity
from wicketgate.fleet.features import FeatureChange, FeatureKind, FeatureSupport, Lists
from wicketgate.login.user_credentials import GrantName
from wicketgate.ports import CallContext
from wicketgate.upstreams.mcp.account_session import AccountSession
from wicketgate.upstreams.mcp.upstream import McpServerUpstream


class Sessions(Protocol):
    """The sessions of the upstream, as ``UserUpstream`` describes them."""

    def session_of(self, identity: Identity) -> AbstractAsyncContextManager[AccountSession]: ...

    def session_at(self, grant: GrantName) -> AbstractAsyncContextManager[AccountSession]: ...

    async def account_of(self, identity: Identity) -> GrantName | None: ...

    def follow(self, actor: str) -> None: ...


class UserFeatures:
    """Implements PersonalFeatures. What the server supports is what the first account was told; its instructions, which
    may speak of that account, are shown to nobody."""

    def __init__(self, name: str, sessions: Sessions) -> None:
        self._name = name
        self._sessions = sessions
        self._support: FeatureSupport | None = None
        self._watchers: list[Callable[[FeatureChange], None]] = []
        self._follows: dict[str, frozenset[str]] = {}

    @property
    def support(self) -> FeatureSupport | None:
        return self._support

    def supported_by(self, upstream: McpServerUpstream) -> None:
        """Take over what the server of this open session supports."""
        support = upstream.features.support
        self._support = None if support is None else replace(support, instructions="")

    async def list_all(self, kind: FeatureKind) -> Sequence[Any]:
        """Nothing: nobody's lists are everybody's."""
        return []

    def fresh_ms(self, kind: FeatureKind) -> int:
        return 0

    async def account_of(self, identity: Identity) -> GrantName | None:
        return await self._sessions.account_of(identity)

    def lists_of(self, account: GrantName) -> Lists:
        return _ListsOfOne(self._sessions, account)

    async def request(
        self, method: str, params: Mapping[str, Any], context: CallContext, timeout_s: float
    ) -> Mapping[str, Any]:
        async with self._sessions.session_of(context.identity) as session:
            call = partial(session.upstream.features.request, method, params, timeout_s=timeout_s)
            return await session.run(context, call)

    def follow(self, uris: frozenset[str]) -> None:
        """Nothing is followed for nobody."""

    async def attend(self, identity: Identity) -> None:
        async with self._sessions.session_of(identity):
            pass

    def follow_for(self, actor: str, uris: frozenset[str]) -> None:
        if uris:
            self._follows[actor] = uris
        else:
            self._follows.pop(actor, None)
        self._sessions.follow(actor)

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


class _ListsOfOne:
    """Implements Lists for one account."""

    def __init__(self, sessions: Sessions, account: GrantName) -> None:
        self._sessions = sessions
        self._account = account
        self._fresh_ms: dict[FeatureKind, int] = {}

    async def list_all(self, kind: FeatureKind) -> Sequence[Any]:
        async with self._sessions.session_at(self._account) as session:
            items = await session.list_all(kind)
            self._fresh_ms[kind] = session.upstream.features.fresh_ms(kind)
            return items

    def fresh_ms(self, kind: FeatureKind) -> int:
        return self._fresh_ms.get(kind, 0)
