"""Ways that an agent takes to the tools of a task, as generators: each gives the next arguments of ``tool_browse`` and
gets the page.

The agent knows a right tool when it sees one. Where it reads names of namespaces (``/``, a hint) it knows the right one
among them in the ways that say so; in the others it goes through them in turn.
"""

import re
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.gated_set import ROOT, Page
from bench.metrics import found, whole
from bench.routing_sets import Task

Places = Mapping[str, Sequence[str]]
"""By key, the paths that lead to a tool."""

Steps = Generator[Mapping[str, Any], Page, None]
Browse = Callable[[Mapping[str, Any]], Awaitable[Page]]
Way = Callable[[Task, Places], Steps]


@dataclass(frozen=True, slots=True)
class Walk:
    """*pages*: as they were read, at most as many as allowed; the agent stops when it has all tools of the task."""

    pages: tuple[Page, ...]

    def keys(self, browses: int) -> list[str]:
        """All tools that were on the screen after so many browses."""
        return [key for page in self.pages[:browses] for key in page.keys]


async def walk(way: Way, task: Task, places: Places, browse: Browse, most: int) -> Walk:
    steps = way(task, places)
    pages: list[Page] = []
    arguments = next(steps)
    while True:
        pages.append(await browse(arguments))
        if len(pages) == most or whole([key for page in pages for key in page.keys], task):
            return Walk(tuple(pages))
        try:
            arguments = steps.send(pages[-1])
        except StopIteration:
            return Walk(tuple(pages))


def the_rest_of_the_words(task: Task, places: Places) -> Steps:
    """Query; then query with the words that no right tool on the screen has, while there are fewer of them."""
    del places
    query = task.query
    while True:
        page = yield {"query": query}
        said = {word for card in page.tools if found([card.opens], task) for word in _words(card.says)}
        rest = [part for part in query.split() if not said.intersection(_words(part))]
        if not rest or len(rest) == len(query.split()):
            return
        query = " ".join(rest)


def the_namespaces_of_cards(task: Task, places: Places) -> Steps:
    """Query; then the namespaces of its cards in turn, and below one the level that shares most words with the task."""
    del places
    page = yield {"query": task.query}
    yield from _in_turn([f"/{card.namespace}" for card in page.tools], task)


def the_root(task: Task, places: Places) -> Steps:
    """Query; then ``/`` and the namespaces of the tools that are still missing."""
    page = yield {"query": task.query}
    yield {"path": ROOT}
    yield from _opened([key for key in task.gold if key not in found(page.keys, task)], places)


def the_hint_in_turn(task: Task, places: Places) -> Steps:
    """Query; then the namespaces that its hint names, in turn, or those of the cards where it names none."""
    del places
    page = yield {"query": task.query}
    named = [path for path in paths_in(page.hint) if path != ROOT]
    yield from _in_turn(named or [f"/{card.namespace}" for card in page.tools], task)


def the_hint_read(task: Task, places: Places) -> Steps:
    """Query; then the right namespaces that its hint names; then ``/`` for the tools that are still missing."""
    page = yield {"query": task.query}
    named = paths_in(page.hint)
    missing = [key for key in task.gold if key not in found(page.keys, task)]
    yield from _opened([key for key in missing if places[key][0] in named], places)
    yield {"path": ROOT}
    yield from _opened([key for key in missing if places[key][0] not in named], places)


WAYS: Mapping[str, Way] = {
    "query, then the rest of its words": the_rest_of_the_words,
    "query, then the namespaces of its cards": the_namespaces_of_cards,
    "query, then the namespaces of its hint": the_hint_in_turn,
    "query, then the right ones of its hint, else /": the_hint_read,
    "query, then / and the right namespaces": the_root,
}


def paths_in(hint: str) -> list[str]:
    """The paths that a hint names, each once."""
    return list(dict.fromkeys(re.findall(r"(?<![\w/])/(?:[a-z][a-z0-9_-]*(?:/[a-z0-9][a-z0-9_-]*)*)?(?![\w/])", hint)))


def _in_turn(paths: Sequence[str], task: Task) -> Steps:
    asked = _words(task.query)
    for path in dict.fromkeys(paths):
        page = yield {"path": path}
        while page.levels and not page.tools:
            page = yield {"path": max(page.levels, key=lambda level: len(asked & _words(level.says))).opens}


def _opened(keys: Sequence[str], places: Places) -> Steps:
    """The levels that lead to these tools, each once."""
    for path in dict.fromkeys(path for key in keys for path in places[key]):
        yield {"path": path}


def _words(text: str) -> set[str]:
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text)
    return {word.removesuffix("s") for word in re.findall(r"[^\W_]{3,}", parted.lower())}
