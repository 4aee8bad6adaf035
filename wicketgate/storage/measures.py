"""Counts of the store that ``storage.url`` names, which metrics show."""

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from wicketgate.measures import Durations
from wicketgate.storage.fail_modes import FailMode, FailModes, StateKind

ERROR_KINDS = ("busy", "full", "gone", "readonly", "damaged", "away", "late", "denied", "moving", "other")


class StorageMeasures:
    """*waits*: how long callers waited for the store. *errors* counts by ``ERROR_KINDS``, *refused* counts the callers
    that were refused at once, because it was locked or away a moment before. *away*: why a shared store, or its file,
    is not there, as the end of a sentence; empty while it is. *fail* decides what comes in place of a step that failed,
    and counts it."""

    def __init__(self, fail: FailModes | None = None) -> None:
        self.fail = fail or FailModes()
        self.waits = Durations()
        self.errors: Counter[str] = Counter()
        self.refused = 0
        self.away = ""


def without_level(fail: FailModes, kind: StateKind) -> int:
    """Counts a step of *kind* that failed, and returns the level of the line about it: an outage is an error once, and
    its further steps are for those who look closely."""
    level = logging.ERROR if fail.begins(kind) else logging.DEBUG
    fail.without(kind)
    return level


@dataclass(frozen=True, slots=True)
class StorageState:
    """*away*: as in ``StorageMeasures``. *shortfalls*: lines on what the store does not promise, each with the setting
    that mends it. *degraded*: the kinds of state that do without it now, and how."""

    kind: Literal["memory", "sqlite", "redis"]
    away: str = ""
    shortfalls: tuple[str, ...] = ()
    degraded: Mapping[StateKind, FailMode] = field(default_factory=dict)
