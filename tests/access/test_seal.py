"""Seals open for their purpose and actor, under a ring of keys, in one spelling."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.clock import Clock
from tests.support.requirement import requirement
from wicketgate.access.seal import Seal, SealedText

OLD, NEW, OTHER = "o" * 32, "n" * 32, "x" * 32


def seal(*keys: str, own: bytes = b"own" * 16, clock: Clock | None = None) -> Seal:
    numbers = itertools.count()
    return Seal(keys, own, clock or Clock(1_000_000.5), lambda: f"uid_{next(numbers)}")


@given(st.text(), st.text(), st.text(), st.integers(1, 10_000))
def test_it_opens_as_what_was_sealed(purpose: str, actor: str, text: str, ttl_s: int) -> None:
    ring = seal(NEW)
    assert ring.open(purpose, actor, ring.seal(purpose, actor, text, ttl_s)) == SealedText(
        text, 1_000_000 + ttl_s, "uid_0"
    )


@requirement("ACCESS-17")
def test_each_token_has_an_id_of_its_own() -> None:
    ring = seal(NEW)
    opened = [ring.open("p", "a", ring.seal("p", "a", "same", 60)) for _ in range(3)]
    assert [each.uid for each in opened if each] == ["uid_0", "uid_1", "uid_2"]


@requirement("ACCESS-29")
def test_another_purpose_and_another_actor_open_nothing() -> None:
    ring = seal(NEW)
    token = ring.seal("approval", "ann", "text", 60)
    assert ring.open("approval", "ann", token) is not None
    assert ring.open("request state", "ann", token) is None
    assert ring.open("approval", "bob", token) is None
    assert ring.open("approval", "", token) is None


@requirement("ACCESS-29")
def test_the_first_key_seals_and_all_open() -> None:
    before, both, after = seal(OLD), seal(NEW, OLD), seal(NEW)
    old, new = before.seal("p", "a", "old", 60), both.seal("p", "a", "new", 60)
    assert both.open("p", "a", old) is not None
    assert both.open("p", "a", new) is not None
    assert after.open("p", "a", new) is not None
    assert after.open("p", "a", old) is None
    assert before.open("p", "a", new) is None
    assert seal(OTHER).open("p", "a", new) is None


@requirement("ACCESS-29")
def test_a_ring_that_changes_opens_by_what_it_is_now() -> None:
    ring = seal(OLD)
    token = ring.seal("p", "a", "text", 60)
    ring.replace_keys([NEW, OLD])
    assert ring.open("p", "a", token) is not None
    ring.replace_keys([NEW])
    assert ring.open("p", "a", token) is None


@requirement("ACCESS-29")
def test_without_keys_the_key_is_of_the_process_and_lasts_as_long() -> None:
    ring = seal()
    token = ring.seal("p", "a", "text", 60)
    assert seal(own=b"of another process" * 3).open("p", "a", token) is None
    ring.replace_keys([NEW])
    assert ring.open("p", "a", token) is not None
    # From then on the configured key seals.
    assert seal(NEW, own=b"of another process" * 3).open("p", "a", ring.seal("p", "a", "text", 60)) is not None


@requirement("ACCESS-17")
def test_it_expires_by_the_time_that_is_inside() -> None:
    clock = Clock(1_000_000.5)
    ring = seal(NEW, clock=clock)
    opened = ring.open("p", "a", ring.seal("p", "a", "text", 60))
    assert opened is not None
    clock.now = 1_000_059.9
    assert not ring.expired(opened)
    clock.now = 1_000_060.0
    assert ring.expired(opened)


@requirement("ACCESS-29")
def test_a_changed_token_and_another_spelling_of_it_open_nothing() -> None:
    ring = seal(NEW)
    # Texts of several lengths, so that the last letter has no, two or four bits that nothing reads.
    for text in ("", "a", "ab" * 9, "ab" * 17, "abc" * 20):
        token = ring.seal("p", "a", text, 60)
        assert ring.open("p", "a", token) is not None
        for place, letter in itertools.product(range(len(token)), "A_9Qgw"):
            changed = token[:place] + letter + token[place + 1 :]
            assert changed == token or ring.open("p", "a", changed) is None
        for changed in (token + "=", token + "====", f"{token[:8]}....{token[8:]}", token + "\n", " " + token):
            assert ring.open("p", "a", changed) is None


@requirement("ACCESS-17")
@pytest.mark.parametrize("token", ["", "A", "AA==", "é", "\0", "A" * 5_000, "=" * 10, "gAAAAA", "not a token"])
def test_rubbish_opens_nothing(token: str) -> None:
    assert seal(NEW).open("p", "a", token) is None


@requirement("ACCESS-17")
def test_it_reveals_nothing_to_a_reader_and_travels_in_json_and_text() -> None:
    token = seal(NEW).seal("approval", "owner_1", "shop:refund", 60)
    assert token.replace("-", "").replace("_", "").isalnum()
    assert not any(word in token for word in ("approval", "owner", "refund", "uid"))
