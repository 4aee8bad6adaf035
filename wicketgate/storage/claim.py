"""Rows that belong to the first process that puts them: used approvals and leases."""

from wicketgate.storage.store import Conflict, Kind, Put, Store


async def claim(store: Store, kind: Kind, key: str, by: bytes, life_s: float) -> bool:
    """Puts a row with the data *by*, for *life_s*, unless it has other data. Returns whether it is *by*'s now.

    Raises StoreUnavailable and Full.
    """
    version = 0
    while True:
        try:
            await store.step([Put(kind, key, by, expect=version, life_s=life_s)], durable=True)
        except Conflict:
            row = await store.get(kind, key)
            if row is not None and row.data != by:
                return False
            # The row is *by*'s: an earlier claim, or this one, if the client of Redis repeated a step whose answer was
            # lost. It is put again, because only what this step writes is known to be durable.
            version = 0 if row is None else row.version
        else:
            return True
