"""The login that a call needs first, offered to the person behind it and waited for (FACE-130 to FACE-134).

The question is the gate's own: no server writes a word of it. A client that cannot be asked gets the failure, with the
place of the login. Error -32042 is never sent, because clients lose it.
"""

import hashlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from wicketgate.errors import ConnectRequired, Forbidden
from wicketgate.login.login_flow import LoginOutcome, Waiting
from wicketgate.ports import CallContext, CannotAsk

log = logging.getLogger("wicketgate.calls")

HELD_S = 25.0
"""A second attempt is held for this time before its client is asked again: proxies and clients give up after 30 s."""
_MAX_ASKED = 24
"""With HELD_S ten minutes, the life of a login."""
_MAX_LOGINS = 3
_ELICIT = "elicitation/create"

R = TypeVar("R")


class Logins:
    """*held_s*: the time for which a second attempt is held; None for HELD_S."""

    def __init__(self, waiting: Waiting, held_s: float | None = None) -> None:
        self._waiting = waiting
        self._held_s = HELD_S if held_s is None else held_s

    async def around(
        self, context: CallContext, run: Callable[[], Awaitable[R]], still_allowed: Callable[[], Awaitable[None]]
    ) -> R:
        """The result of *run*, which is run again after each login that it needs. *still_allowed* raises Forbidden if
        the call may not go on, for a person may take long. Raises what *run* raises; ConnectRequired where nobody can
        be asked, or the login failed."""
        try:
            return await run()
        except ConnectRequired as need:
            return await self.after(need, context, run, still_allowed)

    async def after(
        self,
        need: ConnectRequired,
        context: CallContext,
        run: Callable[[], Awaitable[R]],
        still_allowed: Callable[[], Awaitable[None]],
    ) -> R:
        """As ``around``, when *run* was run once and raised *need*."""
        for _ in range(_MAX_LOGINS):
            if not _can_be_asked(context, need):
                raise need
            if not await self._login(context, need):
                break
            await still_allowed()
            try:
                return await run()
            except ConnectRequired as another:
                need = another
        else:
            raise need
        return await run()

    async def _login(self, context: CallContext, need: ConnectRequired) -> bool:
        """False if the login has failed, and the caller is to be given a new one. Raises Forbidden and *need*."""
        caller, page_id = context.caller, hashlib.sha256(need.flow.encode()).hexdigest()[:32]
        words = f"Connect your own account at {need.upstream}. Nothing has been run yet; the call continues afterwards."
        question: dict[str, Any] = {"mode": "url", "message": words, "url": need.url}
        if caller.answers == "now":
            question["elicitationId"] = page_id
        for _ in range(_MAX_ASKED):
            try:
                answer = await caller.ask(_ELICIT, question)
            except CannotAsk:
                raise need from None
            match answer.get("action"):
                case "accept":
                    pass
                case "decline":
                    raise _declined(need)
                case _:
                    raise need
            # To open the page is not to be done with it.
            with caller.pending():
                outcome = await self._outcome(need.flow, in_place=caller.answers == "now")
            log.info("%s: login of %s: %s", need.upstream, context.identity.actor, outcome)
            if outcome == "waiting":
                continue
            await caller.page_done(page_id)
            if outcome == "declined":
                raise _declined(need)
            return outcome == "granted"
        raise need

    async def _outcome(self, flow: str, *, in_place: bool) -> LoginOutcome:
        """The outcome of the login within the time of one attempt; *in_place*: within its life."""
        outcome: LoginOutcome = "waiting"
        for _ in range(_MAX_ASKED if in_place else 1):
            outcome = await self._waiting.outcome(flow, self._held_s)
            if outcome != "waiting":
                break
        return outcome


def _can_be_asked(context: CallContext, need: ConnectRequired) -> bool:
    elicitation = context.caller.capabilities.get("elicitation")
    declared = isinstance(elicitation, dict) and elicitation.get("url") is not None
    return declared and bool(need.url and need.flow) and context.answers_come != "never"


def _declined(need: ConnectRequired) -> Forbidden:
    return Forbidden(f"The login at {need.upstream} was declined. Nothing was run.", path=need.path)
