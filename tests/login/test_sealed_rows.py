"""Contents of rows are sealed, and open only as what they were written as."""

import logging
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.properties import examples
from tests.support.requirement import requirement
from wicketgate.login.rows import Row
from wicketgate.login.sealed_rows import OpenedRow, RowSeal, SealedRows
from wicketgate.storage.memory_logins import MemoryRowStore

OLD, NEW = "o" * 40, "n" * 40


def opened(**more: object) -> OpenedRow:
    row = OpenedRow("grant", "k1", "ann", {"token": "s3cret-\ud800"}, 1, time.time() + 600.1)
    return replace(row, **more)  # type: ignore[arg-type]


def sealed(seal: RowSeal, row: OpenedRow) -> Row:
    return Row(row.kind, row.key, row.owner, seal.seal(row), row.version, row.expires_at)


@requirement("ACCESS-153")
async def test_a_row_reads_as_it_was_written_and_its_contents_are_nowhere() -> None:
    store = MemoryRowStore(time.time)
    rows = SealedRows(store, RowSeal([NEW], b"own"))
    assert await rows.write(opened())
    assert await rows.read("grant", "k1") == opened(expires_at=(await rows.of_owner("grant", "ann"))[0].expires_at)
    kept = await store.read("grant", "k1")
    assert kept is not None
    assert b"s3cret" not in kept.data
    assert NEW.encode() not in kept.data


@requirement("ACCESS-153")
@settings(max_examples=examples(60), deadline=None)
@given(
    st.sampled_from(["kind", "key", "owner", "version", "expires_at", "data"]),
    st.integers(0, 60),
    st.integers(0, 7),
)
def test_a_row_that_was_changed_in_any_part_does_not_open(part: str, at: int, bit: int) -> None:
    seal = RowSeal([NEW], b"own")
    row = sealed(seal, opened())
    assert seal.open(row) is not None
    data = bytearray(row.data)
    data[at % len(data)] ^= 1 << bit
    changes: dict[str, object] = {
        "kind": "flow",
        "key": "k2",
        "owner": "bob",
        "version": 2 + at,
        "expires_at": None if bit else (row.expires_at or 0) + 1,
        "data": bytes(data),
    }
    assert seal.open(replace(row, **{part: changes[part]})) is None  # type: ignore[arg-type]


@requirement("ACCESS-153")
def test_the_first_key_seals_and_all_open() -> None:
    old, both, swapped, new = (RowSeal(keys, b"own") for keys in ([OLD], [NEW, OLD], [OLD, NEW], [NEW]))
    of_old, of_both = sealed(old, opened()), sealed(both, opened())
    assert both.open(of_old) is not None
    assert new.open(of_both) is not None
    assert old.open(of_both) is None
    assert swapped.open(of_both) is not None
    assert new.open(of_old) is None


@requirement("ACCESS-154")
async def test_under_a_lost_key_a_row_is_gone_and_may_be_written_anew(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryRowStore(time.time)
    before = SealedRows(store, RowSeal([OLD], b"own"))
    await before.write(opened())
    await before.write(opened(version=2))
    await before.write(opened(key="k2"))
    after = SealedRows(store, RowSeal([NEW], b"own"))
    with caplog.at_level(logging.ERROR):
        assert await after.read("grant", "k1") is None
        assert await after.of_owner("grant", "ann") == []
    assert caplog.text.count("auth.seal_keys") == 1
    assert "s3cret" not in caplog.text
    assert await after.write(opened(value={"token": "again"}))
    found = await after.read("grant", "k1")
    assert found is not None
    assert (found.value, found.version) == ({"token": "again"}, 3)
    assert not await after.write(opened()), "now it is there"
    assert await before.read("grant", "k1") is None


@requirement("ACCESS-153")
async def test_without_keys_rows_end_with_the_process_and_what_it_sealed_opens_until_then() -> None:
    seal = RowSeal([], b"own")
    row = sealed(seal, opened())
    seal.replace_keys([NEW])
    assert seal.open(row) is not None
    assert RowSeal([NEW], b"other").open(row) is None
    assert RowSeal([NEW], b"other").open(sealed(seal, opened())) is not None
