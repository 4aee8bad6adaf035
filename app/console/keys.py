"""Keys that operators make, suspend and revoke in the console (ACCESS-340 to ACCESS-342)."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from pydantic import ValidationError

from app.console.servers import NotPossible
from wicketgate.access.identity import ROLE_PREFIX, HashedKey
from wicketgate.config.settings import KeySettings
from wicketgate.errors import StoreUnavailable
from wicketgate.gate import Gate
from wicketgate.ports import CallContext
from wicketgate.storage.keys import MOST_KEYS, new_key
from wicketgate.storage.store import Conflict, Full

log = logging.getLogger("wicketgate.console")

KeyAction = Literal["suspend", "resume", "revoke"]
_DONE = {"suspend": "suspended", "resume": "good again", "revoke": "revoked"}
_MOST_DAYS = 3_650
_MOST_GRANTED = 100


class KeyDesk:
    """Changes take effect at all processes. Each is recorded. Methods raise NotPossible."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def make(self, wanted: Mapping[str, Any], context: CallContext) -> str:
        """Returns the new key, which is kept nowhere. Nobody grants what they do not have themselves, and a key for
        another actor takes ``keys:<actor>``."""
        key, hashed = _made(wanted)
        if any(each.id == hashed.id for each in self._gate.keys.accepted()):
            raise NotPossible(409, "There is a key of this id.")
        identity, maker = hashed.identity, context.identity
        if identity.actor != maker.actor and not maker.allows(f"keys:{identity.actor}"):
            raise NotPossible(403, f"A key for another actor takes the permission keys:{identity.actor} (or keys:*).")
        asked = [*identity.permissions, *(f"{ROLE_PREFIX}{role}" for role in identity.roles)]
        if beyond := [each for each in asked if not maker.allows(each)]:
            raise NotPossible(403, f"Your key does not have {beyond[0]} itself, so it cannot grant it.")
        told = f"made for {identity.actor}: {', '.join(asked) or 'no permissions'}"
        await self._change(hashed, "made", told, context)
        return key

    async def act(self, id: str, action: KeyAction, context: CallContext) -> str:
        """Returns what was done."""
        key = next((each for each in self._gate.keys.accepted() if each.id == id), None)
        if key is None:
            raise NotPossible(404, "There is no key of this id.")
        if id == context.identity.key_id:
            raise NotPossible(409, "This is the key that you use. Use another one to change it.")
        configured = self._gate.keys.configured(key)
        if action == "revoke" and configured is not None:
            raise NotPossible(409, "This key is in the configuration. Suspend it here, and take it out of the file.")
        if action == "resume" and configured is not None and configured.suspended:
            raise NotPossible(409, "This key is suspended in the configuration.")
        if key.suspended == (action == "suspend") and action != "revoke":
            raise NotPossible(409, f"It is {'suspended' if key.suspended else 'not suspended'}.")
        await self._change(key, action, _DONE[action], context)
        return _DONE[action]

    async def _change(
        self, key: HashedKey, action: Literal["made"] | KeyAction, told: str, context: CallContext
    ) -> None:
        keys, events = self._gate.keys, self._gate.records.events
        try:
            match action:
                case "revoke":
                    await keys.drop(key)
                case "made":
                    await keys.put(key)
                case _:
                    await keys.put(replace(key, suspended=action == "suspend"))
        except Conflict:
            raise NotPossible(409, "It was changed at the same time. Look at it, and try again.") from None
        except Full:
            raise NotPossible(409, f"{MOST_KEYS} keys are kept already.") from None
        except StoreUnavailable as error:
            log.error("the key %s was not changed: %s", key.id, error)
            raise NotPossible(503, "The store is unavailable, so no key can be changed.") from None
        events.operated("key", context, "", f"{key.id} {told}")


def _made(wanted: Mapping[str, Any]) -> tuple[str, HashedKey]:
    """Returns a new key and its entry. Raises NotPossible for fields that are not valid."""
    days = wanted.get("days")
    if days is not None and (type(days) is not int or not 0 < days <= _MOST_DAYS):
        raise NotPossible(400, f"days is a whole number up to {_MOST_DAYS}")
    ends = None if days is None else datetime.now(UTC) + timedelta(days)
    fields = {name: wanted.get(name, default) for name, default in _FIELDS.items()}
    try:
        read = KeySettings.model_validate({**fields, "sha256": "0" * 64, "expires_at": ends})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise NotPossible(400, f"{first['loc'][0]}: {first['msg'].removeprefix('Value error, ')}") from None
    if len(read.permissions) + len(read.roles) > _MOST_GRANTED:
        raise NotPossible(400, f"permissions and roles are {_MOST_GRANTED} at most")
    key, digest = new_key(read.id)
    return key, replace(read.hashed(), sha256=digest)


_FIELDS: Mapping[str, Any] = {"id": "", "actor": "", "permissions": [], "roles": []}
