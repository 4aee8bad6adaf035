"""The choice of the model that answers: attempts, waits, and the models behind the first (CHAT-63).

All of it ends with the first event that reached the caller: the contract has no way to take words back.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from wicketgate.errors import ContextOverflow, EngineError, ProviderError, ProviderSilent, ProviderUnavailable
from wicketgate.models.provider import LateStream, ModelEvent, ModelRequest, Provider, Stream, first_of

log = logging.getLogger("wicketgate.model")

_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 60.0

_FAILURES = 3
_REST_S = 10.0
_LONGEST_REST_S = 60.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """*name* is for the log. *context_tokens* is the model's window."""

    name: str
    provider: Provider
    context_tokens: int


@dataclass(frozen=True, slots=True)
class Patience:
    """*attempts* bounds the attempts for each model; *wait_s* bounds all waits between them together."""

    attempts: int = 3
    wait_s: float = 60.0


class Preference:
    """Ranks a provider behind the others while it is down: it must not cost each request its connect timeout.

    It rests from the third failure in a row, for ten seconds, then twice as long each time. After each rest one
    request tries it. A resting provider is still used if all others fail. *now* is in seconds, from any origin.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._failures = 0
        self._rests_until = 0.0

    def holds(self) -> bool:
        """True if the provider is to be tried in its turn. After a rest only the first call gets True."""
        if self._now() < self._rests_until:
            return False
        if self._failures >= _FAILURES:
            self._rest()
        return True

    def succeeded(self) -> None:
        self._failures = 0
        self._rests_until = 0.0

    def failed(self, retry_after_s: float | None = None) -> None:
        """*retry_after_s* is the wait that the provider asks for; it holds from the first failure."""
        self._failures += 1
        if self._failures >= _FAILURES:
            self._rest()
        if retry_after_s is not None:
            self._rests_until = max(self._rests_until, self._now() + min(retry_after_s, _LONGEST_REST_S))

    def _rest(self) -> None:
        doubled = min(self._failures - _FAILURES, 8)
        self._rests_until = self._now() + min(_REST_S * 2**doubled, _LONGEST_REST_S)


class FallbackProvider:
    """A Provider over others; the first is the preferred one.

    There is no wait while another model can be tried; when all have failed, those that may have recovered are tried
    again. Each failure before the first event counts; an overflow only rules out windows of that size. *now* is in
    seconds; *chance* gives 0 to 1.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        patience: Patience,
        *,
        now: Callable[[], float],
        chance: Callable[[], float],
    ) -> None:
        self._candidates = [(candidate, Preference(now)) for candidate in candidates]
        self._patience = patience
        self._chance = chance

    async def aclose(self) -> None:
        for candidate, _ in self._candidates:
            await candidate.provider.aclose()

    def stream(self, request: ModelRequest) -> Stream[Sequence[ModelEvent]]:
        """See Provider. Raises the first error, because it is that of the preferred model."""
        return LateStream(partial(self._begin, request))

    async def _begin(self, request: ModelRequest) -> tuple[Sequence[ModelEvent], Stream[Sequence[ModelEvent]]]:
        """The first events of the model that answers, and the stream of the rest."""
        patience_s = self._patience.wait_s
        first: EngineError | None = None
        overflowed_tokens = 0
        hopeless: set[str] = set()
        for attempt in range(self._patience.attempts):
            # Try each model that may still answer.
            waits: list[float] = []
            for candidate, preference in self._ranked():
                if candidate.name in hopeless or candidate.context_tokens <= overflowed_tokens:
                    continue
                # Its first events decide: from there on the stream is the caller's.
                try:
                    begun = await first_of(candidate.provider.stream(request))
                    preference.succeeded()
                    return begun
                # A failure rules the model out, or leaves it for the next attempt.
                except ContextOverflow as error:
                    failure: EngineError = error
                    overflowed_tokens = max(overflowed_tokens, candidate.context_tokens)
                except ProviderUnavailable as error:
                    failure = error
                    preference.failed(error.retry_after_s)
                    waits.append(self._backoff_s(attempt) if error.retry_after_s is None else error.retry_after_s)
                except ProviderError as error:
                    failure = error
                    hopeless.add(candidate.name)
                    if isinstance(error, ProviderSilent):
                        preference.failed()
                first = first or failure
                log.warning("%s did not answer: %s: %s", candidate.name, failure.code, failure)
            # All have failed: wait for the one that may recover first, within the patience.
            wait_s = min(waits, default=_LONGEST_WAIT_S + 1)
            if wait_s > min(patience_s, _LONGEST_WAIT_S) or attempt + 1 == self._patience.attempts:
                break
            patience_s -= wait_s
            await asyncio.sleep(wait_s)
        raise first or ProviderError("no model is configured")

    def _ranked(self) -> Iterator[tuple[Candidate, Preference]]:
        """The models in order, resting ones last. A model is judged only when its turn has come."""
        resting = []
        for candidate, preference in self._candidates:
            if preference.holds():
                yield candidate, preference
            else:
                resting.append((candidate, preference))
        yield from resting

    def _backoff_s(self, attempt: int) -> float:
        """Half of it is random, so that many callers do not come back at once."""
        longest = min(_FIRST_WAIT_S * (1 << attempt), _LONGEST_WAIT_S)
        return longest * (1 + self._chance()) / 2
