"""The scripted model in conversation: by itself, and through the real face."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.requirement import requirement
from wicketgate.access.identity import Identity
from wicketgate.catalog.card import ChoiceCard
from wicketgate.catalog.card_lines import browse_lines
from wicketgate.engine.contract import ChatMessage, ChatMetadata, ChatRequest
from wicketgate.engine.events import Done, ToolCallEvent
from wicketgate.engine.loop import Engine
from wicketgate.engine.turn import ModelWindow
from wicketgate.errors import ProviderError
from wicketgate.faces.gateway import GatewayFace
from wicketgate.fleet.member import MultiplexUpstream
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.models.provider import Finish, Message, ModelEvent, ModelRequest, ModelTool, TextDelta, ToolCall
from wicketgate.models.scripted.model import ScriptedModel, next_move
from wicketgate.tokens import shipped_token_counter
from wicketgate.upstreams.embedded import StubUpstream

OWNER = Identity("owner_1", ("tools:*",))
GATEWAY_TOOLS = tuple(ModelTool(name, "", {}) for name in ("tool_browse", "tool_execute", "tool_view"))
BIN = Path(sys.executable).parent


class Conversation:
    """Asks the model turn by turn; the test answers its calls, so that it stands in for every kind of upstream."""

    def __init__(self, question: str, *before: Message) -> None:
        self.messages: list[Message] = [*before, {"role": "user", "content": question}]

    async def turn(self) -> list[ModelEvent]:
        request = ModelRequest(tuple(self.messages), GATEWAY_TOOLS, "req_1")
        return [event async for batch in ScriptedModel().stream(request) for event in batch]

    async def call(self) -> tuple[str, dict[str, Any]]:
        """The call that this turn makes."""
        call, finish = await self.turn()
        assert isinstance(call, ToolCall)
        assert isinstance(finish, Finish)
        assert finish.reason == "tool_calls"
        assert json.loads(call.raw) == call.arguments
        function = {"name": call.name, "arguments": call.raw}
        self.messages.append(
            {"role": "assistant", "content": "", "tool_calls": [{"id": call.id, "function": function}]}
        )
        assert call.arguments is not None
        return call.name, call.arguments

    def answer(self, result: object) -> None:
        call_id = self.messages[-1]["tool_calls"][0]["id"]
        content = result if isinstance(result, str) else json.dumps(result)
        self.messages.append({"role": "tool", "tool_call_id": call_id, "content": content})

    async def text(self) -> str:
        """The answer of this turn, which must be one."""
        *deltas, finish = await self.turn()
        assert isinstance(finish, Finish)
        assert finish.reason == "stop"
        assert all(isinstance(delta, TextDelta) for delta in deltas)
        return "".join(delta.content for delta in deltas if isinstance(delta, TextDelta))


def card(name: str, *, namespace: str = "shop", side_effects: bool = False) -> ChoiceCard:
    tool_id = f"{namespace}:{name}#12345678"
    return ChoiceCard(tool_id, name, "It does.", ("mcp",), "tool", namespace, True, side_effects=side_effects)


def refused(expected: Mapping[str, str], *errors: tuple[str, str], **details: Any) -> dict[str, Any]:
    listed = [{"path": path, "message": message} for path, message in errors]
    return {"error": "ARGS_INVALID", "message": "no", "details": {"errors": listed, "expected": expected, **details}}


def page(text: str, size_bytes: int = 0) -> str:
    """The page of a result; of *size_bytes* if it does not hold all."""
    handle = "text:shop:t#12345678:0011223344556677"
    return f"{text}\n[artifact {handle} (text/plain, {size_bytes:,} bytes)]" if size_bytes else text


async def started(question: str, *cards: ChoiceCard, hint: str = "") -> Conversation:
    """Goes as far as the answer to the browse."""
    conversation = Conversation(question)
    assert await conversation.call() == ("tool_browse", {"query": question})
    conversation.answer(browse_lines(cards, hint))
    return conversation


async def taught(question: str, expected: Mapping[str, str], *cards: ChoiceCard) -> Conversation:
    """Goes as far as the refusal of the first call, which runs nothing."""
    conversation = await started(question, *(cards or [card("get_order")]))
    name, _ = await conversation.call()
    assert name == "tool_execute"
    conversation.answer(refused(expected, ("$.arguments_wanted", "is not an argument here")))
    return conversation


# The dialogue


@requirement("CHAT-85")
@pytest.mark.parametrize("greeting", ["hello", "Hi there!", "help", "", "What can you do?"])
async def test_a_greeting_is_answered_without_a_call_and_says_that_this_is_a_script(greeting: str) -> None:
    text = await Conversation(greeting).text()
    assert "scripted demo model" in text
    assert "LLM" in text


async def test_without_the_gateway_tools_it_explains_itself() -> None:
    request = ModelRequest(({"role": "user", "content": "list the orders"},), (), "req_1")
    events = [event async for batch in ScriptedModel().stream(request) for event in batch]
    assert isinstance(events[-1], Finish)
    assert "scripted demo model" in "".join(event.content for event in events if isinstance(event, TextDelta))


@requirement("CHAT-85")
async def test_no_card_is_no_tool_and_nothing_is_made_up() -> None:
    conversation = await started("will it rain tomorrow")
    assert "no tool" in await conversation.text()


async def test_arguments_given_in_the_message_go_out_at_once() -> None:
    conversation = await started('get order {"order_id": "ord_0001"}', card("get_order"))
    expected = {"tool_id": "shop:get_order#12345678", "args": {"order_id": "ord_0001"}}
    assert await conversation.call() == ("tool_execute", expected)


async def test_a_refused_dry_run_teaches_the_arguments_and_the_answer_says_what_was_run() -> None:
    conversation = await taught("get order ord_0012", {"number": "string matching ^ord_[0-9]{4,}$, required: Id."})
    expected = {"tool_id": "shop:get_order#12345678", "args": {"number": "ord_0012"}}
    assert await conversation.call() == ("tool_execute", expected)
    conversation.answer(page('{"id": "ord_0012"}'))
    text = await conversation.text()
    assert text.startswith("id ord_0012.\n\n")
    assert "Scripted demo model" in text
    assert 'shop:get_order#12345678 with {"number":"ord_0012"}' in text


@requirement("OPS-568")
async def test_arguments_that_a_browse_names_are_sent_at_once() -> None:
    hint = "get_order(number: string matching ^ord_[0-9]{4,}$)"
    conversation = await started("get order ord_0012", card("get_order"), hint=hint)
    expected = {"tool_id": "shop:get_order#12345678", "args": {"number": "ord_0012"}}
    assert await conversation.call() == ("tool_execute", expected)
    # What the message does not give is asked for as before.
    conversation = await started("get that order", card("get_order"), hint=hint)
    assert (await conversation.call())[1]["dry_run"] is True


async def test_a_value_whose_name_is_not_known_is_asked_for_in_a_dry_run() -> None:
    conversation = await started("show the last 5 orders", card("list_orders"))
    _, arguments = await conversation.call()
    assert arguments["dry_run"] is True
    conversation.answer(refused({"limit": "integer 1..100, default 20"}))
    expected = {"tool_id": "shop:list_orders#12345678", "args": {"limit": 5}}
    assert await conversation.call() == ("tool_execute", expected)


async def test_a_tool_that_takes_any_arguments_is_run_after_the_dry_run() -> None:
    conversation = await started("report the sales of 2026", card("report_sales"))
    _, arguments = await conversation.call()
    assert arguments["dry_run"] is True
    conversation.answer({"status": "ok", "summary": "valid", "facts": [], "artifacts": [], "dry_run": True})
    assert await conversation.call() == ("tool_execute", {"tool_id": "shop:report_sales#12345678", "args": {}})


async def test_a_missing_argument_is_named_with_an_example_and_nothing_runs() -> None:
    conversation = await started("get order", card("get_order"))
    await conversation.call()
    expected = {"order_id": "string matching ^ord_[0-9]{4,}$, required: Order id."}
    conversation.answer(refused(expected, example={"order_id": "ord_0012"}))
    text = await conversation.text()
    assert "did not run shop:get_order#12345678" in text
    assert "order_id" in text
    assert '{"order_id":"ord_0012"}' in text


async def test_arguments_that_are_refused_are_reported_and_not_sent_again() -> None:
    conversation = await started('set numbers {"n": 0}', card("set_numbers"))
    await conversation.call()
    conversation.answer(refused({"n": "integer 1.., required"}, ("$.n", "is too small")))
    text = await conversation.text()
    assert "failed (ARGS_INVALID)" in text
    assert '{"n":0}' in text


async def test_a_known_tool_that_has_all_it_needs_is_run_at_once() -> None:
    others = [card(name, namespace="git") for name in ("git_diff", "git_log")]
    commit = card("git_commit", namespace="git", side_effects=True)
    conversation = await started("last 3 commits of this repository", commit, card("list_orders"), *others)
    args = {"repo_path": ".", "max_count": 3}
    assert await conversation.call() == ("tool_execute", {"tool_id": "git:git_log#12345678", "args": args})
    conversation.answer(page("Commit: 1"))
    assert "git:git_log#12345678" in await conversation.text()


@requirement("BROWSE-22")
async def test_cards_in_the_order_of_a_session_do_not_make_another_tool_the_best() -> None:
    seen, best = card("list_things"), card("list_orders")
    conversation = await started("orders", seen, best, hint=f"Best for this query: {best.id}, {seen.id}.")
    _, arguments = await conversation.call()
    assert arguments["tool_id"] == best.id


async def test_a_tool_with_side_effects_is_taken_only_when_the_message_has_its_verb_and_asks_nothing() -> None:
    destroys = card("cancel_order", side_effects=True)
    conversation = await started("cancel my order", destroys)
    _, arguments = await conversation.call()
    assert (arguments["tool_id"], arguments["dry_run"]) == (destroys.id, True)
    for question in ("my orders", "how can I cancel an order?"):
        conversation = await started(question, destroys, card("list_orders"))
        _, arguments = await conversation.call()
        assert arguments["tool_id"] == "shop:list_orders#12345678"
        assert "no tool" in await (await started(question, destroys)).text()


async def test_a_text_larger_than_the_summary_is_viewed_and_answered_from() -> None:
    conversation = await started('export orders {"a": 1}', card("export_orders"))
    await conversation.call()
    conversation.answer(page("id,customer\n[…", 127_240))
    selector = {"type": "head", "chars": 4000}
    handle = "text:shop:t#12345678:0011223344556677"
    assert await conversation.call() == ("tool_view", {"handle": handle, "selector": selector})
    conversation.answer('id,customer\nord_0001,cust_0012\n\n[total: 127,240; next: {"type":"head","start":31}]')
    text = await conversation.text()
    assert text.startswith("id,customer\nord_0001,cust_0012\n")
    assert "127,240 characters" in text
    assert handle in text


async def test_a_view_that_fails_is_reported_and_the_summary_still_shown() -> None:
    conversation = await started('export orders {"a": 1}', card("export_orders"))
    await conversation.call()
    conversation.answer(page("id,customer", 127_240))
    await conversation.call()
    conversation.answer({"error": "VIEW_FAILED", "message": "No such artifact.", "path": "", "retryable": False})
    text = await conversation.text()
    assert text.startswith("id,customer\n")
    assert "VIEW_FAILED" in text


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ("[the tool reports an error]\nThere is no order ord_9999.", "There is no order ord_9999."),
        ({"error": "UPSTREAM_TIMEOUT", "message": "no answer", "path": "", "retryable": True}, "UPSTREAM_TIMEOUT"),
        ("tool_execute timed out after 30s", "tool_execute timed out after 30s"),
    ],
)
async def test_a_failure_is_reported_as_it_is(result: object, said: str) -> None:
    conversation = await started('get order {"order_id": "ord_9999"}', card("get_order"))
    await conversation.call()
    conversation.answer(result)
    text = await conversation.text()
    assert said in text
    assert "failed" in text
    assert "Scripted demo model" in text


async def test_a_failed_browse_ends_the_turn_with_its_reason() -> None:
    conversation = Conversation("list orders")
    await conversation.call()
    conversation.answer({"error": "ARGS_INVALID", "message": "query must be a string.", "path": "", "retryable": False})
    assert "query must be a string." in await conversation.text()


async def test_only_what_came_after_the_last_question_counts() -> None:
    first = await started("get order ord_0001", card("get_order"))
    second = Conversation("list suppliers", *first.messages)
    assert await second.call() == ("tool_browse", {"query": "list suppliers"})


async def test_call_ids_are_never_given_twice_in_a_conversation() -> None:
    conversation = await started('get order {"order_id": "ord_0001"}', card("get_order"))
    await conversation.call()
    conversation.answer(page("done"))
    again = Conversation("list suppliers", *conversation.messages)
    await again.call()
    ids = [call["id"] for message in again.messages for call in message.get("tool_calls", ())]
    assert len(ids) == len(set(ids)) == 3


@requirement("CHAT-85")
async def test_an_answer_comes_in_groups_of_words_that_join_to_itself_with_words_as_usage() -> None:
    request = ModelRequest(({"role": "user", "content": "hello"},), GATEWAY_TOOLS, "req_1")
    batches = [batch async for batch in ScriptedModel().stream(request)]
    texts = [event.content for [event] in batches[:-1] if isinstance(event, TextDelta)]
    [finish] = batches[-1]
    assert isinstance(finish, Finish)
    assert finish.usage is not None
    assert len(texts) == len(batches) - 1 > 3
    assert all(len(text.split()) <= 6 for text in texts)
    assert (finish.usage.prompt_tokens, finish.usage.completion_tokens) == (1, len("".join(texts).split()))


async def test_a_tool_message_that_no_face_wrote_is_a_provider_error() -> None:
    conversation = Conversation("list orders")
    await conversation.call()
    conversation.answer({"cards": ["get_order"]})
    with pytest.raises(ProviderError):
        await conversation.turn()


@given(st.text(max_size=300))
def test_any_message_gets_a_call_or_an_answer(text: str) -> None:
    first = next_move([{"role": "user", "content": text}], {"tool_browse", "tool_execute"})
    assert first == next_move([{"role": "user", "content": text}], {"tool_browse", "tool_execute"})


# Through the real face. With real servers: tests/e2e/test_demo.py.


async def test_a_wrong_word_for_what_exists_is_answered_with_what_is_missing() -> None:
    tool = {
        "name": "cancel_order",
        "description": "Cancel an order.",
        "inputSchema": {
            "type": "object",
            "properties": {"order_id": {"type": "string", "pattern": "^ord_[0-9]{4}$"}},
            "required": ["order_id"],
        },
    }
    upstream = StubUpstream([tool], name="shop")
    runtime = ProxyRuntime(MultiplexUpstream([upstream]))
    await runtime.refresh_catalog()
    engine = Engine(ScriptedModel(), GatewayFace(runtime), ModelWindow(128_000, 4_096, shipped_token_counter()))
    messages = [ChatMessage(role="user", content="cancel order 12")]
    request = ChatRequest(messages=messages, metadata=ChatMetadata(correlation_id="req_1"))
    events = [event async for event in engine.run(request, OWNER)]
    assert isinstance(events[-1], Done)
    text = "".join(event.content for event in events if isinstance(event, TextDelta))
    assert "order_id" in text
    assert "did not run" in text
    assert upstream.calls == []
    assert [each.tool for each in events if isinstance(each, ToolCallEvent)] == ["tool_browse", "tool_execute"]
