"""Results given again while they are fresh (EXEC-16), and the digests by which arguments are compared.

Of results, only answers of tools that the operator named and that are declared read-only are kept, never errors, and
only as long as the catalog is the same. The upstream's own result is kept, not the envelope: its artifacts are stored
again for each caller. A result belongs to the actor who got it, unless the operator shares the results of an upstream.
Permissions are no part of the key, because they are checked at each call before a kept result is looked for, and no
upstream sees them.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from wicketgate.call_state import Key
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


def result_key(
    catalog: Catalog,
    item: SelectableItem,
    arguments: Mapping[str, Any],
    context: CallContext,
    *,
    shared: bool = False,
    account: GrantName | None = None,
) -> Key | None:
    """Returns None for a call whose result is never kept: the tool is not declared read-only, or the call carries the
    answers of a person. *shared*: one actor's result serves all actors. *account* is the one at the server that the
    result belongs to, if callers have their own."""
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
