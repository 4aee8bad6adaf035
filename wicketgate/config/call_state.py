"""Makes the stores of what calls leave to later calls: quotas, kept results, seen cards."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import monotonic, time
from typing import TYPE_CHECKING

from wicketgate.call_state import QuotaStore, ResultStore, SessionStore
from wicketgate.config.settings import StorageSettings
from wicketgate.storage.measures import StorageMeasures
from wicketgate.storage.memory_quota import MemoryQuotaStore
from wicketgate.storage.memory_results import MemoryResultStore
from wicketgate.storage.memory_store import MemorySessionStore
from wicketgate.storage.open_quota import OpenQuotaStore, SharedQuota
from wicketgate.storage.open_results import OpenResultStore
from wicketgate.storage.open_sessions import OpenSessionStore

if TYPE_CHECKING:
    import sqlite3

    from wicketgate.storage.redis.client import RedisLink


@dataclass(frozen=True, slots=True)
class CallState:
    quota: QuotaStore
    results: ResultStore
    sessions: SessionStore
    close: Callable[[], Awaitable[None]] | None = None

    async def aclose(self) -> None:
        """Gives what is owed to a shared store a last time, and closes the stores."""
        for store in (self.quota, self.results, self.sessions):
            await store.aclose()
        if self.close is not None:
            await self.close()


def make_call_state(
    settings: StorageSettings, measures: StorageMeasures | None = None, redis: "RedisLink | None" = None
) -> CallState:
    """Makes the configured stores, which count in *measures* and do without it as these say. Raises ConfigError.

    A file is checked now, and opened at its first use.
    """
    measures = measures or StorageMeasures()
    if redis is not None:
        from wicketgate.storage.redis.quota import RedisQuotaStore
        from wicketgate.storage.redis.results import RedisResultStore
        from wicketgate.storage.redis.sessions import RedisSessionStore

        return _open(RedisQuotaStore(redis), RedisResultStore(redis), RedisSessionStore(redis), measures)
    if settings.sqlite_file is None:
        return CallState(MemoryQuotaStore(monotonic), MemoryResultStore(monotonic), MemorySessionStore(monotonic))
    from wicketgate.storage.sqlite_file import prepare
    from wicketgate.storage.sqlite_quota import SQLiteQuotaStore, make_quota_table
    from wicketgate.storage.sqlite_results import SQLiteResultStore, make_result_tables
    from wicketgate.storage.sqlite_sessions import SQLiteSessionStore, make_session_tables
    from wicketgate.storage.sqlite_writer import SQLiteWriter

    def make_tables(disk: "sqlite3.Connection") -> None:
        make_quota_table(disk)
        make_result_tables(disk)
        make_session_tables(disk)

    file = settings.sqlite_file.absolute()
    prepare(file, make_tables)
    # One thread for the three: they would only wait for one another's lock.
    writer = SQLiteWriter(file, make_tables, measures=measures)
    stores = SQLiteQuotaStore(writer, time), SQLiteResultStore(writer, time), SQLiteSessionStore(writer, time)
    return _open(*stores, measures, writer.aclose)


def _open(
    quota: SharedQuota,
    results: ResultStore,
    sessions: SessionStore,
    measures: StorageMeasures,
    close: Callable[[], Awaitable[None]] | None = None,
) -> CallState:
    modes = measures.fail
    return CallState(
        OpenQuotaStore(quota, modes, monotonic),
        OpenResultStore(results, modes, monotonic),
        OpenSessionStore(sessions, modes, monotonic),
        close,
    )
