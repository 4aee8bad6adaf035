"""Abilities of a contestant of ``bench.catalog``. Standard library only: the peer's environment has nothing else."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

Definition = dict[str, Any]
"""A tool of ``tools/list``, in wire JSON."""


class Refused(Exception):
    """``tool_browse`` answered with an error, or failed."""


class Contestant(Protocol):
    """A gateway in process, over one upstream named ``all``. *remarks* say what a reader of its figures must know."""

    @property
    def remarks(self) -> Sequence[str]: ...

    async def refresh(self, definitions: list[Definition]) -> int:
        """Put these tools in force; how many there are then."""
        ...

    async def browse(self, arguments: Mapping[str, Any], session: str) -> Any:
        """The whole call of ``tool_browse``, up to what goes to the door. Raises Refused."""
        ...

    def cards(self, answer: Any) -> Sequence[Mapping[str, Any]]:
        """The cards of such an answer."""
        ...

    def path_of(self, card: Mapping[str, Any]) -> str:
        """The path of an inner card."""
        ...
