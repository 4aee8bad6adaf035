"""What a permission covers (S3 "Auth Middleware", DESIGN §3 "Auth")."""

import pytest

from tests.support.requirement import requirement
from wicketgate.access.identity import Identity, parse_permissions


@requirement("DESIGN §3 Auth")
@pytest.mark.parametrize(
    ("granted", "wanted", "covered"),
    [
        ("tools:github:create_issue", "tools:github:create_issue", True),
        ("tools:github:*", "tools:github:create_issue", True),
        ("tools:*", "tools:github:create_issue", True),
        ("*", "tools:github:create_issue", True),
        ("tools:*:create_issue", "tools:gitlab:create_issue", True),
        ("tools:*:create_issue", "tools:gitlab:close_issue", False),
        ("tools:github:*", "tools:gitlab:create_issue", False),
        ("tools:github", "tools:github:create_issue", False),
        ("tools:github:create_issue:x", "tools:github:create_issue", False),
        ("tools:git*", "tools:github:create_issue", False),
        ("memory:*", "tools:github:create_issue", False),
        ("tools:github:*", "tools:github", False),
    ],
)
def test_a_star_covers_the_rest_of_its_level_or_everything_below(granted: str, wanted: str, covered: bool) -> None:
    assert Identity("a", (granted,)).allows(wanted) is covered


def test_no_permission_covers_nothing_and_any_one_of_several_suffices() -> None:
    assert not Identity("a").allows("tools:github:x")
    assert Identity("a", ("memory:*", "tools:github:x")).allows("tools:github:x")


def test_a_list_of_permissions_is_split_and_checked() -> None:
    assert parse_permissions(" memory:*, tools:github:* ,") == ("memory:*", "tools:github:*")
    for bad in ("tools::x", "tools:a b", "tools:git*", ":", "a,b:"):
        with pytest.raises(ValueError, match="not a permission"):
            parse_permissions(bad)
