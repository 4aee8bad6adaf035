"""The order, the number and the hint of the cards that a runtime gives."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from tests.support.requirement import requirement
from tests.support.runtimes import refreshed
from wicketgate.access.identity import Identity
from wicketgate.call_state import Step
from wicketgate.catalog.card import card_json, render_cards
from wicketgate.catalog.card_lines import lines_of_json, read_card_lines
from wicketgate.catalog.shortlist import LEAST_SHOWN, MOST_SHOWN
from wicketgate.fleet.member import MultiplexUpstream
from wicketgate.gateway.browsing import Browse
from wicketgate.gateway.options import RuntimeOptions
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.ports import CallContext
from wicketgate.storage.seen_cards import MemorySessionStore
from wicketgate.tokens import shipped_token_counter
from wicketgate.upstreams.embedded import StubUpstream

T = TypeVar("T")

MARKER = "__cache_breakpoint__"
OWNER = CallContext(Identity("owner", ("*",)), "-", "s")
STABLE, BEST_FIRST = replace(OWNER, cache_stable=True), replace(OWNER, cache_stable=False)

CUSTOMERS = {
    "find_customer": "Finds a customer by name or e-mail.",
    "delete_customer": "Deletes a customer.",
    "customer_invoices": "Lists the invoices of a customer.",
    "pay_invoice": "Pays an invoice.",
}


def tools(named: Mapping[str, str]) -> list[dict[str, Any]]:
    schema = {"type": "object"}
    return [{"name": name, "description": text, "inputSchema": schema} for name, text in named.items()]


async def runtime_of(
    servers: Mapping[str, Mapping[str, str]], options: RuntimeOptions | None = None, **more: Any
) -> ProxyRuntime:
    async def run(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        return {"content": [{"type": "text", "text": name}]}

    fleet = MultiplexUpstream([StubUpstream(tools(named), run, name=server) for server, named in servers.items()])
    return await refreshed(ProxyRuntime(fleet, options, **more))


def names(browse: Browse) -> list[str]:
    return [card.name for card in browse.cards]


class Watched(MemorySessionStore):
    """Counts what is asked of it."""

    def __init__(self) -> None:
        super().__init__(lambda: 0.0)
        self.asked = 0

    def update(self, session: str, step: Step[T]) -> T:
        self.asked += 1
        return super().update(session, step)


@requirement("BROWSE-17", "CARD-25")
async def test_each_answer_of_a_session_has_its_best_card_first_and_its_own_scores() -> None:
    runtime = await runtime_of({"crm": CUSTOMERS})
    for query in ("customer", "invoices of a customer pay", "customer", "delete a customer"):
        browse = await runtime.browse_query(query, None, OWNER)
        ranked = [(card.id, card.score) for card in browse.cards]
        assert ranked == runtime.browsing.rank(query, len(ranked), OWNER)
        assert ranked == sorted(ranked, key=lambda pair: (-(pair[1] or 0), pair[0]))
    assert names(await runtime.browse_query("pay an invoice", None, OWNER))[0] == "pay_invoice"


@requirement("BROWSE-20", "BROWSE-27")
async def test_a_call_may_ask_for_either_order_whatever_the_runtime_is_set_to() -> None:
    for flag in (False, True):
        runtime = await runtime_of({"crm": CUSTOMERS}, cache_stable=flag)
        as_set: list[list[str]] = []
        stable: list[list[str]] = []
        best: list[list[str]] = []
        for shown, context in ((as_set, OWNER), (stable, STABLE), (best, BEST_FIRST)):
            own = replace(context, session=f"{context.cache_stable}")
            shown += [names(await runtime.browse_query(query, 2, own)) for query in ("delete customer", "pay invoice")]
        assert best == [["delete_customer", "customer_invoices"], ["pay_invoice", "customer_invoices"]]
        assert stable == [["customer_invoices", "delete_customer"], ["customer_invoices", MARKER, "pay_invoice"]]
        assert as_set == (stable if flag else best)


@requirement("BROWSE-28")
async def test_a_call_that_did_not_ask_leaves_no_trace_and_costs_no_look_up() -> None:
    sessions = Watched()
    runtime = await runtime_of({"crm": CUSTOMERS}, RuntimeOptions(sessions=sessions))
    (first, *_) = (await runtime.browse_query("delete customer", 2, OWNER)).cards
    await runtime.browse_path("/crm", OWNER)
    await runtime.execute(first.id, {}, OWNER)
    await runtime.hydrate(first.id, OWNER)
    assert sessions.asked == 0
    assert MARKER not in names(await runtime.browse_query("customer", 3, STABLE))
    await runtime.execute(first.id, {}, STABLE)
    assert sessions.asked == 2


@requirement("BROWSE-22", "BROWSE-31")
async def test_in_cache_stable_order_cards_stay_as_they_were_and_the_hint_names_the_best_three() -> None:
    runtime = await runtime_of({"crm": CUSTOMERS})
    first = await runtime.browse_query("customer", 4, STABLE)
    again = await runtime.browse_query("invoices of a customer pay", 4, STABLE)
    frozen = {card.id: card for card in first.cards}
    assert [card for card in again.cards if card.id in frozen] == sorted(frozen.values(), key=lambda card: card.id)
    ranked = [tool_id for tool_id, _ in runtime.browsing.rank("invoices of a customer pay", 3, STABLE)]
    assert again.hint == f"Best for this query: {', '.join(ranked)}."
    assert ranked[0].startswith("crm:pay_invoice")
    # The prefix of the text is the same bytes.
    assert again.text.startswith(render_cards(first.cards))
    assert again.text.endswith(f"\n{again.hint}")
    assert (await runtime.browse_query("invoices of a customer pay", 4, BEST_FIRST)).hint == ""
    assert (await runtime.browse_path("/crm", STABLE)).hint == ""


VERBS = [
    f"{verb}_{thing}"
    for verb in ("copy", "move", "list", "drop", "open")
    for thing in ("box", "bag", "cup", "jar", "tin")
]


@requirement("BROWSE-2", "BROWSE-30")
async def test_the_scores_decide_how_many_are_shown_unless_the_caller_does() -> None:
    # Twenty-five alike, and one that is called as the query says.
    alike = dict.fromkeys(VERBS, "Works with the shelf.")
    runtime = await runtime_of({"shelf": {**alike, "paint_portrait": "Paints the portrait of a person."}})
    assert len((await runtime.browse_query("shelf works", None, OWNER)).cards) == MOST_SHOWN
    few = await runtime.browse_query("paint a portrait", None, OWNER)
    assert names(few)[0] == "paint_portrait"
    assert len(few.cards) <= LEAST_SHOWN
    for top_k in (1, 2, 10, 25):
        assert len((await runtime.browse_query("shelf works", top_k, OWNER)).cards) == top_k


@requirement("BROWSE-32", "BROWSE-33")
async def test_without_a_clear_match_the_hint_names_namespaces_that_the_caller_can_browse() -> None:
    alike = dict.fromkeys(VERBS[:9], "Works with the shelf.")
    runtime = await runtime_of({"attic": alike, "cellar": alike, "secret": alike, "other": {"sing": "Sings."}})
    some = CallContext(Identity("visitor", ("tools:attic:*", "tools:cellar:*")), "-", "v")
    seen = await runtime.browse_query("shelf", None, some)
    assert seen.hint == "No clear match. Try other words, look in /attic, /cellar, or browse '/'."
    assert "secret" not in seen.text
    for path in [word.strip(",") for word in seen.hint.split() if word.startswith("/")]:
        assert (await runtime.browse_path(path, some)).cards
    assert (await runtime.browse_query("sing", None, OWNER)).hint == ""
    assert seen.text.splitlines()[-1] == seen.hint


@requirement("BROWSE-5", "BROWSE-33", "CARD-32")
async def test_where_nothing_matches_the_text_is_the_hint() -> None:
    runtime = await runtime_of({"crm": CUSTOMERS})
    for context in (OWNER, STABLE, CallContext(Identity("nobody", ()), "-", "n")):
        browse = await runtime.browse_query("zzzz qqqq", None, context)
        assert (browse.cards, browse.text) == ((), browse.hint)
        assert "browse '/'" in browse.hint


@requirement("CARD-32", "CARD-33")
@pytest.mark.parametrize("top_k", [None, 1, 2, 3, 7, 50])
async def test_hostile_definitions_stay_within_the_tokens_of_an_answer(top_k: int | None) -> None:
    ends = ("*<– -(}–`${", "a’", '&%"|—~✓}<|«|,', "....", "\u202e\n", "")
    servers = {
        f"{'qxz' * 5}{server}": {
            f"{'QXZ_' * (number % 12)}shelf_{number}": f"shelf {'ﷺ☃ ' * (number * 3)}{ends[number % len(ends)]}"
            for number in range(15)
        }
        for server in range(4)
    }
    runtime = await runtime_of(servers)
    count = shipped_token_counter().count
    for context in (OWNER, STABLE, STABLE):
        for query in ("shelf", "shelf 7 qxz", "nothing"):
            browse = await runtime.browse_query(query, top_k, context)
            cards = len(browse.cards) - (MARKER in names(browse))
            assert count(browse.text) <= 80 * cards + 32
            assert len(browse.text.splitlines()) == len(browse.cards) + bool(browse.hint)
    for path in ("/", f"/{'qxz' * 5}1"):
        browse = await runtime.browse_path(path, OWNER)
        assert count(browse.text) <= 80 * len(browse.cards)


def with_arguments(name: str, text: str, **properties: Any) -> dict[str, Any]:
    required = [key for key, schema in properties.items() if "default" not in schema]
    return {
        "name": name,
        "description": text,
        "inputSchema": {"type": "object", "properties": properties, "required": required},
    }


@requirement("BROWSE-90", "BROWSE-92", "CARD-32")
async def test_a_clear_winner_and_a_single_tool_come_with_the_call_of_it() -> None:
    word, number = {"type": "string"}, {"type": "integer", "default": 5}
    issue = with_arguments("create_issue", "Opens an issue.", owner=word, title=word, labels=number)
    wide = with_arguments("wide", "Sets colours.", **{f"colour_of_part_{n}": number for n in range(60)})
    long = with_arguments("long", "Adjusts.", **{f"name_{'x' * 50}_{n}": word for n in range(20)})
    others = [with_arguments(f"weather_{n}", "Reads the weather.", city=word) for n in range(12)]
    fleet = MultiplexUpstream([StubUpstream([issue, wide, long, *others], no_call, name="git")])
    runtime = await refreshed(ProxyRuntime(fleet))
    call, best = "create_issue(owner, title, labels?: integer)", runtime.browsing.rank("open an issue", 1, OWNER)[0][0]
    found = await runtime.browse_query("open an issue", None, OWNER)
    assert (found.hint, found.text.split("\n")[-1]) == (call, call)
    assert (await runtime.browse_query("open an issue", None, STABLE)).hint == f"Best for this query: {best}. {call}"
    alone = await runtime.browse_path("/git/create_issue", OWNER)
    assert (alone.hint, [card.id for card in alone.cards]) == (call, [best])
    # What does not fit is shortened or left out; a level and alternatives have none.
    assert (await runtime.browse_path("/git/wide", OWNER)).hint.endswith(", …)")
    assert (await runtime.browse_path("/git/long", OWNER)).hint == ""
    assert "(" not in (await runtime.browse_path("/", OWNER)).hint
    assert "(" not in (await runtime.browse_query("weather", None, OWNER)).hint
    for browse in (found, await runtime.browse_path("/git/wide", OWNER)):
        assert shipped_token_counter().count(browse.text) <= 80 * len(browse.cards) + 32
        assert [line.id for line in read_card_lines(browse.text)] == [card.id for card in browse.cards]
        body = {"cards": [card_json(card) for card in browse.cards], "hint": browse.hint}
        assert lines_of_json(json.dumps(body)) == browse.text


async def no_call(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
    raise AssertionError(name)
