"""The gain by learning where the log fits what is asked, and that it does no harm where it does not (BROWSE-47).

The set that is made here has tools of the same kinds at several servers, and people who say it in other words than the
definitions. The public sets are asked too where there are any.
"""

import json
import random
from collections.abc import Callable, Sequence
from functools import cache
from itertools import product

import pytest

from bench.catalogs import MISSING, routing_data
from bench.routing_adapter import item
from tests.catalog.test_router import tool
from tests.support.learning_log import Asked, Recalls, apart, halves, learn_from, recalls
from tests.support.requirement import requirement
from wicketgate.catalog.router import Router

FOLDER = routing_data()
NO_HARM = 0.01
SEEDS = range(3)

VERBS = ("create", "list", "delete", "update", "search")
# What definitions say, and what people say instead.
NOUNS = {
    "issue": "ticket",
    "invoice": "bill",
    "employee": "colleague",
    "shipment": "parcel",
    "vehicle": "lorry",
    "contract": "agreement",
    "appointment": "slot",
    "warehouse": "depot",
    "meeting": "call",
    "refund": "chargeback",
    "supplier": "vendor",
    "payroll": "salary",
}
DETAILS = [
    "status",
    "owner",
    "date",
    "region",
    "priority",
    "currency",
    "department",
    "label",
    "history",
    "comment",
    "attachment",
    "deadline",
    "approval",
    "template",
    "draft",
    "account",
    "address",
    "category",
    "summary",
    "reference",
    "amount",
    "schedule",
    "reminder",
    "checklist",
    "archive",
    "report",
    "filter",
    "version",
]
CHATTER = [
    "urgent",
    "today",
    "boss",
    "monthly",
    "quickly",
    "office",
    "again",
    "lunch",
    "week",
    "morning",
    "asap",
    "customer",
    "project",
    "team",
    "friday",
]


@cache
def made(in_other_words: float) -> tuple[Router, tuple[Asked, ...]]:
    """Each tool has details of its own, and a request names some of them. *in_other_words*: the share of the requests
    that call the thing by a word of no definition."""
    items, asked = [], []
    chance = random.Random(11)
    for verb, noun in product(VERBS, NOUNS):
        details = chance.sample(DETAILS, 4)
        made_tool = tool(f"office:{verb}_{noun}", f"{verb.title()} one {noun}, with its {', '.join(details)}.")
        items.append(made_tool)
        for _ in range(4):
            said = NOUNS[noun] if chance.random() < in_other_words else noun
            words = [
                verb,
                "the",
                said,
                *chance.sample(details, 1),
                *chance.sample(DETAILS, 1),
                *chance.sample(CHATTER, 2),
            ]
            asked.append(Asked(" ".join(words), (made_tool.id,)))
    return Router.build(items), tuple(asked)


@cache
def public(name: str) -> tuple[Router, tuple[Asked, ...]]:
    assert FOLDER
    folder = FOLDER / name
    tools = [json.loads(line) for line in (folder / "tools.jsonl").read_text("utf-8").splitlines()]
    queries = [json.loads(line) for line in (folder / "queries_dev.jsonl").read_text("utf-8").splitlines()]
    router = Router.build(item(each) for each in tools)
    return router, tuple(Asked(each["query"], tuple(each["gold"])) for each in queries[:240])


Split = Callable[[Sequence[Asked], int], tuple[list[Asked], list[Asked]]]


def change(router: Router, asked: Sequence[Asked], split: Split, *, wrong: float = 0.0) -> Recalls:
    """The change by learning of the recalls of queries that were not logged, in the mean of some splits."""
    at_1 = at_5 = 0.0
    for seed in SEEDS:
        log, others = split(asked, seed)
        learned = learn_from(router, log, wrong=wrong, chance=random.Random(seed))
        before, after = recalls(router, others), recalls(router, others, learned)
        at_1 += (after.at_1 - before.at_1) / len(SEEDS)
        at_5 += (after.at_5 - before.at_5) / len(SEEDS)
    return Recalls(at_1, at_5)


@requirement("BROWSE-42", "BROWSE-47")
def test_queries_that_nobody_asked_before_gain() -> None:
    router, asked = made(0.6)
    gained = change(router, asked, halves)
    assert gained.at_1 > 0.05
    assert gained.at_5 > 0.0
    mistaken = change(router, asked, halves, wrong=0.3)
    assert mistaken.at_1 > 0.03
    assert mistaken.at_5 > -NO_HARM


@requirement("BROWSE-47")
@pytest.mark.parametrize("wrong", [0.0, 0.3])
def test_where_the_log_does_not_fit_nothing_is_lost(wrong: float) -> None:
    router, asked = made(0.2)
    lost = change(router, asked, apart, wrong=wrong)
    assert lost.at_1 > -NO_HARM
    assert lost.at_5 > -NO_HARM


@requirement("BROWSE-47")
@pytest.mark.skipif(FOLDER is None, reason=MISSING)
@pytest.mark.parametrize("name", ["azure", "sealtools"])
@pytest.mark.parametrize("split", [halves, apart])
def test_public_sets_lose_less_than_a_point(name: str, split: Split) -> None:
    router, asked = public(name)
    lost = change(router, asked, split)
    assert lost.at_1 > -NO_HARM
    assert lost.at_5 > -NO_HARM
