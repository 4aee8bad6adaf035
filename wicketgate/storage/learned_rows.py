"""Counts of learned words as stores write them, and read again with what is damaged left out."""

import json
import sys
from typing import TypeGuard

from wicketgate.catalog.learned_words import MAX_TOOL_WORDS, ToolWords


def packed_words(words: ToolWords) -> str:
    """The counts as JSON, in an order that nobody reads the query in."""
    return json.dumps(words.counts, separators=(",", ":"), sort_keys=True)


def sound_words(now: float, runs: object, at: object, words: object) -> ToolWords | None:
    """None for a row that is damaged; for one whose words alone are, without them. Nothing waits for what is lost."""
    if not (_is_number(runs) and _is_number(at) and runs >= 0):
        return None
    try:
        counts = json.loads(words) if isinstance(words, str) else {}
    except (ValueError, RecursionError):
        counts = {}
    # No word stood in more runs than there were, and none was run in the time to come.
    sound = {
        word: min(float(count), runs)
        for word, count in (counts.items() if isinstance(counts, dict) else ())
        if _is_number(count) and count > 0
    }
    if len(sound) > MAX_TOOL_WORDS:
        sound = dict(sorted(sound.items(), key=lambda pair: (-pair[1], pair[0]))[:MAX_TOOL_WORDS])
    return ToolWords(runs, sound, min(at, now))


def _is_number(value: object) -> TypeGuard[float]:
    # A whole number may be longer than any float.
    return isinstance(value, float | int) and -sys.float_info.max <= value <= sys.float_info.max
