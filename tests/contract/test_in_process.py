"""The engine called in process gives what HTTP gives, event for event (CHAT-40)."""

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.contract.test_before_the_stream import BAD_BODIES
from tests.contract.test_tool_calls import execute
from tests.support.process import ROOT, outcome
from tests.support.requirement import requirement
from tests.support.script import ScriptModel, Turn, calls, says
from tests.support.service import BOUND_S, FileServer, chat_body, running_service
from wicketgate.access.identity import Identity
from wicketgate.config.settings import Settings
from wicketgate.engine.contract import InvalidRequest, parse_chat_request
from wicketgate.engine.events import encode
from wicketgate.errors import ContextOverflow, ProviderError
from wicketgate.gate import running_engine
from wicketgate.models.provider import TextDelta, ToolCall, Usage

OWNER = Identity("owner_1", ("memory:*", "tools:*"))

READ = execute("c1", "read_file", {"path": "a.md"})

SCRIPTS: dict[str, Callable[[], list[Turn]]] = {
    "text": lambda: [says("Hello ", "world", usage=Usage(10, 5))],
    "nothing": lambda: [says()],
    "cut at the limit": lambda: [says("cut", reason="length")],
    "filtered": lambda: [says("no", reason="content_filter")],
    "any characters": lambda: [says("a\r\nb", "data: x\n\n", "🜁", "\u2028", "\ud83d")],
    "a tool": lambda: [calls(READ, text="Let me see. ", usage=Usage(1, 2)), says("ok", usage=Usage(3, 4))],
    "a tool that fails": lambda: [calls(execute("c1", "fail")), says("so be it")],
    "a tool that breaks": lambda: [calls(execute("c1", "boom")), says("so be it")],
    "arguments that do not fit": lambda: [calls(execute("c1", "read_file", {"wrong": 1})), says("hm")],
    "arguments that are no object": lambda: [calls(ToolCall("c1", "tool_view", None, "[1]")), says("hm")],
    "a tool that is not there": lambda: [calls(ToolCall("c1", "rm", {}, "{}")), says("hm")],
    "a call without id": lambda: [calls(ToolCall("", "tool_browse", {"path": "/"}, "{}")), says("hm")],
    "browsing": lambda: [calls(ToolCall("c1", "tool_browse", {"query": "read a file"}, "{}")), says("hm")],
    "the model fails": lambda: [[[TextDelta("par")], ProviderError("sk-1 at /srv")]],
    "the model breaks": lambda: [[RuntimeError("a bug")]],
    "too long": lambda: [[ContextOverflow("too long")]],
    "no end": lambda: [[[TextDelta("par")]]],
    "too many turns": lambda: [calls(READ), calls(execute("c2", "read_file", {"path": "b"}))],
}


@requirement("CHAT-26", "CHAT-40")
async def test_every_script_gives_the_same_bytes_in_process_as_over_http() -> None:
    settings = {"engine": {"max_iterations": 2}}
    turns = [turn for script in SCRIPTS.values() for turn in script()]
    body = {name: chat_body(conversation_id=name) for name in SCRIPTS}
    over_http, in_process = {}, {}
    async with running_service(ScriptModel(*turns), [FileServer()], settings=settings) as service:
        for name in SCRIPTS:
            over_http[name] = (await service.http.post("/engine/chat", json=body[name])).content
    model = ScriptModel(*[turn for script in SCRIPTS.values() for turn in script()])
    async with running_engine(Settings.model_validate(settings), upstreams=[FileServer()], provider=model) as engine:
        for name in SCRIPTS:
            request = parse_chat_request(body[name])
            in_process[name] = b"".join([encode(event) async for event in engine.run(request, OWNER)])
    assert in_process == over_http
    ends = {stream.rpartition(b"event: ")[2].partition(b"\n")[0] for stream in in_process.values()}
    assert ends == {b"done", b"error"}


@requirement("CHAT-23", "CHAT-40")
async def test_a_body_that_http_refuses_is_refused_in_process_in_the_same_words() -> None:

    async with running_service(ScriptModel()) as service:
        for case, name, raw in BAD_BODIES:
            try:
                body: Any = json.loads(raw)
            except ValueError:
                continue
            if not isinstance(body, Mapping):
                continue
            answer = await service.http.post("/engine/chat", content=raw)
            with pytest.raises(InvalidRequest) as refused:
                parse_chat_request(body)
            assert str(refused.value) == answer.json()["message"], (case, name)


@requirement("LIB-19")
async def test_closing_the_generator_cancels_the_model() -> None:
    model = ScriptModel([[TextDelta("one")], asyncio.Event()])
    async with running_engine(Settings(), upstreams=[], provider=model) as engine, asyncio.timeout(BOUND_S):
        events = engine.run(parse_chat_request(chat_body()), OWNER)
        assert await anext(events) == TextDelta("one")
        await events.aclose()
        await model.aborted.wait()


@requirement("CHAT-40", "LIB-19")
async def test_the_example_of_the_guide_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "guide" / "chat.md").read_text("utf-8"), re.DOTALL)
    (example,) = [block for block in blocks if "running_engine" in block]
    code, out, err = await outcome("-c", example)
    assert (code, err) == (0, "")
    assert out.splitlines()[-1].startswith("done {'finish_reason': 'stop'")
