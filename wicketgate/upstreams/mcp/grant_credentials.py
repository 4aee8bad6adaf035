"""The credentials of one caller's grant, as the sessions of that grant use them (UP-174)."""

from collections.abc import Callable
from typing import NoReturn

from wicketgate.errors import ConnectRequired, IssuerAway, UpstreamUnavailable
from wicketgate.login.user_credentials import GrantName, UserCredentials
from wicketgate.net import Refusal


class GrantCredentials:
    """Implements Credentials for the one *grant*. *learn* gets each value before it is used, to be masked.

    *trouble* is the reason why the last attempt to have a value failed; None after one that did not.
    """

    def __init__(self, users: UserCredentials, grant: GrantName, learn: Callable[[str], None]) -> None:
        self._users = users
        self._grant = grant
        self._own = users.of(grant)
        self._learn = learn
        self._value = ""
        self.trouble: ConnectRequired | IssuerAway | None = None

    async def authorization(self) -> str:
        """Raises ConnectRequired once the grant has ended, and IssuerAway."""
        try:
            value = await self._own.authorization()
        except (ConnectRequired, UpstreamUnavailable) as error:
            raise self._noted(error) from None
        self.trouble = None
        if value != self._value:
            self._learn(value)
            self._value = value
        return value

    async def renew(self, refusal: Refusal) -> bool:
        """Raises ConnectRequired too where the server asks for more scopes than the grant has (403)."""
        try:
            if refusal.lacks_scopes:
                await self._users.lacks(self._grant, frozenset(refusal.scopes or ()))
            return await self._own.renew(refusal)
        except (ConnectRequired, UpstreamUnavailable) as error:
            raise self._noted(error) from None

    async def refused(self) -> NoReturn:
        """The server takes the grant no more, renewed or not. Raises ConnectRequired."""
        try:
            await self._users.lacks(self._grant, frozenset())
        except (ConnectRequired, UpstreamUnavailable) as error:
            raise self._noted(error) from None
        raise IssuerAway("The server refused this account, and no login for it could be offered.")

    async def aclose(self) -> None:
        await self._own.aclose()

    def _noted(self, error: ConnectRequired | UpstreamUnavailable) -> ConnectRequired | IssuerAway:
        if isinstance(error, UpstreamUnavailable):
            error = issuer_away(error)
        self.trouble = error
        return error


def issuer_away(error: UpstreamUnavailable) -> IssuerAway:
    """*error*, which is none of the tool server's."""
    return error if isinstance(error, IssuerAway) else IssuerAway(error.message)
