"""Makes the objects that store and run the logins of users, and gives the credentials that come of them.

Modules of logins are imported only if an upstream needs them.
"""

import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from time import monotonic, time
from typing import TYPE_CHECKING

from wicketgate.access.issuer import Issuer
from wicketgate.access.issuers import Issuers
from wicketgate.config.settings import Settings, UpstreamSettings
from wicketgate.config.upstreams import UsersOf
from wicketgate.errors import ConfigError
from wicketgate.gateway.audit_events import AuditEvents
from wicketgate.login.login_flow import ExchangeEvent, LoginCounts, Waiting
from wicketgate.login.user_credentials import UserCredentials
from wicketgate.net import Credentials, Outgoing
from wicketgate.storage.store import Store

if TYPE_CHECKING:
    from wicketgate.login.browser_logins import BrowserLogins, KeptIdTokens
    from wicketgate.login.exchanged import IdTokens
    from wicketgate.login.grants import GrantEvent
    from wicketgate.login.sealed_rows import SealedRows
    from wicketgate.login.user_logins import UserLogins

_NUMBER_BITS = 53
"""Any number of JSON can be so large."""


def make_user_logins(
    settings: Settings,
    report: "Callable[[GrantEvent], None]",
    counts: LoginCounts,
    issuers: Issuers,
    store: Store,
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
        raise ConfigError("upstreams.callback: an upstream of callers' logins cannot have this name; rename it")
    from wicketgate.login.user_logins import UserLogins

    rows = make_sealed_rows(settings, store)
    number = lambda: secrets.randbits(_NUMBER_BITS)  # noqa: E731
    return UserLogins(rows, settings.server.public_url, time, monotonic, number, report, counts, issuers.behind)


def make_sealed_rows(settings: Settings, store: Store) -> "SealedRows":
    """Makes the rows of logins in *store*, sealed under ``auth.seal_keys``. ``storage.fail`` does not apply to them: a
    row that cannot be read or written is refused.

    Raises ConfigError, also if other processes, or this one after a restart, could not open the rows.
    """
    from wicketgate.login.sealed_rows import RowSeal
    from wicketgate.storage.login_rows import LoginRows

    keys = settings.auth.ring()
    if not keys and settings.storage.url != "memory://":
        raise ConfigError(
            "auth.seal_keys: logins are kept sealed in the store of storage.url, for all its processes: set the same"
            ' keys for all of them (seal_keys: ["${SEAL_KEY}"]; openssl rand -hex 32 makes one)'
        )
    return LoginRows(store, RowSeal(keys, secrets.token_bytes(32)), time)


def shares_logins(settings: Settings) -> bool:
    """Returns whether logins of the gate's own are kept in the store of ``storage.url``, for all its processes, and
    made at the gate: it has to be reached by browsers, and to seal what it keeps."""
    return bool(settings.storage.url != "memory://" and settings.auth.ring() and settings.server.public_url)


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
        assert issuer is not None and upstream.exchange is not None
        place, client = f"upstreams.{upstream.name}.oauth.exchange", upstream.exchange.client_id
        if issuer.login is None:
            raise ConfigError(
                f"{place}.by: id_jag needs the ID tokens of callers: set login of the issuer {issuer.name} in"
                " auth.issuers, so that they can log in there with a browser"
            )
        if issuer.login.client_id != client:
            raise ConfigError(
                f"{place}.client_id: must be login.client_id of the issuer {issuer.name} in auth.issuers,"
                " for which its ID tokens are issued"
            )
        found[issuer.name] = issuer.made()
    return found


class GateLogins:
    """The logins of users at upstreams and at issuers, and the credentials that come of them.

    *accounts*, *browsers* and *id_tokens* are None if nothing needs them, or if the caller keeps them: a program that
    passes in *users* or the *upstreams* of a gate keeps their logins too, in *waiting* and *id_tokens*.
    """

    accounts: "UserLogins | None" = None
    browsers: "BrowserLogins | None" = None
    id_tokens: "KeptIdTokens | None" = None

    def __init__(
        self,
        settings: Settings,
        events: AuditEvents,
        issuers: Issuers,
        store: Store,
        outgoing: Outgoing,
        clock: Callable[[], float],
        *,
        is_kept_here: bool,
        users: UsersOf | None,
        waiting: Waiting | None,
        id_tokens: "IdTokens | None",
    ) -> None:
        self.counts = LoginCounts()
        self.waiting = waiting
        self._events = events
        self._issuers = issuers
        self._outgoing = outgoing
        self._clock = clock
        self._users = users
        self._is_kept_here = is_kept_here
        self._given_id_tokens = id_tokens
        self._keeps_id_tokens = is_kept_here and id_tokens is None
        self._id_token_issuers = self.id_token_issuers(settings)
        self._shared_at = settings.server.public_url if is_kept_here and shares_logins(settings) else ""
        if is_kept_here:
            self.accounts = make_user_logins(
                settings, events.of_grant, self.counts, issuers, store, id_tokens=self._keeps_id_tokens
            )
        if self.accounts is not None:
            from wicketgate.login.browser_logins import BrowserLogins, KeptIdTokens
            from wicketgate.login.oauth_http import Carrier

            self.waiting, rows = self.accounts.logins, self.accounts.rows
            self.id_tokens = KeptIdTokens(rows, lambda: self._id_token_issuers, clock)
            self.browsers = BrowserLogins(
                issuers,
                rows,
                lambda url: Carrier(outgoing, [url], setting="auth.issuers"),
                self.accounts.public_url,
                time,
                monotonic,
                self.id_tokens,
            )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        if self.accounts is None:
            yield
        else:
            async with self.accounts.running():
                yield

    def put_in_force(self, settings: Settings) -> None:
        """Keeps the logins of the upstreams of *settings* alone, under its seal keys."""
        self._id_token_issuers = self.id_token_issuers(settings)
        if self.accounts is not None:
            self.accounts.rows.seal.replace_keys(settings.auth.ring())
            self.accounts.keep_only(
                each.name
                for each in settings.upstreams
                if each.connects_users or each.needs_id_tokens or each.needs_operator_login
            )

    def id_token_issuers(self, settings: Settings) -> Mapping[str, Issuer]:
        """Returns the issuers at which callers log in here for their ID tokens. Raises ConfigError for one where they
        cannot."""
        return id_token_issuers(settings) if self._keeps_id_tokens else {}

    def users(self, upstream: UpstreamSettings) -> UserCredentials:
        """Returns the credentials of callers at *upstream*. Raises ConfigError if what it needs is not here."""
        if upstream.credentials == "exchange":
            return self._exchanged(upstream)
        if self._users is not None:
            return self._users(upstream)
        if self.accounts is None:
            later = "the first upstream with user takes effect after a restart"
            why = later if self._is_kept_here else "logins of users are not stored here"
            raise ConfigError(f"upstreams.{upstream.name}.credentials: {why}")
        from wicketgate.config.upstream_logins import login_client

        return self.accounts.of(upstream.name, login_client(upstream, self._outgoing, logins=self.accounts))

    def shared(self, upstream: UpstreamSettings, learn: Callable[[str], None]) -> Credentials | None:
        """Returns the credentials of *upstream* with the gate's own login; None if each machine has its own. *learn*
        gets each token before it is used. Raises ConfigError."""
        if not self._shared_at:
            return None
        if self.accounts is None:
            raise ConfigError(
                f"upstreams.{upstream.name}.oauth: the first one with a login takes effect after a restart"
            )
        from wicketgate.config.upstream_logins import how_to_log_in, login_client
        from wicketgate.login.user_grants import SharedGrant

        client = login_client(upstream, self._outgoing, logins=self.accounts)
        grants = self.accounts.shared(upstream.name, client)
        return SharedGrant(upstream.name, grants, how_to_log_in(upstream.name, self._shared_at), learn)

    def _exchanged(self, upstream: UpstreamSettings) -> UserCredentials:
        from wicketgate.config.upstream_logins import exchanged_credentials

        connect = None
        if self.accounts is not None and self._keeps_id_tokens and upstream.needs_id_tokens:
            connect = self.accounts.at_issuer(upstream.name)
        id_tokens = self._given_id_tokens or self.id_tokens
        return exchanged_credentials(
            upstream, self._issuers, self._outgoing, self._clock, id_tokens, connect, self._count
        )

    def _count(self, event: ExchangeEvent) -> None:
        self.counts.exchanges[event.upstream, event.outcome] += 1
        self._events.of_exchange(event)
