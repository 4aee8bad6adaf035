"""The gate as a client of each issuer, registered once for all processes (ACCESS-155)."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from wicketgate.login.keys import row_key
from wicketgate.login.sealed_rows import OpenedRow, SealedRows

LEASE_S = 30.0
_LOOK_S = 0.25


class Registered(Protocol):
    """A registration as these rows need it. *expires_at*, in seconds since the epoch, is when the issuer forgets it;
    None: never."""

    @property
    def issuer(self) -> str: ...

    @property
    def redirect_uri(self) -> str: ...

    @property
    def client_id(self) -> str: ...

    @property
    def expires_at(self) -> float | None: ...


R = TypeVar("R", bound=Registered)


class Registrations(Generic[R]):
    """The registrations that are kept in *rows*, each for one issuer and one redirect address. *pack* makes a value
    for JSON of one, *unpack* the opposite; it raises ValueError, TypeError or KeyError for what another release has
    written.

    Every method raises LoginsAway.
    """

    def __init__(
        self, rows: SealedRows, pack: Callable[[R], Mapping[str, Any]], unpack: Callable[[Mapping[str, Any]], R]
    ) -> None:
        self._rows = rows
        self._pack = pack
        self._unpack = unpack

    async def find(self, issuer: str, redirect_uri: str) -> R | None:
        row = await self._rows.read("registration", row_key("registration", issuer, redirect_uri))
        try:
            return None if row is None else self._unpack(row.value)
        except (ValueError, TypeError, KeyError):
            return None

    async def get(self, issuer: str, redirect_uri: str, register: Callable[[], Awaitable[R]]) -> R:
        """Return the registration there is, or that which *register* makes: of all processes that ask at once, one
        registers. It has to be done within ``LEASE_S``. Raises what *register* raises."""
        key, holder = row_key("registration", issuer, redirect_uri), secrets.token_hex(8)
        while True:
            if (found := await self.find(issuer, redirect_uri)) is not None:
                return found
            if await self._rows.lease("registration", key, holder, LEASE_S):
                break
            await asyncio.sleep(_LOOK_S)
        try:
            # Another may have been done between the look and the lease.
            return await self.find(issuer, redirect_uri) or await self._keep(key, await register())
        finally:
            await self._rows.release("registration", key, holder)

    async def forget(self, registration: R) -> None:
        """Have the next ``get`` register anew, because the issuer knows this client no more. One that has been made
        meanwhile stays."""
        issuer, redirect_uri = registration.issuer, registration.redirect_uri
        found = await self.find(issuer, redirect_uri)
        if found is not None and found.client_id == registration.client_id:
            await self._rows.delete("registration", row_key("registration", issuer, redirect_uri))

    async def _keep(self, key: str, made: R) -> R:
        former = await self._rows.read("registration", key)  # one that cannot be unpacked
        version = former.version + 1 if former else 1
        if await self._rows.write(OpenedRow("registration", key, "", self._pack(made), version, made.expires_at)):
            return made
        # The lease had lapsed, and another process was faster: one client is used by all.
        return await self.find(made.issuer, made.redirect_uri) or made
