"""The map of a gate, its traffic and its news, over HTTP from a running service."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import httpx

from app.console.live import MOST_PAGES_OF_ACTOR, MOST_WAITING, Page
from app.console.map import MOST_ROWS
from tests.app.console.test_servers import API, as_key, get
from tests.support.requirement import requirement
from tests.support.service import BOUND_S, KEY, OPERATOR_KEY, READER_KEY, FileServer, RunningService, running_service
from wicketgate.access.identity import Identity
from wicketgate.upstreams.embedded import StubUpstream


async def call(service: RunningService, tool: str, arguments: Mapping[str, Any]) -> None:
    await service.http.post("/operations/call", json={"operation": tool, "input": arguments})


def tool(name: str, *, reads: bool = False) -> dict[str, Any]:
    return {
        "name": name,
        "description": f"Do {name}.",
        "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": reads},
    }


SHOP = [
    *(tool(f"{verb}_order", reads=verb == "get") for verb in ("get", "cancel", "pay", "ship")),
    *(tool(f"{verb}_invoice") for verb in ("send", "print", "void", "mark")),
    *(tool(f"{verb}_customer") for verb in ("add", "drop", "merge", "tag", "call", "mail", "find")),
    *(tool(f"{verb}_product") for verb in ("add", "drop", "merge", "tag", "name", "rate")),
    tool("audit"),
]


@requirement("OPS-223")
async def test_a_row_is_a_card_that_a_browse_could_give() -> None:
    async with running_service(upstreams=[FileServer(), StubUpstream(SHOP, name="shop")]) as service:
        found = await get(service, "map", KEY)
        rows = {row["path"]: row for row in found["rows"]}
        assert (found["model"]["behind"], found["model"]["tools"]) == (4 + len(SHOP), 3)
        cards = (await service.app.state.gate.runtime.browse_path("/shop")).cards
        clusters = {card.id: card for card in cards if card.id.startswith("/shop/")}
        assert clusters
        assert rows.keys() == {"/files", "/shop", *clusters}
        assert (rows["/files"]["label"], rows["/files"]["count"]) == ("all 4", 4)
        columns = found["columns"]
        for path in clusters:
            row, below = rows[path], await get(service, f"map?path={path}", KEY)
            own = slice(row["first"], row["first"] + row["count"])
            inside = (await service.app.state.gate.runtime.browse_path(path)).cards
            assert sorted(columns["id"][own]) == sorted(card.id for card in inside)
            assert [each["label"] for each in below["rows"]] == sorted(columns["name"][own])
            assert all(each["leaf"] and each["count"] == 1 for each in below["rows"])
        writes = dict(zip(columns["name"], columns["writes"], strict=True))
        assert (writes["get_order"], writes["pay_order"]) == (0, 1)


@requirement("OPS-223")
async def test_many_namespaces_are_a_row_each() -> None:
    many = [StubUpstream(SHOP, name=f"shop{number}") for number in range(MOST_ROWS // 2 + 1)]
    async with running_service(upstreams=many) as service:
        found = await get(service, "map", KEY)
        assert [row["path"] for row in found["rows"]] == sorted(f"/{each.name}" for each in many)
        assert len(found["columns"]["id"]) == len(many) * len(SHOP)


@requirement("OPS-223")
async def test_paths_that_lead_nowhere_are_refused() -> None:
    async with running_service(upstreams=[FileServer()]) as service:
        for path, status in (("/files/none", 404), ("nonsense", 400), ("/" + "x" * 2_000, 400)):
            answer = await service.http.get(f"{API}/map", params={"path": path})
            assert answer.status_code == status, path


@requirement("OPS-224")
async def test_a_caller_sees_the_tools_that_the_faces_show_it() -> None:
    async with running_service(upstreams=[FileServer(), StubUpstream(SHOP, name="shop")]) as service:
        found = await get(service, "map", READER_KEY)
        assert found["columns"]["name"] == ["read_file"]
        assert [each["name"] for each in found["upstreams"]] == ["files"]
        listed = (await service.http.get("/operations", headers=as_key(READER_KEY))).json()
        assert len(found["columns"]["id"]) == listed["total"] == 1
        hidden = await service.http.get(f"{API}/map", params={"path": "/shop"}, headers=as_key(READER_KEY))
        assert hidden.status_code == 404
        operator = await get(service, "map", OPERATOR_KEY)
        assert (operator["columns"]["id"], [each["name"] for each in operator["upstreams"]]) == ([], ["files", "shop"])


@requirement("OPS-224")
async def test_the_same_map_is_not_sent_twice() -> None:
    async with running_service(upstreams=[FileServer()]) as service:
        first = await service.http.get(f"{API}/map")
        tag = {"If-None-Match": first.headers["etag"]}
        assert (await service.http.get(f"{API}/map", headers=tag)).status_code == 304
        other = await service.http.get(f"{API}/map", headers={**tag, **as_key(READER_KEY)})
        assert other.status_code == 200


@requirement("OPS-225", "OPS-302")
async def test_traffic_is_counted_for_readers_of_the_gate_and_for_each_caller_by_itself() -> None:
    async with running_service(upstreams=[FileServer()]) as service:
        await call(service, "/files/read_file", {"path": "a"})
        await call(service, "/files/fail", {})
        await call(service, "/files/read_file", {})  # its arguments do not fit
        whole = await get(service, "traffic", OPERATOR_KEY)
        by_name = {key.partition("#")[0]: value[:2] for key, value in whole["tools"].items()}
        assert by_name == {"files:read_file": [1, 0], "files:fail": [1, 1]}
        totals = [whole["totals"][name] for name in ("calls", "failed", "refused")]
        assert totals == [2, 1, 1]
        assert whole["meta"]["tool_execute"] == 0  # none of them was made with it
        assert (whole["totals"]["behind"], (await get(service, "traffic", READER_KEY))["totals"]["behind"]) == (0, 1)
        own = await get(service, "traffic", KEY)
        assert [own["totals"][name] for name in ("calls", "failed", "refused")] == totals
        assert {key: value[:2] for key, value in own["tools"].items()} == {
            key: value[:2] for key, value in whole["tools"].items()
        }
        assert (await get(service, "traffic", READER_KEY))["totals"]["calls"] == 0


class Reader:
    """Reads a stream of news."""

    def __init__(self, response: httpx.Response) -> None:
        self._lines = response.aiter_lines()

    async def until(self, wanted: str) -> dict[str, Any]:
        async with asyncio.timeout(BOUND_S):
            event = ""
            async for line in self._lines:
                if line.startswith("event: "):
                    event = line[7:]
                elif line.startswith("data: ") and event == wanted:
                    found: dict[str, Any] = json.loads(line[6:])
                    return found
        raise AssertionError(f"the stream ended without {wanted}")


@requirement("OPS-226")
async def test_news_reach_those_who_may_hear_them() -> None:
    async with running_service(upstreams=[FileServer()]) as service:
        operator = service.http.stream("GET", f"{API}/events", headers=as_key(OPERATOR_KEY))
        own = service.http.stream("GET", f"{API}/events")
        reader = service.http.stream("GET", f"{API}/events", headers=as_key(READER_KEY))
        async with operator as first, own as second, reader as third:
            await call(service, "/files/fail", {})
            for response in (first, second):
                news = await Reader(response).until("call")
                assert (news["name"], news["tool"], news["actor"]) == ("fail", "error", "owner_1")
            await service.http.post(
                "/operations/call",
                json={"operation": "/files/read_file", "input": {"path": "b"}},
                headers=as_key(READER_KEY),
            )
            # The first that it hears is its own.
            assert (await Reader(third).until("call"))["name"] == "read_file"


@requirement("OPS-227")
async def test_an_actor_follows_with_so_many_pages_and_a_stop_ends_them() -> None:
    async with running_service(upstreams=[FileServer()]) as service:
        opened = [service.http.stream("GET", f"{API}/events") for _ in range(MOST_PAGES_OF_ACTOR)]
        responses = [await each.__aenter__() for each in opened]
        assert {response.status_code for response in responses} == {200}
        full = await service.http.get(f"{API}/events")
        assert (full.status_code, full.headers["retry-after"]) == (429, "1")
        service.app.state.gate.drain.begin(0.0)
        async with asyncio.timeout(BOUND_S):
            for response in responses:
                async for _ in response.aiter_lines():
                    pass
        for each in opened:
            await each.__aexit__(None, None, None)


@requirement("OPS-227")
async def test_a_page_that_does_not_read_is_told_that_it_missed_something() -> None:
    page = Page(Identity("ann", ()), lambda page: None)
    for number in range(MOST_WAITING + 3):
        page.put(("call", {"number": number}))
    assert [event for event, _ in await page.next()] == ["gap", "call", "call"]
    page.close()
    assert await page.next() == []
