"""Ends what tokens have under way: at their own end, and opaque ones when their issuer takes them back (ACCESS-122,
ACCESS-234)."""

import asyncio
import logging

from wicketgate.access.authenticator import KeyUses
from wicketgate.access.identity import CallersToken
from wicketgate.access.issuer import TokenRefused
from wicketgate.access.issuers import KEPT_S, Issuers
from wicketgate.access.key_sets import AGAIN_S, IssuerAway
from wicketgate.task_end import cancel_all

log = logging.getLogger("wicketgate.access")


class TokenWatch:
    """Its ``look`` is for each second."""

    def __init__(self, issuers: Issuers, uses: KeyUses) -> None:
        self._issuers = issuers
        self._uses = uses
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._again_at: dict[str, float] = {}

    @property
    def asking(self) -> bool:
        """True while an issuer is being asked."""
        return bool(self._tasks)

    def look(self) -> None:
        """Ends what is over, and begins to ask about the opaque tokens in use whose last answer is a minute old. What a
        request has made known of a token counts too. Neither waits nor fails."""
        now = self._issuers.clock()
        self._uses.end_expired(now)
        tokens = self._uses.opaque_tokens()
        self._again_at = {digest: at for digest, at in self._again_at.items() if digest in tokens}
        for digest, token in tokens.items():
            known = self._issuers.known(digest)
            if isinstance(known, TokenRefused):
                self._uses.end_of_token(digest)
            elif known is None and digest not in self._tasks and now >= self._again_at.get(digest, 0.0):
                # Where more tokens are in use than are remembered, each is asked about once a minute all the same.
                self._again_at[digest] = now + KEPT_S
                self._tasks[digest] = asyncio.create_task(self._ask(digest, token), name="is a token still good?")

    async def _ask(self, digest: str, token: CallersToken) -> None:
        try:
            if text := token.reveal():
                await self._issuers.verify(text, digest)
        except TokenRefused:
            self._uses.end_of_token(digest)
        except IssuerAway:
            # It has not said that the token is bad. What is under way goes on to the token's own end.
            self._again_at[digest] = self._issuers.clock() + AGAIN_S
        except Exception:
            # The last boundary of this task: the next look asks again.
            log.exception("a token in use could not be checked at its issuer")
        finally:
            del self._tasks[digest]

    async def aclose(self) -> None:
        """Ends what is under way."""
        await cancel_all(self._tasks.values())
