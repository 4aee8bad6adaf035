"""The text that a start shows, about what callers come with."""

from typing import Any

import pytest

from app.lifespan import usual_greeting
from tests.support.requirement import requirement
from wicketgate.access.identity import hash_key
from wicketgate.config.settings import Settings

KEYS = [{"id": "a", "sha256": hash_key("wg_a_1"), "actor": "ann", "permissions": ["*"]}]
ISSUERS = [{"name": "corp", "issuer": "https://id.example.com"}, {"name": "guests", "issuer": "https://g.example.com"}]
FRONT = {"addresses": ["10.0.0.7"], "secrets": ["x" * 32]}


@requirement("OPS-382")
@pytest.mark.parametrize("keys", [[], KEYS])
@pytest.mark.parametrize("issuers", [[], ISSUERS[:1], ISSUERS])
@pytest.mark.parametrize("front", [None, FRONT])
def test_it_names_what_is_configured_and_nothing_else(keys: Any, issuers: Any, front: Any) -> None:
    auth = {"keys": keys, "issuers": issuers, "trusted_headers": front}
    server = {"public_url": "https://gate.example.com"}
    text = usual_greeting("http://127.0.0.1:8080", None, Settings.model_validate({"server": server, "auth": auth}))
    assert ("one of auth.keys" in text) is bool(keys)
    for issuer in ISSUERS:
        assert (issuer["issuer"] in text) is (issuer in issuers)
    assert ("the gateway in front" in text) is (front is not None)
    assert "Bearer $WG_KEY" in text
    assert ("WG_KEY" in text.partition("Try it")[0]) is bool(keys or issuers)
