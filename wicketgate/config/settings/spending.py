"""The section ``spending``: the prices of tools, and the most that callers may spend. Models have their own prices."""

from typing import Self

from pydantic import Field, model_validator

from wicketgate.config.settings.base import Section, ToolPattern
from wicketgate.config.settings.chat import Price
from wicketgate.gateway.spending import UNIT, Budget, ToolPrice


class ToolPriceSettings(Section):
    match: ToolPattern
    """Tools by ``<namespace>:<tool>``, with ``*``; the first match counts."""
    per_call: Price
    """The cost of a call that the server answers."""
    most_reported: Price | None = None
    """A result may name another cost up to this one, under ``wicketgate.cost`` of ``_meta``. None: it may not."""

    def made(self) -> ToolPrice:
        most = -1 if self.most_reported is None else int(self.most_reported * UNIT)
        return ToolPrice(int(self.per_call * UNIT), most)


class BudgetSettings(Section):
    """A budget of each actor, or of all together who have a role. A chat is refused once it is spent."""

    actor: str = ""
    """Actors, with ``*``; of several budgets by actor the first match counts."""
    role: str = ""
    """Or the role whose actors share this budget."""
    per_day: Price | None = None
    """From midnight to midnight, UTC."""
    per_month: Price | None = None
    """In a calendar month, UTC."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if bool(self.actor) == bool(self.role):
            raise ValueError("a budget is of one actor or of one role")
        if self.per_day is None and self.per_month is None:
            raise ValueError("per_day or per_month is missing")
        return self

    def made(self) -> Budget:
        limits = [None if each is None else int(each * UNIT) for each in (self.per_day, self.per_month)]
        return Budget(self.actor, self.role, *limits)


class SpendingSettings(Section):
    """What calls of tools cost, and who may spend how much."""

    tools: tuple[ToolPriceSettings, ...] = Field(default=(), max_length=1_000)
    """Prices of tools."""
    budgets: tuple[BudgetSettings, ...] = Field(default=(), max_length=1_000)
    """Bounds of what chats cost."""

    def tool_prices(self) -> dict[str, ToolPrice]:
        """Returns prices by pattern, the first of each."""
        prices = dict[str, ToolPrice]()
        for each in self.tools:
            prices.setdefault(each.match, each.made())
        return prices
