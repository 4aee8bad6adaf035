"""Questions to clients whose calls go past the SDK's server, and the messages that are about such calls."""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from app.mcp.live_sessions import LiveSession
from app.mcp.requests import Addressed
from tests.contract.replicas import two_gates
from tests.contract.test_audited_service import audited, records
from tests.contract.test_direct_way import CALLS, running
from tests.support.door import ERAS, NEWER, OLDER, WAYS, Door, Message
from tests.support.redis import RedisServer, redis_server
from tests.support.requirement import requirement
from tests.support.service import BOUND_S, FileServer, RunningService, running_service
from tests.support.wire_client import messages_in
from wicketgate.access.identity import Identity
from wicketgate.access.seal import SealedText
from wicketgate.faces.mcp.direct import Answer, DirectDoor
from wicketgate.faces.mcp.session_tokens import McpSession
from wicketgate.ports import CallContext, CannotAsk
from wicketgate.upstreams.embedded import StubUpstream

ABLE: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {"listChanged": True}}
FORM = {"message": "Name?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
QUESTION: dict[str, Any] = {"method": "elicitation/create", "params": FORM}
SAMPLING = {"messages": [{"role": "user", "content": {"type": "text", "text": "Sum up."}}], "maxTokens": 5}
GOOD = {"result": {"action": "accept", "content": {"name": "Ann"}}}


class Asking(StubUpstream):
    """``ask`` asks what its arguments say, and answers with what came; ``leave`` asks and does not wait for the answer
    once *gone* is set."""

    def __init__(self) -> None:
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("ask", "leave")]
        super().__init__(tools, self._answer, name="new")
        self.gone = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def _answer(self, name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        question = dict(arguments) or QUESTION
        try:
            if name == "ask":
                said = json.dumps(await context.caller.ask(question["method"], question.get("params", {})))
            else:
                asking = asyncio.create_task(context.caller.ask(question["method"], question["params"]))
                await self.gone.wait()
                asking.cancel()
                with suppress(asyncio.CancelledError):
                    await asking
                said = "left"
        except CannotAsk as cannot:
            said = f"cannot, rejected: {cannot.rejected}"
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return {"content": [{"type": "text", "text": said}]}


class Stream:
    """The messages of an answer as they come."""

    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines

    async def next(self) -> Message:
        async with asyncio.timeout(BOUND_S):
            async for line in self._lines:
                if line.startswith("data:") and line[5:].strip():
                    message: Message = json.loads(line[5:])
                    return message
        raise AssertionError("the stream has ended")


@asynccontextmanager
async def calling(
    door: Door, name: str, id: int | str = 1, at: RunningService | None = None, **arguments: Any
) -> AsyncIterator[Stream]:
    message = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
    async with (at or door.service).http.stream("POST", door.path, json=message, headers=door.headers) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        yield Stream(answer.aiter_lines())


def text_of(message: Message) -> str:
    text: str = message["result"]["content"][0]["text"]
    return text


ASKED: list[Message] = [
    QUESTION,
    {"method": "elicitation/create", "params": {"mode": "url", "message": "Sign in.", "url": "https://a.example/x"}},
    {"method": "sampling/createMessage", "params": SAMPLING},
    {"method": "roots/list"},
]
SAID: list[Message] = [
    GOOD,
    {"result": {"action": "decline"}},
    {"result": {"roots": [{"uri": "file:///home"}]}},
    {"result": {"role": "assistant", "content": {"type": "text", "text": "ok"}, "model": "m"}},
    {"result": {"action": "perhaps"}},
    {"result": {}},
    {"error": {"code": -1, "message": "no"}},
    {"error": {"code": -32601, "message": "no", "data": [1]}},
]
MALFORMED: list[Message] = [{"error": {"message": "no"}}, {"result": 5}, {}]


@requirement("FACE-144", "FACE-11")
async def test_questions_and_answers_are_the_same_on_both_ways() -> None:
    heard = []
    for direct in (True, False):
        told: list[Any] = []
        async with running_service(upstreams=[Asking()], settings={"mcp": {"direct": direct}}) as service:
            door = await Door(service, OLDER).open(**ABLE)
            for asked in ASKED:
                for said in SAID:
                    async with calling(door, "new__ask", **asked) as stream:
                        question = await stream.next()
                        id = question.pop("id")
                        assert isinstance(id, int)
                        taken = await door.post({"jsonrpc": "2.0", "id": id, **said})
                        if "elicitationId" in question.get("params", {}):
                            question["params"]["elicitationId"] = "ours"
                        told += [question, taken.status_code, taken.content, await stream.next()]
                        assert taken.headers["mcp-session-id"] == door.headers["Mcp-Session-Id"]
        heard.append(told)
    assert heard[0] == heard[1]
    assert any("Ann" in str(each) for each in heard[0])


@requirement("FACE-144")
@WAYS
async def test_a_malformed_answer_is_refused_and_the_question_stays_open(direct: bool) -> None:
    async with running_service(upstreams=[Asking()], settings={"mcp": {"direct": direct}}) as service:
        door = await Door(service, OLDER).open(**ABLE)
        async with calling(door, "new__ask") as stream:
            id = (await stream.next())["id"]
            for said in MALFORMED:
                assert (await door.post({"jsonrpc": "2.0", "id": id, **said})).status_code == 400, said
            # Half of a surrogate pair, which no text can hold, would be lost with a 202.
            for half in (
                {"id": id, "result": {"x": "\ud800"}},
                {"method": "notifications/x", "params": {"x": "\ud800"}},
            ):
                assert (await door.post({"jsonrpc": "2.0", **half})).status_code == 400, half
            progress = {"progressToken": id, "progress": 1}
            told = await door.post({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress})
            assert told.status_code == 202
            # An integer in a string is that integer; a second answer is nothing.
            for _ in range(2):
                assert (await door.post({"jsonrpc": "2.0", "id": str(id), **GOOD})).status_code == 202
            assert "Ann" in text_of(await stream.next())


@requirement("FACE-145")
@WAYS
async def test_a_question_that_nobody_waits_for_is_withdrawn_before_the_answer(direct: bool) -> None:
    asking = Asking()
    async with running_service(upstreams=[asking], settings={"mcp": {"direct": direct}}) as service:
        door = await Door(service, OLDER).open(**ABLE)
        async with calling(door, "new__leave") as stream:
            id = (await stream.next())["id"]
            asking.gone.set()
            withdrawn, result = await stream.next(), await stream.next()
        assert (withdrawn["method"], withdrawn["params"]["requestId"]) == ("notifications/cancelled", id)
        assert text_of(result) == "left"
        # Its answer comes too late, and is taken all the same.
        assert (await door.post({"jsonrpc": "2.0", "id": id, **GOOD})).status_code == 202


@requirement("FACE-145", "FACE-138")
@WAYS
async def test_a_call_that_is_cancelled_while_it_asks_ends_with_its_question(direct: bool) -> None:
    asking = Asking()
    async with running_service(upstreams=[asking], settings={"mcp": {"direct": direct}}) as service:
        door = await Door(service, OLDER).open(**ABLE)
        async with calling(door, "new__ask", "a") as stream:
            id = (await stream.next())["id"]
            cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "a"}}
            assert (await door.post(cancel)).status_code == 202
            said = [await stream.next()]
            while "error" not in said[-1]:
                said.append(await stream.next())
        *withdrawn, answer = said
        assert (answer["id"], answer["error"]["code"]) == ("a", -32800)
        assert [each["params"]["requestId"] for each in withdrawn] == [id]
        async with asyncio.timeout(BOUND_S):
            await asking.cancelled.wait()


@requirement("FACE-145", "FACE-13")
@WAYS
async def test_a_client_that_hangs_up_while_it_is_asked_ends_its_call(direct: bool) -> None:
    asking = Asking()
    async with running_service(upstreams=[asking], settings={"mcp": {"direct": direct}}) as service:
        door = await Door(service, OLDER).open(**ABLE)
        async with calling(door, "new__ask") as stream:
            await stream.next()
        async with asyncio.timeout(BOUND_S):
            await asking.cancelled.wait()
        assert (await door.ask("ping")).status_code == 200


@requirement("FACE-147")
async def test_requests_with_one_id_are_answered_each_on_its_own_connection() -> None:
    files = FileServer()
    async with running_service(upstreams=[files], settings={"mcp": {"direct": True}}) as service:
        door = await Door(service, OLDER).open(**ABLE)
        earlier = asyncio.create_task(door.call("files__slow", id=7))
        await running(files)
        later = asyncio.create_task(door.call("files__slow", id="7"))
        await running(files, 2)
        assert (await door.call("files__read_file", id=7, path="a")).json()["id"] == 7
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
        assert (await door.post(cancel)).status_code == 202
        (ended,) = messages_in(await later)
        assert (ended["id"], ended["error"]["code"]) == ("7", -32800)
        assert not earlier.done()
        # Now the earlier one is the only one.
        assert (await door.post(cancel)).status_code == 202
        assert messages_in(await earlier)[0]["error"]["code"] == -32800


class Runs:
    def __init__(self) -> None:
        self.told: list[str] = []

    def cancel(self) -> None:
        self.told.append("cancel")

    def end(self) -> None:
        self.told.append("end")


@requirement("FACE-147")
def test_a_session_ends_all_requests_with_one_id() -> None:
    identity = Identity("ann", key_id="k1")
    live = LiveSession("s", SealedText("", 0, "s"), McpSession("ann", OLDER, {}), identity, lambda: 0.0)
    one, other = Runs(), Runs()
    live.begin(1, one)
    live.begin("1", other)
    live.end()
    live.finish("1", other)
    assert live.takes(Addressed("cancel", 1), b"")
    live.finish(1, one)
    assert not live.takes(Addressed("cancel", 1), b"")
    assert (one.told, other.told) == (["end", "cancel"], ["end"])


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.mark.usefixtures("patient_stores")
@requirement("FACE-148", "FACE-144", "FACE-118")
async def test_nothing_about_a_direct_call_needs_the_sdk(redis: RedisServer, by_the_sdk: list[str]) -> None:
    files = FileServer()
    async with two_gates(redis.url, [[FileServer(), Asking()], [files, Asking()]], mcp={"direct": True}) as (a, b):
        door = await Door(a, OLDER).open(**ABLE)
        door.service = b
        async with calling(door, "new__ask") as stream:
            id = (await stream.next())["id"]
            door.service = a
            assert (await door.post({"jsonrpc": "2.0", "id": id, **GOOD})).status_code == 202
            assert "Ann" in text_of(await stream.next())
        door.service = b
        async with calling(door, "new__ask") as stream:
            id = (await stream.next())["id"]
            assert (await door.post({"jsonrpc": "2.0", "id": id, **GOOD})).status_code == 202
            assert "Ann" in text_of(await stream.next())
        call = asyncio.create_task(door.call("files__slow", id=7))
        await running(files)
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
        assert (await door.post(cancel)).status_code == 202
        await call
        # Too late, like the second answer.
        assert (await door.post(cancel)).status_code == 202
        assert (await door.post({"jsonrpc": "2.0", "id": id, **GOOD})).status_code == 202
        assert (await b.http.delete(door.path, headers=door.headers)).status_code == 200
        assert by_the_sdk == []
        assert (await door.ask("ping")).status_code == 404


class Noted(DirectDoor):
    answered: list[str]

    async def answer(self, asked: Any, channel: Any) -> Answer:
        self.answered.append(asked.method)
        return await super().answer(asked, channel)


@requirement("FACE-146", "FACE-143")
async def test_a_call_of_the_newer_era_asks_by_its_answer_and_goes_on_by_the_sdk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Noted, "answered", [], raising=False)
    monkeypatch.setattr("app.mcp.door.DirectDoor", Noted)
    heard = []
    for direct in (True, False):
        async with running_service(upstreams=[Asking()], settings={"mcp": {"direct": direct}}) as service:
            door = await Door(service, NEWER).open(**ABLE)
            asked = messages_in(await door.call("new__ask", **QUESTION))[-1]["result"]
            (key,) = asked["inputRequests"]
            state = asked.pop("requestState")
            params = {"name": "new__ask", "arguments": QUESTION, "requestState": state}
            given = {**params, "inputResponses": {key: GOOD["result"]}}
            forged = messages_in(await door.ask("tools/call", {**given, "arguments": {}}))[-1]
            done = messages_in(await door.ask("tools/call", given))[-1]
            again = messages_in(await door.ask("tools/call", given))[-1]
            heard.append([asked, forged, done, again])
    assert heard[0] == heard[1]
    asked, forged, done, again = heard[0]
    assert asked["resultType"] == "input_required"
    assert forged["error"]["code"] == -32602
    assert "Ann" in text_of(done)
    assert again == done, "the result is kept for a while"
    assert Noted.answered == ["tools/call"]


@requirement("FACE-135")
@ERAS
async def test_audit_records_and_access_lines_are_the_same_on_both_ways(
    era: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "wicketgate.http")
    kept: list[Any] = []
    for direct in (True, False):
        folder = tmp_path / str(direct)
        folder.mkdir()
        caplog.clear()
        settings = audited(folder, mcp={"direct": direct})
        async with running_service(upstreams=[FileServer(), Asking()], settings=settings) as service:
            for face, name, arguments in CALLS:
                door = await Door(service, era, face).open(**ABLE)
                await door.call(name, **arguments)
                await door.ask("tools/list")
            if era == OLDER:
                door = await Door(service, era).open(**ABLE)
                async with calling(door, "new__ask") as stream:
                    await door.post({"jsonrpc": "2.0", "id": (await stream.next())["id"], **GOOD})
                    await stream.next()
        lines = [line_of(record) for record in caplog.records if record.name == "wicketgate.http"]
        kept.append((Counter(lines), [record_of(each) for each in records(folder, "execute")]))
    (lines, audit), (lines_of_sdk, audit_of_sdk) = kept
    assert lines - lines_of_sdk == lines_of_sdk - lines == Counter()
    assert audit == audit_of_sdk
    assert lines
    assert audit


OF_ONE_RUN = {"timestamp", "call_id", "correlation_id", "trace_id", "duration_ms", "upstream_ms", "stages"}


def record_of(record: Mapping[str, Any]) -> Mapping[str, Any]:
    return {key: value for key, value in record.items() if key not in OF_ONE_RUN}


def line_of(record: logging.LogRecord) -> str:
    fields: Mapping[str, Any] = vars(record)["fields"]
    return f"{record.getMessage()} {json.dumps(record_of(fields))}"
