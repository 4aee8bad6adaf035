"""Rows that a test expects in a store."""

from wicketgate.storage.store import Kind, Row, Store


async def row_of(store: Store, kind: Kind, key: str) -> Row:
    row = await store.get(kind, key)
    assert row is not None, f"there is no row {key!r} of kind {kind.name!r}"
    return row
