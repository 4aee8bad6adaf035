"""The grants of all actors at tool servers: given, found, listed, ended (ACCESS-156, ACCESS-157).

A grant is of one actor at one upstream, from one issuer for one resource; an actor has one at an upstream at a time. It
is bound to the server at which it was given: a name of the configuration may come to mean another one. A grant that was
revoked stays for some minutes without its tokens, so that a refresh which was under way meanwhile does not bring it
back, and other processes learn that it has ended.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from wicketgate.login.keys import row_key
from wicketgate.login.sealed_rows import OpenedRow, SealedRows
from wicketgate.login.tokens import Tokens, tokens_of

GrantState = Literal["active", "reconnect", "revoked"]
"""*reconnect*: the issuer takes it no more, and its owner has to log in anew."""

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


def no_report(event: GrantEvent) -> None:
    """Drops *event*."""


class Grants:
    """The grants that are kept in *rows*. *now* is the time of day in seconds, *new_number* gives a number that does
    not come again. *report* gets news of this process, once each; it must neither wait nor fail.

    Every method raises LoginsAway.
    """

    def __init__(
        self,
        rows: SealedRows,
        now: Callable[[], float],
        new_number: Callable[[], int],
        report: Callable[[GrantEvent], None] = no_report,
    ) -> None:
        self.rows = rows
        self.now = now
        self._new_number = new_number
        self._report = report

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
        """Have the owner log in anew, unless *grant* has changed since it was read."""
        tokens = replace(grant.tokens, access_token="", refresh_token="", id_token="")
        if await self._write(replace(grant, tokens=tokens, state="reconnect", version=grant.version + 1)):
            self._report(GrantEvent("refused", grant.actor, grant.upstream, grant.issuer))

    async def _end(self, grant: Grant) -> bool:
        """False if it has ended meanwhile, by another."""
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
        row = OpenedRow("grant", grant.key, grant.actor, _value(grant), grant.version, ends_at)
        version = await self.rows.write(row)
        return replace(grant, version=version) if version else None


def _value(grant: Grant) -> dict[str, Any]:
    return {
        "upstream": grant.upstream,
        "issuer": grant.issuer,
        "resource": grant.resource,
        "number": grant.number,
        "state": grant.state,
        "tokens": grant.tokens.as_dict(),
        "granted_at": grant.granted_at,
        "issued_at": grant.issued_at,
        "bond": asdict(grant.bond),
    }


def _grant(row: OpenedRow) -> Grant | None:
    """None for one that another release has written."""
    try:
        value = dict(row.value)
        read = {"tokens": tokens_of(value["tokens"]), "bond": Bond(**value["bond"])}
        return Grant(actor=row.owner, version=row.version, **{**value, **read})
    except (KeyError, TypeError, ValueError):
        return None
