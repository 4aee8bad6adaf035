"""An application behind all that is decided about a request before its route."""

from collections.abc import Sequence
from typing import Any, cast

from starlette.types import ASGIApp

from app.pace import Pace
from middleware.auth import AuthGuard
from middleware.client_address import TrustedProxies
from middleware.correlation import AccessLog
from middleware.front import Front
from middleware.hosts import HostCheck, HostRule
from middleware.refusals import BodyLimit
from routers.refusals import refusal_of
from tests.support.clock import Clock
from wicketgate.access.authenticator import Authenticator, KeyUses
from wicketgate.access.identity import HashedKey, KeyRing
from wicketgate.access.issuers import Issuers
from wicketgate.access.resources import Resources
from wicketgate.engine.limits import Drain
from wicketgate.net import HttpClient, Outgoing


class _Started:
    def started(self) -> bool:
        return True


def front(app: ASGIApp, *, keys: Sequence[HashedKey] = (), local_only: bool = False, pace: Pace | None = None) -> Front:
    clock = Clock(0.0)
    issuers = Issuers(lambda: HttpClient(Outgoing()), clock, clock)
    authenticator = Authenticator(KeyRing(keys, clock), issuers, Resources("", (), ""))
    return Front(
        app,
        pace=pace or Pace(),
        proxies=TrustedProxies(),
        access_log=AccessLog(lambda: "req_1"),
        hosts=HostCheck(HostRule(["localhost"])),
        readers=None,
        drain=Drain(cast(Any, _Started()), cast(Any, None)),
        guard=AuthGuard(authenticator, KeyUses(), local_only=local_only),
        bodies=BodyLimit(10_000_000, 60),
        refusal_of=refusal_of,
    )
