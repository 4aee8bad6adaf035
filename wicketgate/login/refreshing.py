"""The refresh of a grant's tokens, by one process at a time (ACCESS-158 to ACCESS-160).

An issuer that rotates refresh tokens takes each of them once; the second use of one ends the whole grant. So a process
takes the lease on the grant's row, looks whether another has been faster, asks the issuer, and keeps what came before
anybody uses it.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace

from wicketgate.login.counts import RefreshOutcome
from wicketgate.login.grants import Grant, Grants
from wicketgate.login.rows import LoginsAway
from wicketgate.login.tokens import InvalidGrant, Refresh, Unreachable
from wicketgate.task_end import end_tasks

log = logging.getLogger("wicketgate.login")

LEASE_S = 15.0
_REFRESH_S = 10.0
"""Shorter than the lease: no other process asks while an answer may come."""
_GUARD_S = 2.0
"""A process that stood still for longer after it took the lease looks anew."""
_LOOK_S = 0.1
_WAIT_S = 12.0
_WAIT_WHILE_GOOD_S = 2.0
_WRITE_AGAIN_S = 0.25
_CLOSE_S = 12.0
_COOLDOWN_S = 5.0
_MAX_COOLDOWN_S = 300.0


class GrantEnded(Exception):
    """There is no such grant any more, or the issuer takes it no more."""


class NotRefreshed(Exception):
    """The issuer gave no answer that settles anything, now or a short time ago."""


@dataclass(frozen=True, slots=True)
class _Quiet:
    """*until*, on the clock, the issuer is not asked again."""

    until: float
    failures: int


class Refresher:
    """Refreshes the grants of one upstream by *refresh*. *clock* is monotonic, in seconds. *count* gets
    the outcome of each question to the issuer. For one event loop."""

    def __init__(
        self,
        grants: Grants,
        refresh: Refresh,
        clock: Callable[[], float],
        count: Callable[[RefreshOutcome], None] = lambda outcome: None,
    ) -> None:
        self._grants = grants
        self._refresh = refresh
        self._clock = clock
        self._count = count
        self._under_way: dict[str, asyncio.Task[Grant]] = {}
        self._quiet: dict[str, _Quiet] = {}

    async def renewed(self, grant: Grant, *, still_good: bool) -> Grant:
        """Return the grant with other tokens than it has here, from whichever process. Callers that come together wait
        for one; for less long where the tokens are *still_good*.

        Raises GrantEnded, NotRefreshed and LoginsAway.
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
        elif not isinstance(error, LoginsAway):
            self._quiet.pop(key, None)
        if error is not None and not isinstance(error, NotRefreshed | LoginsAway | GrantEnded):
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
                with contextlib.suppress(LoginsAway):
                    await rows.release("grant", seen.key, holder)

    async def _exchange(self, grant: Grant, holder: str) -> Grant:
        former = grant.tokens
        try:
            if not former.refresh_token:
                raise InvalidGrant
            async with asyncio.timeout(_REFRESH_S):
                given = await self._refresh(former)
        except InvalidGrant:
            # Once more: a process whose lease had lapsed may have been faster.
            if (found := await self._standing(grant)).version != grant.version:
                return found
            self._count("ended")
            await self._grants.refused(grant)
            raise GrantEnded from None
        except (Unreachable, TimeoutError):
            self._count("failed")
            raise NotRefreshed from None
        self._count("ok")
        tokens = replace(
            given,
            refresh_token=given.refresh_token or former.refresh_token,
            id_token=given.id_token or former.id_token,
            issuer=former.issuer,
            resource=former.resource,
        )
        return await self._kept(grant, replace(grant, tokens=tokens), holder)

    async def _kept(self, grant: Grant, refreshed: Grant, holder: str) -> Grant:
        """Keep the tokens before anybody uses them, however long the store is away: the former are used up."""
        while True:
            try:
                kept = await self._grants.refreshed(grant, refreshed.tokens)
                # One that was not written, or was by an attempt whose answer got lost, shows in the row.
                return kept or await self._standing(grant)
            except LoginsAway:
                await asyncio.sleep(_WRITE_AGAIN_S)
            with contextlib.suppress(LoginsAway):
                await self._grants.rows.lease("grant", grant.key, holder, LEASE_S)

    async def _standing(self, grant: Grant) -> Grant:
        """The grant as it is now. Raises GrantEnded."""
        found = await self._grants.read(grant.key)
        if found is None or found.state != "active" or found.number != grant.number:
            raise GrantEnded
        return found


def _is_other(found: Grant, seen: Grant) -> bool:
    return found.tokens.access_token != seen.tokens.access_token
