from pathlib import Path

import pytest
import yaml

from conformance.judge import Check, Expected, judge, read_expected, stale
from conformance.run_suite import BASELINE
from tests.support.requirement import requirement

FOUND = {
    "tools-list": [Check("tools-list", "SUCCESS"), Check("names", "WARNING", "odd names")],
    "prompts-list": [Check("prompts-list", "FAILURE", "Method not found")],
    "caching": [Check("ttl", "SKIPPED")],
}
EXPECTED = [Expected(("server/*/gateway/*",), ("prompts-*:*",), "it has no prompts")]
GATEWAY = "server/sdk-2/gateway/2026-07-28"


@requirement("OPS-149")
def test_a_failure_or_warning_that_no_entry_names_is_unexpected() -> None:
    verdict = judge(GATEWAY, FOUND, EXPECTED)
    assert verdict.unexpected == ("tools-list:names: odd names",)
    assert (verdict.clean, verdict.scenarios, verdict.passed, verdict.failed, verdict.warned, verdict.skipped) == (
        *(1, 3),
        *(1, 1, 1, 1),
    )


@requirement("OPS-149")
def test_an_entry_holds_for_its_targets_only() -> None:
    verdict = judge("server/sdk-2/namespaced/2026-07-28", FOUND, EXPECTED)
    assert [what.partition(":")[0] for what in verdict.unexpected] == ["tools-list", "prompts-list"]


@requirement("OPS-149")
def test_an_entry_that_names_no_failure_at_one_of_its_targets_is_stale() -> None:
    other = "server/sdk-1/gateway/2026-07-28"
    passed = {"prompts-list": [Check("prompts-list", "SUCCESS")]}
    verdicts = {GATEWAY: judge(GATEWAY, FOUND, EXPECTED), other: judge(other, passed, EXPECTED)}
    assert stale(EXPECTED, verdicts) == [f"{other}: prompts-*:*"]
    del verdicts[other]
    assert stale(EXPECTED, verdicts) == []  # what did not run judges no entry


@requirement("OPS-149")
@pytest.mark.parametrize("missing", ["where", "what", "why"])
def test_an_entry_without_targets_checks_or_reason_is_refused(missing: str) -> None:
    entry = {"where": ["*"], "what": ["*"], "why": "because", missing: ""}
    with pytest.raises(ValueError, match="needs where, what and why"):
        read_expected([entry])


@requirement("OPS-149")
def test_every_entry_of_the_baseline_is_complete() -> None:
    baseline = yaml.safe_load(Path(BASELINE).read_text("utf-8"))
    assert read_expected(baseline["expected"])
    assert all(entry["what"] and entry["why"].strip() for entry in baseline["not_run"])
