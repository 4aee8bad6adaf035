"""The outcomes of logins, for the calls that wait for them."""

from collections.abc import Callable

from wicketgate.login.login_flow import Login, LoginRefused
from wicketgate.login.logins import Logins
from wicketgate.login.rows import LoginsAway
from wicketgate.login.waiting import LoginOutcome


class KeptLogins:
    """Implements Waiting for the *logins* that all processes share. *heard* gets each login that was granted, before
    the call that waited for it goes on."""

    def __init__(self, logins: Logins, heard: Callable[[Login], None] = lambda login: None) -> None:
        self._logins = logins
        self._heard = heard

    async def outcome(self, flow: str, within_s: float) -> LoginOutcome:
        try:
            login = await self._logins.outcome(flow, within_s)
        except LoginRefused:
            return "failed"
        except LoginsAway:
            return "waiting"
        if login.state == "granted":
            self._heard(login)
        match login.state:
            case "granted" | "declined" | "failed" as ended:
                return ended
            case _:
                return "waiting"
