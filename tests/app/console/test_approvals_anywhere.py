"""One list of what waits over two gates: what was asked at one is seen, decided and used at the other."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from tests.app.console.test_approvals import API, decide, desk, read, waiting_totals
from tests.contract.replicas import SEAL, two_gates
from tests.contract.test_approvals import GATED, READ, Conversation, asked, results
from tests.support.redis import RedisServer
from tests.support.requirement import requirement
from tests.support.script import ScriptModel, calls, says
from tests.support.service import BOUND_S, OPERATOR_KEY, OTHER_KEY, FileServer, RunningService, running_service


@asynccontextmanager
async def pair(redis: RedisServer) -> AsyncIterator[tuple[RunningService, RunningService, FileServer, FileServer]]:
    files, others = FileServer(), FileServer()
    async with two_gates(redis.url, [[files], [others]], **GATED) as (here, there):
        yield here, there, files, others


@asynccontextmanager
async def heard(service: RunningService) -> AsyncIterator[asyncio.Queue[Any]]:
    """The changes of the list that a page hears."""
    news = asyncio.Queue[Any]()

    async def follow(answer: httpx.Response) -> None:
        event = ""
        async for line in answer.aiter_lines():
            if line.startswith("event: "):
                event = line.removeprefix("event: ")
            elif line.startswith("data: ") and event == "approval":
                news.put_nowait(json.loads(line.removeprefix("data: ")))

    async with service.http.stream("GET", f"{API}/events") as answer:
        following = asyncio.create_task(follow(answer))
        yield news
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


@requirement("OPS-291", "OPS-293", "ACCESS-296")
async def test_what_waits_at_one_gate_is_seen_and_decided_at_the_other_and_runs_at_either(redis: RedisServer) -> None:
    async with pair(redis) as (here, there, files, others), asyncio.timeout(BOUND_S), heard(there) as news:
        await read(here)
        (ask,) = (await desk(there))["waiting"]
        assert (ask["args"], ask["may_decide"]) == ({"path": "a.md"}, True)
        assert (ask["actor"], ask["key_id"], ask["door"], ask["server"], ask["source"]) == (
            "owner_1",
            "test",
            "operations",
            "files",
            "127.0.0.1",
        )
        assert await news.get() == {"id": ask["id"], "change": "new"}
        # Its arguments are for its actor alone, there too.
        (seen,) = (await desk(there, OPERATOR_KEY))["waiting"]
        assert (seen["args"], seen["arg_names"], seen["may_decide"]) == (None, ["path"], False)
        assert (await desk(there, OTHER_KEY))["waiting"] == []
        assert await waiting_totals(there) == 1
        # The same call at the other gate is the same one.
        again = (await read(there)).json()
        assert (again["code"], again["details"]["id"]) == ("APPROVAL_REQUIRED", ask["id"])
        assert await waiting_totals(there) == 1
        assert await decide(there, ask["id"], "approve", OTHER_KEY) == 404
        assert await decide(there, ask["id"], "approve", OPERATOR_KEY) == 403
        assert await decide(there, ask["id"], "approve") == 200
        assert await news.get() == {"id": ask["id"], "change": "decided"}
        assert await decide(here, ask["id"], "deny") == 404
        # It runs once, at whichever gate it comes to.
        ran = await asyncio.gather(read(here), read(there), read(there))
        assert sorted(each.status_code for each in ran) == [200, 403, 403]
        assert len(files.calls) + len(others.calls) == 1
        assert [(each["decision"], each["used"]) for each in (await desk(there))["decided"]] == [("approve", True)]


@requirement("OPS-292")
async def test_a_denial_at_one_gate_refuses_the_next_call_at_the_other_once(redis: RedisServer) -> None:
    async with pair(redis) as (here, there, files, others):
        await read(here)
        assert await decide(there, (await desk(there))["waiting"][0]["id"], "deny") == 200
        assert (await read(there)).json()["code"] == "FORBIDDEN"
        assert (await read(there)).json()["code"] == "APPROVAL_REQUIRED"
        assert (files.calls, others.calls) == ([], [])


@requirement("OPS-292")
async def test_a_chat_goes_on_at_another_gate_with_what_was_decided_at_the_first(redis: RedisServer) -> None:
    shared: dict[str, Any] = {"storage": {"url": redis.url}, **SEAL, **GATED}
    files, others = FileServer(), FileServer()
    async with (
        running_service(ScriptModel(calls(READ)), [files], settings=shared) as here,
        running_service(ScriptModel(says("done")), [others], settings=shared) as there,
    ):
        talk = Conversation(here)
        assert asked(await talk.go_on()).keys() == {"c1"}
        assert await decide(here, (await desk(there))["waiting"][0]["id"], "approve") == 200
        talk.service = there
        assert "contents of a.md" in results(await talk.go_on())["c1"]["output"]
        assert [(each["decision"], each["used"]) for each in (await desk(here))["decided"]] == [("approve", True)]
        assert len(others.calls) == 1


@requirement("OPS-292")
async def test_a_decision_that_a_chat_brings_to_one_gate_takes_the_call_off_the_list_of_the_other(
    redis: RedisServer,
) -> None:
    shared: dict[str, Any] = {"storage": {"url": redis.url}, **SEAL, **GATED}
    async with (
        running_service(ScriptModel(calls(READ)), [FileServer()], settings=shared) as here,
        running_service(ScriptModel(says("done")), [FileServer()], settings=shared) as there,
    ):
        talk = Conversation(here)
        id = asked(await talk.go_on())["c1"]
        talk.service = there
        await talk.go_on((id, "approve"))
        found = await desk(here)
        assert (found["waiting"], [each["used"] for each in found["decided"]]) == ([], [True])


@requirement("OPS-482")
async def test_nothing_is_asked_listed_or_decided_while_the_store_is_unavailable(redis: RedisServer) -> None:
    async with pair(redis) as (here, _, files, _), asyncio.timeout(BOUND_S):
        await read(here)
        (ask,) = (await desk(here))["waiting"]
        redis.kill()
        refused = (await read(here)).json()
        assert (refused["code"], "cannot be kept at the moment" in refused["message"]) == ("FORBIDDEN", True)
        assert (await here.http.get(f"{API}/approvals")).status_code == 503
        assert await decide(here, ask["id"], "approve") == 503
        assert await waiting_totals(here) == 0
        assert files.calls == []
