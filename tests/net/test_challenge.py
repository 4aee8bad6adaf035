"""Challenges as servers write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wicketgate.net.challenge import read_challenges, refusal_of


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("Bearer", [("bearer", {})]),
        ('Bearer realm="a, b", scope="x y"', [("bearer", {"realm": "a, b", "scope": "x y"})]),
        ("Bearer scope=x, error=insufficient_scope", [("bearer", {"scope": "x", "error": "insufficient_scope"})]),
        ('Basic realm="a", bearer Scope="x"', [("basic", {"realm": "a"}), ("bearer", {"scope": "x"})]),
        ('Negotiate abc, Bearer a="\\"b\\""', [("negotiate", {}), ("abc", {}), ("bearer", {"a": '"b"'})]),
        ('Bearer a="1", a="2"', [("bearer", {"a": "1"})]),
        ("Bearer resource_metadata=https://a/b?c=d", [("bearer", {"resource_metadata": "https://a/b?c=d"})]),
        (
            'Bearer x="a Bearer resource_metadata=\\"https://evil\\""',
            [("bearer", {"x": 'a Bearer resource_metadata="https://evil"'})],
        ),
        ("", []),
    ],
)
def test_challenges_are_read(written: str, read: list[tuple[str, dict[str, str]]]) -> None:
    assert read_challenges(written) == read


@given(st.text(alphabet='Bearer realm=",\\ \t=x-', max_size=60) | st.text(max_size=60))
def test_no_header_cannot_be_read(written: str) -> None:
    read_challenges(written)


def test_a_refusal_says_what_is_lacking() -> None:
    header = {"www-authenticate": 'Bearer error="insufficient_scope", scope="a b a"'}
    refusal = refusal_of(403, header)
    assert refusal is not None
    assert (refusal.lacks_scopes, refusal.scopes) == (True, ("a", "b"))
    assert refusal_of(200, header) is None
    remapped = refusal_of(401, {"x-amzn-remapped-www-authenticate": 'Bearer resource_metadata="https://a"'})
    assert remapped is not None
    assert (remapped.resource_metadata, remapped.scopes) == ("https://a", None)
