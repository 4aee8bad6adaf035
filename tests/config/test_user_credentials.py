"""Settings of servers that are called with each has its own account."""

from typing import Any

import pytest
from pydantic import ValidationError

from tests.support.requirement import requirement
from tests.support.token_users import TokenUsers
from wicketgate.config.settings import Settings, UpstreamSettings
from wicketgate.config.upstreams import UpstreamMaker
from wicketgate.errors import ConfigError
from wicketgate.net import Outgoing
from wicketgate.upstreams.mcp.per_user import UserUpstream

URL = "https://mcp.example.net/mcp"


@requirement("UP-179")
@pytest.mark.parametrize(
    ("entry", "part"),
    [
        ({"command": ["server"], "credentials": "user"}, "belongs to url"),
        ({"openapi": "api.json", "credentials": "user"}, "belongs to url"),
        ({"url": URL, "credentials": "user", "headers": {"authorization": "Bearer x"}}, "each has its own"),
        ({"url": URL, "credentials": "user", "cache": {"shared": True}}, "each result belongs to one caller"),
        ({"url": URL, "credentials": "user", "instructions": True}, "instructions"),
    ],
)
def test_settings_that_would_give_one_account_to_all_are_refused(entry: dict[str, Any], part: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Settings.model_validate({"upstreams": [{"name": "linear", **entry}]})
    assert part in str(refused.value)


@requirement("UP-179")
def test_a_server_with_accounts_needs_the_logins_of_its_users() -> None:
    settings = UpstreamSettings(name="linear", url=URL, credentials="user", headers={"X-Tenant": "t"})  # type: ignore[dict-item]
    with pytest.raises(ConfigError) as refused:
        UpstreamMaker(Outgoing()).upstream(settings)
    assert "upstreams.linear.credentials" in str(refused.value)
    assert isinstance(UpstreamMaker(Outgoing(), users=lambda _: TokenUsers()).upstream(settings), UserUpstream)


WAY = {"client_id": "gate", "client_secret": "s"}
CORP = {"name": "corp", "issuer": "https://id.example"}
HOME = {"name": "home", "issuer": "https://home.example"}


@requirement("UP-193")
@pytest.mark.parametrize(
    ("oauth", "issuers", "part"),
    [
        (None, [CORP], "belong together"),
        ({"exchange": WAY}, [], "auth.issuers is empty"),
        ({"exchange": WAY}, [CORP, HOME], "give the name of one of auth.issuers"),
        ({"exchange": {**WAY, "issuer": "other"}}, [CORP], "give the name of one of auth.issuers"),
        ({"exchange": {"client_id": "gate"}}, [CORP], "give client_secret"),
        ({"exchange": {**WAY, "private_key": "x"}}, [CORP], "must be the PEM"),
        ({"exchange": {**WAY, "auth_method": "private_key_jwt"}}, [CORP], "belong together"),
        ({"exchange": {**WAY, "token_url": "http://id.example/token"}}, [CORP], "https://"),
        ({"exchange": {**WAY, "by": "id_jag"}}, [CORP], "needs oauth.issuer"),
        ({"exchange": {**WAY, "by": "id_jag", "audience": "a"}}, [CORP], "audience belongs to by: token"),
        ({"exchange": WAY, "token_url": "https://as.example", **WAY}, [CORP], "leave token_url and grant out"),
    ],
)
def test_an_exchange_is_configured_whole(oauth: Any, issuers: list[Any], part: str) -> None:
    upstream = {"name": "files", "url": URL, "credentials": "exchange", **({"oauth": oauth} if oauth else {})}
    with pytest.raises(ValidationError) as refused:
        Settings.model_validate(
            {"server": {"public_url": "https://g.example"}, "auth": {"issuers": issuers}, "upstreams": [upstream]}
        )
    assert part in str(refused.value)


@requirement("UP-193")
def test_an_exchange_without_its_kind_of_credentials_is_refused() -> None:
    with pytest.raises(ValidationError) as refused:
        Settings.model_validate({"upstreams": [{"name": "files", "url": URL, "oauth": {"exchange": WAY}}]})
    assert "belong together" in str(refused.value)


@requirement("UP-193")
def test_the_secret_of_an_exchange_is_masked() -> None:
    upstream = UpstreamSettings.model_validate(
        {"name": "files", "url": URL, "credentials": "exchange", "oauth": {"exchange": WAY | {"client_secret": "s3"}}}
    )
    assert {"s3", "gate:s3"} <= set(upstream.secrets())
