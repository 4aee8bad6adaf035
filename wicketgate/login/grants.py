"""The grants of all actors at tool servers: stored, listed, revoked (ACCESS-156, ACCESS-157), and refreshed by one
process at a time (ACCESS-158 to ACCESS-160).

A grant belongs to one actor at one upstream, from one issuer for one resource; an actor has at most one per upstream.
It is bound to the server for which it was issued, because a configured name may later mean another server. A revoked
grant stays for some minutes without its tokens: a concurrent refresh cannot restore it, and other processes learn that
it has ended.

An issuer that rotates refresh tokens accepts each only once; a second use ends the whole grant. Therefore a process
acquires the lease on the grant's row, checks whether another process was faster, asks the issuer, and stores the new
tokens before they are used.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from wicketgate.errors import StoreUnavailable
from wicketgate.login.login_flow import RefreshOutcome
from wicketgate.login.sealed_rows import Row, SealedRows, row_key
from wicketgate.login.steps import ClientInvalid, GrantInvalid, LoginFailure
from wicketgate.login.token_endpoint import Refresh, Tokens
from wicketgate.task_end import end_tasks

log = logging.getLogger("wicketgate.login")

GrantState = Literal["active", "reconnect", "revoked"]
"""*reconnect*: the issuer takes it no more, and its owner has to log in again."""

LEASE_S = 15.0
_REFRESH_S = 10.0
"""Shorter than the lease: no other process asks while an answer may come."""
_GUARD_S = 2.0
"""A process that stood still for longer after it took the lease looks again."""
_LOOK_S = 0.1
_WAIT_S = 12.0
_WAIT_WHILE_GOOD_S = 2.0
_WRITE_AGAIN_S = 0.25
_CLOSE_S = 12.0
_COOLDOWN_S = 5.0
_MAX_COOLDOWN_S = 300.0
REVOKED_S = 900.0
_TRIES = 20


@dataclass(frozen=True, slots=True)
class Bond:
    """The bounds of a grant, beyond the names that it is kept under. *server* is the URL of the tool server,
    *vouched_by* that of the issuer whose tokens say who the actor is; empty for the actor of a key."""

    server: str
    vouched_by: str = ""


@dataclass(frozen=True, slots=True)
class Grant:
    """*actor* is empty for the gate's own. It is used only where its *bond* is in force. *number* is another one after
    each login. *issued_at* is when its tokens were given, *granted_at* when its owner agreed. *version* is that of its
    row."""

    actor: str
    upstream: str
    issuer: str
    resource: str
    number: int
    state: GrantState
    tokens: Tokens
    granted_at: float
    issued_at: float
    bond: Bond
    version: int = 0

    @property
    def key(self) -> str:
        return row_key("grant", self.actor, self.upstream, self.issuer, self.resource)


_GRANT = TypeAdapter(Grant)

GrantEventKind = Literal["granted", "refused", "revoked", "left"]


@dataclass(frozen=True, slots=True)
class GrantEvent:
    """News of a grant for the audit log. *refused*: the issuer took the refresh token no more. *left*: one that was
    revoked, and of which its issuer could not be told. *by* is the actor that
    did it; empty for the issuer."""

    kind: GrantEventKind
    actor: str
    upstream: str
    issuer: str
    by: str = ""


@dataclass(eq=False, repr=False)
class Grants:
    """The grants that are kept in *rows*. *now* is the time of day in seconds, *new_number* gives a number that does
    not come again. *report* gets news of this process, once each; it must neither wait nor fail.

    Every method raises StoreUnavailable.
    """

    rows: SealedRows
    now: Callable[[], float]
    _new_number: Callable[[], int]
    _report: Callable[[GrantEvent], None] = lambda event: None

    async def keep(self, actor: str, upstream: str, tokens: Tokens, bond: Bond, by: str = "") -> Grant:
        """Keep what a login gave, in place of all that the actor had at this upstream. *by* has logged in, if not the
        actor itself."""
        now, number = self.now(), self._new_number()
        made = Grant(actor, upstream, tokens.issuer, tokens.resource, number, "active", tokens, now, now, bond)
        for _ in range(_TRIES):
            former = await self.rows.read("grant", made.key)
            made = replace(made, version=former.version + 1 if former else 1)
            if (kept := await self._write(made)) is not None:
                break
        else:
            raise RuntimeError("other processes change the same grant again and again")
        for other in await self.of(actor, upstream):
            if other.key != kept.key:
                await self._end(other)
        self._report(GrantEvent("granted", actor, upstream, kept.issuer, by or actor))
        return kept

    async def read(self, key: str) -> Grant | None:
        """Return the grant in any state."""
        row = await self.rows.read("grant", key)
        return None if row is None else _grant(row)

    async def of(self, actor: str, upstream: str) -> list[Grant]:
        """Return the grants of *actor* at *upstream* that were not revoked, the last given first."""
        return [grant for grant in await self.of_actor(actor) if grant.upstream == upstream]

    async def of_actor(self, actor: str | None) -> list[Grant]:
        """Return the grants of *actor*, or of all with None, that were not revoked, the last given first."""
        grants = [_grant(row) for row in await self.rows.of_owner("grant", actor)]
        standing = [grant for grant in grants if grant is not None and grant.state != "revoked"]
        return sorted(standing, key=lambda grant: grant.granted_at, reverse=True)

    async def revoke(self, actor: str, upstream: str, by: str) -> list[Grant]:
        """End the grants of *actor* at *upstream*, and return them as they were, for the issuer to be told. *by* is
        the owner or an operator."""
        ended = [grant for grant in await self.of(actor, upstream) if await self._end(grant)]
        for grant in ended:
            self._report(GrantEvent("revoked", actor, upstream, grant.issuer, by))
        return ended

    async def refreshed(self, grant: Grant, tokens: Tokens) -> Grant | None:
        """Keep new *tokens* of *grant*. None if it has changed since it was read."""
        return await self._write(
            replace(grant, tokens=tokens, state="active", issued_at=self.now(), version=grant.version + 1)
        )

    async def refused(self, grant: Grant) -> None:
        """Have the owner log in again, unless *grant* has changed since it was read."""
        tokens = replace(grant.tokens, access_token="", refresh_token="", id_token="")
        if await self._write(replace(grant, tokens=tokens, state="reconnect", version=grant.version + 1)):
            self._report(GrantEvent("refused", grant.actor, grant.upstream, grant.issuer))

    async def _end(self, grant: Grant) -> bool:
        """False if it has ended in the meantime, by another."""
        for _ in range(_TRIES):
            former = await self.read(grant.key)
            if former is None or former.state == "revoked" or former.number != grant.number:
                return False
            ended = replace(
                former, tokens=Tokens("", issuer=former.issuer), state="revoked", version=former.version + 1
            )
            if await self._write(ended) is not None:
                return True
        raise RuntimeError("other processes change the same grant again and again")

    async def _write(self, grant: Grant) -> Grant | None:
        """The grant as it is kept now; None if another was faster."""
        ends_at = self.now() + REVOKED_S if grant.state == "revoked" else None
        value = _GRANT.dump_python(grant, mode="json", exclude={"actor", "version"})
        row = Row("grant", grant.key, grant.actor, value, grant.version, ends_at)
        version = await self.rows.write(row)
        return replace(grant, version=version) if version else None


def _grant(row: Row) -> Grant | None:
    """None for one that another release has written."""
    try:
        return _GRANT.validate_python({**row.value, "actor": row.owner, "version": row.version})
    except ValidationError:
        return None


class GrantEnded(Exception):
    """There is no such grant any more, or the issuer takes it no more."""


class NotRefreshed(Exception):
    """The issuer gave no answer that settles anything, now or a short time ago."""


@dataclass(frozen=True, slots=True)
class _Quiet:
    """*until*, on the clock, the issuer is not asked again."""

    until: float
    failures: int


@dataclass(eq=False, repr=False)
class Refresher:
    """Refreshes the grants of one upstream by *refresh*. *clock* is monotonic, in seconds. *count* gets
    the outcome of each question to the issuer. For one event loop."""

    _grants: Grants
    _refresh: Refresh
    _clock: Callable[[], float]
    _count: Callable[[RefreshOutcome], None] = lambda outcome: None

    def __post_init__(self) -> None:
        self._under_way: dict[str, asyncio.Task[Grant]] = {}
        self._quiet: dict[str, _Quiet] = {}

    async def renewed(self, grant: Grant, *, still_good: bool) -> Grant:
        """Return the grant with other tokens than it has here, from whichever process. Callers that come together wait
        for one; for less long where the tokens are *still_good*.

        Raises GrantEnded, NotRefreshed and StoreUnavailable.
        """
        key = grant.key
        task = self._under_way.get(key)
        if task is None:
            quiet = self._quiet.get(key)
            if quiet is not None and self._clock() < quiet.until:
                raise NotRefreshed
            task = asyncio.create_task(self._renew(grant), name="refresh of a grant")
            self._under_way[key] = task
            task.add_done_callback(lambda done: self._done(key, done))
        # A caller that leaves must not end what others wait for, nor what has to be written.
        await asyncio.wait([task], timeout=_WAIT_WHILE_GOOD_S if still_good else _WAIT_S)
        if not task.done() or task.cancelled():
            raise NotRefreshed
        return task.result()

    async def aclose(self) -> None:
        """Wait for what is under way, which may have used up a refresh token already; for some seconds."""
        tasks = list(self._under_way.values())
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE_S)
            await end_tasks(*tasks)

    def _done(self, key: str, task: "asyncio.Task[Grant]") -> None:
        del self._under_way[key]
        error = None if task.cancelled() else task.exception()
        if isinstance(error, NotRefreshed):
            failures = self._quiet[key].failures + 1 if key in self._quiet else 1
            pause_s = min(_COOLDOWN_S * 2.0 ** min(failures - 1, 10), _MAX_COOLDOWN_S)
            self._quiet[key] = _Quiet(self._clock() + pause_s, failures)
        elif not isinstance(error, StoreUnavailable):
            self._quiet.pop(key, None)
        if error is not None and not isinstance(error, NotRefreshed | StoreUnavailable | GrantEnded):
            log.error("a grant was not refreshed", exc_info=error)

    async def _renew(self, seen: Grant) -> Grant:
        rows, holder = self._grants.rows, secrets.token_hex(8)
        while True:
            if _is_other(found := await self._standing(seen), seen):
                return found
            asked_at = self._clock()
            if not await rows.lease("grant", seen.key, holder, LEASE_S):
                await asyncio.sleep(_LOOK_S)
                continue
            try:
                # Another may have been done between the look and the lease.
                if _is_other(found := await self._standing(seen), seen):
                    return found
                if self._clock() - asked_at < _GUARD_S:
                    return await self._exchange(found, holder)
            finally:
                with contextlib.suppress(StoreUnavailable):
                    await rows.release("grant", seen.key, holder)

    async def _exchange(self, grant: Grant, holder: str) -> Grant:
        try:
            if not grant.tokens.refresh_token:
                raise GrantInvalid("there is no refresh token")
            async with asyncio.timeout(_REFRESH_S):
                tokens = await self._refresh(grant.tokens)
        except (GrantInvalid, ClientInvalid) as failure:
            # A refresh token is good for the client alone to which it was given.
            log.info("a grant has ended: %s", failure.detail)
            # Once more: a process whose lease had lapsed may have been faster.
            if (found := await self._standing(grant)).version != grant.version:
                return found
            self._count("ended")
            await self._grants.refused(grant)
            raise GrantEnded from None
        except (LoginFailure, StoreUnavailable, TimeoutError) as error:
            log.warning("a grant was not refreshed: %s", str(error) or "no answer in time")
            self._count("failed")
            raise NotRefreshed from None
        self._count("ok")
        return await self._kept(grant, replace(grant, tokens=tokens), holder)

    async def _kept(self, grant: Grant, refreshed: Grant, holder: str) -> Grant:
        """Keep the tokens before anybody uses them, however long the store is away: the former are used up."""
        while True:
            try:
                kept = await self._grants.refreshed(grant, refreshed.tokens)
                # One that was not written, or was by an attempt whose answer got lost, shows in the row.
                return kept or await self._standing(grant)
            except StoreUnavailable:
                await asyncio.sleep(_WRITE_AGAIN_S)
            with contextlib.suppress(StoreUnavailable):
                await self._grants.rows.lease("grant", grant.key, holder, LEASE_S)

    async def _standing(self, grant: Grant) -> Grant:
        """The grant as it is now. Raises GrantEnded."""
        found = await self._grants.read(grant.key)
        if found is None or found.state != "active" or found.number != grant.number:
            raise GrantEnded
        return found


def _is_other(found: Grant, seen: Grant) -> bool:
    return found.tokens.access_token != seen.tokens.access_token
