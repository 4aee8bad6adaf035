"""Pins and suspicious signs as the keeper applies them: each listing is screened once (W-PINS)."""

import logging
from collections.abc import Mapping

from wicketgate.catalog.pins import Held, PinPolicy, Screened, screen
from wicketgate.fleet.multiplex import Listing

log = logging.getLogger("wicketgate.pins")

_MAX_LOGGED = 20
_MAX_LINES = 12


class Screening:
    """Under one policy. Called in threads, by one at a time."""

    def __init__(self, policy: PinPolicy) -> None:
        self.policy = policy
        self._known: dict[str, tuple[Listing, Screened]] = {}

    def of(self, server: str, listing: Listing) -> Screened:
        known = self._known.get(server)
        if known is not None and known[0] is listing:
            return known[1]
        screened = screen(server, listing, self.policy)
        self._known[server] = listing, screened
        return screened

    def of_all(self, listings: Mapping[str, Listing]) -> dict[str, Screened]:
        screened = {server: self.of(server, listing) for server, listing in listings.items()}
        self._known = {server: self._known[server] for server in listings}
        return screened


def log_screened(before: Mapping[str, Screened], now: Mapping[str, Screened]) -> None:
    """What is new about the upstreams that changed; of each kind, the first twenty tools."""
    for server, screened in now.items():
        known = before.get(server, Screened())
        if screened is known:
            continue
        held = [(name, each) for name, each in screened.held.items() if known.held.get(name) != each]
        for name, each in held[:_MAX_LOGGED]:
            log.warning("tool quarantined: %s:%s: %s", server, name, _with_difference(each))
        flagged = [(name, signs) for name, signs in screened.flagged.items() if known.flagged.get(name) != signs]
        for name, signs in flagged[:_MAX_LOGGED]:
            log.warning("suspicious tool: %s:%s: %s", server, name, "; ".join(signs))
        gone = [name for name in screened.gone if name not in known.gone]
        for name in gone[:_MAX_LOGGED]:
            log.warning("pinned tool is gone: %s:%s", server, name)
        unsaid = sum(max(0, len(found) - _MAX_LOGGED) for found in (held, flagged, gone))
        if unsaid:
            log.warning("%s: %d more tools are quarantined, suspicious or gone; see wicketgate check", server, unsaid)


def _with_difference(held: Held) -> str:
    lines = held.change.lines[:_MAX_LINES] if held.change else ()
    return "\n  ".join((held.told, *lines))
