"""The parts of a run that are kept between its turns, and the runs that are gone on with (CHAT-123, CHAT-124)."""

import json
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from tests.contract.test_tool_calls import execute
from tests.support.requirement import requirement
from tests.support.script import ScriptModel, Turn, calls, says
from tests.support.service import FileServer, chat_body
from wicketgate.access.identity import HashedKey, Identity, hash_key
from wicketgate.config.settings import Settings
from wicketgate.engine.checkpoint import Fate, Recorder, RunState, fate, read_parts
from wicketgate.engine.contract import ChatRequest, call_context
from wicketgate.engine.events import Done, ErrorEvent, Event, ToolOutput, encode
from wicketgate.engine.loop import Engine
from wicketgate.gate import Gate
from wicketgate.gateway.options import TokenCost
from wicketgate.models.provider import Finish, Kept, Message, ToolCall, Usage

MOST = 1_000_000
ALICE = Identity("alice", ("tools:*", "memory:*"), "key1")
GOOD = HashedKey("key1", hash_key("x"), ALICE)
REQUEST = ChatRequest.model_validate(chat_body("hello \U0001f600 \u2028", conversation_id="talk"))
CONTEXT = call_context(REQUEST, ALICE, "10.0.0.1", {"traceparent": "00-1-1-01"})
ASSISTANT: Message = {
    "role": "assistant",
    "content": "I look.",
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "t", "arguments": "{}"}}],
    "kept": Kept("anthropic/m", {"thinking": [{"type": "thinking", "signature": "x"}]}, "hm"),
}
RESULT: Message = {"role": "tool", "content": "found", "tool_call_id": "c1"}
OUTPUT = encode(ToolOutput("c1", "x"))
ENDS = [encode(Done("stop", Usage())), encode(ErrorEvent("provider_error", "x"))]


@requirement("ACCESS-118", "ACCESS-124")
def test_a_run_of_a_token_is_gone_on_with_under_the_same_identity_and_older_parts_are_read() -> None:
    ann = Identity("corp:ann", ("tools:*",), "issuer:corp", ("admin",), '{"unit":"it"}', "corp", 1_800_000_000.0)
    for identity in (ann, ALICE):
        first = Recorder(MOST).first(REQUEST, replace(CONTEXT, identity=identity), "continue")
        found = read_parts([first], MOST).context.identity
        assert (found, found.key_id, found.claims, found.expires_at) == (
            identity,
            identity.key_id,
            identity.claims,
            identity.expires_at,
        )
    older = json.loads(first)
    del older["token"]
    assert read_parts([json.dumps(older).encode()], MOST).context.identity == ALICE


@requirement("CHAT-124")
@pytest.mark.parametrize(
    ("last", "last_event", "kept_until", "unfinished", "shown", "expected"),
    [
        # Waiting for the first word of all, and of a further turn.
        (0, None, 0, [], 0, "goes_on"),
        (7, OUTPUT, 7, [], 0, "goes_on"),
        (7, OUTPUT, 7, [], 7, "goes_on"),
        # Something of the turn was shown: words, calls, or some of their results.
        (1, OUTPUT, 0, [], 0, "lost"),
        (9, OUTPUT, 7, [], 0, "lost"),
        # A reader has seen what the store has not taken.
        (7, OUTPUT, 7, [], 8, "lost"),
        # A call may have had its effect.
        (7, OUTPUT, 7, ["c1"], 0, "lost"),
        (0, None, 0, ["c1"], 0, "lost"),
        # Nothing was kept, or the events of the part are not there.
        (0, None, None, [], 0, "lost"),
        (7, OUTPUT, None, [], 0, "lost"),
        (7, OUTPUT, 8, [], 0, "lost"),
        # It was over, whatever else is missing.
        (7, ENDS[0], None, [], 0, "over"),
        (7, ENDS[1], 6, ["c1"], 9, "over"),
    ],
)
def test_a_run_goes_on_only_where_nothing_was_shown_of_its_turn_and_no_call_is_open(
    last: int, last_event: bytes | None, kept_until: int | None, unfinished: Sequence[str], shown: int, expected: Fate
) -> None:
    assert fate(last, last_event, kept_until, unfinished, shown) == expected


@requirement("CHAT-123")
def test_a_run_that_has_only_begun_is_read_as_its_request() -> None:
    part = Recorder(MOST).first(REQUEST, CONTEXT, "continue")
    saved = read_parts([part], MOST)
    assert isinstance(saved.start, ChatRequest)
    assert saved.start.messages == REQUEST.messages
    assert (saved.context, saved.context.identity.key_id) == (replace(CONTEXT, marks=saved.context.marks), "key1")
    assert saved.on_disconnect == "continue"


@requirement("CHAT-123")
def test_turns_are_read_as_they_were_written_each_part_with_what_is_new() -> None:
    recorder = Recorder(MOST)
    first = recorder.first(REQUEST, CONTEXT, "cancel")
    history: list[Message] = [{"role": "user", "content": REQUEST.messages[0].content}, ASSISTANT, RESULT]
    one = RunState(history, ["c1"], Usage(5, 6, 1), TokenCost(7, 8), 1, ("apr_1",), False)
    part = recorder.next(one)
    two = replace(one, messages=[*history, ASSISTANT, {**RESULT, "content": "again"}], turns=2, waiting=True)
    last = recorder.next(two)
    assert len(json.loads(part)["messages"]) == len(json.loads(last)["messages"]) == 2
    for state, parts in ((one, [first, part]), (two, [first, part, last])):
        saved = read_parts(parts, MOST)
        assert saved.start == replace(state, call_ids=frozenset(state.call_ids))
    # The process that goes on writes further parts behind them; decisions change what came before.
    changed = [{**history[0], "content": "other"}, *two.messages[1:], RESULT]
    further = saved.recorder.next(replace(two, messages=changed, turns=3))
    anew = read_parts([first, part, last, further], MOST).start
    assert isinstance(anew, RunState)
    assert (anew.messages, anew.turns) == (changed, 3)


@requirement("CHAT-123")
def test_a_run_with_more_than_may_be_kept_has_no_further_part() -> None:
    first = Recorder(MOST).first(REQUEST, CONTEXT, "cancel")
    recorder = Recorder(len(first) + 50)
    assert recorder.first(REQUEST, CONTEXT, "cancel") == first
    assert recorder.next(RunState([RESULT], [])) == recorder.next(RunState([], [])) == b""
    assert Recorder(len(first) - 1).first(REQUEST, CONTEXT, "cancel") == b""
    odd = Recorder(MOST)
    assert odd.next(RunState([{**ASSISTANT, "kept": Kept("m", {"x": object()}, "")}], [])) == b""
    assert odd.next(RunState([RESULT], [])) == b"", "a part would be missing"


@requirement("CHAT-124")
def test_parts_that_are_not_whole_are_refused() -> None:
    recorder = Recorder(MOST)
    first = recorder.first(REQUEST, CONTEXT, "cancel")
    one = recorder.next(RunState([ASSISTANT, RESULT], ["c1"]))
    two = recorder.next(RunState([ASSISTANT, RESULT, ASSISTANT, RESULT], ["c1"]))
    decided = ChatRequest.model_validate(chat_body(approvals=[{"id": "apr_1", "decision": "approve"}]))
    begun = Recorder(MOST).first(decided, CONTEXT, "cancel")
    for parts in ([], [one], [first, two], [b"{}"], [b"[]"], [b"not json"], [first, b"{}"], [begun]):
        with pytest.raises(ValueError):
            read_parts(parts, MOST)


async def collect(engine: Engine, begin: Any, states: list[bytes], recorder: Recorder) -> list[Event]:
    events: list[Event] = []
    pending: list[RunState] = []
    async with aclosing(engine.batches(begin, CONTEXT, keep=pending.append)) as batches:
        async for batch in batches:
            events += batch
            if pending:
                states.append(recorder.next(pending.pop()))
    return events


@requirement("CHAT-123", "CHAT-125")
@pytest.mark.parametrize("taken_after", [0, 1, 2])
async def test_a_run_that_is_gone_on_with_asks_the_model_the_very_same_and_ends_the_same(taken_after: int) -> None:
    kept = Kept("m", {"signature": "s"}, "hm")
    turns: list[Turn] = [
        calls(execute("c1", "read_file", {"path": "a"}), text="One.", usage=Usage(1, 2)),
        [
            [
                ToolCall("c1", "tool_browse", {"query": "read file"}, '{"query":"read file"}'),
                Finish("tool_calls", Usage(3, 4), kept),
            ]
        ],
        says("ok", usage=Usage(5, 6)),
    ]
    model, again = ScriptModel(*turns), ScriptModel(*turns[taken_after:])
    async with Gate(Settings(), upstreams=[FileServer()], provider=model, keys=[GOOD]) as gate:
        await gate.wait_ready()
        recorder = Recorder(MOST)
        parts = [recorder.first(REQUEST, CONTEXT, "cancel")]
        whole = await collect(gate.engine, REQUEST, parts, recorder)
        assert len(parts) == 3
        saved = read_parts(parts[: taken_after + 1], MOST)
        gate.engine.provider = again
        rest = await collect(gate.engine, saved.start, [], saved.recorder)
    assert [request.messages for request in again.requests] == [
        request.messages for request in model.requests[taken_after:]
    ]
    assert whole[-len(rest) :][-1] == rest[-1]
    assert isinstance(rest[-1], Done)
    assert rest[-1].usage == Usage(9, 12)


@requirement("CHAT-53", "CHAT-123")
@pytest.mark.parametrize(
    ("state", "reason"), [({"turns": 2}, "max_iterations"), ({"waiting": True}, "approval_required")]
)
async def test_a_run_that_had_only_its_end_to_say_says_it(state: dict[str, Any], reason: str) -> None:
    model = ScriptModel()
    settings = Settings.model_validate({"engine": {"max_iterations": 2}})
    async with Gate(settings, upstreams=[FileServer()], provider=model, keys=[GOOD]) as gate:
        await gate.wait_ready()
        left = RunState([{"role": "user", "content": "x"}], [], Usage(1, 2), **state)
        events = [event async for batch in gate.engine.batches(left, CONTEXT) for event in batch]
    assert events == [Done(reason, Usage(1, 2))]  # type: ignore[arg-type]
    assert model.requests == []
