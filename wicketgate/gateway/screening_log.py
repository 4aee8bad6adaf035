"""The log lines about definitions that are held back, suspicious or gone (ACCESS-19)."""

import logging
from collections.abc import Mapping

from wicketgate.catalog.pins import Held, Screened

log = logging.getLogger("wicketgate.pins")

_MAX_LOGGED = 20
_MAX_LINES = 12


def log_screened(before: Mapping[str, Screened], now: Mapping[str, Screened], *, noun: str = "tool") -> None:
    """Log the news about the sources that changed: of each kind, the first twenty. *noun* is what they are."""
    for server, screened in now.items():
        known = before.get(server, Screened())
        if screened is known:
            continue
        held = [(name, each) for name, each in screened.held.items() if known.held.get(name) != each]
        for name, each in held[:_MAX_LOGGED]:
            log.warning("%s quarantined: %s:%s: %s", noun, server, name, _with_difference(each))
        flagged = [(name, signs) for name, signs in screened.flagged.items() if known.flagged.get(name) != signs]
        for name, signs in flagged[:_MAX_LOGGED]:
            log.warning("suspicious %s: %s:%s: %s", noun, server, name, "; ".join(signs))
        gone = [name for name in screened.gone if name not in known.gone]
        for name in gone[:_MAX_LOGGED]:
            log.warning("pinned %s is gone: %s:%s", noun, server, name)
        unsaid = sum(max(0, len(found) - _MAX_LOGGED) for found in (held, flagged, gone))
        if unsaid:
            log.warning(
                "%s: %d more %ss are quarantined, suspicious or gone; see wicketgate check", server, unsaid, noun
            )


def _with_difference(held: Held) -> str:
    lines = held.change.lines[:_MAX_LINES] if held.change else ()
    return "\n  ".join((held.explanation, *lines))
