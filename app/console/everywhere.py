"""Acts of an operator in the console, done at the other processes of the service too (OPS-294 to OPS-296)."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from wicketgate.gate import Gate
from wicketgate.peers import Payload, ask_others

DO_S = 10.0

State = Literal["changed", "same", "failed"]
"""The end at one process: *same*, it was so already; *failed*, it is not so, and the log there says why."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The number of other processes by how it ended there. *unreached*: those that did not answer, one where not even
    their number is known."""

    changed: int = 0
    same: int = 0
    failed: int = 0
    unreached: int = 0

    @property
    def shortfall(self) -> str:
        """A phrase on the processes where it may not be so; empty if there are none."""
        parts = []
        if self.unreached:
            parts.append(f"{_processes(self.unreached)} could not be reached")
        if self.failed:
            parts.append(f"it was not possible at {_processes(self.failed)}, whose log says why")
        return "; ".join(parts)


class Everywhere:
    """Makes the operation *name* one of all processes: *do* does it here for a peer that asks."""

    def __init__(self, gate: Gate, name: str, do: Callable[[Mapping[str, Any]], Awaitable[State]]) -> None:
        self._peers = gate.peers
        self._operation = f"console_{name}"
        self._do = do
        self._peers.answer(self._operation, self._answer, outlives=True)

    async def elsewhere(self, wanted: Payload) -> Elsewhere:
        """Lets all others do *wanted*, at once."""
        answers = await ask_others(self._peers, self._operation, wanted, DO_S)
        ends = [answer["state"] for answer in answers.given.values()]
        changed, same = ends.count("changed"), ends.count("same")
        return Elsewhere(changed, same, len(ends) - changed - same, answers.unreached)

    async def _answer(self, wanted: Payload) -> Payload:
        return {"state": await self._do(wanted)}


def _processes(number: int) -> str:
    return f"{number} other process{'' if number == 1 else 'es'}"
