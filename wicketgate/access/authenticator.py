"""The one place where a credential becomes an identity, and what it started ends with its key (ACCESS-39 to ACCESS-44).

``Authenticator`` judges credentials, ``KeyUses`` holds what requests have under way, and ``Revocation`` ends it.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from wicketgate.access.identity import FailureReason, Identity, KeyRing

log = logging.getLogger("wicketgate.access")

_LOOK_EVERY_S = 1.0

# The holder of a key proved that it has it, and so learns why it is refused. A stranger learns nothing.
_MESSAGES: Mapping[FailureReason, str] = {
    "missing": "No credentials provided",
    "unknown": "Invalid credentials",
    "suspended": "Identity is suspended",
    "expired": "Credentials have expired",
    "not_yet_valid": "Credentials are not valid yet",
    "not_local": "Only callers on this machine are served, because no keys are configured",
}

NO_LONGER_VALID = "Credentials are no longer valid"
"""The message to a client whose request was ended because its key is not good any more."""

OnFailure = Callable[[FailureReason, str, str], None]
"""Called with the reason, the key's id, empty if no key was recognised, and the client's address. It must neither wait
nor fail."""


@dataclass(frozen=True, slots=True)
class RefusedCredential:
    """The reason why a credential was refused, and the message for the client."""

    reason: FailureReason

    @property
    def message(self) -> str:
        return _MESSAGES[self.reason]


class Authenticator:
    """Gives the identity of a bearer credential (ACCESS-1, ACCESS-43)."""

    def __init__(self, keys: KeyRing) -> None:
        self._keys = keys
        self._observers: list[OnFailure] = []

    def observe(self, on_failure: OnFailure) -> None:
        """Calls *on_failure* for each credential that is refused, and for each request that needed one and had none."""
        self._observers.append(on_failure)

    def authenticate(self, credential: str | None, source: str = "") -> Identity | RefusedCredential:
        """*credential* is None for a request without one, *source* the client's address. Never raises."""
        if credential is None:
            return self.refuse("missing", source)
        key = self._keys.find(credential)
        if key is None:
            return self.refuse("unknown", source)
        fault = self._keys.use(key)
        return key.identity if fault is None else self.refuse(fault, source, key.id)

    def refuse(self, reason: FailureReason, source: str, key_id: str = "") -> RefusedCredential:
        """Tells the observers, and gives what the client is answered."""
        for observer in self._observers:
            observer(reason, key_id, source)
        return RefusedCredential(reason)


class KeyUse:
    """A request under way. *end* ends it soon; it neither waits nor fails. A door may put in its own *end* and *kind*,
    and calls ``finish`` when something else answers for the end. *answering*: its answer has begun."""

    __slots__ = ("_uses", "answering", "end", "kind")

    def __init__(self, uses: set["KeyUse"], end: Callable[[], None]) -> None:
        self._uses = uses
        self.answering = False
        self.kind = "calls"
        self.end = end
        uses.add(self)

    def finish(self) -> None:
        """Forget it: it is over. Later calls do nothing."""
        self._uses.discard(self)


class KeyUses:
    """The requests under way, from their authentication on."""

    def __init__(self) -> None:
        self._uses: dict[str, set[KeyUse]] = {}

    def begin(self, key_id: str, end: Callable[[], None]) -> KeyUse:
        # A set that was emptied stays: its number is bounded by that of the keys that were ever used.
        return KeyUse(self._uses.setdefault(key_id, set()), end)

    def end_of(self, key_id: str) -> Mapping[str, int]:
        """Ends all of this key; returns how many by their kind."""
        ended = list(self._uses.pop(key_id, ()))
        for use in ended:
            use.end()
        return Counter(use.kind for use in ended)


Ender = Callable[[str], Mapping[str, int]]
"""Ends what the key of an id has started, without waiting; returns how many by their kind."""


class Revocation:
    """Ends what a key has started when the key is not good any more (ACCESS-39)."""

    def __init__(self, keys: KeyRing) -> None:
        self._keys = keys
        self._enders: list[Ender] = []

    def add(self, end: Ender) -> None:
        """Adds *end* to what a lapse brings about. It must neither wait nor fail."""
        self._enders.append(end)

    def enforce(self) -> None:
        """Call it when the keys have changed."""
        for lapse in self._keys.lapsed():
            ended = Counter[str]()
            for end in self._enders:
                ended.update(end(lapse.key_id))
            log.warning(
                "key %s is no longer valid (%s): %d streams, %d sessions and %d calls ended",
                lapse.key_id,
                lapse.reason.replace("_", " "),
                ended["streams"],
                ended["sessions"],
                ended["calls"],
            )

    async def watch(self) -> None:
        """Enforces the ends of keys while time passes, each within a second."""
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            try:
                self.enforce()
            except Exception:
                # The last boundary of this task: the next look has to come all the same.
                log.exception("the ends of keys were not looked at")
