"""Grants over the store that a URL names, as each process makes them."""

import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from wicketgate.errors import ConnectRequired
from wicketgate.login.grants import Bond, GrantEvent, Grants, no_report
from wicketgate.login.rows import RowStore
from wicketgate.login.sealed_rows import RowSeal, SealedRows
from wicketgate.login.tokens import Refresh
from wicketgate.login.user_grants import UserGrants
from wicketgate.storage.memory_logins import MemoryRowStore
from wicketgate.storage.redis.client import RedisLink
from wicketgate.storage.redis.logins import RedisRowStore
from wicketgate.storage.redis.names import Names
from wicketgate.storage.redis.url import is_redis, read_url
from wicketgate.storage.sqlite_logins import SQLiteRowStore

KEY = "k" * 40
BOND = Bond("https://mcp.example.com/mcp")


@asynccontextmanager
async def opened_rows(url: str, space: str = "") -> AsyncIterator[SealedRows]:
    """*url* is that of a Redis, a file, or empty for memory."""
    link = RedisLink(read_url(url), names=Names(space)) if is_redis(url) else None
    store: RowStore
    if link is not None:
        store = RedisRowStore(link)
    else:
        store = SQLiteRowStore(Path(url), time.time) if url else MemoryRowStore(time.time)
    yield SealedRows(store, RowSeal([KEY], b"own"))
    await store.aclose()
    if link is not None:
        await link.aclose()


def made_grants(
    rows: SealedRows, report: Callable[[GrantEvent], None] = no_report, now: Callable[[], float] = time.time
) -> Grants:
    return Grants(rows, now, lambda: secrets.randbits(53), report)


async def connect(actor: str, scopes: frozenset[str]) -> ConnectRequired:
    return ConnectRequired("Connect first.", upstream="linear", url=f"{actor}?{' '.join(sorted(scopes))}")


def user_grants(grants: Grants, refresh: Refresh, clock: Callable[[], float] = time.monotonic) -> UserGrants:
    return UserGrants("linear", grants, refresh, connect, clock, lambda actor: BOND)
