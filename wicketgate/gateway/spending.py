"""What chats and calls cost, and how much of it a caller may spend (OPS-550 to OPS-556).

Amounts are whole numbers of 10^-12 of the currency that the prices are in, so that sums are exact. Days and months are
those of UTC.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from math import ceil
from typing import Any, Literal, NamedTuple, Protocol

from wicketgate.access.identity import Identity
from wicketgate.catalog.selectable import SelectableItem
from wicketgate.errors import RateLimited
from wicketgate.gateway.quota import quota_pattern
from wicketgate.models.provider import Usage
from wicketgate.models.watched import ModelPrices

UNIT = 10**12
COST_KEY = "wicketgate.cost"
"""The key in ``_meta`` of a result under which a tool reports what its call cost. Keys that begin with ``wicketgate/``
are dropped from what servers say, because only the gate writes them."""
OTHER = "(other)"
"""Stands for the actors, models or tools of a day beyond what is kept of it."""
_MAX_KEPT_TOOLS = 10_000

By = Literal["actor", "key", "model", "tool", "day"]
Entry = tuple[str, str, str]
"""``model`` or ``tool``, its name, and the id of the caller's key."""
Numbers = Sequence[int]
"""Turns or calls; tokens of prompts, those of them from a cache, and of completions; the cost."""
SpentRow = tuple[str, Entry, Numbers]
"""The actor, what was used with which key, and the numbers."""


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
class ToolPrice:
    """The cost of a call; a tool may report another one up to *most_reported*."""

    per_call: int
    most_reported: int = -1


@dataclass(frozen=True, slots=True)
class SpendingRules:
    """*tools* are the prices of a call by pattern, of which the first that fits holds. *priced*: something has a
    price. *model* is the first model, whose *prices* hold for turns that nobody read to their end."""

    tools: Mapping[str, ToolPrice]
    budgets: Sequence[Budget] = ()
    priced: bool = False
    model: str = ""
    prices: ModelPrices | None = None


class Ledger(Protocol):
    """Keeps sums, for 400 days, over all processes that share its store."""

    def add(self, day: str, actor: str, entry: Entry, numbers: Numbers, budgets: Iterable[str]) -> None:
        """Adds *numbers* soon, and their cost to the sums of *budgets*. Must not wait or fail."""
        ...

    async def spent(self, budgets: Sequence[str]) -> Sequence[int]:
        """Returns the sum of each. Raises NotAdmitted."""
        ...

    async def rows(self, day: str) -> Sequence[SpentRow]:
        """Returns what is written. Raises StoreUnavailable."""
        ...

    async def write(self) -> None:
        """Writes what was added."""
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

    def left(self, identity: Identity, read_chars: int, written_chars: int) -> None:
        """Adds a turn that nobody read to its end, so that its provider counted nothing: by four characters a token."""
        usage = Usage(read_chars // 4, written_chars // 4)
        cost = 0 if self.rules.prices is None else self.rules.prices.cost(usage)
        self.answered(identity, self.rules.model, replace(usage, cost=cost))

    def called(self, identity: Identity, item: SelectableItem, result: Mapping[str, Any]) -> int:
        """Adds a call of *item* that its server has answered with *result*, and returns what it cost. The server's word
        counts as far as the operator said."""
        cost = 0
        if self.rules.tools and (pattern := self._pattern(item.id, item.names)) is not None:
            price = self.rules.tools[pattern]
            reported = _reported(result)
            cost = price.per_call if reported is None or reported > price.most_reported else reported
        self._add(identity, ("tool", item.id, identity.key_id), (1, 0, 0, 0, cost))
        return cost

    def _add(self, identity: Identity, entry: Entry, numbers: Numbers) -> None:
        today = self._today()
        limits = self._limits(identity, today) if numbers[-1] else ()
        self._ledger.add(f"{today}", identity.actor, entry, numbers, [limit.key for limit in limits])

    async def admit(self, identity: Identity, begins: Callable[[], Awaitable[bool]] | None = None) -> str:
        """Returns a warning in ASCII if a chat of *identity* begins with 80 % of a budget spent, otherwise nothing. One
        that has begun before, by *begins*, is not checked. Raises RateLimited if a budget is used up, and NotAdmitted
        if that cannot be known and has to be."""
        limits = list(self._limits(identity, self._today()))
        if not limits or (begins is not None and not await begins()):
            return ""
        warnings = []
        for limit, spent in zip(limits, await self._ledger.spent([limit.key for limit in limits]), strict=True):
            if spent >= limit.most:
                self.checks["refused"] += 1
                raise self._refusal(limit, spent)
            if spent * 5 >= limit.most * 4:
                warnings.append(f"{limit.key} {spent * 100 // limit.most}% of {_shown(limit.most)}")
        self.checks["warned" if warnings else "within"] += 1
        return ", ".join(warnings).encode("unicode_escape").decode()

    def _refusal(self, limit: "_Limit", spent: int) -> RateLimited:
        ends = limit.ends
        left_s = ceil(datetime(ends.year, ends.month, ends.day, tzinfo=UTC).timestamp() - self._now())
        most = _shown(limit.most)
        told = (
            f"The budget of {limit.whose} for {limit.period}, {most}, is used up. The next one begins on {ends} (UTC)."
        )
        budget: dict[str, Any] = {"of": limit.whose, "period": limit.period, "next": f"{ends}"}
        budget |= {"limit": limit.most / UNIT, "spent": spent / UNIT}
        return RateLimited(told, details={"scope": "budget", "budget": budget, "retry_after_s": left_s})

    async def report(self, by: By, since: str, actor: str = "") -> tuple[dict[str, list[int]], dict[str, int]]:
        """Returns the sums since the day *since*, of *actor* if one is named, and the cost of each day: turns of
        models, calls of tools, the three numbers of tokens, the cost. Raises StoreUnavailable, and ValueError for a
        *since* that is no day."""
        today, wanted = self._today(), date.fromisoformat(since)
        if f"{wanted}" != since:
            raise ValueError("not as in 2027-01-31")
        first = max(wanted, today - timedelta(DAYS_KEPT))
        days = [f"{first + timedelta(number)}" for number in range((today - first).days + 1)]
        sums, costs = dict[str, list[int]](), dict.fromkeys(days, 0)
        await self._ledger.write()
        for day in days:
            for whose, (what, name, key), (number, *tokens, cost) in await self._ledger.rows(day):
                if actor not in ("", whose):
                    continue
                costs[day] += cost
                if by in ("model", "tool") and by != what:
                    continue
                group = {"actor": whose, "key": key or "(none)", "day": day}.get(by, name)
                added = (number, 0) if what == "model" else (0, number)
                before = sums.setdefault(group, [0] * 6)
                sums[group] = [one + more for one, more in zip(before, (*added, *tokens, cost), strict=True)]
        return sums, costs

    def days_ago(self, days: int) -> str:
        return f"{self._today() - timedelta(days)}"

    def _today(self) -> date:
        return _date_of(int(self._now() // 86_400))

    def _limits(self, identity: Identity, today: date) -> "Iterator[_Limit]":
        """Yields the limits of *identity*: of the first budget by actor that fits, and of all by its roles, the
        strictest of each period."""
        fits = (each for each in self.rules.budgets if each.actor and fnmatchcase(identity.actor, each.actor))
        of_actor = next(fits, None)
        found: dict[str, _Limit] = {}
        for budget in self.rules.budgets:
            if budget is of_actor or budget.role in identity.roles:
                whose = f"role:{budget.role}" if budget.role else f"actor:{identity.actor}"
                for period, most, ends in budget.limits(today):
                    limit = _Limit(f"{whose} {period}", whose, period, most, ends)
                    found[limit.key] = min(found.get(limit.key, limit), limit, key=lambda each: each.most)
        yield from found.values()


class _Limit(NamedTuple):
    """A bound of one sum, which *key* names; *ends* is the day on which the next one begins."""

    key: str
    whose: str
    period: str
    most: int
    ends: date


def _shown(amount: int) -> str:
    return f"{amount / UNIT:.6f}".rstrip("0").rstrip(".")


DAYS_KEPT = 400


@lru_cache(maxsize=2)
def _date_of(days: int) -> date:
    """Returns the day that begins *days* after the epoch."""
    return date(1970, 1, 1) + timedelta(days)


def _reported(result: Mapping[str, Any]) -> int | None:
    """Returns the cost in the ``_meta`` of *result*; None if there is none that can be used."""
    meta = result.get("_meta")
    cost = meta.get(COST_KEY) if isinstance(meta, Mapping) else None
    if isinstance(cost, bool) or not isinstance(cost, int | float) or not 0 <= cost <= 1_000_000:
        return None
    return round(cost * UNIT)
