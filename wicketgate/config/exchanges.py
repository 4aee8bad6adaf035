"""Makes the credentials of callers whose tokens are exchanged, besides those that other ways give."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from wicketgate.access.issuer import Issuer
from wicketgate.access.issuers import Issuers
from wicketgate.config.settings import Settings, UpstreamSettings
from wicketgate.config.upstreams import UsersOf
from wicketgate.errors import ConfigError
from wicketgate.login.counts import OnExchange
from wicketgate.login.user_credentials import UserCredentials
from wicketgate.net import Outgoing

if TYPE_CHECKING:
    from wicketgate.login.exchange import IdTokens
    from wicketgate.login.user_logins import Connect


def with_exchanges(
    others: UsersOf | None,
    issuers: Issuers,
    outgoing: Outgoing,
    now: Callable[[], float],
    id_tokens: "IdTokens | None" = None,
    at_issuer: "Callable[[str], Connect] | None" = None,
    report: OnExchange = lambda event: None,
) -> UsersOf:
    """Returns what gives the credentials of callers at any upstream: *others* those of logins in a browser, this module
    those for which tokens of *issuers* are exchanged. *now* is the time of day. *at_issuer* gives what offers callers
    of an upstream a login for its ID token. *report* gets the outcome of each exchange. It raises
    ConfigError for an upstream whose way is missing."""

    def logins(upstream: UpstreamSettings) -> UserCredentials:
        if others is None:
            raise ConfigError(f"upstreams.{upstream.name}.credentials: no logins of users are kept here")
        return others(upstream)

    def credentials(upstream: UpstreamSettings) -> UserCredentials:
        if upstream.credentials != "exchange":
            return logins(upstream)
        from wicketgate.config.upstream_logins import exchange_of
        from wicketgate.login.exchanged import ExchangedCredentials

        assert upstream.oauth is not None and upstream.oauth.exchange is not None
        wanted = upstream.oauth.exchange.issuer

        def issuer() -> Issuer | None:
            found = [each for each in issuers.all if wanted in ("", each.name)]
            return found[0] if len(found) == 1 else None

        login = logins(upstream) if upstream.connects_users else None
        way = exchange_of(upstream, outgoing, now, id_tokens)
        offers = at_issuer is not None and upstream.needs_id_tokens and login is None
        connect = at_issuer(upstream.name) if at_issuer is not None and offers else None
        return ExchangedCredentials(upstream.name, way, issuer, now, login, connect, report)

    return credentials


def exchanged_issuers(settings: Settings) -> frozenset[str]:
    """Returns the names of the issuers whose tokens some upstream exchanges."""
    exchanging = [upstream for upstream in settings.upstreams if upstream.credentials == "exchange"]
    found = [settings.exchanged_issuer(upstream) for upstream in exchanging]
    return frozenset(issuer.name for issuer in found if issuer is not None)


def id_token_issuers(settings: Settings) -> Mapping[str, Issuer]:
    """Returns the issuers at which callers log in for their ID tokens, by their names. Raises ConfigError for one where
    they cannot."""
    found = {}
    for upstream in settings.upstreams:
        if not upstream.needs_id_tokens:
            continue
        issuer = settings.exchanged_issuer(upstream)
        assert issuer is not None and upstream.oauth is not None and upstream.oauth.exchange is not None
        place, client = f"upstreams.{upstream.name}.oauth.exchange", upstream.oauth.exchange.client_id
        if issuer.login is None:
            raise ConfigError(
                f"{place}.by: id_jag needs the ID tokens of callers: set login of the issuer {issuer.name} in"
                " auth.issuers, so that they can log in there with a browser"
            )
        if issuer.login.client_id != client:
            raise ConfigError(
                f"{place}.client_id: by id_jag it is the client of login of the issuer {issuer.name} in auth.issuers,"
                " for which its ID tokens are"
            )
        found[issuer.name] = issuer.made()
    return found
