"""The one place where a credential becomes an identity, and what it started ends with its key or its token
(ACCESS-39 to ACCESS-44, ACCESS-122 to ACCESS-124).

``Authenticator`` judges credentials, ``KeyUses`` holds what requests have under way, and ``Revocation`` ends it.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from wicketgate.access.identity import CallersToken, FailureReason, Identity, KeyRing, hash_key, issuer_key_id
from wicketgate.access.issuer import TokenRefused, Verified
from wicketgate.access.issuers import Issuers
from wicketgate.access.key_sets import RETRY_AFTER_S, IssuerAway
from wicketgate.access.resources import REALM, Resources

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
    "token_refused": "Invalid credentials",
    "wrong_audience": "The token is for another resource",
    "insufficient_scope": "The token lacks a scope that is needed here",
    "issuer_away": "The credentials cannot be checked at the moment; try again later",
    "headers_refused": "Invalid credentials",
}
_STATUSES: Mapping[FailureReason, tuple[int, str]] = {
    "not_local": (403, "forbidden"),
    "insufficient_scope": (403, "insufficient_scope"),
    "issuer_away": (503, "issuer_unavailable"),
}

NO_LONGER_VALID = "Credentials are no longer valid"
"""The message to a client whose request was ended because its key is not good any more."""

OnFailure = Callable[[FailureReason, str, str], None]
"""Called with the reason, the key's id, empty if no key was recognised, and the client's address. It must neither wait
nor fail."""


@dataclass(frozen=True, slots=True)
class RefusedCredential:
    """The reason why a credential was refused, the message for the client, and the answer's status and code. *scopes*
    are those that a token needs, where that is the reason."""

    reason: FailureReason
    scopes: tuple[str, ...] | None = None

    @property
    def message(self) -> str:
        return _MESSAGES[self.reason]

    @property
    def status(self) -> int:
        return _STATUSES.get(self.reason, (401, ""))[0]

    @property
    def code(self) -> str:
        return _STATUSES.get(self.reason, (401, "unauthorized"))[1]


class Authenticator:
    """Gives the identity of a bearer credential (ACCESS-1, ACCESS-43): of a key, or of a token that one of *issuers*
    has issued for one of our *resources*."""

    def __init__(self, keys: KeyRing, issuers: Issuers, resources: Resources) -> None:
        self._keys = keys
        self.issuers = issuers
        self.resources = resources
        self.exchanged = frozenset[str]()
        """The names of issuers whose tokens some upstream exchanges: of JWTs, only these are handed on with an
        identity."""
        self._observers: list[OnFailure] = []

    def observe(self, on_failure: OnFailure) -> None:
        """Calls *on_failure* for each credential that is refused, and for each request that needed one and had none."""
        self._observers.append(on_failure)

    def authenticate(
        self, credential: str | None, source: str = "", path: str = ""
    ) -> Identity | RefusedCredential | None:
        """*credential* is None for a request without one, *source* the client's address, *path* that of the request.
        Returns None for a token that has to be verified first: ``verify`` does. Never raises."""
        if credential is None:
            return self.refuse("missing", source)
        digest = hash_key(credential)
        key = self._keys.find(digest)
        if key is None:
            if not self.issuers:
                return self.refuse("unknown", source)
            known = self.issuers.known(digest)
            return None if known is None else self._admit(known, credential, digest, source, path)
        fault = self._keys.use(key)
        return key.identity if fault is None else self.refuse(fault, source, key.id)

    async def verify(self, credential: str, source: str, path: str) -> Identity | RefusedCredential:
        """Judges a token, with what its issuer has to say. Never raises."""
        digest = hash_key(credential)
        try:
            outcome: Verified | TokenRefused = await self.issuers.verify(credential, digest, source)
        except TokenRefused as refused:
            outcome = refused
        except IssuerAway:
            return self.refuse("issuer_away", source)
        return self._admit(outcome, credential, digest, source, path)

    def _admit(
        self, outcome: Verified | TokenRefused, credential: str, digest: str, source: str, path: str
    ) -> Identity | RefusedCredential:
        if isinstance(outcome, TokenRefused):
            return self.refuse(outcome.reason, source)
        issuer = outcome.issuer
        if not self.resources.is_for(outcome, path):
            return self.refuse("wrong_audience", source, issuer_key_id(issuer.name))
        if not outcome.scopes.issuperset(issuer.scopes):
            return self.refuse("insufficient_scope", source, issuer_key_id(issuer.name), issuer.scopes)
        if outcome.opaque or issuer.name in self.exchanged:
            return replace(outcome.identity, token=CallersToken(credential, digest, opaque=outcome.opaque))
        return outcome.identity

    def refuse(
        self, reason: FailureReason, source: str, key_id: str = "", scopes: tuple[str, ...] | None = None
    ) -> RefusedCredential:
        """Tells the observers, and gives what the client is answered."""
        for observer in self._observers:
            observer(reason, key_id, source)
        return RefusedCredential(reason, scopes)

    def headers_of(self, refused: RefusedCredential, path: str, *, presented: bool) -> Sequence[tuple[bytes, bytes]]:
        """Returns the headers of the answer to a refused request. *presented*: it had a credential."""
        if refused.status == 503:
            return ((b"retry-after", str(RETRY_AFTER_S).encode()),)
        error = "insufficient_scope" if refused.status == 403 else "invalid_token" if presented else ""
        return ((b"www-authenticate", self.challenge(path, error, refused.scopes)),)

    def challenge(self, path: str, error: str = "", scopes: Sequence[str] | None = None) -> bytes:
        """Returns the value of ``WWW-Authenticate``."""
        if not self.issuers:
            return REALM.encode()
        return self.resources.challenge(path, self.issuers.all, error=error, scopes=scopes)

    def challenge_for(self, identity: Identity, permission: str, path: str) -> bytes | None:
        """Returns the challenge that names the scopes for *permission*; None if no scope gives it to this caller."""
        for issuer in self.issuers.all:
            if issuer.name == identity.issuer and (scopes := issuer.scopes_for(permission)):
                return self.challenge(path, "insufficient_scope", scopes)
        return None

    def stands(self, identity: Identity) -> bool:
        """Implements Standing."""
        if identity.issuer:
            return self.issuers.stands(identity)
        return self._keys.stands(identity)

    def resumes(self, identity: Identity) -> bool:
        """As ``stands``, for what *identity* has started at another process."""
        return self.stands(identity) if identity.issuer else self._keys.resumes(identity)


def _nothing() -> None:
    """Ends what is over."""


class KeyUse:
    """A request under way. *end* ends it soon; it neither waits nor fails. A door may put in its own *end* and *kind*,
    and calls ``finish`` when something else answers for the end. *answering*: its answer has begun."""

    __slots__ = ("_sets", "answering", "end", "expires_at", "kind", "token")

    def __init__(
        self,
        sets: Sequence[set["KeyUse"]],
        end: Callable[[], None],
        expires_at: float | None,
        token: CallersToken | None,
    ) -> None:
        self._sets = sets
        self.token = token
        self.answering = False
        self.kind = "calls"
        self.end = end
        self.expires_at = expires_at
        for uses in sets:
            uses.add(self)

    def lapse(self) -> None:
        """End it, and forget it."""
        end = self.end
        self.finish()
        end()

    def finish(self) -> None:
        """Forget it: it is over. Later calls do nothing."""
        for uses in self._sets:
            uses.discard(self)
        # What ends it refers to it, and each request would leave a circle for the garbage collector.
        self._sets = ()
        self.end = _nothing


class KeyUses:
    """The requests under way, from their authentication on."""

    def __init__(self) -> None:
        self._uses: dict[str, set[KeyUse]] = {}
        self._ending: set[KeyUse] = set()
        self._opaque: dict[str, set[KeyUse]] = {}

    def begin(
        self,
        key_id: str,
        end: Callable[[], None],
        expires_at: float | None = None,
        token: CallersToken | None = None,
    ) -> KeyUse:
        """*expires_at*: the use ends then, in seconds since the epoch, whatever becomes of the key."""
        # A set that was emptied stays: its number is bounded by that of the keys and issuers that were ever used.
        sets = [self._uses.setdefault(key_id, set())]
        if expires_at is not None:
            sets.append(self._ending)
        if token is not None and token.opaque:
            sets.append(self._opaque.setdefault(token.digest, set()))
        return KeyUse(sets, end, expires_at, token)

    def opaque_tokens(self) -> Mapping[str, CallersToken]:
        """Returns the opaque tokens of what is under way, by their digests."""
        self._opaque = {digest: uses for digest, uses in self._opaque.items() if uses}
        given = ((digest, next(iter(uses)).token) for digest, uses in self._opaque.items())
        return {digest: token for digest, token in given if token is not None}

    def end_of_token(self, digest: str) -> None:
        """Ends all of this opaque token."""
        for use in list(self._opaque.pop(digest, ())):
            use.lapse()

    def end_expired(self, now: float) -> int:
        """Ends the uses whose token has expired; returns how many."""
        ended = [use for use in self._ending if use.expires_at is not None and now >= use.expires_at]
        for use in ended:
            use.lapse()
        return len(ended)

    def end_of(self, key_id: str) -> Mapping[str, int]:
        """Ends all of this key; returns how many by their kind."""
        ended = list(self._uses.pop(key_id, ()))
        for use in ended:
            use.lapse()
        return Counter(use.kind for use in ended)


Ender = Callable[[str], Mapping[str, int]]
"""Ends what the key of an id has started, without waiting; returns how many by their kind."""


class Revocation:
    """Ends what a key has started when the key is not good any more (ACCESS-39), and what a token has started when its
    issuer is not accepted any more, or differently. *expire* ends at each look what has reached its own end."""

    def __init__(self, keys: KeyRing, issuers: Issuers, expire: Callable[[], object]) -> None:
        self._keys = keys
        self._issuers = issuers
        self._expire = expire
        self._enders: list[Ender] = []

    def add(self, end: Ender) -> None:
        """Adds *end* to what a lapse brings about. It must neither wait nor fail."""
        self._enders.append(end)

    def enforce(self) -> None:
        """Call it when the keys or issuers have changed."""
        self._expire()
        for lapse in (*self._keys.lapsed(), *self._issuers.lapsed()):
            ended = Counter[str]()
            for end in self._enders:
                ended.update(end(lapse.key_id))
            log.warning(
                "key %s is no longer valid (%s): %d streams and %d calls ended",
                lapse.key_id,
                lapse.reason.replace("_", " "),
                ended["streams"],
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
                log.exception("expired keys could not be checked")
