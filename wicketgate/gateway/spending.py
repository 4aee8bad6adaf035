"""What chats and calls cost, and how much of it a caller may spend (OPS-550 to OPS-556).

Amounts are whole numbers of 10^-12 of the currency that the prices are in, so that sums are exact. Days and months are
those of UTC.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from math import ceil
from typing import Any, Literal, Protocol

from wicketgate.access.identity import Identity
from wicketgate.catalog.selectable import SelectableItem
from wicketgate.errors import RateLimited
from wicketgate.gateway.quota import quota_pattern
from wicketgate.models.provider import Usage

UNIT = 10**12
COST_KEY = "wicketgate.cost"
"""The key in ``_meta`` of a result under which a tool reports what its call cost. Keys that begin with ``wicketgate/``
are dropped from what servers say, because only the gate writes them."""
OTHER = "(other)"
"""Stands for the actors, models or tools of a day beyond what is kept of it."""
_MOST_REPORTED = 1_000_000
_MAX_KEPT_TOOLS = 10_000

By = Literal["actor", "key", "model", "tool", "day"]
Entry = tuple[str, str, str]
"""``model`` or ``tool``, its name, and the id of the caller's key."""
Numbers = Sequence[int]
"""Turns or calls; tokens of prompts, those of them from a cache, and of completions; the cost."""
SpentRow = tuple[str, str, Entry, Numbers]
"""Day and actor; what was used with which key; the numbers."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that each actor whom the pattern *actor* fits, or all who have *role* together, may spend."""

    actor: str = ""
    role: str = ""
    per_day: int | None = None
    per_month: int | None = None

    def limits(self, today: date) -> Iterator[tuple[str, int, date]]:
        """Yields each period with its limit and the day on which the next one begins."""
        if self.per_day is not None:
            yield f"{today}", self.per_day, today + timedelta(1)
        if self.per_month is not None:
            yield f"{today:%Y-%m}", self.per_month, (today.replace(day=1) + timedelta(31)).replace(day=1)


@dataclass(frozen=True, slots=True)
class SpendingRules:
    """*tools* are the prices of a call by pattern, of which the first that fits holds. *priced*: something has a
    price."""

    tools: Mapping[str, int]
    budgets: Sequence[Budget] = ()
    priced: bool = False


class Ledger(Protocol):
    """Keeps sums, for 400 days, over all processes that share its store."""

    def add(self, day: str, actor: str, entry: Entry, numbers: Numbers, budgets: Iterable[str]) -> None:
        """Adds *numbers* soon, and their cost to the sums of *budgets*. Must not wait or fail."""
        ...

    async def spent(self, budgets: Sequence[str]) -> Sequence[int]:
        """Returns the sum of each. Raises NotAdmitted."""
        ...

    async def rows(self, days: Iterable[str]) -> Sequence[SpentRow]:
        """Raises StoreUnavailable."""
        ...


class Spending:
    """Prices calls of tools, adds up what is used, and refuses chats whose budget is used up. *now* is in seconds since
    the epoch."""

    def __init__(self, ledger: Ledger, rules: SpendingRules, now: Callable[[], float]) -> None:
        self._ledger = ledger
        self._now = now
        self.checks = Counter({"within": 0, "warned": 0, "refused": 0})
        """Checks of budgets by their outcome."""
        self.use(rules)

    def use(self, rules: SpendingRules) -> None:
        """Applies *rules* from now on."""
        self.rules = rules
        self._pattern = lru_cache(maxsize=_MAX_KEPT_TOOLS)(partial(quota_pattern, tuple(rules.tools)))

    def answered(self, identity: Identity, model: str, usage: Usage) -> None:
        """Adds a turn of *model*."""
        tokens = usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens
        self._add(identity, ("model", model, identity.key_id), (1, *tokens, usage.cost))

    def called(self, identity: Identity, item: SelectableItem, result: Mapping[str, Any]) -> int:
        """Adds a call of *item* that its server has answered with *result*, and returns what it cost. The server's word
        counts only for a tool that has a price."""
        cost = 0
        if self.rules.tools and (pattern := self._pattern(item.id, item.names)) is not None:
            reported = _reported(result)
            cost = self.rules.tools[pattern] if reported is None else reported
        self._add(identity, ("tool", item.id, identity.key_id), (1, 0, 0, 0, cost))
        return cost

    def _add(self, identity: Identity, entry: Entry, numbers: Numbers) -> None:
        today = self._today()
        limits = self._limits(identity, today) if numbers[-1] else ()
        self._ledger.add(f"{today}", identity.actor, entry, numbers, [key for key, *_ in limits])

    async def admit(self, identity: Identity) -> str:
        """Returns a warning if a chat of *identity* begins with 80 % of a budget spent, otherwise nothing. Raises
        RateLimited if a budget is used up, and NotAdmitted if that cannot be known and has to be."""
        limits = list(self._limits(identity, self._today()))
        if not limits:
            return ""
        warnings = []
        for (key, limit, ends), spent in zip(
            limits, await self._ledger.spent([key for key, *_ in limits]), strict=True
        ):
            whose, period = key.split(" ")
            if spent >= limit:
                self.checks["refused"] += 1
                raise self._refusal(whose, period, limit, spent, ends)
            if spent * 5 >= limit * 4:
                warnings.append(f"{whose} {period} {spent * 100 // limit}% of {limit / UNIT:g}")
        self.checks["warned" if warnings else "within"] += 1
        return ", ".join(warnings)

    def _refusal(self, whose: str, period: str, limit: int, spent: int, ends: date) -> RateLimited:
        left_s = ceil(datetime(ends.year, ends.month, ends.day, tzinfo=UTC).timestamp() - self._now())
        told = f"The budget of {whose} for {period}, {limit / UNIT:g}, is used up. The next one begins on {ends} (UTC)."
        budget = {"of": whose, "period": period, "limit": limit / UNIT, "spent": spent / UNIT, "next": f"{ends}"}
        return RateLimited(told, details={"scope": "budget", "budget": budget, "retry_after_s": left_s})

    async def report(self, by: By, since: str, actor: str = "") -> tuple[dict[str, list[int]], dict[str, int]]:
        """Returns the sums since the day *since*, of *actor* if one is named, and the cost of each day: turns of
        models, calls of tools, the three numbers of tokens, the cost. Raises StoreUnavailable, and ValueError for a
        *since* that is no day."""
        today = self._today()
        first = max(date.fromisoformat(since), today - timedelta(DAYS_KEPT))
        days = [f"{first + timedelta(number)}" for number in range((today - first).days + 1)]
        sums, costs = dict[str, list[int]](), dict.fromkeys(days, 0)
        for day, whose, (what, name, key), (number, *tokens, cost) in await self._ledger.rows(days):
            if actor not in ("", whose):
                continue
            costs[day] += cost
            if by in ("model", "tool") and by != what:
                continue
            group = {"actor": whose, "key": key or "-", "day": day}.get(by, name)
            added = (number, 0) if what == "model" else (0, number)
            before = sums.setdefault(group, [0] * 6)
            sums[group] = [one + more for one, more in zip(before, (*added, *tokens, cost), strict=True)]
        return sums, costs

    def days_ago(self, days: int) -> str:
        return f"{self._today() - timedelta(days)}"

    def _today(self) -> date:
        return _date_of(int(self._now() // 86_400))

    def _limits(self, identity: Identity, today: date) -> Iterator[tuple[str, int, date]]:
        """Yields the name of each sum that is bounded for *identity*, the bound, and the day of the next sum. Of the
        budgets by actor the first that fits holds; of those by role, all."""
        of_actor = next(
            (each for each in self.rules.budgets if each.actor and fnmatchcase(identity.actor, each.actor)), None
        )
        for budget in self.rules.budgets:
            if budget is of_actor or budget.role in identity.roles:
                whose = f"role:{budget.role}" if budget.role else f"actor:{identity.actor}"
                yield from ((f"{whose} {period}", limit, ends) for period, limit, ends in budget.limits(today))


DAYS_KEPT = 400


@lru_cache(maxsize=2)
def _date_of(days: int) -> date:
    """Returns the day that begins *days* after the epoch."""
    return date(1970, 1, 1) + timedelta(days)


def _reported(result: Mapping[str, Any]) -> int | None:
    """Returns the cost in the ``_meta`` of *result*; None if there is none that can be used."""
    meta = result.get("_meta")
    cost = meta.get(COST_KEY) if isinstance(meta, Mapping) else None
    if isinstance(cost, bool) or not isinstance(cost, int | float) or not 0 <= cost <= _MOST_REPORTED:
        return None
    return round(cost * UNIT)
