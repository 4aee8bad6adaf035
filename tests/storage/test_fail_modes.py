"""The decider of what comes in place of a store that cannot be used (OPS-191, OPS-192)."""

from pathlib import Path

import pytest

from tests.support.requirement import requirement
from wicketgate.config.settings import Settings
from wicketgate.errors import NotAdmitted
from wicketgate.storage.fail_modes import STATE_KINDS, USUAL, FailModes, StateKind
from wicketgate.storage.measures import StorageMeasures
from wicketgate.storage.sqlite import SqliteStore
from wicketgate.storage.used_approvals import UsedApprovals

AT_MOST_ONCE: tuple[StateKind, ...] = ("claims", "approvals", "runs")


@requirement("OPS-191")
def test_the_settings_name_each_kind_and_have_the_usual_modes() -> None:
    assert Settings().storage.fail.modes() == USUAL
    assert set(STATE_KINDS) == USUAL.keys()
    changed = Settings.model_validate(
        {"storage": {"fail": {"quotas": "closed", "learned_words": "closed"}}}
    ).storage.fail
    assert changed.modes() == {**USUAL, "quotas": "closed", "learned_words": "closed"}


@requirement("OPS-191")
def test_what_may_run_at_most_once_is_closed() -> None:
    assert {Settings().storage.fail.modes()[kind] for kind in AT_MOST_ONCE} == {"closed"}


@requirement("OPS-192")
def test_kinds_are_degraded_until_their_next_step_succeeds_and_all_while_the_store_is_away() -> None:
    fail = FailModes({**USUAL, "quotas": "closed"})
    assert (fail.degraded(away=False), dict(fail.counts)) == ({}, {})
    assert [fail.without(kind) for kind in ("places", "quotas", "places")] == ["open", "closed", "open"]
    assert fail.degraded(away=False) == {"quotas": "closed", "places": "open"}
    fail.answered("quotas")
    fail.answered("quotas")
    assert fail.degraded(away=False) == {"places": "open"}
    assert list(fail.degraded(away=True)) == list(STATE_KINDS)
    assert fail.counts == {("places", "open"): 2, ("quotas", "closed"): 1}


@requirement("OPS-192")
def test_one_line_says_what_becomes_of_each_kind() -> None:
    line = FailModes({**USUAL, "quotas": "closed"}).summary()
    assert line.startswith("claims, approvals, runs, quotas: refused; places, learned words, budgets: ")
    assert line.endswith("; artifacts: partial, not lost")


@requirement("OPS-192")
async def test_a_file_that_cannot_be_written_is_counted_by_the_kind_that_did_without(tmp_path: Path) -> None:
    measures, path = StorageMeasures(), tmp_path / "store.db"
    store = SqliteStore(path, measures=measures)
    used = UsedApprovals(store, lambda: 0.0, measures)
    path.rename(moved := tmp_path / "moved.db")
    with pytest.raises(NotAdmitted):
        await used.add("a", 60.0)
    assert measures.fail.degraded(away=False) == {"approvals": "closed"}
    moved.rename(path)
    assert await used.add("a", 60.0)
    assert measures.fail.degraded(away=False) == {}
    assert measures.fail.counts == {("approvals", "closed"): 1}
    await store.aclose()
