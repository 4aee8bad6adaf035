"""The credentials of each caller at one tool server, as the server's upstream needs them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from wicketgate.access.identity import Identity


@dataclass(frozen=True, slots=True)
class GrantName:
    """The grant that a caller has at a tool server now. Calls with equal names may share a session; *actor* is empty
    for a grant of the gate itself, which all callers share. *number* is another one after each new login."""

    actor: str
    number: int


class UserCredentials(Protocol):
    """The grants of all callers at one tool server."""

    async def named(self, identity: Identity) -> GrantName:
        """Return the name of the caller's grant. Raises ConnectRequired if it has none that is good, and IssuerAway if
        that cannot be known now."""
        ...

    async def known(self, identity: Identity) -> GrantName | None:
        """As ``named``, but None in place of ConnectRequired: for lists, which offer no login."""
        ...

    async def token(self, grant: GrantName) -> str:
        """Return the access token of a grant, to be used now. Raises ConnectRequired once the grant has ended, and
        IssuerAway while its issuer is away."""
        ...

    async def renew(self, grant: GrantName, refused: str) -> bool:
        """Have another token than *refused*; false if there is none to be had. Raises as ``token`` does."""
        ...

    async def lacks(self, grant: GrantName, scopes: frozenset[str]) -> None:
        """Say that the server asked for *scopes* that the grant does not have (403 ``insufficient_scope``); without
        any, that it refuses the grant although it was renewed (401). Raises ConnectRequired."""
        ...

    def observe(self, ended: Callable[[GrantName], None], in_use: Callable[[], Iterable[GrantName]] = tuple) -> None:
        """Call *ended* when one of the grants *in_use* ends or gives way to a new one, at whichever process: its
        sessions are closed then. It must neither wait nor fail."""
        ...

    async def watch(self) -> None:
        """Look after the grants that are in use, until cancelled."""
        ...
