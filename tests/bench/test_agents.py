"""The agents of the benchmark over a real gate: which browses they make, and what they count as seen."""

from collections.abc import Mapping
from typing import Any

import pytest

from bench.agents import (
    Steps,
    paths_in,
    the_hint_in_turn,
    the_hint_read,
    the_namespaces_of_cards,
    the_rest_of_the_words,
    the_root,
    walk,
)
from bench.gated_set import Card, GatedSet, Page, gated
from bench.metrics import whole
from bench.routing_sets import Task, Tool


def tool(server: str, name: str, description: str) -> Tool:
    schema = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
    key = f"{server}::{name}"
    return {"key": key, "server": server, "name": name, "description": description, "inputSchema": schema}


TOOLS = [
    tool("Git Hub", "list_commits", "Commits of a branch."),
    tool("Git Hub", "close_issue", "Close an issue."),
    tool("Weather", "forecast", "The weather of the next days."),
    tool("Weather", "pollen", "How much of it is in the air."),
    *(tool("Ledger", f"post_entry_{number}", f"Book entry number {number}.") for number in range(40)),
]


@pytest.fixture
async def gate() -> GatedSet:
    return await gated(TOOLS)


def task(query: str, *gold: str) -> Task:
    return Task("t", query, gold, {})


async def taken(steps: Steps, gate: GatedSet, most: int = 4) -> list[Mapping[str, Any]]:
    """The arguments of the browses that an agent makes when it never has enough."""
    made: list[Mapping[str, Any]] = []
    page = None
    while len(made) < most:
        try:
            made.append(next(steps) if page is None else steps.send(page))
        except StopIteration:
            break
        page = await gate.browse(made[-1])
    return made


async def test_a_page_has_the_keys_of_the_set_in_the_order_of_the_answer(gate: GatedSet) -> None:
    page = await gate.browse({"query": "commits of a branch"})
    assert page.keys[0] == "Git Hub::list_commits"
    assert page.text.startswith("git-hub:list_commits")
    root = await gate.browse({"path": "/"})
    assert [level.opens for level in root.levels] == ["/git-hub", "/ledger", "/weather"]
    assert root.keys == ()


async def test_every_tool_is_shown_by_the_last_path_of_its_place(gate: GatedSet) -> None:
    places = await gate.places()
    assert set(places) == {given["key"] for given in TOOLS}
    for key, paths in places.items():
        assert key in (await gate.browse({"path": paths[-1]})).keys
    assert len(places["Ledger::post_entry_7"]) > 1, "forty tools take levels"


async def test_a_tool_can_be_run_without_its_arguments(gate: GatedSet) -> None:
    await gate.execute("Git Hub::close_issue", "s")


async def test_an_agent_stops_when_all_tools_are_on_the_screen(gate: GatedSet) -> None:
    asked = task("close an issue", "Git Hub::close_issue")
    walked = await walk(the_root, asked, await gate.places(), gate.browse, 3)
    assert len(walked.pages) == 1
    assert whole(walked.keys(1), asked)


async def test_the_root_leads_to_the_tool_that_the_words_do_not_find(gate: GatedSet) -> None:
    asked = task("close an issue", "Git Hub::close_issue", "Weather::pollen")
    walked = await walk(the_root, asked, await gate.places(), gate.browse, 3)
    assert [whole(walked.keys(count), asked) for count in (1, 2, 3)] == [False, False, True]
    assert await taken(the_root(asked, await gate.places()), gate) == [
        {"query": "close an issue"},
        {"path": "/"},
        {"path": "/weather"},
    ]


async def test_the_words_that_a_right_tool_has_are_left_out_of_the_next_query(gate: GatedSet) -> None:
    asked = task("close issue 7 and weather forecasts", "Git Hub::close_issue", "Nowhere::none")
    made = await taken(the_rest_of_the_words(asked, {}), gate)
    assert made == [{"query": "close issue 7 and weather forecasts"}, {"query": "7 and weather forecasts"}]


async def test_without_a_right_tool_there_is_no_other_query(gate: GatedSet) -> None:
    made = await taken(the_rest_of_the_words(task("close an issue", "Nowhere::none"), {}), gate)
    assert made == [{"query": "close an issue"}]


async def test_the_namespaces_of_cards_come_in_the_order_of_the_cards_and_levels_by_words(gate: GatedSet) -> None:
    made = await taken(the_namespaces_of_cards(task("book entry number 33", "Nowhere::none"), {}), gate)
    assert made[:2] == [{"query": "book entry number 33"}, {"path": "/ledger"}]
    assert made[2]["path"].startswith("/ledger/")


def page(hint: str, *cards: Card) -> Page:
    return Page(cards, (), hint, hint)


def after(steps: Steps, first: Page) -> list[Mapping[str, Any]]:
    next(steps)
    made = []
    try:
        given = first
        while True:
            made.append(steps.send(given))
            given = page("")
    except StopIteration:
        return made


HINT = "No clear match. Try other words, look in /git-hub, /weather, or browse '/'."


def test_the_paths_of_a_hint_are_read_off_it() -> None:
    assert paths_in(HINT) == ["/git-hub", "/weather", "/"]
    assert paths_in("Nothing matches. Try other words and/or browse '/'.") == ["/"]
    assert paths_in("") == []


def test_who_follows_a_hint_in_turn_takes_its_namespaces_and_else_those_of_the_cards() -> None:
    asked = task("x", "Weather::pollen")
    card = Card("Ledger::post_entry_1", "ledger", "")
    assert after(the_hint_in_turn(asked, {}), page(HINT, card)) == [{"path": "/git-hub"}, {"path": "/weather"}]
    assert after(the_hint_in_turn(asked, {}), page("", card)) == [{"path": "/ledger"}]


def test_who_reads_a_hint_takes_the_right_namespace_first_and_then_the_root() -> None:
    asked = task("x", "Ledger::post_entry_1", "Weather::pollen")
    places = {"Weather::pollen": ("/weather",), "Ledger::post_entry_1": ("/ledger", "/ledger/post")}
    steps = the_hint_read(asked, places)
    assert [made["path"] for made in after(steps, page(HINT))] == ["/weather", "/", "/ledger", "/ledger/post"]
