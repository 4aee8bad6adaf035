"""Credentials of the gate with counted renewals: a small real implementation of the Protocol."""

from wicketgate.net import Refusal


class Tokens:
    """Implements Credentials: the value is *prefix* and the number of renewals. *renews*: another one can be had."""

    def __init__(self, prefix: str = "Bearer t", *, renews: bool = True) -> None:
        self.renewals = 0
        self.closed = 0
        self._prefix = prefix
        self._renews = renews

    async def authorization(self) -> str:
        return f"{self._prefix}{self.renewals}"

    async def renew(self, refusal: Refusal) -> bool:
        self.renewals += 1
        return self._renews

    async def aclose(self) -> None:
        self.closed += 1
