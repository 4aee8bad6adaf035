"""The meaning of a run of the suite: failures that the baseline does not name, and entries of it that are stale.

A warning is judged like a failure: the suite counts it apart, and a rule that SHOULD hold is broken all the same.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

BAD = ("FAILURE", "WARNING")


@dataclass(frozen=True, slots=True)
class Check:
    id: str
    status: str
    """SUCCESS, FAILURE, WARNING, SKIPPED or INFO."""
    message: str = ""

    @property
    def good(self) -> bool:
        return self.status not in BAD


Found = Mapping[str, Sequence[Check]]
"""The checks of each scenario that ran."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Failures that are known. *where* are the targets it holds for, *what* checks as ``scenario:check``, *why* its
    reason; ``*`` stands for any characters in both."""

    where: tuple[str, ...]
    what: tuple[str, ...]
    why: str

    def holds_for(self, target: str) -> bool:
        return any(fnmatchcase(target, pattern) for pattern in self.where)


@dataclass(frozen=True, slots=True)
class Verdict:
    scenarios: int
    clean: int
    """Scenarios without a failure or a warning."""
    passed: int
    failed: int
    warned: int
    skipped: int
    unexpected: tuple[str, ...]
    """``scenario:check: message`` of what no entry names."""
    matched: frozenset[tuple[int, str]]
    """Entries, by number and pattern, that named a failure here."""


def judge(target: str, found: Found, expected: Sequence[Expected]) -> Verdict:
    """The run against *target*. A check that is repeated counts as often as it was made."""
    entries = [
        (number, what) for number, entry in enumerate(expected) if entry.holds_for(target) for what in entry.what
    ]
    unexpected: list[str] = []
    matched: set[tuple[int, str]] = set()
    counts = dict.fromkeys(("SUCCESS", "FAILURE", "WARNING", "SKIPPED"), 0)
    for scenario, checks in found.items():
        for check in checks:
            counts[check.status] = counts.get(check.status, 0) + 1
            if check.good:
                continue
            named = [entry for entry in entries if fnmatchcase(f"{scenario}:{check.id}", entry[1])]
            matched.update(named)
            if not named:
                unexpected.append(f"{scenario}:{check.id}: {check.message}")
    return Verdict(
        len(found),
        sum(all(check.good for check in checks) for checks in found.values()),
        counts["SUCCESS"],
        counts["FAILURE"],
        counts["WARNING"],
        counts["SKIPPED"],
        tuple(unexpected),
        frozenset(matched),
    )


def stale(expected: Sequence[Expected], verdicts: Mapping[str, Verdict]) -> list[str]:
    """Entries that named no failure at a target that they hold for; entries for targets that did not run are left."""
    found = []
    for number, entry in enumerate(expected):
        for target in filter(entry.holds_for, verdicts):
            matched = verdicts[target].matched
            found += [f"{target}: {what}" for what in entry.what if (number, what) not in matched]
    return found


def read_expected(entries: Iterable[Mapping[str, object]]) -> list[Expected]:
    """Of the baseline's YAML. Raises ValueError for an entry without targets, checks or a reason."""
    expected = []
    for entry in entries:
        where, what, why = (entry.get(key) for key in ("where", "what", "why"))
        if not (isinstance(where, list) and isinstance(what, list) and isinstance(why, str) and why.strip()):
            raise ValueError(f"an entry needs where, what and why: {entry}")
        expected.append(Expected(tuple(map(str, where)), tuple(map(str, what)), " ".join(why.split())))
    return expected
