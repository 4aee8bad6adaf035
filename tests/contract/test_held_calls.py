"""A server of the handshake era that asks in the middle of a call, and a client of 2026-07-28 that answers later."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mcp import types as t

from tests.contract.replicas import Gates
from tests.support.asking_server import AskingServer, asking_server
from tests.support.mcp_client import NEW, mcp_client
from tests.support.requirement import requirement
from tests.support.service import BOUND_S, OTHER_KEY, RunningService, running_service
from tests.support.wire_client import WireClient

pytestmark = pytest.mark.usefixtures("both_ways")

FORMS: dict[str, Any] = {"elicitation": {"form": {}}}
ADA = {"action": "accept", "content": {"name": "Ada"}}


def client(service: RunningService, path: str = "/mcp/namespaced", capabilities: Any = FORMS) -> WireClient:
    return WireClient(service, path=path, capabilities=capabilities)


def asked(answer: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The state and the questions of an answer that asks."""
    result = answer["result"]
    assert result["resultType"] == "input_required", answer
    return result["requestState"], result["inputRequests"]


def answers(answer: Mapping[str, Any], *given: Mapping[str, Any]) -> dict[str, Any]:
    """The members that a second attempt has more: an answer to each question, Ada's unless others are given."""
    state, questions = asked(answer)
    replies = given or (ADA,) * len(questions)
    return {"requestState": state, "inputResponses": dict(zip(questions, replies, strict=True))}


def text(answer: Mapping[str, Any]) -> str:
    assert not answer["result"].get("isError"), answer
    return str(answer["result"]["content"][0]["text"])


@dataclass
class Places:
    """The gate *here*, where the calls to *server* run, and *there*, to which second attempts come."""

    server: AskingServer
    here: RunningService
    there: RunningService


@pytest.fixture
async def places(both_ways: str, gates: Gates) -> AsyncIterator[Places]:
    async with (
        asking_server() as server,
        asking_server() as other,
        gates([server.upstream], [other.upstream]) as (here, there),
    ):
        yield Places(server, here, there)
    assert other.calls == []


@requirement("FACE-72")
@pytest.mark.parametrize("reply", [ADA, {"action": "decline"}, {"action": "cancel"}])
async def test_a_question_in_the_middle_of_a_call_is_put_to_a_client_that_answers_later(reply: dict[str, Any]) -> None:
    async with asking_server() as server, running_service(upstreams=[server.upstream]) as service:
        first = await client(service).call("old__ask")
        _, questions = asked(first)
        assert [one["method"] for one in questions.values()] == ["elicitation/create"]
        assert [one["params"]["message"] for one in questions.values()] == ["`old` asks: Name?"]
        assert server.answers == []
        second = await client(service).call("old__ask", more=answers(first, reply))
    assert text(second) == server.answers[0] == {"accept": "accept Ada"}.get(reply["action"], reply["action"])
    assert server.calls == ["ask"], "the call was made once"


@requirement("FACE-72")
@pytest.mark.parametrize(
    ("path", "name", "arguments"),
    [
        ("/mcp", "tool_execute", {"tool_id": "{id}", "args": {}}),
        ("/mcp/transparent", "tool_execute", {"tool_id": "{id}", "args": {}}),
        ("/mcp/registry", "call", {"operation": "/old/ask", "input": {}}),
    ],
)
async def test_a_call_is_held_at_every_face(path: str, name: str, arguments: dict[str, Any]) -> None:
    async with asking_server() as server, running_service(upstreams=[server.upstream]) as service:
        (tool_id,) = [one for one in service.app.state.gate.runtime.catalog().items if ":ask#" in one]
        arguments = {key: tool_id if value == "{id}" else value for key, value in arguments.items()}
        first = await client(service, path).call(name, arguments)
        second = await client(service, path).call(name, arguments, more=answers(first))
    assert "accept Ada" in str(second["result"])
    assert not second["result"].get("isError")
    assert server.calls == ["ask"]


@requirement("FACE-72", "FACE-105")
async def test_prompts_and_reads_are_held_too(places: Places) -> None:
    for method, params in (("prompts/get", {"name": "old__greet"}), ("resources/read", {"uri": "old+doc:///who"})):
        first = await client(places.here).ask(method, params)
        second = await client(places.there).ask(method, {**params, **answers(first)})
        assert "accept Ada" in str(second["result"]), second


@requirement("FACE-72", "FACE-77")
async def test_the_official_client_of_the_newer_era_answers_a_server_of_the_older_one() -> None:
    async def answer(context: Any, params: Any) -> t.ElicitResult:
        return t.ElicitResult(action="accept", content={"name": params.message.split()[-2]})

    async with (
        asking_server() as server,
        running_service(upstreams=[server.upstream]) as service,
        mcp_client(service, NEW, path="/mcp/namespaced", client={"elicitation_callback": answer}) as official,
    ):
        result = await official.call_tool("old__twice", {})
    assert result.content[0].model_dump()["text"] == "accept First, accept Last"
    assert server.calls == ["twice"]


@requirement("FACE-73", "FACE-105")
async def test_a_call_that_asks_several_times_takes_as_many_attempts(places: Places) -> None:
    gate = client(places.there)
    first = await client(places.here).call("old__twice")
    unanswered = await gate.call("old__twice", more=more_of(first))
    assert asked(unanswered)[1] == asked(first)[1], "it is asked again"
    nonsense = await gate.call("old__twice", more={**answers(first), "inputResponses": {"question-1": {"action": 5}}})
    assert "error" in nonsense or asked(nonsense)[1] == asked(first)[1]
    second = await gate.call("old__twice", more=answers(first))
    assert asked(second)[1].keys().isdisjoint(asked(first)[1])
    stale = await gate.call("old__twice", more=answers(first))
    assert asked(stale)[1] == asked(second)[1], "an answer counts once"
    third = await gate.call("old__twice", more=answers(second, {**ADA, "content": {"name": "Lovelace"}}))
    assert text(third) == "accept Ada, accept Lovelace"
    both = await client(places.here).call("old__both")
    while len(questions := asked(both)[1]) < 2:
        both = await gate.call("old__both", more=more_of(both))
    messages = [one["params"]["message"] for one in questions.values()]
    assert messages == ["`old` asks: First name?", "`old` asks: Last name?"]
    assert text(await gate.call("old__both", more=answers(both))) == "accept Ada, accept Ada"


@requirement("FACE-74")
async def test_a_held_call_is_open_to_nobody_else_and_to_no_other_call(places: Places) -> None:
    other = {"headers": {"Authorization": f"Bearer {OTHER_KEY}"}}
    first = await client(places.here).call("old__ask")
    wrong = [
        await client(places.there).call("old__ask", more=answers(first), **other),
        await client(places.there).call("old__twice", more=answers(first)),
        await client(places.there).call("old__ask", {"a": 1}, more=answers(first)),
        await client(places.there, "/mcp").call("old__ask", more=answers(first)),
    ]
    assert [one["error"]["code"] for one in wrong] == [-32602] * 4
    assert places.server.answers == []
    assert text(await client(places.there).call("old__ask", more=answers(first))) == "accept Ada"
    assert places.server.calls == ["ask"]


@requirement("FACE-123")
async def test_an_attempt_that_is_repeated_gets_the_same_again_and_nothing_runs_twice(places: Places) -> None:
    gates = [places.there, places.here, places.there]
    first = await client(places.here).call("old__twice")
    seconds = [await client(gate).call("old__twice", more=answers(first)) for gate in gates]
    assert [list(asked(one)[1]) for one in seconds] == [["question-2"]] * 3
    both = [client(gate).call("old__twice", more=answers(seconds[0])) for gate in gates[:2]]
    assert [text(one) for one in await asyncio.gather(*both)] == ["accept Ada, accept Ada"] * 2
    for gate in gates:
        assert text(await client(gate).call("old__twice", more=answers(first))) == "accept Ada, accept Ada"
    assert places.server.calls == ["twice"]


@requirement("FACE-75")
async def test_where_no_place_is_left_the_server_learns_that_nobody_answered() -> None:
    limits = {"tasks": {"max_running": 2, "max_running_per_actor": 1}}
    async with asking_server() as server, running_service(upstreams=[server.upstream], settings=limits) as service:
        held = await client(service).call("old__ask")
        refused = await client(service).call("old__ask")
        assert text(refused) == "cancel"
        assert text(await client(service).call("old__ask", more=answers(held))) == "accept Ada"
        assert asked(await client(service).call("old__ask"))


@requirement("FACE-75")
@pytest.mark.parametrize("capabilities", [{}, {"elicitation": {"url": {}}}, {"roots": {}}])
async def test_a_client_that_cannot_answer_is_not_asked(capabilities: dict[str, Any], places: Places) -> None:
    assert text(await client(places.here, capabilities=capabilities).call("old__ask")) == "cancel"
    held = await client(places.here).call("old__ask")
    # The second attempt declares other capabilities than the first.
    assert text(await client(places.there, capabilities=capabilities).call("old__ask", more=more_of(held))) == "cancel"


def more_of(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {"requestState": asked(answer)[0], "inputResponses": {}}


@requirement("FACE-125")
async def test_what_was_asked_before_the_drain_is_answered_while_it_lasts_and_nothing_new_begins(
    places: Places,
) -> None:
    drain = places.here.app.state.gate.drain
    first = await client(places.here).call("old__twice")
    drain.begin(BOUND_S)
    drained = asyncio.create_task(drain.wait())
    second = await client(places.there).call("old__twice", more=answers(first))
    assert "stopping" in str(await client(places.here).call("old__ask"))
    assert not drained.done()
    assert text(await client(places.there).call("old__twice", more=answers(second))) == "accept Ada, accept Ada"
    async with asyncio.timeout(BOUND_S):
        await drained
    assert places.server.calls == ["twice"]


@requirement("FACE-76")
async def test_at_the_end_the_servers_of_held_calls_learn_that_nobody_answers() -> None:
    async with asking_server() as server:
        async with running_service(upstreams=[server.upstream]) as service:
            asked(await client(service).call("old__ask"))
        async with asyncio.timeout(BOUND_S):
            await server.answered.wait()
    assert server.answers == ["cancel"]


@requirement("FACE-76")
async def test_a_key_that_ends_ends_the_calls_that_it_holds() -> None:
    async with asking_server() as server, running_service(upstreams=[server.upstream]) as service:
        asked(await client(service).call("old__hang"))
        service.app.state.gate.runtime.running.end_of("test")
        async with asyncio.timeout(BOUND_S):
            await server.cancelled.wait()


@requirement("FACE-76")
async def test_a_client_that_leaves_its_second_attempt_ends_the_call(places: Places) -> None:
    first = await client(places.here).call("old__hang")
    second = asyncio.create_task(client(places.there).call("old__hang", more=answers(first)))
    async with asyncio.timeout(BOUND_S):
        await places.server.answered.wait()
        second.cancel()
        await places.server.cancelled.wait()
    failed = await client(places.there).call("old__hang", more=answers(first))
    assert "its client has left" in str(failed["result"])


@requirement("FACE-79", "FACE-105")
async def test_an_answer_for_a_tool_that_has_changed_does_not_reach_it(places: Places) -> None:
    changed = await client(places.here).call("old__ask")
    places.server.description = "Deletes all."
    await places.here.app.state.gate.runtime.refresh_catalog()
    refused = await client(places.there).call("old__ask", more=answers(changed))
    assert refused["result"]["isError"]
    assert "the tool has changed" in str(refused["result"])


@requirement("FACE-79")
async def test_what_was_forbidden_while_a_person_was_asked_does_not_go_on() -> None:
    async with asking_server() as server, running_service(upstreams=[server.upstream]) as service:
        gate = service.app.state.gate
        rules = {"access": [{"match": "old:*", "effect": "deny"}]}
        held = await client(service).call("old__ask")
        read = await client(service).ask("resources/read", {"uri": "old+doc:///who"})
        await gate.apply(gate.settings.model_validate({**gate.settings.model_dump(), **rules}))
        denied = await client(service).call("old__ask", more=answers(held))
        unread = await client(service).ask("resources/read", {"uri": "old+doc:///who", **answers(read)})
        async with asyncio.timeout(BOUND_S):
            await server.wait_for(2)
    assert denied["result"]["isError"]
    assert "error" in unread
    assert set(server.answers) <= {"cancel", "cancelled"}


@requirement("FACE-77")
async def test_progress_goes_to_the_attempt_that_waits() -> None:
    async with asking_server() as server, running_service(upstreams=[server.upstream]) as service:
        gate = client(service)
        first, heard = await streamed(gate, "first", {})
        assert heard == [("first", "before")]
        going = asyncio.create_task(streamed(gate, "second", answers(first)))
        async with asyncio.timeout(BOUND_S):
            await server.answered.wait()
        server.go.set()
        second, heard = await going
    assert heard == [("second", "after"), ("second", "last")]
    assert text(second) == "accept Ada"


async def streamed(gate: WireClient, token: str, more: Mapping[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """The answer of ``later``, and the progress that came before it."""
    messages = await gate.messages("tools/call", {"name": "old__later", **more}, meta={"progressToken": token})
    told = [one["params"] for one in messages if one.get("method") == "notifications/progress"]
    return messages[-1], [(one["progressToken"], one["message"]) for one in told]


@requirement("FACE-78")
async def test_a_held_call_is_one_call_in_the_audit_and_for_the_quota(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    sink = {"handler": "audit_jsonl", "config": {"path": str(path)}}
    settings = {"plugins": {"auditing": {"_global": [sink]}}, "quota": {"per_actor": 1}}
    async with asking_server() as server, running_service(upstreams=[server.upstream], settings=settings) as service:
        first = await client(service).call("old__ask")
        assert text(await client(service).call("old__ask", more=answers(first))) == "accept Ada"
        more = await client(service).call("old__ask")
        assert "At most 1" in str(more)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    told = [(one["operation"], one["phase"], one["outcome"]) for one in records if one["operation"] != "reload"]
    assert told == [
        ("execute", "intent", "allowed"),
        ("question", "end", "allowed"),
        ("execute", "end", "allowed"),
        ("execute", "end", "denied"),
    ]
