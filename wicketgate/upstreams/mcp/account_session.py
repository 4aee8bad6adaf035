"""The session of one account at a UserUpstream, from its first use until it is closed (UP-170 to UP-173)."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from wicketgate.errors import ConnectRequired, GatewayError, InputRequired, UpstreamUnavailable
from wicketgate.fleet.edge import Edge, KnownSecrets
from wicketgate.fleet.features import FeatureKind, FeatureList
from wicketgate.login.user_credentials import GrantName, UserCredentials
from wicketgate.ports import CallContext
from wicketgate.upstreams.mcp.grant_credentials import GrantCredentials
from wicketgate.upstreams.mcp.upstream import McpServerUpstream


@dataclass(eq=False, repr=False)
class AccountSession:
    """One account's session. *close* is called when it has not been used for *idle_s*."""

    _name: str
    _users: UserCredentials
    grant: GrantName
    _idle_s: float
    _now: Callable[[], float]
    _close: "Callable[[AccountSession], None]"
    upstream: McpServerUpstream = field(init=False)
    task: asyncio.Task[None] = field(init=False)

    def __post_init__(self) -> None:
        # What the server says of this account's own credential is masked, for its owner too.
        secrets = KnownSecrets()
        self.credentials = GrantCredentials(self._users, self.grant, secrets.learn)
        self._edge = Edge(secrets)
        self.users = 0
        self.used_at = self._now()
        self.follows: frozenset[str] = frozenset()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._state = asyncio.Event()
        self._failure: GatewayError | None = None

    @property
    def is_open(self) -> bool:
        return self._state.is_set() and self._failure is None

    async def ready(self) -> None:
        """Wait until it is open. Raises the reason why it could not be."""
        await self._state.wait()
        match self._failure:
            case None:
                return
            case ConnectRequired() as required:
                raise required.again()
            case failure:
                raise type(failure)(failure.message)

    async def run(
        self, context: CallContext, call: Callable[[CallContext], Awaitable[Mapping[str, Any]]]
    ) -> Mapping[str, Any]:
        """The result of *call*, cleaned of this account's credential. Raises what *call* raises."""
        try:
            result = await call(self._edge.heard_by(context))
        except (GatewayError, InputRequired) as error:
            if (cleaned := await self._edge.failure(error)) is not error:
                raise cleaned from None
            raise
        return result if self._edge.leaves(result) else await self._edge.result(result)

    async def list_all(self, kind: FeatureKind) -> FeatureList:
        """As ``Features.list_all``; nothing where the server has no such list."""
        support = self.upstream.features.support
        if support is not None and not support.has(kind):
            return FeatureList(())
        found = await self.upstream.features.list_all(kind)
        return replace(found, items=await self._edge.listing(found.items))

    def opened(self) -> None:
        self._failure = None
        self._state.set()

    def failed(self, why: GatewayError) -> None:
        """It has ended, or could not be opened. It may still be opened again."""
        self._failure = why
        self._state.set()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """The session does not rest within the block."""
        self.users += 1
        self._rest()
        try:
            yield
        finally:
            self.users -= 1
            self.used_at = self._now()
            self._rest()

    def follow(self, uris: frozenset[str]) -> None:
        self.follows = uris
        self.upstream.features.follow(uris)
        self._rest()

    def close(self) -> None:
        """Open no more calls; those that run are read to their end, as the transport does it."""
        if self._closed:
            return
        self._closed = True
        self._rest()
        if not self._state.is_set():
            self.failed(UpstreamUnavailable(f"{self._name} is not connected any more for this account."))
        self.task.cancel()

    def _rest(self) -> None:
        """Wait for the end of its idle time, where nothing uses it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not (self.users or self.follows or self._closed):
            self._timer = asyncio.get_running_loop().call_later(self._idle_s, self._close, self)
