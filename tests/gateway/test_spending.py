"""What calls and turns cost, and whom budgets bound (OPS-550 to OPS-555)."""

from datetime import date
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.clock import Clock
from tests.support.requirement import requirement
from wicketgate.access.identity import Identity
from wicketgate.catalog.selectable import SelectableItem
from wicketgate.config.settings import Settings
from wicketgate.config.settings_file import settings_from
from wicketgate.errors import ConfigError, RateLimited
from wicketgate.gateway.spending import COST_KEY, UNIT, Budget, Spending, SpendingRules, ToolPrice
from wicketgate.models.provider import Usage
from wicketgate.models.watched import ModelPrices
from wicketgate.storage.memory import MemoryStore
from wicketgate.storage.spending import StoredLedger

NOON = 1_795_780_800.0
"""2026-11-27, 12:00 UTC."""
ANN, BEN = Identity("ann", (), "k1", ("lead", "dev")), Identity("ben", (), "k2", ("dev",))

_ODD: list[Any] = [-1, True, "1", float("nan"), float("inf"), 10**400, {}]


def spending(*budgets: Budget, at: float = NOON, **tools: int) -> Spending:
    prices = {name.replace("__", ":"): ToolPrice(price, 10 * UNIT) for name, price in tools.items()}
    rules = SpendingRules(prices, budgets, True, "m", ModelPrices(4, 8, 4, 4))
    return Spending(StoredLedger(MemoryStore()), rules, Clock(at))


def tool(name: str) -> SelectableItem:
    namespace, _, own = name.partition(":")
    return cast(SelectableItem, SimpleNamespace(id=f"{name}@1#00", names=((namespace, (own,)),)))


def spend(all: Spending, identity: Identity, cost: int, model: str = "m") -> None:
    all.answered(identity, model, Usage(10, 5, 3, cost=cost))


@requirement("OPS-550")
@given(
    st.integers(0, 10**9),
    st.integers(0, 10**9),
    st.integers(0, 10**9),
    st.integers(0, 10**9),
    st.tuples(*[st.decimals(0, 1_000_000, places=6)] * 4),
)
def test_a_turn_costs_each_kind_of_token_at_its_own_price_and_nothing_is_rounded(
    fresh: int, cached: int, written: int, completion: int, prices: tuple[Decimal, ...]
) -> None:
    settings = {"input": prices[0], "output": prices[1], "cached_input": prices[2], "cache_write": prices[3]}
    made = Settings.model_validate({"model": {"provider": "scripted", "prices": settings}}).model.prices
    assert made is not None
    usage = Usage(fresh + cached + written, completion, cached, written)
    wanted = fresh * prices[0] + completion * prices[1] + cached * prices[2] + written * prices[3]
    assert Decimal(made.made().cost(usage)) / UNIT * 10**6 == wanted


@requirement("OPS-550")
def test_tokens_of_the_cache_cost_what_others_do_where_nothing_else_is_said() -> None:
    made = Settings.model_validate(
        {"model": {"provider": "scripted", "prices": {"input": 3, "output": 15}}}
    ).model.prices
    assert made is not None
    assert made.made() == ModelPrices(3 * 10**6, 15 * 10**6, 3 * 10**6, 3 * 10**6)


@requirement("OPS-550", "OPS-553")
@pytest.mark.parametrize(
    ("configuration", "told"),
    [
        ({"model": {"provider": "scripted", "prices": {"input": -1, "output": 1}}}, "model.prices.input"),
        ({"model": {"provider": "scripted", "prices": {"input": 1}}}, "model.prices.output"),
        ({"model": {"provider": "scripted", "prices": {"input": 1, "output": 1, "gpt": 1}}}, "model.prices.gpt"),
        ({"model": {"provider": "scripted", "prices": {"input": float("nan"), "output": 1}}}, "model.prices.input"),
        ({"model": {"provider": "scripted", "prices": {"input": "1e-7", "output": 1}}}, "model.prices.input"),
        (
            {
                "model": {
                    "provider": "scripted",
                    "prices": {"input": 1, "output": 1},
                    "fallbacks": [{"provider": "openai-chat", "base_url": "http://localhost:1/v1", "model": "m"}],
                }
            },
            "model.fallbacks.0.prices is missing",
        ),
        ({"spending": {"tools": [{"match": "x:*", "per_call": -0.1}]}}, "spending.tools.0.per_call"),
        ({"spending": {"tools": [{"match": "x", "per_call": 1}]}}, "spending.tools.0.match"),
        ({"spending": {"budgets": [{"actor": "*", "per_day": 1}]}}, "spending.budgets needs prices"),
        ({"spending": {"budgets": [{"actor": "a", "role": "b", "per_day": 1}]}}, "spending.budgets.0"),
        ({"spending": {"budgets": [{"actor": "a"}]}}, "spending.budgets.0"),
    ],
)
def test_a_price_table_that_cannot_be_used_stops_the_start_and_names_the_field(
    configuration: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        settings_from(configuration)
    assert told.replace(".0", "[0]") in str(raised.value).replace(".0", "[0]")


@requirement("OPS-551")
@pytest.mark.parametrize(
    ("name", "meta", "cost"),
    [
        ("maps:route", None, 2 * UNIT),
        ("maps:route", {COST_KEY: 0.25}, UNIT // 4),
        ("maps:route", {COST_KEY: 0}, 0),
        ("maps:other", {COST_KEY: 1}, UNIT),
        ("maps:route", {COST_KEY: 10}, 10 * UNIT),
        ("maps:route", {COST_KEY: 10.01}, 2 * UNIT),
        ("free:tool", {COST_KEY: 1}, 0),
        *(("maps:route", {COST_KEY: odd}, 2 * UNIT) for odd in _ODD),
        ("maps:route", [COST_KEY], 2 * UNIT),
    ],
)
async def test_a_call_costs_what_its_tool_reports_or_else_its_price(name: str, meta: Any, cost: int) -> None:
    all = spending(maps__route=2 * UNIT, **{"maps__*": 1})
    assert all.called(ANN, tool(name), {"content": [], **({} if meta is None else {"_meta": meta})}) == cost
    sums, _ = await all.report("tool", "2026-11-27")
    assert sums == {f"{name}@1#00": [0, 1, 0, 0, 0, cost]}


@requirement("OPS-551")
async def test_no_tool_is_believed_unless_the_operator_says_how_far() -> None:
    rules = SpendingRules({"maps:*": ToolPrice(5)}, (), True)
    all = Spending(StoredLedger(MemoryStore()), rules, Clock(NOON))
    assert [all.called(ANN, tool("maps:a"), {"_meta": {COST_KEY: cost}}) for cost in (0, 1)] == [5, 5]


@requirement("OPS-550")
async def test_a_turn_that_was_left_is_estimated_at_the_prices_of_the_first_model() -> None:
    all = spending()
    all.left(ANN, 400, 80)
    assert (await all.report("model", "2026-11-27"))[0] == {"m": [1, 0, 100, 0, 20, 100 * 4 + 20 * 8]}


@requirement("OPS-553", "OPS-554")
async def test_any_role_has_a_budget_and_its_warning_is_ascii() -> None:
    for role in ("data team", "研究", "a\nb"):
        all = spending(Budget(role=role, per_day=10 * UNIT), Budget(role=role, per_day=100 * UNIT))
        someone = Identity("ann", (), "k1", (role,))
        spend(all, someone, 9 * UNIT)
        warning = await all.admit(someone)
        assert warning.isascii() and warning.isprintable() and warning.endswith("2026-11-27 90% of 10")
        spend(all, someone, UNIT)
        with pytest.raises(RateLimited):
            await all.admit(someone)


@requirement("OPS-553")
async def test_a_chat_that_has_begun_before_is_not_checked() -> None:
    all, asked = spending(Budget("*", per_day=1)), list[bool]()

    async def begins() -> bool:
        asked.append(True)
        return False

    spend(all, ANN, 5)
    assert await all.admit(ANN, begins) == ""
    assert await spending().admit(ANN, begins) == ""
    assert asked == [True]  # nothing is asked where there is no budget


@requirement("OPS-552", "OPS-555")
async def test_a_report_adds_up_by_each_of_its_words() -> None:
    all = spending(maps__route=1)
    for _ in range(3):
        spend(all, ANN, 7)
    spend(all, BEN, 5, "other")
    all.called(BEN, tool("maps:route"), {})
    turn = [1, 0, 10, 3, 5]
    three = [3 * number for number in turn]
    wanted = {
        "actor": {"ann": [*three, 21], "ben": [1, 1, *turn[2:], 6]},
        "key": {"k1": [*three, 21], "k2": [1, 1, *turn[2:], 6]},
        "model": {"m": [*three, 21], "other": [*turn, 5]},
        "tool": {"maps:route@1#00": [0, 1, 0, 0, 0, 1]},
        "day": {"2026-11-27": [4, 1, 40, 12, 20, 27]},
    }
    for by, sums in wanted.items():
        assert await all.report(cast(Any, by), "2026-11-26") == (sums, {"2026-11-26": 0, "2026-11-27": 27})
    assert await all.report("tool", "2026-11-27", "ann") == ({}, {"2026-11-27": 21})
    assert await all.report("tool", "2026-11-27", "ben") == ({"maps:route@1#00": [0, 1, 0, 0, 0, 1]}, {"2026-11-27": 6})
    for odd in ("yesterday", "20261127", "2026-W48-5"):
        with pytest.raises(ValueError, match=r"isoformat|as in"):
            await all.report("day", odd)


@requirement("OPS-555")
async def test_a_report_goes_back_400_days_at_most() -> None:
    _, days = await spending().report("day", "0001-01-01")
    assert (len(days), min(days)) == (401, f"{date(2025, 10, 23)}")


@requirement("OPS-553", "OPS-554")
async def test_a_budget_warns_at_80_percent_and_refuses_when_it_is_spent() -> None:
    all = spending(Budget("a*", per_day=10 * UNIT))
    assert await all.admit(ANN) == ""
    spend(all, ANN, 8 * UNIT - 1)
    assert await all.admit(ANN) == ""
    spend(all, ANN, 1)
    assert await all.admit(ANN) == "actor:ann 2026-11-27 80% of 10"
    spend(all, ANN, 2 * UNIT)
    with pytest.raises(RateLimited) as refused:
        await all.admit(ANN)
    assert refused.value.as_dict() == {
        "error": "RATE_LIMITED",
        "message": "The budget of actor:ann for 2026-11-27, 10, is used up. The next one begins on 2026-11-28 (UTC).",
        "path": "",
        "retryable": True,
        "details": {
            "scope": "budget",
            "budget": {"of": "actor:ann", "period": "2026-11-27", "limit": 10.0, "spent": 10.0, "next": "2026-11-28"},
            "retry_after_s": 12 * 3_600,
        },
    }
    assert await all.admit(BEN) == ""
    assert all.checks == {"within": 2, "warned": 1, "refused": 1}


@requirement("OPS-553")
async def test_a_budget_begins_again_with_its_next_period() -> None:
    ledger, clock = StoredLedger(MemoryStore()), Clock(NOON)
    all = Spending(ledger, SpendingRules({}, [Budget("*", per_day=5, per_month=8)], True), clock)
    spend(all, ANN, 6)
    with pytest.raises(RateLimited, match="2026-11-27"):
        await all.admit(ANN)
    clock.now += 86_400
    assert await all.admit(ANN) == ""
    spend(all, ANN, 2)
    with pytest.raises(RateLimited, match=r"for 2026-11, .* begins on 2026-12-01"):
        await all.admit(ANN)
    clock.now += 3 * 86_400
    assert await all.admit(ANN) == ""


@requirement("OPS-553")
async def test_actors_have_budgets_of_their_own_and_those_of_a_role_share_theirs() -> None:
    of_all, of_role = Budget("*", per_month=10 * UNIT), Budget(role="dev", per_day=20 * UNIT)
    all = spending(Budget("ann", per_month=100 * UNIT), of_all, of_role)
    spend(all, ANN, 11 * UNIT)
    assert await all.admit(ANN) == ""
    spend(all, BEN, 8 * UNIT)
    assert await all.admit(BEN) == "actor:ben 2026-11 80% of 10, role:dev 2026-11-27 95% of 20"
    spend(all, ANN, UNIT)
    with pytest.raises(RateLimited, match="role:dev"):
        await all.admit(BEN)


@requirement("OPS-553")
async def test_budgets_follow_a_reload_and_nothing_is_asked_without_one() -> None:
    all = spending()
    spend(all, ANN, 6)
    assert (await all.admit(ANN), all.checks.total()) == ("", 0)
    all.use(SpendingRules({}, [Budget("*", per_day=5)], True))
    assert await all.admit(ANN) == ""  # a sum begins with its budget
    spend(all, ANN, 6)
    with pytest.raises(RateLimited):
        await all.admit(ANN)
