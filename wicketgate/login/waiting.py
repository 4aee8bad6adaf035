"""Waiting for a login that was offered to the person behind a call."""

from typing import Literal, Protocol

LoginOutcome = Literal["granted", "declined", "failed", "waiting"]
"""``granted``: the account is connected; ``declined``: its person did not want to; ``failed``: it ended otherwise, by
its time too; ``waiting``: it has not ended."""


class Waiting(Protocol):
    """Logins under way, at whichever process their pages are served."""

    async def outcome(self, flow: str, within_s: float) -> LoginOutcome:
        """Return what has become of the login *flow*, as soon as it has ended, or after *within_s*. A login that is
        not known is ``failed``. Never raises: where that cannot be known now it is ``waiting``."""
        ...


class NoWaiting:
    """Implements Waiting where no login is waited for."""

    async def outcome(self, flow: str, within_s: float) -> LoginOutcome:
        return "failed"
