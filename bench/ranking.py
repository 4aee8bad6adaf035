"""A contestant of the quality table. Standard library only: the environments of the peers have nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bench.routing_sets import Tool

RANKED = 10
"""As many keys as a ranking needs here."""


@dataclass(frozen=True, slots=True)
class Answer:
    """*keys*: the tools in the order in which they are shown. *text*: all that a model is shown; None where the
    contestant is a library that shows nothing."""

    keys: Sequence[str]
    text: str | None


class Ranking(Protocol):
    @property
    def remarks(self) -> Sequence[str]:
        """The things that a reader of its figures must know."""
        ...

    async def build(self, tools: Sequence[Tool]) -> None: ...

    async def browse(self, query: str) -> Answer:
        """The whole call, with the contestant's own defaults; it is timed."""
        ...

    async def ranked(self, query: str, answer: Answer) -> Sequence[str]:
        """At least five keys where there are so many, best first; *answer* was given to the query before."""
        ...
