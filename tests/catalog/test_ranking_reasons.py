"""The reasons that a router gives for its scores."""

import math
from collections.abc import Mapping

import pytest

from tests.catalog.test_router import LARGE, tool
from tests.support.requirement import requirement
from wicketgate.catalog.impacts import fields_of
from wicketgate.catalog.router import Router

QUERIES = (
    "create an invoice",
    "delete pull request",
    "remove the branch",
    "search for messages about the weather and then create a new calendar event",
    "list files; delete the issue, and send an invoice to the shop",
    "please find the invoice of slack github gitlab shop issue branch weather message",
    "update update update",
    "zzzz nothing else",
    "unheard of",
    "the a of",
)


class Taught:
    def weights(self, term: str) -> Mapping[str, float]:
        return {item.id: 0.3 + place % 5 / 10 for place, item in enumerate(LARGE[:200])} if term in TAUGHT else {}


TAUGHT = ("weather", "unheard", "branch", "zzzz")
SAID: dict[str, tuple[str, ...]] = {item.id: ("remove old branches", "weather") for item in LARGE[100:150]}


@requirement("OPS-228")
@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("k", [5, 40, 300])
@pytest.mark.parametrize("narrow", [False, True], ids=["all", "some"])
def test_the_parts_of_a_score_add_up_to_it(query: str, k: int, narrow: bool) -> None:
    router = Router.build(LARGE, SAID)
    shown = frozenset(item.id for item in LARGE[::3]).__contains__ if narrow else None
    for learned in (None, Taught()):
        found = router.explained(query, k, shown, learned=learned)
        assert [(each.tool_id, each.score) for each in found.reasons] == router.route(query, k, shown, learned=learned)
        assert found.matched >= len(found.reasons)
        for each in found.reasons:
            whole = math.fsum(addend.adds for addend in each.addends)
            assert each.score == max(0.0001, round(whole, 4)) or math.isclose(each.score, whole, abs_tol=5.1e-5)
            assert all(0 <= addend.learned <= addend.adds + 1e-12 for addend in each.addends)
            assert {addend.term for addend in each.addends} <= {asked.term for asked in found.asked}


@requirement("OPS-228")
def test_learned_and_said_words_are_told_as_such() -> None:
    items = [tool("shop:list_orders", "List orders."), tool("shop:pay_bill", "Pay a bill.")]
    router = Router.build(items, {"shop:pay_bill": ("settle debts",)})

    class Money:
        def weights(self, term: str) -> Mapping[str, float]:
            return {"shop:list_orders": 0.5} if term == "parcel" else {}

    (reason,) = router.explained("parcel", 5, learned=Money()).reasons
    assert [(each.term, each.via, each.learned == each.adds) for each in reason.addends] == [("parcel", "", True)]
    (reason,) = router.explained("settle", 5).reasons
    assert (reason.tool_id, reason.addends[0].learned) == ("shop:pay_bill", 0)
    assert fields_of(items[1], ("settle debts",))[reason.addends[0].via] == ("said",)
    (reason,) = router.explained("enumerate", 5).reasons
    assert reason.addends[0].via == "list"


@requirement("OPS-228")
def test_what_lowers_a_score_is_told() -> None:
    router = Router.build([tool("shop:delete_order", "Delete an order."), tool("shop:create_order", "Make an order.")])
    reasons = {each.tool_id: each for each in router.explained("create an order", 5).reasons}
    assert reasons["shop:create_order"].factors == {}
    assert reasons["shop:delete_order"].factors == {"other_deed": 0.85}
    assert {each.term: each.found_in for each in router.explained("create order nothing", 5).asked} == {
        "creat": 1,
        "order": 2,
        "noth": 0,
    }
