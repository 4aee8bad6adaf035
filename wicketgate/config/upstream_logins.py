"""Makes what asks for the tokens of an upstream, of its section ``oauth``."""

import os
import secrets
from collections.abc import Callable
from time import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pydantic import SecretStr

from wicketgate.access.issuer import Issuer
from wicketgate.access.issuers import Issuers
from wicketgate.config.settings import UpstreamSettings
from wicketgate.config.settings.upstreams import OAuthSettings
from wicketgate.errors import ConfigError
from wicketgate.login.assertion import assertion_signer, read_private_key
from wicketgate.login.client import LoginClient, LoginPlan
from wicketgate.login.exchanged import (
    Exchange,
    ExchangedCredentials,
    IdJagExchange,
    IdTokens,
    TokenExchange,
)
from wicketgate.login.issued import MachinePlan, MachineSource, TokenSource
from wicketgate.login.kept_login import LoginFile, LoginSource, login_folder
from wicketgate.login.login_flow import OnExchange
from wicketgate.login.oauth_http import Carrier
from wicketgate.login.registrar import AuthMethod, GivenClient
from wicketgate.login.token_endpoint import Client
from wicketgate.net import Outgoing

if TYPE_CHECKING:
    from wicketgate.login.user_logins import Connect, UserLogins

_METHODS: dict[str, AuthMethod] = {
    "basic": "client_secret_basic",
    "post": "client_secret_post",
    "private_key_jwt": "private_key_jwt",
}


def token_source(settings: UpstreamSettings, outgoing: Outgoing) -> TokenSource:
    """Returns what gives the tokens of an upstream with ``oauth``."""
    oauth = _oauth(settings)
    if oauth.needs_person:
        return LoginSource(login_file(settings), login_client(settings, outgoing), time, how_to_log_in(settings.name))
    carrier = Carrier(outgoing, [oauth.token_url or settings.url], oauth.private_hosts, "oauth.token_url")
    plan = MachinePlan(
        oauth.client_id,
        _METHODS[oauth.auth_method or "basic"] if oauth.client_secret or oauth.private_key else "none",
        _revealed(oauth.client_secret),
        oauth.token_url,
        settings.url,
        oauth.issuer,
        tuple(oauth.scope.split()),
        oauth.audience,
        oauth.resource,
        _revealed(oauth.refresh_token),
    )
    return MachineSource(plan, carrier, time, _assertion(oauth))


def login_client(
    settings: UpstreamSettings,
    outgoing: Outgoing,
    scopes: tuple[str, ...] = (),
    logins: "UserLogins | None" = None,
) -> LoginClient:
    """Returns the client for logins at an upstream. *scopes* replace those of its settings. With *logins* the gate has
    documents of its own as a client."""
    oauth = _oauth(settings)
    given = None
    if oauth.client_id:
        secret, method = _revealed(oauth.client_secret), _METHODS.get(oauth.auth_method)
        given = GivenClient(oauth.issuer, oauth.client_id, secret, oauth.private_key is not None, method)
    plan = LoginPlan(
        settings.url,
        oauth.issuer,
        scopes or tuple(oauth.scope.split()),
        oauth.resource,
        oauth.authorize_params,
        given,
        logins.document_url if logins is not None else "",
    )
    carrier, sign_as = Carrier(outgoing, [settings.url], oauth.private_hosts), logins.sign_as if logins else None
    return LoginClient(plan, carrier, time, _assertion(oauth), sign_as=sign_as)


def exchanged_credentials(
    settings: UpstreamSettings,
    issuers: Issuers,
    outgoing: Outgoing,
    now: Callable[[], float],
    id_tokens: IdTokens | None = None,
    connect: "Connect | None" = None,
    report: OnExchange = lambda event: None,
) -> ExchangedCredentials:
    """Returns the credentials of callers at an upstream with ``credentials: exchange``, where their tokens of *issuers*
    are exchanged. *now* is the time of day. *connect* offers a caller the login for an ID token; *report* gets the
    outcome of each exchange. Raises ConfigError without *id_tokens* where these are needed."""
    assert settings.exchange is not None
    wanted = settings.exchange.issuer

    def issuer() -> Issuer | None:
        found = [each for each in issuers.all if wanted in ("", each.name)]
        return found[0] if len(found) == 1 else None

    way = _exchange_of(settings, outgoing, now, id_tokens)
    return ExchangedCredentials(settings.name, way, issuer, now, connect, report)


def _exchange_of(
    settings: UpstreamSettings, outgoing: Outgoing, now: Callable[[], float], id_tokens: IdTokens | None
) -> Exchange:
    oauth = _oauth(settings)
    given = oauth.exchange
    assert given is not None
    own = Client(
        "",
        given.token_url,
        given.client_id,
        _METHODS[given.auth_method],
        _revealed(given.client_secret),
        _signer(given.private_key, given.client_id, given.key_id),
    )

    def carrier(issuer: str) -> Carrier:
        # Issuers are the operator's word, here and in ``auth.issuers``; what their metadata names is guarded.
        return Carrier(outgoing, [issuer, given.token_url], oauth.private_hosts, "oauth.exchange")

    scopes = tuple(oauth.scope.split())
    resource = {"auto": _resource(settings.url), "omit": ""}.get(oauth.resource, oauth.resource)
    if given.by == "token":
        return TokenExchange(own, carrier, now, audience=given.audience, resource=resource, scopes=scopes)
    if id_tokens is None:
        raise ConfigError(
            f"upstreams.{settings.name}.oauth.exchange.by: id_jag needs ID tokens of callers, which are not stored"
            " here; the first upstream with it takes effect after a restart"
        )
    method = _METHODS[oauth.auth_method or "basic"]
    there = Client("", "", oauth.client_id, method, _revealed(oauth.client_secret), _assertion(oauth))
    return IdJagExchange(
        own, oauth.issuer, there, id_tokens, carrier, now, resource=resource or _resource(settings.url), scopes=scopes
    )


def _resource(url: str) -> str:
    """The name of the server at *url* for tokens: without user, query and fragment."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2].lower(), query="", fragment="").geturl()


def login_file(settings: UpstreamSettings) -> LoginFile:
    """Returns where the login at an upstream is kept on this machine."""
    return LoginFile(login_folder(os.environ), settings.name, settings.url)


def how_to_log_in(name: str, at: str = "") -> str:
    """Returns what the operator does for a login, at the gate with the URL *at* if that keeps it."""
    return f"wicketgate login {name} --url {at}" if at else f"wicketgate login {name}"


def scopes_mend(settings: UpstreamSettings) -> str:
    """Returns what the operator does for more scopes at an upstream with ``oauth``."""
    scope = "add them to oauth.scope"
    return f"{scope}, then: {how_to_log_in(settings.name)}" if _oauth(settings).needs_person else scope


def _oauth(settings: UpstreamSettings) -> OAuthSettings:
    return settings.oauth or OAuthSettings()


def _assertion(oauth: OAuthSettings) -> Callable[[str], str] | None:
    return _signer(oauth.private_key, oauth.client_id, oauth.key_id)


def _signer(private_key: SecretStr | None, client_id: str, key_id: str) -> Callable[[str], str] | None:
    if private_key is None:
        return None
    key = read_private_key(private_key.get_secret_value())
    return assertion_signer(key, client_id, key_id, time, secrets.token_hex)


def _revealed(secret: SecretStr | None) -> str:
    return secret.get_secret_value() if secret is not None else ""
