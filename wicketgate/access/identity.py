"""The caller's identity, its permissions, and the keys that prove it (ACCESS-1, ACCESS-2, ACCESS-7).

An identity that a token of an issuer has proved also has roles and claims (``wicketgate.access.issuer``).

Permissions are written ``memory:*,tools:github:*``: levels parted by colons, where ``*`` as the last level covers
everything below it and ``*`` between two colons covers any one level.

A key is ``wg_<id>_<43 random characters>``. It is made once, shown once, and stored only as SHA-256 (ACCESS-1,
ACCESS-6). 256 random bits need no slow hash, which would only let any client spend the service's CPU."""

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal, NoReturn, Protocol

KEY_PREFIX = "wg_"
"""The beginning of every key that we make."""

ROLE_PREFIX = "role:"
"""The beginning of a role where rules name roles and permissions."""

ACTOR_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@:/-]{0,127}")
PERMISSION_PATTERN = re.compile(r"(?:[A-Za-z0-9_.@-]+|\*)(?::(?:[A-Za-z0-9_.@-]+|\*))*")


class CallersToken:
    """The access token that a request came with, for an exchange at the issuer that gave it (UP-187), or to ask about
    it again (ACCESS-234). It is there while the request lasts, whatever keeps the identity longer. It is not shown, not
    compared, and goes to no other process."""

    __slots__ = ("_text", "digest", "opaque")

    def __init__(self, text: str, digest: str, *, opaque: bool = False) -> None:
        """*digest* is ``hash_key`` of *text*."""
        self._text = text
        self.digest = digest
        self.opaque = opaque

    def reveal(self) -> str:
        """Returns the token; empty when its request is over."""
        return self._text

    def forget(self) -> None:
        """The request is over."""
        self._text = ""

    def __repr__(self) -> str:
        return "CallersToken(***)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("the token of a caller stays where it came in")


@dataclass(frozen=True, slots=True)
class Identity:
    """An authenticated caller. *permissions* keep the order in which they were granted; without any, no tool is
    visible, and ``("*",)`` are all. *key_id* is the key that proved
    it, empty where there is none; two keys of one actor with equal permissions may do the same. *roles* are of a token,
    or of the configuration of a key.

    Of a token: *key_id* is that of its issuer (``issuer_key_id``), *claims* are a JSON object in canonical form without
    those that differ in each token, and *expires_at* is the end of this token, in seconds since the epoch. What a token
    says of itself does not make another caller, so claims and end are not compared. *token* is there in the process
    that the request came to, where it is opaque or an upstream needs it; no row has it. *gate* is the virtual gate that
    the request came through (``access.policy.VirtualGate``), empty at the whole gate.
    """

    actor: str
    permissions: tuple[str, ...] = ()
    key_id: str = field(default="", compare=False)
    roles: tuple[str, ...] = ()
    claims: str = field(default="", compare=False, repr=False)
    issuer: str = ""
    expires_at: float | None = field(default=None, compare=False)
    token: CallersToken | None = field(default=None, compare=False, repr=False)
    gate: str = ""

    def allows(self, wanted: str) -> bool:
        """Returns whether any granted permission covers *wanted*, e.g. ``tools:github:create_issue``. ``role:lead``
        asks for the role, which no permission replaces (ACCESS-271)."""
        if wanted.startswith(ROLE_PREFIX):
            return wanted.removeprefix(ROLE_PREFIX) in self.roles
        levels = wanted.split(":")
        return any(_covers(granted.split(":"), levels) for granted in self.permissions)

    def claim_values(self) -> Mapping[str, Any]:
        """Returns the claims; none for an identity without a token. They are shared, so leave them as they are."""
        return _claims(self.claims) if self.claims else {}

    def row(self) -> list[Any]:
        """Returns what another process, or a later one, needs of it: values of JSON for ``of_row``."""
        row = [self.actor, list(self.permissions), self.key_id]
        rest = [list(self.roles), self.claims, self.issuer, self.expires_at, self.gate]
        return [*row, *rest] if self.issuer or self.roles or self.gate else row

    @classmethod
    def of_row(cls, row: Sequence[Any]) -> "Identity":
        """Raises TypeError and ValueError for what is no row."""
        actor, permissions, key_id, *token = row
        if not token:
            return cls(actor, tuple(permissions), key_id)
        roles, claims, issuer, expires_at, gate = token
        return cls(actor, tuple(permissions), key_id, tuple(roles), claims, issuer, expires_at, gate=gate)


@lru_cache(maxsize=256)
def _claims(text: str) -> Mapping[str, Any]:
    values: dict[str, Any] = json.loads(text)
    return values


def issuer_key_id(name: str) -> str:
    """Returns the ``key_id`` of all tokens of an issuer, or of a gateway in front; no key has such an id."""
    return f"issuer:{name}"


def issuer_of(key_id: str) -> str:
    """Returns the name of the issuer whose tokens have this ``key_id``; empty for a key."""
    kind, colon, name = key_id.partition(":")
    return name if colon and kind == "issuer" else ""


LOCAL = Identity("local", ("*",))
"""The caller where there is no other: the program that embeds the gate, or that started it over stdio."""


@lru_cache(maxsize=1_024)
def parse_permissions(text: str) -> tuple[str, ...]:
    """Split a comma list. Equal lists are one object: thousands of keys have few different ones. Raises ValueError that
    names the first item that is not a permission."""
    items = tuple(item.strip() for item in text.split(",") if item.strip())
    for item in items:
        if not PERMISSION_PATTERN.fullmatch(item):
            raise ValueError(f"not a permission: {item!r}")
    return items


def parse_granted(permissions: Iterable[str]) -> tuple[str, ...]:
    """Parses permissions as an operator grants them. Raises ValueError, also for a role among them (ACCESS-272)."""
    found = parse_permissions(",".join(permissions))
    if role := next((each.removeprefix(ROLE_PREFIX) for each in found if each.startswith(ROLE_PREFIX)), None):
        raise ValueError(
            f"{ROLE_PREFIX}{role} is a role, not a permission: put {role} under roles of a key (key new --role {role}) "
            "or into the roles claim of a token"
        )
    return found


def _covers(granted: list[str], wanted: list[str]) -> bool:
    for position, level in enumerate(granted):
        if level == "*" and position == len(granted) - 1:
            return position < len(wanted)
        if position >= len(wanted) or level not in ("*", wanted[position]):
            return False
    return len(granted) == len(wanted)


@dataclass(frozen=True, slots=True)
class Reach:
    """The tools that permissions cover: the rule of ``Identity.allows`` for ``tools:<namespace>:<name>``.

    Testing ten thousand tools with ``allows`` would take too long for each list.
    """

    everything: bool
    namespaces: frozenset[str]
    names: frozenset[str]
    tools: frozenset[tuple[str, str]]

    def covers(self, namespace: str, name: str) -> bool:
        return self.everything or namespace in self.namespaces or name in self.names or (namespace, name) in self.tools


@lru_cache(maxsize=1_024)
def reach_of(permissions: tuple[str, ...]) -> Reach:
    everything = False
    namespaces, names, tools = set[str](), set[str](), set[tuple[str, str]]()
    for permission in permissions:
        match permission.split(":"):
            case ["*"] | ["tools" | "*", "*"] | ["tools" | "*", "*", "*"]:
                everything = True
            case ["tools" | "*", namespace, "*"]:
                namespaces.add(namespace)
            case ["tools" | "*", "*", name]:
                names.add(name)
            case ["tools" | "*", namespace, name]:
                tools.add((namespace, name))
    return Reach(everything, frozenset(namespaces), frozenset(names), frozenset(tools))


FailureReason = Literal[
    "missing",
    "unknown",
    "suspended",
    "expired",
    "not_yet_valid",
    "not_local",
    "token_refused",
    "wrong_audience",
    "insufficient_scope",
    "issuer_away",
    "headers_refused",
]
"""The reason why a request has no identity. ``token_refused``: a token that is not of a configured issuer, not signed
as it has to be, or no access token. ``issuer_away``: nobody can say now. ``headers_refused``: signed headers of a
gateway in front that do not hold."""


@dataclass(frozen=True, slots=True)
class HashedKey:
    """*sha256* is the hex digest of the whole key. It is good from *not_before* until just before *expires_at*, in
    seconds since the epoch; None is no bound. ``identity.key_id`` is *id*, whatever was given."""

    id: str
    sha256: str
    identity: Identity
    suspended: bool = False
    not_before: float | None = None
    expires_at: float | None = None

    def __post_init__(self) -> None:
        if self.identity.key_id != self.id:
            object.__setattr__(self, "identity", replace(self.identity, key_id=self.id))

    def fault(self, now: float) -> FailureReason | None:
        """Returns why the key is not good at *now*; None if it is."""
        if self.suspended:
            return "suspended"
        if self.not_before is not None and now < self.not_before:
            return "not_yet_valid"
        if self.expires_at is not None and now >= self.expires_at:
            return "expired"
        return None


def hash_key(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


class Standing(Protocol):
    """Answers whether what an identity has started may still go on."""

    def __call__(self, identity: Identity, /) -> bool: ...


def always_good(identity: Identity, /) -> bool:
    """The Standing where no keys are: in a program that embeds a runtime or an engine."""
    return True


@dataclass(frozen=True, slots=True)
class Lapse:
    """A key that was used and is not good any more."""

    key_id: str
    reason: str


class KeyRing:
    """The keys that are accepted, found by their hash. *clock* gives seconds since the epoch.

    It remembers each key that was used, so that ``lapsed`` can name those whose uses have to end.
    """

    def __init__(self, keys: Iterable[HashedKey], clock: Callable[[], float]) -> None:
        self._clock = clock
        self._used: dict[str, HashedKey] = {}
        self._last_used: dict[str, float] = {}
        self._revoked: frozenset[tuple[str, str]] = frozenset()
        self.replace(keys)

    def replace(self, keys: Iterable[HashedKey], *, read_again: bool = True) -> None:
        """Accept these keys and no others, from the next request on. *read_again*: those among them that another
        process has revoked are accepted again."""
        self._given = tuple(keys)
        if read_again:
            self._revoked = frozenset()
        self._accept()

    def revise(self, *, revoked: Collection[tuple[str, str]], accepted: Collection[tuple[str, str]]) -> None:
        """Refuses the keys that another process has *revoked*, and no longer those that one has *accepted* again. Both
        are pairs of an id and a hash."""
        self._revoked = (self._revoked - frozenset(accepted)) | {
            (key.id, key.sha256) for key in self._given if (key.id, key.sha256) in revoked
        }
        self._accept()

    def _accept(self) -> None:
        self._by_hash = {key.sha256: key for key in self._given if (key.id, key.sha256) not in self._revoked}
        self._by_id: dict[str, list[HashedKey]] = {}
        for key in self._by_hash.values():
            self._by_id.setdefault(key.id, []).append(key)
        self._last_used = {digest: at for digest, at in self._last_used.items() if digest in self._by_hash}

    def keys(self) -> list[HashedKey]:
        return list(self._by_hash.values())

    def find(self, digest: str) -> HashedKey | None:
        """Returns the entry of the key with this ``hash_key``. The look-up goes by hash, so the time it takes reveals
        nothing about any key."""
        return self._by_hash.get(digest)

    def use(self, key: HashedKey) -> FailureReason | None:
        """Returns None if *key* is good now, and remembers its use; otherwise why it is not."""
        now = self._clock()
        fault = key.fault(now)
        if fault is None:
            self._used[key.sha256] = key
            self._last_used[key.sha256] = now
        return fault

    def stands(self, identity: Identity) -> bool:
        """Implements Standing: a key of this id is good now and allows all that *identity* may (ACCESS-40).

        True for an identity that no key has proved.
        """
        if not identity.key_id:
            return True
        now = self._clock()
        return any(key.fault(now) is None and _carries(key, identity) for key in self._by_id.get(identity.key_id, ()))

    def resumes(self, identity: Identity) -> bool:
        """As ``stands``, for what *identity* has started at another process: it ends here with its key, as what was
        started here does."""
        now = self._clock()
        good = [
            key for key in self._by_id.get(identity.key_id, ()) if key.fault(now) is None and _carries(key, identity)
        ]
        self._used.update((key.sha256, key) for key in good)
        return bool(good) or not identity.key_id

    def lapsed(self) -> list[Lapse]:
        """Returns the keys that were used and are not good any more, each once."""
        now = self._clock()
        lapses: list[Lapse] = []
        for digest, used in list(self._used.items()):
            key = self._by_hash.get(digest)
            reason: str | None = "gone" if key is None else key.fault(now)
            if reason is None and key is not None and not _carries(key, used.identity):
                reason = "other actor or permissions"
            if reason is not None:
                del self._used[digest]
                lapses.append(Lapse(used.id, reason))
        return lapses

    def life(self) -> dict[str, "KeyLife"]:
        """Returns the times of each key by its id."""
        return {key.id: KeyLife(self._last_used.get(key.sha256), key.expires_at) for key in self._by_hash.values()}


@dataclass(frozen=True, slots=True)
class KeyLife:
    """In seconds since the epoch. *last_used*: None before the first use. *expires_at*: None without an end."""

    last_used: float | None
    expires_at: float | None


def revised(
    before: Iterable[HashedKey], after: Iterable[HashedKey], now: float
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Returns the keys that a reload has revoked, and those that it has accepted, as pairs of an id and a hash."""
    was, good = ({key.sha256: key.id for key in keys if key.fault(now) is None} for keys in (before, after))
    revoked = [(was[digest], digest) for digest in was.keys() - good.keys()]
    return revoked, [(good[digest], digest) for digest in good.keys() - was.keys()]


_SOON_S = 14 * 86_400


def expiry_notes(keys: Iterable[HashedKey], now: float) -> Iterator[str]:
    """Yields a line on each key that has expired, or expires within 14 days."""
    for key in keys:
        if key.expires_at is None or key.suspended:
            continue
        left_s = key.expires_at - now
        if left_s <= 0:
            yield f"key {key.id}: expired on {_day(key.expires_at)}"
        elif left_s <= _SOON_S:
            yield f"key {key.id}: expires on {_day(key.expires_at)}, in {max(1, round(left_s / 86_400))} days or less"


def _carries(key: HashedKey, identity: Identity) -> bool:
    """True if *key* is of the actor of *identity* and grants all of its permissions and roles, maybe more."""
    if key.identity.actor != identity.actor or not frozenset(identity.roles) <= frozenset(key.identity.roles):
        return False
    # Asked each second for every key in use: the same permission is not compared with all the others.
    granted = frozenset(key.identity.permissions)
    return all(wanted in granted or key.identity.allows(wanted) for wanted in identity.permissions)


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
