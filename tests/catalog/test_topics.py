import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.requirement import requirement
from wicketgate.catalog.clusters import shared_label, singular, topics


@requirement("DESIGN §3 Browsing")
@pytest.mark.parametrize(
    ("name", "namespace", "expected"),
    [
        ("list_pull_requests", "github", ("pull", "requests")),
        ("pull_request_read", "github", ("pull", "request")),
        ("acr_registry_repository_list", "azure", ("acr", "registry", "repository")),
        ("slack_send_message", "slack", ("message",)),
        ("repos.list", "github", ("repos",)),
        ("getUserByHTTPHeader", "web", ("user", "http", "header")),
        ("list_s3_buckets", "aws", ("s3", "buckets")),
        ("list", "files", ("list",)),
        ("get_all", "files", ("all",)),
        ("tool_0001", "big", ("tool",)),
        ("_1", "big", ()),
    ],
)
def test_a_name_tells_what_its_tool_is_about(name: str, namespace: str, expected: tuple[str, ...]) -> None:
    assert topics(name, namespace) == expected


@requirement("DESIGN §3 Browsing")
@pytest.mark.parametrize(
    ("one", "many"),
    [("issue", "issues"), ("policy", "policies"), ("status", "statuses"), ("box", "boxes"), ("branch", "branches"),
     ("database", "databases"), ("cache", "caches"), ("address", "addresses")],
)  # fmt: skip
def test_singular_and_plural_are_one_topic(one: str, many: str) -> None:
    assert singular(one) == singular(many)


@requirement("DESIGN §3 Browsing")
def test_a_label_is_what_all_have_in_common_in_the_plural_that_one_of_them_writes() -> None:
    assert shared_label([("pull", "request"), ("pull", "requests"), ("pull", "request", "diff")]) == (
        "pull_requests",
        2,
    )
    assert shared_label([("issue",), ("issues",), ("issue", "comments")]) == ("issues", 1)
    assert shared_label([("code", "scan"), ("code", "review")]) == ("code", 1)


@requirement("S0 §3.2")
@given(st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,40}", fullmatch=True))
def test_topics_are_made_of_the_characters_of_a_segment(name: str) -> None:
    assert all(word.isascii() and word.isalnum() and word == word.lower() for word in topics(name, "n"))
