"""Counts of meta-tool calls and chat streams for ``/metrics``, with the tokens that they saved.

Tokens are estimates here, four characters each, cheap enough for every call. Texts that have to fit a budget (cards,
envelopes, the context) are counted exactly where they are fitted.
"""

from dataclasses import dataclass
from typing import Protocol

from wicketgate.models.provider import Usage

CHARS_PER_TOKEN = 4


def estimate_tokens(chars: int) -> int:
    return -(-chars // CHARS_PER_TOKEN)


@dataclass(frozen=True, slots=True)
class TokenCost:
    """*shown*: tokens given to the model. *naive*: tokens that it would have been given without a gateway: for a browse
    the definitions of all tools that the caller may use, for a call the raw result. Both are estimates."""

    shown: int = 0
    naive: int = 0

    def __add__(self, other: "TokenCost") -> "TokenCost":
        return TokenCost(self.shown + other.shown, self.naive + other.naive)


class Meter(Protocol):
    """Counts; must not fail and must not wait."""

    def stream_ended(self, outcome: str, usage: Usage) -> None:
        """One chat stream. *outcome* is the finish reason of ``done``, the code of ``error``, or ``disconnected``."""
        ...

    def meta_tool(self, tool: str, outcome: str, seconds: float, cost: TokenCost) -> None:
        """One call of a meta-tool. *outcome* is ``ok``, ``partial``, ``error`` (the tool's own), or an error code."""
        ...


class NoMeter:
    def stream_ended(self, outcome: str, usage: Usage) -> None:
        pass

    def meta_tool(self, tool: str, outcome: str, seconds: float, cost: TokenCost) -> None:
        pass
