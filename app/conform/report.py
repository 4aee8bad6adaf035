"""The report: one line for each requirement, and the same as JSON."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from app.conform.verdict import Requirement, Verdict

_MARKS = {"pass": "pass", "fail": "FAIL", "not-testable": "----"}


@dataclass(frozen=True, slots=True)
class Finding:
    requirement: Requirement
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Report:
    url: str
    findings: Sequence[Finding]

    @property
    def conforms(self) -> bool:
        """Nothing failed; what could not be tested is not held against the engine."""
        return all(finding.verdict.status != "fail" for finding in self.findings)

    def lines(self) -> Iterator[str]:
        width = max(len(finding.requirement.id) for finding in self.findings)
        for finding in self.findings:
            verdict, requirement = finding.verdict, finding.requirement
            seen = f"  [{verdict.seen}]" if verdict.seen else ""
            yield f"{_MARKS[verdict.status]}  {requirement.id.ljust(width)}  {requirement.text}{seen}"
        counted = Counter(finding.verdict.status for finding in self.findings)
        yield f"{counted['pass']} passed, {counted['fail']} failed, {counted['not-testable']} not testable"

    def as_dict(self) -> dict[str, Any]:
        return {
            "url": self.url,
            "conforms": self.conforms,
            "findings": [
                {
                    "id": finding.requirement.id,
                    "requirement": finding.requirement.text,
                    "status": finding.verdict.status,
                    "seen": finding.verdict.seen,
                }
                for finding in self.findings
            ],
        }
