"""Approvers of calls who are not their callers: whom a rule names, and when enough of them have agreed (ACCESS-170 to
ACCESS-177)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from wicketgate.access.identity import ACTOR_PATTERN, PERMISSION_PATTERN, Identity
from wicketgate.access.issuer import Issuer
from wicketgate.access.signed_headers import TrustedGateway

MOST_APPROVERS = 5
_MAX_ROLE_CHARS = 128


@dataclass(frozen=True, slots=True)
class Need:
    """The approvers that one rule asks for: *count* different persons, none of them the caller, that *by* names:
    ``role:<role>``, ``permission:<permission>`` or ``actor:<actor>``."""

    by: str
    count: int = 1

    def names(self, identity: Identity) -> bool:
        """Returns whether *identity*, as it is now, is one of them."""
        kind, _, name = self.by.partition(":")
        match kind:
            case "role":
                return name in identity.roles
            case "permission":
                return identity.allows(name)
            case _:
                return name == identity.actor

    def __str__(self) -> str:
        return self.by if self.count == 1 else f"{self.count} of {self.by}"


Needs = tuple[Need, ...]
"""The approvers of one call, of all rules that ask for some; empty where its caller decides."""


@dataclass(frozen=True, slots=True)
class Vote:
    """The word of one approver. *by*: those needs that named the approver at that time. *at* is in seconds since the
    epoch. *identity* is that of the approver at that time."""

    actor: str
    decision: Literal["approve", "deny"]
    by: tuple[str, ...]
    at: float
    identity: Identity


class Persons:
    """Actors that are one person, as far as the operator has said it. Any other actor is a person of its own."""

    def __init__(self, groups: Iterable[Sequence[str]] = ()) -> None:
        self.replace(groups)

    def replace(self, groups: Iterable[Sequence[str]]) -> None:
        """Each of *groups* has the actors of one person."""
        self._first = {actor: group[0] for group in groups for actor in group}

    def of(self, actor: str) -> str:
        """Returns one and the same actor for all actors of a person."""
        return self._first.get(actor, actor)


_UNTOLD = Persons()


def check_by(by: str) -> None:
    """Raises ValueError for a text that names no approvers."""
    kind, _, name = by.partition(":")
    match kind:
        case "role" if name and len(name) <= _MAX_ROLE_CHARS and name.isprintable() and name == name.strip():
            return
        case "permission" if PERMISSION_PATTERN.fullmatch(name) and "*" not in name:
            return
        case "actor" if ACTOR_PATTERN.fullmatch(name):
            return
    raise ValueError("must be caller, role:<role>, permission:<permission> or actor:<actor>")


def described(needs: Iterable[Need]) -> str:
    """Returns who has to approve, as clients and people read it: ``role:lead``, ``2 of role:lead and actor:ann``."""
    return " and ".join(map(str, needs))


def can_be_met(
    need: Need,
    keys: Iterable[Identity],
    issuers: Iterable[Issuer],
    gateway: TrustedGateway | None = None,
    persons: Persons = _UNTOLD,
) -> bool:
    """Returns whether enough *persons* could be the approvers that *need* names: those of *keys*, those whose tokens
    *issuers* give, or those that *gateway* signs for. The roles in a token are its issuer's to say."""
    if len({persons.of(identity.actor) for identity in keys if need.names(identity)}) >= need.count:
        return True
    kind, _, name = need.by.partition(":")
    given: list[tuple[str, bool, tuple[str, ...]]] = [
        (issuer.name, bool(issuer.roles), tuple(each for grant in issuer.grants for each in grant.permissions))
        for issuer in issuers
    ]
    if gateway is not None:
        given.append((gateway.name, False, gateway.permissions))
    match kind:
        case "role":
            return any(has_roles for _, has_roles, _ in given)
        case "permission":
            return any(Identity("", permissions).allows(name) for _, _, permissions in given)
        case _:
            return any(name.startswith(f"{place}:") for place, _, _ in given)


def may_approve(needs: Iterable[Need], identity: Identity, caller: str, persons: Persons) -> bool:
    """Returns whether *identity* is an approver of a call of the actor *caller*, and another person."""
    return any(need.names(identity) for need in needs) and persons.of(identity.actor) != persons.of(caller)


def has_voted(votes: Iterable[Vote], actor: str, persons: Persons) -> bool:
    """Returns whether one of *votes* is of the person that *actor* is."""
    person = persons.of(actor)
    return any(persons.of(vote.actor) == person for vote in votes)


def vote_of(needs: Iterable[Need], identity: Identity, decision: Literal["approve", "deny"], now: float) -> Vote:
    by = tuple(need.by for need in needs if need.names(identity))
    return Vote(identity.actor, decision, by, now, replace(identity, token=None))


def fulfilled(needs: Iterable[Need], votes: Sequence[Vote], persons: Persons = _UNTOLD) -> bool:
    """Returns whether *votes* are enough for all of *needs* together. One person counts once, for one of them."""
    places = [need.by for need in needs for _ in range(need.count)]
    named: dict[str, tuple[str, ...]] = {}
    for vote in votes:
        if vote.decision == "approve":
            person = persons.of(vote.actor)
            named[person] = (*named.get(person, ()), *vote.by)
    taken: dict[str, int] = {}

    def give(place: int, asked: set[str]) -> bool:
        """Finds an approver for *place*, who may leave another place that someone else can have."""
        for person, by in named.items():
            if places[place] in by and person not in asked:
                asked.add(person)
                if person not in taken or give(taken[person], asked):
                    taken[person] = place
                    return True
        return False

    return all(give(place, set()) for place in range(len(places)))


def needs_as_json(needs: Iterable[Need]) -> list[list[Any]]:
    return [[need.by, need.count] for need in needs]


def needs_of_json(written: Iterable[Sequence[Any]]) -> Needs:
    return tuple(Need(str(by), int(count)) for by, count in written)
