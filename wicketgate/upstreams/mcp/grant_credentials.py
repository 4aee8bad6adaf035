"""The credentials of one caller's grant, as the sessions of that grant use them (UP-174)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from wicketgate.errors import ConnectRequired, IssuerAway
from wicketgate.login.user_credentials import GrantName, UserCredentials
from wicketgate.net import Refusal


class GrantCredentials:
    """Implements Credentials for the one *grant*. *learn* gets each token before it is used, to be masked.

    *trouble* is the reason why the last attempt to have a token failed; None after one that did not.
    """

    def __init__(self, users: UserCredentials, grant: GrantName, learn: Callable[[str], None]) -> None:
        self._users = users
        self._grant = grant
        self._learn = learn
        self._token = ""
        self.trouble: ConnectRequired | IssuerAway | None = None

    async def authorization(self) -> str:
        """Raises ConnectRequired once the grant has ended, and IssuerAway."""
        with self._noted():
            token = await self._users.token(self._grant)
        self.trouble = None
        if token != self._token:
            self._learn(token)
            self._token = token
        return f"Bearer {token}"

    async def renew(self, refusal: Refusal) -> bool:
        """False for a refusal that other tokens of the same grant do not mend. Raises ConnectRequired too if the server
        asks for more scopes than the grant has (403)."""
        with self._noted():
            if refusal.lacks_scopes:
                await self._users.lacks(self._grant, frozenset(refusal.scopes or ()))
            return refusal.status == 401 and await self._users.renew(self._grant, self._token)

    async def refused(self) -> NoReturn:
        """The server takes the grant no more, renewed or not. Raises ConnectRequired."""
        with self._noted():
            await self._users.lacks(self._grant, frozenset())
        raise IssuerAway("The server refused this account, and no login for it could be offered.")

    async def aclose(self) -> None:
        """Does nothing: a refresh that is under way has others who wait for it."""

    @contextmanager
    def _noted(self) -> Iterator[None]:
        try:
            yield
        except (ConnectRequired, IssuerAway) as error:
            self.trouble = error
            raise
