"""Makes the rows in which logins are kept, sealed under ``auth.seal_keys``."""

import secrets
from time import time
from typing import TYPE_CHECKING

from wicketgate.config.settings import Settings
from wicketgate.errors import ConfigError
from wicketgate.login.rows import RowStore
from wicketgate.login.sealed_rows import RowSeal, SealedRows
from wicketgate.storage.measures import StorageMeasures
from wicketgate.storage.memory_logins import MemoryRowStore
from wicketgate.storage.sqlite_logins import SQLiteRowStore

if TYPE_CHECKING:
    from wicketgate.storage.redis.client import RedisLink


def make_sealed_rows(
    settings: Settings, measures: StorageMeasures | None = None, redis: "RedisLink | None" = None
) -> SealedRows:
    """Makes the configured rows, for a gate that has logins to keep. ``storage.fail`` says nothing of them: what cannot
    be read or kept is refused.

    Raises ConfigError, also where other processes, or this one after a restart, could not open what is kept.
    """
    storage, keys = settings.storage, settings.auth.ring()
    if not keys and (redis is not None or storage.sqlite_file is not None):
        raise ConfigError(
            "auth.seal_keys: logins are kept sealed in the store of storage.url, for all its processes: set the same"
            ' keys for all of them (seal_keys: ["${SEAL_KEY}"]; openssl rand -hex 32 makes one)'
        )
    store: RowStore
    if redis is not None:
        from wicketgate.storage.redis.logins import RedisRowStore

        store = RedisRowStore(redis, time)
    elif storage.sqlite_file is not None:
        store = SQLiteRowStore(storage.sqlite_file, time, measures)
    else:
        store = MemoryRowStore(time)
    return SealedRows(store, RowSeal(keys, secrets.token_bytes(32)))
