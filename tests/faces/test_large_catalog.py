"""Browsing a large catalog does nothing on the event loop that grows with it (BROWSE-40, BROWSE-41, BROWSE-59).

``bounded_effort`` counts what is done on this thread, which is that of the loop.
"""

import asyncio
import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from mcp.server.subscriptions import ToolsListChanged

from tests.catalog.fixtures import tokens
from tests.support.effort import bounded_effort
from tests.support.requirement import requirement
from tests.support.service import BOUND_S
from wicketgate.access.identity import Identity, reach_of
from wicketgate.access.policy import AccessPolicy
from wicketgate.access.seal import Seal
from wicketgate.catalog.card import build_inner_card
from wicketgate.catalog.card_lines import lines_of_json
from wicketgate.catalog.catalog import Catalog
from wicketgate.catalog.router import Router
from wicketgate.catalog.tool_id import Visible, parse_tool_id
from wicketgate.faces.assembly import Face
from wicketgate.faces.gateway import GatewayFace, WrittenLevels
from wicketgate.faces.mcp.server import McpDoor
from wicketgate.faces.meta_tool import ToolLists
from wicketgate.faces.namespaced import NamespacedFace
from wicketgate.faces.operations import Operations
from wicketgate.faces.surface import SurfaceTool, ToolSurface
from wicketgate.faces.transparent import TransparentFace
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.ports import CallContext
from wicketgate.upstreams.embedded import StubUpstream

NAMESPACES = 500
TOOLS_EACH = 3
CALLS = 8 * NAMESPACES
"""Working the level out takes a hundred calls for each namespace."""


def context(*permissions: str) -> CallContext:
    return CallContext(Identity("owner_1", permissions), "req_1", "s")


ALL = context("*")
SOME = context(*(f"tools:*:get_{number}" for number in range(0, NAMESPACES * TOOLS_EACH, 2)))
# Read once in a process, by whichever test is first: a call or two for each permission.
reach_of(SOME.identity.permissions)


def tools(words: str = "Get one.") -> list[dict[str, Any]]:
    names = (f"service{number // TOOLS_EACH}.get_{number}" for number in range(NAMESPACES * TOOLS_EACH))
    return [{"name": name, "description": words} for name in names]


@pytest.fixture(scope="module")
def upstream() -> StubUpstream:
    return StubUpstream(tools())


async def opened(upstream: StubUpstream, *, cache_stable: bool = False) -> tuple[ProxyRuntime, GatewayFace]:
    runtime = ProxyRuntime(upstream, cache_stable=cache_stable)
    await runtime.refresh_catalog()
    return runtime, GatewayFace(runtime)


def cards(result: Any) -> list[Mapping[str, Any]]:
    assert not result.is_error, result.text
    return list(result.structured["cards"])


@requirement("BROWSE-11", "BROWSE-40")
@pytest.mark.parametrize("caller", [ALL, SOME], ids=["all", "some"])
async def test_the_root_of_thousands_of_namespaces_is_not_made_on_the_loop(
    upstream: StubUpstream, caller: CallContext
) -> None:
    _, face = await opened(upstream)
    with bounded_effort(calls=CALLS):
        first = await face.call("tool_browse", {"path": "/"}, caller)
    with bounded_effort(calls=CALLS):
        again = await face.call("tool_browse", {"path": "/*"}, caller)
    assert len(cards(first)) == NAMESPACES
    assert (first.text, first.content) == (again.text, again.content)
    assert json.loads(first.text) == first.structured == again.structured
    assert first.shown == lines_of_json(first.text)
    count = {3} if caller is ALL else {1, 2}
    assert {int(card["description"].split()[0]) for card in cards(first)} == count


@requirement("BROWSE-24", "BROWSE-40")
async def test_putting_thousands_of_cards_in_cache_stable_order_takes_a_few_calls_a_card(
    upstream: StubUpstream,
) -> None:
    _, face = await opened(upstream, cache_stable=True)
    for _ in range(2):
        with bounded_effort(calls=10 * NAMESPACES):
            found = await face.call("tool_browse", {"path": "/"}, ALL)
        assert len(cards(found)) == NAMESPACES


@requirement("BROWSE-18", "BROWSE-40")
@pytest.mark.parametrize("asked", [{"query": "get"}, {"path": "/service7"}], ids=["query", "path"])
async def test_what_a_caller_may_see_is_not_worked_out_on_the_loop(
    upstream: StubUpstream, asked: Mapping[str, Any]
) -> None:
    _, face = await opened(upstream)
    await face.call("tool_browse", asked, ALL)
    with bounded_effort(calls=20 * NAMESPACES):
        everything = await face.call("tool_browse", asked, ALL)
    with bounded_effort(calls=20 * NAMESPACES):
        some = await face.call("tool_browse", asked, SOME)
    assert 0 < len(cards(some)) <= len(cards(everything))
    assert all(int(card["name"].split("_")[1]) % 2 == 0 for card in cards(some))


def refresh_during(monkeypatch: pytest.MonkeyPatch, method: str, runtime: ProxyRuntime, server: StubUpstream) -> None:
    """The first call of the catalog's *method*, in its thread, finds a new catalog in force with one tool more."""
    loop = asyncio.get_running_loop()
    running: list[bool] = []
    made = getattr(Catalog, method)

    def first_a_refresh(self: Catalog, *args: Any) -> Any:
        if not running:
            running.append(True)
            server.tools.append({"name": "late.get_0", "description": "Get one."})
            asyncio.run_coroutine_threadsafe(runtime.refresh_catalog(), loop).result(60)
        return made(self, *args)

    monkeypatch.setattr(Catalog, method, first_a_refresh)


@requirement("BROWSE-41", "CARD-16")
async def test_a_catalog_that_comes_into_force_meanwhile_is_the_one_that_is_browsed(
    upstream: StubUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = StubUpstream(tools())
    runtime, face = await opened(server)
    refresh_during(monkeypatch, "cards_at", runtime, server)
    found = await face.call("tool_browse", {"path": "/"}, SOME)
    assert "/late" in [card["id"] for card in cards(found)]


FREQUENT = "invoice customer paper window planet bridge garden river letter engine"


@pytest.fixture(scope="module")
def crowded() -> StubUpstream:
    return StubUpstream([{**tool, "description": FREQUENT} for tool in tools()])


@requirement("BROWSE-77", "BROWSE-40")
@pytest.mark.parametrize("caller", [ALL, SOME], ids=["all", "some"])
async def test_a_query_of_frequent_words_is_ranked_beside_the_loop_with_the_same_answer(
    crowded: StubUpstream, caller: CallContext
) -> None:
    runtime, face = await opened(crowded)
    expected = runtime.browsing.rank(FREQUENT, 20, caller)
    ranking_threads: set[int] = set()
    route = Router.route

    def noted(self: Router, *args: Any, **more: Any) -> Any:
        ranking_threads.add(threading.get_ident())
        return route(self, *args, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Router, "route", noted)
        found = await face.call("tool_browse", {"query": FREQUENT, "top_k": 20}, caller)
    assert threading.get_ident() not in ranking_threads
    assert sorted((card["id"], card["score"]) for card in cards(found)) == sorted(expected)


@requirement("BROWSE-77", "BROWSE-41")
async def test_a_query_is_ranked_by_the_catalog_that_comes_into_force_meanwhile(
    crowded: StubUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = StubUpstream(list(crowded.tools))
    runtime, face = await opened(server)
    loop = asyncio.get_running_loop()
    running: list[bool] = []
    route = Router.route

    def first_a_refresh(self: Router, *args: Any, **more: Any) -> Any:
        if not running:
            running.append(True)
            server.tools.append({"name": "late.invoice_customer_paper_window", "description": FREQUENT})
            asyncio.run_coroutine_threadsafe(runtime.refresh_catalog(), loop).result(60)
        return route(self, *args, **more)

    monkeypatch.setattr(Router, "route", first_a_refresh)
    found = await face.call("tool_browse", {"query": FREQUENT}, ALL)
    assert any(card["id"].startswith("late:") for card in cards(found))


@requirement("BROWSE-78")
async def test_a_call_of_a_visible_tool_does_not_work_out_what_else_is_visible(
    upstream: StubUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime, face = await opened(upstream)
    asked: list[object] = []
    seen = AccessPolicy.seen

    def noted(self: AccessPolicy, *args: Any) -> Any:
        asked.append(args)
        return seen(self, *args)

    monkeypatch.setattr(AccessPolicy, "seen", noted)
    tool_id = next(each for each in runtime.catalog().items if parse_tool_id(each).name == "get_2")
    found = await face.call("tool_execute", {"tool_id": tool_id, "args": {}, "dry_run": True}, SOME)
    assert (found.is_error, asked) == (False, [])
    await face.call("tool_execute", {"tool_id": "service1:nothing", "args": {}, "dry_run": True}, SOME)
    assert len(asked) == 1


FACES: Mapping[str, Callable[[ProxyRuntime], ToolSurface]] = {
    "gateway": GatewayFace,
    "transparent": TransparentFace,
    "namespaced": lambda runtime: NamespacedFace(runtime, dict),
}


@requirement("BROWSE-59")
@pytest.mark.parametrize("caller", [ALL, SOME], ids=["all", "some"])
@pytest.mark.parametrize("face", FACES)
async def test_the_list_of_a_face_is_not_made_on_the_loop(
    upstream: StubUpstream, face: str, caller: CallContext
) -> None:
    runtime, _ = await opened(upstream)
    surface: ToolSurface = FACES[face](runtime)
    with bounded_effort(calls=CALLS):
        await surface.prepare(caller)
        listed = surface.tools(caller)
    assert listed == FACES[face](runtime).tools(caller)
    with bounded_effort(calls=CALLS):
        await surface.prepare(caller)
        assert surface.tools(caller) is listed


@requirement("BROWSE-59")
async def test_lists_are_kept_by_the_number_of_tools_in_them_not_of_callers(upstream: StubUpstream) -> None:
    runtime, _ = await opened(upstream)
    made: list[int] = []

    def make(catalog: Catalog, visible: Visible | None) -> list[SurfaceTool]:
        shown = [each for each in catalog.items if visible is None or visible(each)]
        made.append(len(shown))
        return [SurfaceTool(each, "", {}) for each in shown]

    def caller(*numbers: int) -> CallContext:
        return context(f"tools:{upstream.name}:*", *(f"tools:service{number}:*" for number in numbers))

    lists = ToolLists(runtime, make, most_tools=3 * 200)
    for _ in range(2):
        for number in range(200):
            await lists.prepare(caller(number))
            assert len(lists.of(caller(number))) == 3
    assert made == [3] * 200
    # A longer one takes the room of those made first.
    lists.of(caller(*range(50)))
    lists.of(caller(199))
    assert len(made) == 201
    lists.of(caller(0))
    assert len(made) == 202


@requirement("BROWSE-59")
async def test_what_a_caller_may_see_is_not_worked_out_on_the_loop_for_operations(upstream: StubUpstream) -> None:
    runtime, _ = await opened(upstream)
    operations = Operations(runtime)
    await operations.search({"limit": 1}, ALL)
    with bounded_effort(calls=CALLS):
        found = await operations.search({"limit": 1}, SOME)
    assert found["total"] == NAMESPACES * TOOLS_EACH // 2


@requirement("BROWSE-19", "BROWSE-59")
async def test_what_a_caller_may_see_is_not_worked_out_on_the_loop_for_an_id_that_is_not_there(
    upstream: StubUpstream,
) -> None:
    _, face = await opened(upstream)
    wanted = {"tool_id": "service7:get_22x"}
    await face.call("tool_execute", wanted, ALL)
    # Looking for ids that are near is a call or two for each tool.
    with bounded_effort(calls=2 * CALLS):
        refused = await face.call("tool_execute", wanted, SOME)
    assert refused.structured["error"] == "HYDRATE_FAILED", refused.text


@requirement("BROWSE-59", "CARD-16")
async def test_a_list_that_a_refresh_overtook_is_made_again(
    upstream: StubUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = StubUpstream(tools())
    runtime, _ = await opened(server)
    surface = TransparentFace(runtime)
    refresh_during(monkeypatch, "card", runtime, server)
    await surface.prepare(SOME)
    with bounded_effort(calls=CALLS):
        listed = surface.tools(SOME)
    assert any(tool.name.startswith("late:get_0") for tool in listed)


@requirement("OPS-355")
@pytest.mark.parametrize("make", [TransparentFace, NamespacedFace])
async def test_the_list_of_a_large_catalog_is_not_made_on_the_loop_when_the_catalog_has_changed(
    make: Callable[..., ToolSurface],
) -> None:
    server = StubUpstream(tools())
    runtime, _ = await opened(server)
    surface = make(runtime, dict) if make is NamespacedFace else make(runtime)
    door = McpDoor(
        Face(surface, "", runtime.running, runtime.may_still_use),
        name="face",
        version="0",
        seal=Seal((), b"k" * 32, lambda: 0.0, lambda: "n"),
        local=ALL.identity,
    )
    await door.sdk.compare_list()
    said: asyncio.Queue[object] = asyncio.Queue()
    door.sdk.announcer.announce = lambda event, actor=None: said.put_nowait(event)  # type: ignore[method-assign]
    server.tools[:] = tools("Get another.")[:-3]
    await runtime.refresh_catalog()
    with bounded_effort(calls=CALLS):
        await door.sdk.compare_list()
    assert isinstance(said.get_nowait(), ToolsListChanged)
    # What does not differ is not announced.
    await door.sdk.compare_list()
    assert said.empty()
    # A change is followed by itself.
    runtime.changes.watch(door.list_changed)
    announcing = asyncio.create_task(door.sdk.announcing())
    server.tools[:] = tools()
    await runtime.refresh_catalog()
    async with asyncio.timeout(BOUND_S):
        assert isinstance(await said.get(), ToolsListChanged)
    announcing.cancel()
    await asyncio.gather(announcing, return_exceptions=True)
    await runtime.aclose()


@requirement("BROWSE-40")
def test_a_level_that_is_made_anew_for_each_browse_is_written_and_kept_once() -> None:
    levels = WrittenLevels()
    cards = [build_inner_card("/shop/orders", "orders", "shop", 3, ("a", "b", "c"), tokens()) for _ in range(3)]
    other = build_inner_card("/shop/orders", "orders", "shop", 2, ("a", "b"), tokens())
    first, *same = [levels.of([card]) for card in cards]
    assert all(each[0][0] is first[0][0] and each == first for each in same)
    assert levels.of([other]) != first
    assert levels.of([cards[2], other, cards[0]])[0] == [first[0][0], levels.of([other])[0][0], first[0][0]]
