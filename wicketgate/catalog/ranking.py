"""Tools by a query with the reasons for their places, as ``Router.explained`` gives them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Asked:
    """A term of a query: the number of tools that have it, and what its rarity weighs: 0 where none has it."""

    term: str
    found_in: int
    rarity: float


@dataclass(frozen=True, slots=True)
class Addend:
    """The addition of a term of the query to the score of a tool. *via* is the term that the tool has: the same, or a
    synonym; empty where it was only learned. *rarity* is what this one weighs, *weight* its impact in the tool, and
    *learned* the share of *adds* that is owed to learned words."""

    term: str
    via: str
    rarity: float
    weight: float
    adds: float
    learned: float


FactorName = Literal["coverage", "other_deed", "behind"]


@dataclass(frozen=True, slots=True)
class Reason:
    """The *score* of a tool: that of ``Router.route``, and the sum of what *addends* add, but for its rounding.

    *factors* are contained in all of these: ``coverage`` of a long request, ``other_deed`` for a name that says
    another one, ``behind`` for tools that stay behind those ordered again. *part*: the terms of the one request, of
    several, that counts in its favour.
    """

    tool_id: str
    score: float
    addends: tuple[Addend, ...]
    factors: Mapping[FactorName, float]
    part: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ranking:
    """Tools by a query, best first, with the reasons. *matched* is the number of tools that have anything of it."""

    asked: tuple[Asked, ...] = ()
    matched: int = 0
    reasons: tuple[Reason, ...] = ()
