"""The issuers and the gateway in front, as they are configured (ACCESS-120, ACCESS-136)."""

from typing import Any

import pytest
from pydantic import ValidationError

from tests.support.requirement import requirement
from wicketgate.config.settings import Settings

CORP = {"name": "corp", "issuer": "https://id.example.com"}
SECRET = "0123456789abcdef0123456789abcdef"
FRONT = {"addresses": ["10.0.0.0/8"], "secrets": [SECRET]}
ASKING = {"client_id": "a", "client_secret": "b"}
KEY = {"id": "k", "sha256": "0" * 64}


def settings(public_url: str = "https://gate.example.com", host: str = "0.0.0.0", **auth: Any) -> Settings:
    return Settings.model_validate({"server": {"public_url": public_url, "host": host}, "auth": auth})


@requirement("ACCESS-136")
def test_an_issuer_or_a_gateway_in_front_stands_in_for_keys() -> None:
    made = settings(issuers=[CORP]).auth.issuers[0].made()
    assert (made.name, made.url, made.audience) == ("corp", "https://id.example.com", ("{resource}",))
    assert (made.algorithms, made.actor) == (("RS256", "ES256"), "sub")
    assert made.grants[0].permissions == ("tools:*",)
    assert settings("", trusted_headers=FRONT).auth.identifies
    assert settings("https://gate.example.com/gw/", issuers=[CORP]).server.public_url == "https://gate.example.com/gw"
    with pytest.raises(ValidationError, match="a loopback address"):
        settings()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"issuer": "http://id.example.com"}, "https://"),
        ({"issuer": "https://id.example.com/?x=1"}, "without user, query"),
        ({"issuer": "id.example.com"}, "URL"),
        ({"jwks_uri": "http://id.example.com/keys"}, "https://"),
        ({"introspection": {"url": "ftp://x", "client_id": "a", "client_secret": "b"}}, "URL"),
        ({"introspection": {**ASKING, "prefix": "wg_corp"}}, "this service's keys"),
        ({"introspection": {**ASKING, "prefix": "a b"}}, "prefix"),
        ({"algorithms": ["HS256"]}, "algorithms"),
        ({"algorithms": ["none"]}, "algorithms"),
        ({"algorithms": []}, "algorithms"),
        ({"audience": []}, "audience"),
        ({"audience": [""]}, "at least 1"),
        ({"name": "a:b"}, "name"),
        ({"scopes": ['a"b']}, "not a scope"),
        ({"permissions": [{"grant": ["tools:*"], "scope": "a", "role": "b"}]}, "one of scope"),
        ({"permissions": [{"grant": ["tools:*"], "claim": "a"}]}, "belong together"),
        ({"permissions": [{"grant": ["a b"]}]}, "not a permission"),
        ({"permissions": [{"grant": []}]}, "grant"),
    ],
)
@requirement("ACCESS-136")
def test_an_issuer_that_cannot_be_trusted_so_is_refused(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValidationError, match=expected):
        settings(issuers=[{**CORP, **changes}])


@pytest.mark.parametrize(
    "changes",
    [{"addresses": []}, {"addresses": ["here"]}, {"secrets": ["short"]}, {"secrets": [""]}],
)
@requirement("ACCESS-136", "ACCESS-143")
def test_a_gateway_in_front_without_address_or_secret_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        settings(trusted_headers={**FRONT, **changes})


@pytest.mark.parametrize(
    "url", ["http://gate.example.com", "gate.example.com", "https://g.example/?x", "https://u@g.example"]
)
@requirement("ACCESS-136")
def test_issuers_need_the_url_that_clients_use(url: str) -> None:
    with pytest.raises(ValidationError, match="public_url"):
        settings(url, issuers=[CORP])
    with pytest.raises(ValidationError, match=r"auth\.issuers needs server\.public_url"):
        settings("", issuers=[CORP])
    assert settings("http://127.0.0.1:8080", issuers=[CORP])


@requirement("ACCESS-120")
def test_two_sources_of_callers_never_make_one_actor() -> None:
    other = {"name": "guests", "issuer": "https://guests.example.com"}
    for auth, expected in (
        ({"issuers": [CORP, {**other, "name": "corp"}]}, "'corp' is used twice"),
        ({"issuers": [CORP, {**other, "issuer": CORP["issuer"]}]}, "is used twice"),
        ({"issuers": [{**CORP, "name": "front"}], "trusted_headers": FRONT}, "'front' is used twice"),
        ({"issuers": [CORP], "keys": [{**KEY, "actor": "corp:ann"}]}, "one of the issuer corp"),
        ({"trusted_headers": FRONT, "keys": [{**KEY, "actor": "front:ann"}]}, "one of the issuer front"),
    ):
        with pytest.raises(ValidationError, match=expected):
            settings(**auth)
    assert settings(issuers=[CORP, other], keys=[{**KEY, "actor": "corp2:ann"}])


@requirement("ACCESS-231")
def test_issuers_that_are_asked_about_opaque_tokens_are_told_apart_by_a_prefix() -> None:
    def corp_and_other(one: str, two: str) -> list[dict[str, Any]]:
        return [
            {**CORP, "introspection": {**ASKING, "prefix": one}},
            {"name": "other", "issuer": "https://o.example.com", "introspection": {**ASKING, "prefix": two}},
        ]

    for one, two, expected in (
        ("", "", "corp, other: several issuers have introspection"),
        ("c_", "", "other: several issuers have introspection.*introspection.prefix"),
        ("c_", "c_", "corp and other.*begins like the other's"),
        ("c_", "c_o", "corp and other.*begins like the other's"),
    ):
        with pytest.raises(ValidationError, match=expected):
            settings(issuers=corp_and_other(one, two))
    made = settings(issuers=corp_and_other("c_", "o_")).auth.issuers[1].made().introspection
    assert made is not None and made.prefix == "o_"
    assert settings(issuers=corp_and_other("", "")[:1])


@requirement("ACCESS-136")
def test_secrets_of_issuers_are_masked() -> None:
    whole = settings(
        issuers=[{**CORP, "introspection": {"client_id": "a", "client_secret": "hush-hush"}}], trusted_headers=FRONT
    )
    assert {"hush-hush", SECRET} <= set(whole.secrets())
    assert "hush-hush" not in repr(whole) and SECRET not in repr(whole)
    assert "hush-hush" not in repr(whole.auth.issuers[0].made())
    assert whole.auth.trusted_headers is not None and SECRET not in repr(whole.auth.trusted_headers.made())
