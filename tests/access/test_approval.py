"""Sealed approvals: the call that one is for, and the ids that do not open (ACCESS-17)."""

import itertools

import pytest

from tests.support.clock import Clock
from tests.support.requirement import requirement
from wicketgate.access.seal import ApprovalSeal, ApprovalSubject, Seal

SUBJECT = ApprovalSubject("shop:refund#0123abcd", "dd" * 32, "aa" * 32, "bb" * 32)


def seal(secret: str = "k" * 32) -> ApprovalSeal:
    numbers = itertools.count()
    return ApprovalSeal(Seal([secret], b"own" * 16, Clock(1_000_000.0), lambda: str(next(numbers))), ttl_s=60)


@requirement("ACCESS-17")
def test_it_opens_for_its_actor_with_the_call_that_was_asked() -> None:
    sealed = seal()
    opened = sealed.open("owner_1", sealed.issue("owner_1", SUBJECT))
    assert opened is not None
    assert opened.subject == SUBJECT
    assert opened.sealed.expires_at == 1_000_060
    again = sealed.open("owner_1", sealed.issue("owner_1", SUBJECT))
    assert again is not None and again.sealed.uid != opened.sealed.uid


@requirement("CHAT-68", "ACCESS-17")
def test_another_actor_another_key_and_a_changed_id_open_nothing() -> None:
    sealed = seal()
    issued = sealed.issue("owner_1", SUBJECT)
    assert sealed.open("owner_2", issued) is None
    assert seal("other" * 8).open("owner_1", issued) is None
    for changed in range(4, len(issued)):
        letter = "A" if issued[changed] != "A" else "B"
        assert sealed.open("owner_1", issued[:changed] + letter + issued[changed + 1 :]) is None


@requirement("ACCESS-17")
@pytest.mark.parametrize(
    "text", ["", "apr_", "apr_A", "apr_" + "A" * 5_000, "apr_é", "apr_ab=", "x", "apr_" + "A" * 16]
)
def test_rubbish_opens_nothing(text: str) -> None:
    assert seal().open("owner_1", text) is None


@requirement("ACCESS-17")
def test_its_text_reveals_nothing_to_a_reader() -> None:
    sealed = seal()
    issued = sealed.issue("owner_1", SUBJECT)
    assert "refund" not in issued
    assert len(issued) < 400
    longest = sealed.issue(
        "a" * 128, ApprovalSubject(f"{'n' * 64}:{'t' * 128}@{'v' * 32}#0123abcd", "dd" * 32, "aa" * 32, "bb" * 32)
    )
    assert sealed.open("a" * 128, longest) is not None


@pytest.mark.parametrize("name", ["t" * 5_000, "\N{GRINNING FACE}" * 128, "\0" * 200])
def test_a_long_tool_name_makes_no_longer_id(name: str) -> None:
    sealed, other = seal(), f"shop:{name}#89abcdef"
    subject = ApprovalSubject(f"shop:{name}#0123abcd", "dd" * 32, "aa" * 32, "bb" * 32)
    issued = sealed.issue("a" * 128, subject)
    assert len(issued) <= 1_000
    opened = sealed.open("a" * 128, issued)
    assert opened is not None
    assert opened.subject.is_of(subject.tool_id)
    assert not opened.subject.is_of(other)
    assert not opened.subject.is_of(opened.subject.tool_id), "no tool can be named like the short form"
