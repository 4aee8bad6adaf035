"""Which model answers when one does not: attempts, waits, and the models behind the first (DESIGN §2 "model").

All of it ends with the first event that reached the caller: the contract has no way to take words back.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from wicketgate.engine.circuit import Circuit
from wicketgate.errors import ContextOverflow, EngineError, ProviderError, ProviderSilent, ProviderUnavailable
from wicketgate.models.provider import LateStream, ModelEvent, ModelRequest, Provider, Stream, first_of

log = logging.getLogger("wicketgate.model")

_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """*name* is for the log. *context_tokens* is the model's window."""

    name: str
    provider: Provider
    context_tokens: int


@dataclass(frozen=True, slots=True)
class Patience:
    """*attempts* is how often each model is asked; *wait_s* bounds all waits between them together."""

    attempts: int = 3
    wait_s: float = 60.0


class FallbackProvider:
    """A Provider over others, the first being the one that is wanted.

    While there is another model to ask, nothing is waited for; when all have failed, those that may have recovered are
    asked again. Each failure before the first event counts; what is wrong with the conversation itself only asks for a
    larger window. *now* is in seconds; *chance* gives 0 to 1.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        patience: Patience,
        *,
        now: Callable[[], float],
        chance: Callable[[], float],
    ) -> None:
        self._candidates = [(candidate, Circuit(now)) for candidate in candidates]
        self._patience = patience
        self._chance = chance

    async def aclose(self) -> None:
        for candidate, _ in self._candidates:
            await candidate.provider.aclose()

    def stream(self, request: ModelRequest) -> Stream[Sequence[ModelEvent]]:
        """See Provider. The error that is raised is the first one, since it tells of the model that is wanted."""
        return LateStream(partial(self._begin, request))

    async def _begin(self, request: ModelRequest) -> tuple[Sequence[ModelEvent], Stream[Sequence[ModelEvent]]]:
        """The first events of whoever answers, and the stream of the others."""
        patience_s = self._patience.wait_s
        first: EngineError | None = None
        overflowed_tokens = 0
        hopeless: set[str] = set()
        for attempt in range(self._patience.attempts):
            waits: list[float] = []
            for candidate, circuit in self._in_turn():
                if candidate.name in hopeless or candidate.context_tokens <= overflowed_tokens:
                    continue
                try:
                    begun = await first_of(candidate.provider.stream(request))
                    circuit.succeeded()
                    return begun
                except ContextOverflow as error:
                    failure: EngineError = error
                    overflowed_tokens = max(overflowed_tokens, candidate.context_tokens)
                except ProviderUnavailable as error:
                    failure = error
                    circuit.failed(error.retry_after_s)
                    waits.append(self._backoff_s(attempt) if error.retry_after_s is None else error.retry_after_s)
                except ProviderError as error:
                    failure = error
                    hopeless.add(candidate.name)
                    if isinstance(error, ProviderSilent):
                        circuit.failed()
                first = first or failure
                log.warning("%s did not answer: %s: %s", candidate.name, failure.code, failure)
            wait_s = min(waits, default=_LONGEST_WAIT_S + 1)
            if wait_s > min(patience_s, _LONGEST_WAIT_S) or attempt + 1 == self._patience.attempts:
                break
            patience_s -= wait_s
            await asyncio.sleep(wait_s)
        raise first or ProviderError("there is no model to ask")

    def _in_turn(self) -> Iterator[tuple[Candidate, Circuit]]:
        """Those worth asking first, then, if nobody else has answered, the others."""
        passed_over = []
        for candidate, circuit in self._candidates:
            if circuit.admits():
                yield candidate, circuit
            else:
                passed_over.append((candidate, circuit))
        yield from passed_over

    def _backoff_s(self, attempt: int) -> float:
        """Half of it by chance, so that many callers do not come back as one."""
        longest = min(_FIRST_WAIT_S * (1 << attempt), _LONGEST_WAIT_S)
        return longest * (1 + self._chance()) / 2
