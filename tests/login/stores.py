"""Grants over the store that a URL names, as each process makes them."""

import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from wicketgate.errors import ConnectRequired
from wicketgate.login.grants import Bond, GrantEvent, Grants
from wicketgate.login.sealed_rows import RowSeal, SealedRows
from wicketgate.login.token_endpoint import Refresh
from wicketgate.login.user_credentials import GrantName, UserCredentials
from wicketgate.login.user_grants import UserGrants
from wicketgate.storage.login_rows import LoginRows
from wicketgate.storage.memory import MemoryStore
from wicketgate.storage.redis.client import RedisLink
from wicketgate.storage.redis.store import RedisStore
from wicketgate.storage.redis.url import is_redis, read_url
from wicketgate.storage.sqlite import SqliteStore
from wicketgate.storage.store import Store
from wicketgate.upstreams.mcp.grant_credentials import GrantCredentials

KEY = "k" * 40
BOND = Bond("https://mcp.example.com/mcp")


def sealed_rows(store: Store, now: Callable[[], float] = time.time) -> LoginRows:
    return LoginRows(store, RowSeal([KEY], b"own"), now)


@asynccontextmanager
async def opened_rows(url: str) -> AsyncIterator[LoginRows]:
    """*url* is that of a Redis, a file, or empty for memory."""
    link = RedisLink(read_url(url)) if is_redis(url) else None
    store: Store = MemoryStore()
    if url:
        store = SqliteStore(Path(url.removeprefix("sqlite:///"))) if link is None else RedisStore(link)
    yield sealed_rows(store)
    await store.aclose()
    if link is not None:
        await link.aclose()


def made_grants(
    rows: SealedRows, report: Callable[[GrantEvent], None] = lambda event: None, now: Callable[[], float] = time.time
) -> Grants:
    return Grants(rows, now, lambda: secrets.randbits(53), report)


async def connect(actor: str, scopes: frozenset[str]) -> ConnectRequired:
    return ConnectRequired("Connect first.", upstream="linear", url=f"{actor}?{' '.join(sorted(scopes))}")


def user_grants(grants: Grants, refresh: Refresh, clock: Callable[[], float] = time.monotonic) -> UserGrants:
    return UserGrants("linear", grants, refresh, connect, clock, lambda actor: BOND)


def credentials_for(users: UserCredentials, grant: GrantName) -> GrantCredentials:
    return GrantCredentials(users, grant, lambda token: None)
