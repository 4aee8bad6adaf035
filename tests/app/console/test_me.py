"""The caller, as the console tells it."""

import pytest
from starlette.testclient import TestClient

from app.main import create_app
from tests.support.requirement import requirement
from wicketgate.access.identity import hash_key
from wicketgate.config.settings import Settings

KEYS = [
    {"id": "ops", "sha256": hash_key("wg_ops_1"), "actor": "olga", "permissions": ["tools:*", "ops:*"]},
    {"id": "app", "sha256": hash_key("wg_app_1"), "actor": "ann", "permissions": ["tools:shop:*", "ops:read"]},
    {"id": "no", "sha256": hash_key("wg_no_1"), "actor": "nina", "permissions": ["tools:*"]},
]


@requirement("OPS-220")
@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("wg_ops_1", ("olga", "ops", True, True)),
        ("wg_app_1", ("ann", "app", True, False)),
        ("wg_no_1", ("nina", "no", False, False)),
    ],
)
def test_a_caller_is_told_who_it_is_and_what_it_may_do(key: str, expected: tuple[str, str, bool, bool]) -> None:
    settings = Settings.model_validate({"auth": {"keys": KEYS}})
    client = TestClient(create_app(settings), base_url="http://127.0.0.1")
    told = client.get("/console/api/me", headers={"authorization": f"Bearer {key}"}).json()
    assert (told["actor"], told["key_id"], told["may"]["read"], told["may"]["write"]) == expected
    granted = next(each["permissions"] for each in KEYS if each["id"] == told["key_id"])
    assert told["permissions"] == granted


@requirement("OPS-234")
@pytest.mark.parametrize(
    ("path", "kept"),
    [
        *((path, "no-store") for path in ("me", "search?q=a", "tool?id=a", "held", "calls", "calls/a", "approvals")),
        *((path, "no-store") for path in ("servers", "servers/a", "keys", "configuration", "traffic")),
        ("map", "private, no-cache"),
    ],
)
def test_no_cache_keeps_what_a_caller_is_shown(path: str, kept: str) -> None:
    settings = Settings.model_validate({"auth": {"keys": KEYS}})
    client = TestClient(create_app(settings), base_url="http://127.0.0.1")
    answer = client.get(f"/console/api/{path}", headers={"authorization": "Bearer wg_ops_1"})
    assert (answer.headers["cache-control"], answer.headers["x-content-type-options"]) == (kept, "nosniff")
