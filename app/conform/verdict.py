"""What one check found out, and the requirement that it is about."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Status = Literal["pass", "fail", "not-testable"]


@dataclass(frozen=True, slots=True)
class Requirement:
    """*id* names the case or section: ``E37``, ``S3 Security``; *text* what is required, in one line."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """*seen* is what was observed: for a failure enough to find it, for the rest a word."""

    status: Status
    seen: str = ""


def passed(seen: str = "") -> Verdict:
    return Verdict("pass", seen)


def failed(seen: str) -> Verdict:
    return Verdict("fail", seen)


def not_testable(why: str) -> Verdict:
    return Verdict("not-testable", why)


def judge(faults: Sequence[str], seen: str = "") -> Verdict:
    """A pass without faults, else a failure that shows the first and counts the rest."""
    if not faults:
        return passed(seen)
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return failed(faults[0] + more)
