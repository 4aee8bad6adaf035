"""Makes what keeps and leads the logins of users, for a gate with an upstream that needs them."""

import secrets
from collections.abc import Callable
from functools import partial
from time import monotonic, time
from typing import TYPE_CHECKING

from wicketgate.access.issuers import Issuers
from wicketgate.config.settings import Settings, UpstreamSettings
from wicketgate.config.upstreams import SharedOf, UsersOf
from wicketgate.errors import ConfigError
from wicketgate.login.counts import LoginCounts
from wicketgate.login.user_credentials import UserCredentials
from wicketgate.net import Credentials, Outgoing
from wicketgate.storage.measures import StorageMeasures

if TYPE_CHECKING:
    from wicketgate.login.browser_logins import BrowserLogins
    from wicketgate.login.grants import GrantEvent
    from wicketgate.login.kept_id_tokens import KeptIdTokens
    from wicketgate.login.user_logins import UserLogins
    from wicketgate.storage.redis.client import RedisLink

_NUMBER_BITS = 53
"""Any number of JSON can be so large."""


def make_user_logins(
    settings: Settings,
    report: "Callable[[GrantEvent], None]",
    counts: LoginCounts,
    issuers: Issuers,
    measures: StorageMeasures | None = None,
    redis: "RedisLink | None" = None,
    *,
    id_tokens: bool = False,
) -> "UserLogins | None":
    """Returns None where no upstream has ``credentials: user``, a login that is kept in the store, or with *id_tokens*
    callers who log in for it at their issuers. Raises ConfigError."""
    in_store = shares_logins(settings)
    needing = [
        upstream.name
        for upstream in settings.upstreams
        if upstream.connects_users
        or (id_tokens and upstream.needs_id_tokens)
        or (in_store and upstream.needs_operator_login)
    ]
    if not needing:
        return None
    if not settings.server.public_url:
        raise ConfigError(
            f"upstreams.{needing[0]}.credentials: user needs server.public_url, the URL at which browsers reach this"
            " service: users connect their accounts there"
        )
    if "callback" in needing:
        raise ConfigError("upstreams.callback: with logins another name is needed; this one is a path here")
    from wicketgate.config.logins import make_sealed_rows
    from wicketgate.login.user_logins import UserLogins

    rows = make_sealed_rows(settings, measures, redis)
    number = lambda: secrets.randbits(_NUMBER_BITS)  # noqa: E731
    return UserLogins(rows, settings.server.public_url, time, monotonic, number, report, counts, issuers.behind)


def users_of(logins: "UserLogins | None", outgoing: Outgoing) -> UsersOf:
    """Returns what gives the credentials of callers at an upstream; it raises ConfigError where none are kept."""

    def credentials(upstream: UpstreamSettings) -> UserCredentials:
        if logins is None:
            raise ConfigError(
                f"upstreams.{upstream.name}.credentials: the first upstream with user takes effect after a restart"
            )
        from wicketgate.config.upstream_logins import login_client

        client = login_client(upstream, outgoing, logins=logins)
        return logins.of(upstream.name, client)

    return credentials


def shares_logins(settings: Settings) -> bool:
    """Returns whether logins of the gate's own are kept in the store of ``storage.url``, for all its processes, and
    made at the gate: it has to be reached by browsers, and to seal what it keeps."""
    return bool(settings.storage.url != "memory://" and settings.auth.ring() and settings.server.public_url)


def shared_of(settings: Settings, logins: "UserLogins | None", outgoing: Outgoing) -> SharedOf | None:
    """Returns what gives the credentials of upstreams with a login of the gate's own; None where each machine keeps
    its own login. It raises ConfigError."""
    if not shares_logins(settings):
        return None
    at = settings.server.public_url

    def credentials(upstream: UpstreamSettings, learn: Callable[[str], None]) -> Credentials:
        if logins is None:
            raise ConfigError(
                f"upstreams.{upstream.name}.oauth: the first one with a login takes effect after a restart"
            )
        from wicketgate.config.upstream_logins import how_to_log_in, login_client
        from wicketgate.login.shared_grant import SharedGrant

        client = login_client(upstream, outgoing, logins=logins)
        grants = logins.shared(upstream.name, client)
        return SharedGrant(
            upstream.name, grants, how_to_log_in(upstream.name, at), learn, partial(logins.want, upstream.name)
        )

    return credentials


def make_browser_logins(
    logins: "UserLogins | None", issuers: Issuers, outgoing: Outgoing, id_tokens: "KeptIdTokens | None"
) -> "BrowserLogins | None":
    """Returns what leads browsers to the issuers of ``auth.issuers``; None where no upstream needs it."""
    if logins is None or id_tokens is None:
        return None
    from wicketgate.login.browser_logins import BrowserLogins
    from wicketgate.login.carrier import Carrier

    return BrowserLogins(
        issuers,
        logins.rows,
        lambda url: Carrier(outgoing, [url], setting="auth.issuers"),
        logins.public_url,
        time,
        monotonic,
        id_tokens,
    )
