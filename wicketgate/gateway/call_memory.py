"""Results given again while they are fresh (EXEC-16), and the digests by which arguments are compared.

Of results, only answers of tools that the operator named and that are declared read-only are kept, never errors, and
only as long as the catalog is the same. The upstream's own result is kept, not the envelope: its artifacts are stored
anew for each caller. A result belongs to the actor who got it, unless the operator shares the results of an upstream.
Permissions are no part of the key, because they are checked at each call before a kept result is looked for, and no
upstream sees them.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from wicketgate.call_state import Found, Key, ResultStore
from wicketgate.catalog.catalog import Catalog
from wicketgate.catalog.selectable import SelectableItem
from wicketgate.login.user_credentials import GrantName
from wicketgate.ports import CallContext

_MAX_EXACT = 2**53


def arguments_digest(arguments: Mapping[str, Any]) -> str:
    """SHA-256, in hex, of the canonical JSON."""
    return hashlib.sha256(canonical_json(arguments)).hexdigest()


def canonical_json(arguments: Mapping[str, Any]) -> bytes:
    """Keys sorted, no blanks, ASCII."""
    return json.dumps(arguments, sort_keys=True, separators=(",", ":")).encode("ascii")


def approval_digest(arguments: Mapping[str, Any]) -> str:
    """As ``arguments_digest``, but 1.0 is 1: a client that keeps a conversation in JavaScript sends it back as such."""
    return arguments_digest({key: _plain(value) for key, value in arguments.items()})


def _plain(value: Any) -> Any:
    match value:
        case float() if value.is_integer() and abs(value) <= _MAX_EXACT:
            return int(value)
        case dict():
            return {key: _plain(each) for key, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case _:
            return value


class ResultCache:
    """Results in *store*. The caller decides which results are too bulky to be kept."""

    def __init__(self, store: ResultStore) -> None:
        self._store = store
        self._refreshes = self._cleared = 0

    def key(
        self,
        catalog: Catalog,
        item: SelectableItem,
        arguments: Mapping[str, Any],
        context: CallContext,
        *,
        shared: bool = False,
        account: GrantName | None = None,
    ) -> Key | None:
        """None for a call whose result is never kept: the tool is not declared read-only, or the call carries the
        answers of a person. *shared*: one actor's result serves all actors. *account* is the one at the server that
        the result belongs to, where callers have their own."""
        if item.side_effects or context.answers is not None:
            return None
        actor = context.identity.actor
        return (
            # No actor has a line end in its name.
            None if shared else actor if account is None else f"{actor}\n{account.actor}\n{account.number}",
            # A server may answer a client that it cannot ask, or that shows no pages, in its own way.
            context.caller.answers,
            arguments_digest(context.caller.capabilities) if context.caller.capabilities else "",
            catalog.version,
            item.id,
            # A plugin may send a call elsewhere, each caller's to another place.
            item.server,
            item.upstream_name,
            arguments_digest(arguments),
        )

    def stale(self) -> None:
        """Give none of the results that are kept by now, as ``clear`` does, which is to be awaited soon."""
        self._refreshes += 1

    async def clear(self) -> None:
        """Called at each refresh: tools that announce a change may also answer differently."""
        self._refreshes += 1
        await self._clear_if_stale()

    async def get(self, key: Key) -> Found:
        await self._clear_if_stale()
        return await self._store.get(key)

    async def put(self, key: Key, result: Mapping[str, Any], ttl_s: float, since: object) -> None:
        """*since* is that of the ``Found`` of *key*."""
        if not result.get("isError"):
            await self._store.put(key, result, ttl_s, since)

    async def _clear_if_stale(self) -> None:
        if self._cleared < self._refreshes:
            refreshes = self._refreshes
            await self._store.clear()
            self._cleared = max(self._cleared, refreshes)
