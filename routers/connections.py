"""``/connections``: the accounts that a caller has connected at tool servers (ACCESS-194 to ACCESS-196)."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from routers.console import identity_of
from routers.json_bodies import REFUSAL, in_path, parameters, query
from routers.refusals import Refused, need, refuse
from wicketgate.access.identity import Identity
from wicketgate.access.shares import RETRY_AFTER_S
from wicketgate.errors import RateLimited, StoreUnavailable
from wicketgate.login.login_flow import LoginOutcome, LoginRefused

if TYPE_CHECKING:
    from wicketgate.login.grants import Grant
    from wicketgate.login.user_logins import UserLogins

MAX_WAIT_S = 25.0
_EVERYBODY = "*"
_FAILURES = {
    401: {"description": "No valid credential", "content": REFUSAL},
    403: {"description": "Only operators may do this for others", "content": REFUSAL},
    404: {"description": "There is no such server for this caller", "content": REFUSAL},
    429: {"description": "Too many logins are under way", "content": REFUSAL},
    503: {"description": "The store of logins cannot be reached", "content": REFUSAL},
}
_ACTOR, _NAME, _FLOW = query("actor"), in_path("upstream"), query("f", required=True)
_WAIT = query("wait_s", {"type": "number", "minimum": 0, "maximum": MAX_WAIT_S, "default": 0})


class Connection(BaseModel):
    """An account at a tool server. *actor* is empty for the one that all callers share. *issuer* is the host at which
    its owner logged in. *state*: ``reconnect`` if the issuer takes it no more, or it was given at another server of
    this name. *token_ends*: of the token in use; *renewed*: it is renewed by itself."""

    upstream: str
    actor: str
    issuer: str
    state: Literal["active", "reconnect"]
    scopes: list[str]
    connected_at: str
    token_ends: str | None
    renewed: bool


class ConnectionList(BaseModel):
    """*open*: the servers at which the caller has no account yet."""

    connections: list[Connection]
    open: list[str]


class OfferedLogin(BaseModel):
    """*url* is the page on which the caller connects an account, *flow* asks for its outcome. *expires_at* is in
    seconds since the epoch."""

    upstream: str
    url: str
    flow: str
    expires_at: float


class LoginState(BaseModel):
    outcome: LoginOutcome


class Disconnected(BaseModel):
    """*ended*: the accounts that were disconnected."""

    ended: int


def connections_router(logins: "UserLogins | None") -> APIRouter:
    """*logins* is None where no upstream has accounts of users."""
    router = APIRouter(prefix="/connections", tags=["connections"], responses=_FAILURES)  # type: ignore[arg-type]

    @router.get("", operation_id="listConnections", response_model=ConnectionList, openapi_extra=parameters(_ACTOR))
    async def listed(request: Request) -> ConnectionList:
        """Lists the accounts of the caller; with `actor`, those of another one, or with `*` of all, for callers with
        `ops:read`. These see the logins that all callers share besides their own."""
        identity, actor = identity_of(request), _asked(request)
        if actor != identity.actor:
            need(request, "ops:read")
        if logins is None:
            return ConnectionList(connections=[], open=[])
        own = actor == identity.actor
        with _reached():
            grants = await logins.accounts(None if actor == _EVERYBODY else actor)
            if own and identity.allows("ops:read"):
                gates = await logins.accounts("")
                grants = [*grants, *(grant for grant in gates if logins.is_shared(grant.upstream))]
        has = {grant.upstream for grant in grants}
        possible = [name for name in logins.names if may_use(identity, name)]
        if identity.allows("ops:write"):
            possible += logins.shared_names
        without = [name for name in possible if name not in has]
        return ConnectionList(connections=[_shown(grant) for grant in grants], open=without if own else [])

    @router.post(
        "/{upstream}", operation_id="connectAccount", response_model=OfferedLogin, openapi_extra=parameters(_NAME)
    )
    async def offer(request: Request) -> Response | OfferedLogin:
        """Offers the caller a login at this server, in the place of the account that it may have: the page to open in a
        browser. Where all callers share one login, that one, for callers with `ops:write`."""
        identity, name = identity_of(request), request.path_params["upstream"]
        if logins is not None and logins.is_shared(name):
            need(request, "ops:write")
        elif logins is None or not logins.has(name) or not may_use(identity, name):
            return _none()
        with _reached():
            offered = await logins.offer(name, identity.actor)
        return OfferedLogin(upstream=name, url=offered.url, flow=offered.flow, expires_at=offered.expires_at)

    @router.get(
        "/{upstream}/login",
        operation_id="loginOutcome",
        response_model=LoginState,
        openapi_extra=parameters(_NAME, _FLOW, _WAIT),
    )
    async def outcome(request: Request) -> Response | LoginState:
        """Says what has become of the caller's login `f` at this server, after `wait_s` at most."""
        identity, flow = identity_of(request), request.query_params.get("f", "")
        if logins is None:
            return _none()
        try:
            with _reached():
                login = await logins.logins.find(flow)
        except LoginRefused:
            return LoginState(outcome="failed")
        if (login.actor, login.upstream) != (identity.actor, request.path_params["upstream"]):
            return _none()
        within_s = _seconds(request.query_params.get("wait_s", ""))
        return LoginState(outcome=await logins.logins.outcome(flow, within_s))

    @router.delete(
        "/{upstream}",
        operation_id="disconnectAccount",
        response_model=Disconnected,
        openapi_extra=parameters(_NAME, _ACTOR),
    )
    async def end(request: Request) -> Response | Disconnected:
        """Disconnects the caller's account at this server, here and at its issuer; with `actor` that of another one,
        for callers with `ops:write`. Where all callers share one login, that one, for callers with `ops:write`."""
        identity, actor, name = identity_of(request), _asked(request), request.path_params["upstream"]
        if logins is not None and logins.is_shared(name):
            actor = ""
        if actor != identity.actor:
            need(request, "ops:write")
        if logins is None:
            return _none()
        with _reached():
            ended = await logins.revoke(actor, name, identity.actor)
        return Disconnected(ended=len(ended))

    return router


def may_use(identity: Identity, name: str) -> bool:
    """Returns whether the caller may call anything of the server *name*."""
    of_server = f"tools:{name}:"
    return identity.allows(f"{of_server}*") or any(each.startswith(of_server) for each in identity.permissions)


def _asked(request: Request) -> str:
    return request.query_params.get("actor") or identity_of(request).actor


def _shown(grant: "Grant") -> Connection:
    tokens = grant.tokens
    ends = None if tokens.expires_at is None or grant.state != "active" else _written(tokens.expires_at)
    return Connection(
        upstream=grant.upstream,
        actor=grant.actor,
        issuer=urlsplit(grant.issuer).netloc,
        state="active" if grant.state == "active" else "reconnect",
        scopes=sorted(tokens.scopes),
        connected_at=_written(grant.granted_at),
        token_ends=ends,
        renewed=bool(tokens.refresh_token),
    )


def _written(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _seconds(text: str) -> float:
    """Returns the bounded time; 0 for what is none."""
    try:
        return min(max(0.0, float(text)), MAX_WAIT_S) if len(text) < 10 and text != "nan" else 0.0
    except ValueError:
        return 0.0


def _none() -> Response:
    return refuse(404, "not_found", "There is no server of this name at which you could connect an account")


@contextmanager
def _reached() -> Iterator[None]:
    """Raises Refused if the block finds the store of logins unavailable or full."""
    try:
        yield
    except RateLimited as error:
        wait_s = (error.details or {}).get("retry_after_s", RETRY_AFTER_S)
        headers = {"retry-after": str(math.ceil(wait_s))}
        raise Refused(refuse(429, "too_many_requests", error.message, headers)) from None
    except StoreUnavailable:
        headers = {"retry-after": str(RETRY_AFTER_S)}
        text = "What is kept of accounts cannot be reached at the moment"
        raise Refused(refuse(503, "unavailable", text, headers)) from None
