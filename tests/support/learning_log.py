"""Browses of which the right tool is then run, as a log to learn from, and what ranking makes of it."""

import random
from collections.abc import Collection, Sequence
from typing import NamedTuple

from wicketgate.catalog.learned_words import ActorWords, words_to_learn
from wicketgate.catalog.router import Router

SHOWN = 10


class Asked(NamedTuple):
    query: str
    gold: tuple[str, ...]


class Recalls(NamedTuple):
    """Mean shares of the right tools among the first one and the first five."""

    at_1: float
    at_5: float


def learn_from(
    router: Router, asked: Sequence[Asked], *, wrong: float = 0.0, chance: random.Random | None = None
) -> ActorWords:
    """The words of one actor that browses, and runs every right tool that it is shown; with the probability *wrong*,
    another one of those shown."""
    chance = chance or random.Random(0)
    learned = ActorWords()
    for query, gold in asked:
        shown = [tool_id for tool_id, _ in router.route(query, SHOWN, learned=learned)]
        words = words_to_learn(query)
        for right in gold:
            if right in shown:
                tool_id = chance.choice(shown) if chance.random() < wrong else right
                learned.put(tool_id, learned.get(tool_id).taught(words, 0.0, first=tool_id == shown[0]))
    return learned


def recalls(router: Router, asked: Collection[Asked], learned: ActorWords | None = None) -> Recalls:
    at_1 = at_5 = 0.0
    for query, gold in asked:
        first = [tool_id for tool_id, _ in router.route(query, 5, learned=learned)]
        at_1 += len(set(first[:1]) & set(gold)) / len(gold)
        at_5 += len(set(first) & set(gold)) / len(gold)
    return Recalls(at_1 / len(asked), at_5 / len(asked))


def halves(asked: Sequence[Asked], seed: int) -> tuple[list[Asked], list[Asked]]:
    """A log and other queries, of the same tools or not."""
    mixed = random.Random(seed).sample(asked, len(asked))
    return mixed[: len(mixed) // 2], mixed[len(mixed) // 2 :]


def apart(asked: Sequence[Asked], seed: int) -> tuple[list[Asked], list[Asked]]:
    """A log, and queries for tools that are never run in it: where the log does not fit."""
    tools = sorted({tool_id for each in asked for tool_id in each.gold})
    logged = set(random.Random(seed).sample(tools, len(tools) // 2))
    log = [each for each in asked if logged.issuperset(each.gold)]
    return log, [each for each in asked if logged.isdisjoint(each.gold)]
