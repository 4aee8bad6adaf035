"""The outcomes of logins, for the calls that wait for them."""

from wicketgate.login.login_flow import LoginRefused
from wicketgate.login.logins import Logins
from wicketgate.login.rows import LoginsAway
from wicketgate.login.waiting import LoginOutcome


class KeptLogins:
    """Implements Waiting for the *logins* that all processes share."""

    def __init__(self, logins: Logins) -> None:
        self._logins = logins

    async def outcome(self, flow: str, within_s: float) -> LoginOutcome:
        try:
            login = await self._logins.outcome(flow, within_s)
        except LoginRefused:
            return "failed"
        except LoginsAway:
            return "waiting"
        match login.state:
            case "granted" | "declined" | "failed" as ended:
                return ended
            case _:
                return "waiting"
