"""No number and no name in a selector can break a view or swell its answer (gateway 97)."""

import json

import pytest

from app.errors import ViewFailed
from app.results.selector import select

JSON = json.dumps({"a": [1, 2, 3]}).encode()


@pytest.mark.parametrize("huge", [2**31, 2**63, 2**64, 10**30])
@pytest.mark.parametrize(
    "selector",
    [
        {"type": "head"},
        {"type": "lines"},
        {"type": "rows"},
        {"type": "json_keys", "keys": ["a"]},
        {"type": "json_path", "path": "$.a[*]"},
        {"type": "grep", "pattern": "a"},
    ],
    ids=lambda selector: str(selector["type"]),
)
def test_any_count_however_large_is_answered(selector: dict[str, object], huge: int) -> None:
    view = select(JSON, "application/json", {**selector, "start": huge})
    assert view.content == ""
    assert view.next is None


def test_names_that_would_swell_the_answer_are_refused() -> None:
    with pytest.raises(ViewFailed, match="together"):
        select(JSON, "application/json", {"type": "json_keys", "keys": ["k" * 1_000] * 3})
