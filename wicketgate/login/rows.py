"""The rows in which logins are kept, shared by all processes of a service.

Their contents are sealed before they come here: a store, and whoever reads its file, sees kinds, hashed keys and times.
Rows are changed by version, so that of two processes that change one at once exactly one does.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

RowKind = Literal["registration", "grant", "flow", "browser", "id_token"]
"""A client as an issuer knows it; what an actor may do at a tool server; a login under way; a browser that has logged
in at the gate; the ID token of an actor."""


MOST_LISTED = 10_000


class LoginsAway(Exception):
    """The store of logins cannot be read or written at the moment, which it logs."""


@dataclass(frozen=True, slots=True)
class Row:
    """*key* is a hash, unique in its kind. *owner* is the actor whose row it is, of a flow the actor with the tool
    server; empty for the gate's own. *version* counts the writes, from 1. *expires_at*, in seconds since the epoch, is
    when the row ends by itself; None: never."""

    kind: RowKind
    key: str
    owner: str
    data: bytes
    version: int
    expires_at: float | None = None


class RowStore(Protocol):
    """Rows, each written in one step. Every method raises LoginsAway."""

    async def read(self, kind: RowKind, key: str) -> Row | None:
        """Return the row, or None if there is none or it has ended."""
        ...

    async def write(self, row: Row, *, most_of_owner: int | None = None) -> bool:
        """Write *row* in place of the one with the version before; with version 1 only where there is none. False if
        another was faster, or, with version 1, if its owner has *most_of_owner* rows of this kind already."""
        ...

    async def delete(self, kind: RowKind, key: str) -> bool:
        """Delete the row; false if there was none."""
        ...

    async def of_owner(self, kind: RowKind, owner: str | None) -> Sequence[Row]:
        """Return the rows of one owner, or of all with None, in no order; at most ``MOST_LISTED``."""
        ...

    async def lease(self, kind: RowKind, key: str, holder: str, for_s: float) -> bool:
        """Take the lease on a row for so long, or longer if it is *holder*'s already. False while another has it."""
        ...

    async def release(self, kind: RowKind, key: str, holder: str) -> None:
        """Give a lease back; does nothing if another has it."""
        ...

    async def aclose(self) -> None: ...
