"""Grants with static tokens, by actor: a small real implementation of UserCredentials and Waiting."""

import asyncio
from collections.abc import Callable, Iterable

from wicketgate.access.identity import Identity
from wicketgate.errors import ConnectRequired, IssuerAway
from wicketgate.login.login_flow import LoginOutcome
from wicketgate.login.user_credentials import GrantName


class TokenUsers:
    """Implements UserCredentials for the one tool server *upstream*, and Waiting. ``connect`` and ``revoke`` do what a
    person and an issuer do; *asked* are the logins that were offered, *awaited* those whose end is waited for."""

    def __init__(self, upstream: str = "accounts") -> None:
        self.upstream = upstream
        self.tokens: dict[str, tuple[int, str]] = {}
        self.renewed: dict[str, str] = {}
        self.away = False
        self.asked: list[ConnectRequired] = []
        self.awaited: list[str] = []
        self.lacked: list[tuple[str, frozenset[str]]] = []
        self.renewals = 0
        self._numbers = 0
        self._observers: list[Callable[[GrantName], None]] = []
        self._flows: dict[str, tuple[str, asyncio.Future[LoginOutcome]]] = {}
        self._open: dict[str, str] = {}

    def connect(self, actor: str, token: str) -> None:
        """The login of *actor* has come to its end: calls have *token* from now on."""
        self._end(actor)
        self._numbers += 1
        self.tokens[actor] = self._numbers, token
        self.finish(actor, "granted")

    def revoke(self, actor: str) -> None:
        self._end(actor)

    def finish(self, actor: str, outcome: LoginOutcome) -> None:
        flow = self._open.pop(actor, None)
        if flow is not None and not self._flows[flow][1].done():
            self._flows[flow][1].set_result(outcome)

    def _end(self, actor: str) -> None:
        if (had := self.tokens.pop(actor, None)) is not None:
            for ended in self._observers:
                ended(GrantName(actor, had[0]))

    def need(self, actor: str) -> ConnectRequired:
        flow = self._open.get(actor)
        if flow is None:
            flow = self._open[actor] = f"flow-{actor}-{len(self._flows)}"
            self._flows[flow] = actor, asyncio.get_running_loop().create_future()
        need = ConnectRequired(
            f"Connect your account at {self.upstream} first.",
            upstream=self.upstream,
            url=f"https://gate.example.com/connect/{self.upstream}?f={flow}",
            expires_at=2_000_000_000.0,
            flow=flow,
        )
        self.asked.append(need)
        return need

    async def named(self, identity: Identity) -> GrantName:
        known = await self.known(identity)
        if known is None:
            raise self.need(identity.actor)
        return known

    async def known(self, identity: Identity) -> GrantName | None:
        await asyncio.sleep(0)
        if self.away:
            raise IssuerAway("The logins cannot be read at the moment.")
        had = self.tokens.get(identity.actor)
        return None if had is None else GrantName(identity.actor, had[0])

    async def watch(self) -> None:
        return

    async def token(self, grant: GrantName) -> str:
        await asyncio.sleep(0)
        if self.away:
            raise IssuerAway("The issuer is away.")
        number, token = self.tokens.get(grant.actor, (0, ""))
        if number != grant.number:
            raise self.need(grant.actor)
        return token

    async def renew(self, grant: GrantName, refused: str) -> bool:
        number, token = self.tokens.get(grant.actor, (0, ""))
        # Of requests that are refused together one renews.
        if number == grant.number and token in self.renewed:
            self.renewals += 1
            self.tokens[grant.actor] = number, self.renewed[token]
        return True

    async def lacks(self, grant: GrantName, scopes: frozenset[str]) -> None:
        self.lacked.append((grant.actor, scopes))
        raise self.need(grant.actor)

    def observe(self, ended: Callable[[GrantName], None], in_use: Callable[[], Iterable[GrantName]] = tuple) -> None:
        self._observers.append(ended)

    async def outcome(self, flow: str, within_s: float) -> LoginOutcome:
        if flow not in self._flows:
            return "failed"
        self.awaited.append(flow)
        try:
            async with asyncio.timeout(within_s):
                return await asyncio.shield(self._flows[flow][1])
        except TimeoutError:
            return "waiting"
