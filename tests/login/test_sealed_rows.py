"""Contents of rows are sealed, and open only as what they were written as."""

import logging
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.properties import examples
from tests.support.requirement import requirement
from wicketgate.login.sealed_rows import Row, RowSeal
from wicketgate.storage.login_rows import LoginRows
from wicketgate.storage.memory import MemoryStore
from wicketgate.storage.store import Kind

OLD, NEW = "o" * 40, "n" * 40


def row(**more: object) -> Row:
    made = Row("grant", "k1", "ann", {"token": "s3cret-\ud800"}, 1, time.time() + 600.1)
    return replace(made, **more)  # type: ignore[arg-type]


@requirement("ACCESS-153")
async def test_a_row_reads_as_it_was_written_and_its_contents_are_nowhere() -> None:
    store, written = MemoryStore(), row()
    rows = LoginRows(store, RowSeal([NEW], b"own"), time.time)
    assert await rows.write(written)
    assert await rows.read("grant", "k1") == written
    [kept] = await store.of_owner(Kind("login_grant", listed=True), None)
    assert not [secret for secret in (b"s3cret", NEW.encode()) if secret in kept.data]


@requirement("ACCESS-153")
@settings(max_examples=examples(60), deadline=None)
@given(
    st.sampled_from(["kind", "key", "owner", "version", "expires_at", "data"]),
    st.integers(0, 60),
    st.integers(0, 7),
)
def test_a_row_that_was_changed_in_any_part_does_not_open(part: str, at: int, bit: int) -> None:
    seal, made = RowSeal([NEW], b"own"), row()
    sealed = seal.seal(made)
    assert seal.open(made, sealed) == made
    data = bytearray(sealed)
    data[at % len(data)] ^= 1 << bit
    changes: dict[str, object] = {
        "kind": "flow",
        "key": "k2",
        "owner": "bob",
        "version": 2 + at,
        "expires_at": None if bit else (made.expires_at or 0) + 1,
    }
    if part == "data":
        assert seal.open(made, bytes(data)) is None
    else:
        assert seal.open(replace(made, **{part: changes[part]}), sealed) is None  # type: ignore[arg-type]


@requirement("ACCESS-153")
def test_the_first_key_seals_and_all_open_and_without_keys_that_of_the_process() -> None:
    made, seals = row(), [RowSeal(keys, b"own") for keys in ([OLD], [NEW, OLD], [OLD, NEW], [NEW], [])]
    opens = {
        number: [each.open(made, seal.seal(made)) is not None for each in (*seals, RowSeal([NEW], b"other"))]
        for number, seal in enumerate(seals)
    }
    assert opens == {
        0: [True, True, True, False, False, False],
        1: [False, True, True, True, False, True],
        2: [True, True, True, False, False, False],
        3: [False, True, True, True, False, True],
        4: [True, True, True, True, True, False],
    }


@requirement("ACCESS-154")
async def test_under_a_lost_key_a_row_is_gone_and_may_be_written_anew(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    before = LoginRows(store, RowSeal([OLD], b"own"), time.time)
    for written in (row(), row(version=2), row(key="k2")):
        await before.write(written)
    after = LoginRows(store, RowSeal([NEW], b"own"), time.time)
    with caplog.at_level(logging.ERROR):
        assert await after.read("grant", "k1") is None
        assert await after.of_owner("grant", "ann") == []
    assert caplog.text.count("cannot be opened with auth.seal_keys") == 1
    assert "s3cret" not in caplog.text
    again = row(value={"token": "again"})
    assert await after.write(again) == 3
    assert await after.read("grant", "k1") == replace(again, version=3)
    assert not await after.write(row()), "now it is there"
    assert await before.read("grant", "k1") is None
