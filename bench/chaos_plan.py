"""The faults of ``make chaos``: which come, when, and for how long, from a seed. Decides only."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Kind = Literal[
    "kill",
    "pause",
    "roll",
    "clock",
    "redis-kill",
    "failover",
    "disk",
    "slow",
    "deaf",
    "full",
    "read-only",
    "flush",
    "lock",
    "proxy",
]
KINDS: Sequence[Kind] = get_args(Kind)
Store = Literal["one", "sentinel", "file"]
"""The store of the replicas: one Redis, a master with a replica behind Sentinels, or one SQLite file."""

TEXTS: Mapping[Kind, str] = {
    "kill": "kill -9 of a replica, started again",
    "pause": "SIGSTOP of a replica, 2 to 15 s",
    "roll": "rolling restart (SIGTERM) of all replicas",
    "clock": "the clock of a replica steps by 45 s and back, 5 to 20 s (`bench.chaos_clock`)",
    "redis-kill": "kill -9 of Redis, started again within a second",
    "failover": "kill -9 of the master until a Sentinel has made the other one",
    "disk": "full disk of Redis (RLIMIT_FSIZE), 1 to 4 s",
    "slow": "Redis answers up to 1.5 s late, 5 to 20 s (CLIENT PAUSE)",
    "deaf": "Redis takes requests and answers none, 3 to 12 s (SIGSTOP)",
    "full": "Redis refuses writes for lack of memory, 2 to 10 s (maxmemory, noeviction)",
    "read-only": "Redis refuses writes for lack of replicas, 2 to 10 s (min-replicas-to-write)",
    "flush": "Redis loses all keys (FLUSHALL)",
    "lock": "another process locks the SQLite file, 1 to 10 s",
    "proxy": "kill -9 of nginx, started again",
}

OF_REPLICAS: frozenset[Kind] = frozenset({"kill", "pause", "roll", "clock"})
"""One of these at a time, so that a replica is left; faults of the others may come beside them."""

_OF_REDIS: frozenset[Kind] = frozenset({"redis-kill", "failover", "disk", "slow", "deaf", "full", "read-only", "flush"})


def possible(kinds: Sequence[Kind], store: Store) -> Sequence[Kind]:
    """Those of *kinds* that there can be with *store*."""
    missing: frozenset[Kind] = _OF_REDIS if store == "file" else frozenset({"lock"})
    return [kind for kind in kinds if kind not in missing and (kind != "failover" or store == "sentinel")]


@dataclass(frozen=True, slots=True)
class Strike:
    """*after_s* the end of the one before it in its lane; *choice* says which replica; *for_s* how long it lasts."""

    after_s: float
    kind: Kind
    choice: float
    for_s: float


def lane(kinds: Sequence[Kind], seed: int, every_s: float) -> Iterator[Strike]:
    """Strikes without end, each of *kinds* as often as any other and in an order of its own each round."""
    chance = random.Random(f"{seed} {' '.join(kinds)}")
    while kinds:
        for kind in chance.sample(kinds, len(kinds)):
            yield Strike(chance.uniform(0.5, 1.5) * every_s, kind, chance.random(), _length_s(kind, chance))


def lanes(kinds: Sequence[Kind]) -> Sequence[Sequence[Kind]]:
    """The kinds that exclude one another, lane by lane."""
    own = [kind for kind in kinds if kind in OF_REPLICAS]
    return [one for one in (own, [kind for kind in kinds if kind not in OF_REPLICAS]) if one]


def _length_s(kind: Kind, chance: random.Random) -> float:
    match kind:
        case "pause":
            return chance.uniform(2, 15)
        case "kill":
            return chance.choice([0.0, 0.0, 3.0])
        case "redis-kill":
            return chance.uniform(0, 1)
        case "disk":
            return chance.uniform(1, 4)
        case "slow" | "clock":
            return chance.uniform(5, 20)
        case "deaf":
            return chance.uniform(3, 12)
        case "full" | "read-only":
            return chance.uniform(2, 10)
        case "lock":
            return chance.uniform(1, 10)
        case "proxy":
            return chance.uniform(0, 0.5)
    return 0.0
