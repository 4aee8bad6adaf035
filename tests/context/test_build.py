import copy
import json
from collections.abc import Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.context.conversations import (
    FourCharacters,
    assistant,
    conversations,
    page,
    pieces,
    step,
    system,
    told,
    user,
)
from tests.support.requirement import requirement
from wicketgate.context.build import Built, ChatMessage, CountedTexts, build, message_tokens, shrink
from wicketgate.errors import ContextOverflow
from wicketgate.tokens import shipped_token_counter

TOKENS = FourCharacters()
HANDLE = "text:shop:orders.list#12345678:0123456789abcdef"
rooms = st.integers(0, 1_500)


def size(messages: Sequence[ChatMessage]) -> int:
    return sum(message_tokens(message, TOKENS) for message in messages)


def built(messages: Sequence[ChatMessage], room: int) -> Built:
    """The part that is shown; a history that cannot fit is none of the test's business."""
    try:
        return build(messages, room, TOKENS)
    except ContextOverflow:
        assume(False)
        raise


def must_stay(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """System messages, the last user message, and the latest step of the turn that runs."""
    last_user = max((i for i, message in enumerate(messages) if message["role"] == "user"), default=-1)
    steps = [i for i, message in enumerate(messages) if message["role"] == "assistant" and i > last_user]
    latest = steps[-1] if steps else len(messages)
    return [m for i, m in enumerate(messages) if m["role"] == "system" or i == last_user or i >= latest]


def shortest(message: ChatMessage) -> ChatMessage:
    short = {**message, "content": shrink(message["content"])} if message["role"] == "tool" else message
    return min(message, short, key=lambda m: message_tokens(m, TOKENS))


@requirement("CHAT-79")
@given(conversations(), rooms)
def test_it_is_never_above_the_room_and_knows_its_size(messages: list[ChatMessage], room: int) -> None:
    shown = built(messages, room)
    assert shown.tokens == size(shown.messages) <= room


@requirement("CHAT-79")
@given(conversations(), rooms)
def test_it_overflows_only_if_what_must_stay_does_not_fit(messages: list[ChatMessage], room: int) -> None:
    needed = size([shortest(message) for message in must_stay(messages)])
    try:
        build(messages, room, TOKENS)
    except ContextOverflow:
        # A result is not shrunk for a saving of fewer than 16 tokens.
        assert needed + 16 * sum(m["role"] == "tool" for m in must_stay(messages)) > room
    else:
        assert needed <= room


@requirement("CHAT-81")
@given(conversations(), rooms)
def test_calls_and_results_stay_and_go_together(messages: list[ChatMessage], room: int) -> None:
    waiting: list[str] = []
    for message in built(messages, room).messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
        else:
            assert not waiting
            waiting = [call["id"] for call in message.get("tool_calls", ())]
    assert not waiting


@requirement("CHAT-81")
@given(conversations(), rooms)
def test_system_messages_the_last_user_message_and_the_latest_step_stay(messages: list[ChatMessage], room: int) -> None:
    shown = built(messages, room).messages
    kept = must_stay(messages)
    assert set(pieces(kept)) <= set(pieces(shown))
    untouched = [message for message in kept if message["role"] in ("system", "user")]
    assert all(any(message is other for other in shown) for message in untouched)


@requirement("CHAT-81")
@given(conversations(), rooms)
def test_the_order_is_kept(messages: list[ChatMessage], room: int) -> None:
    remaining = iter(pieces(messages))
    assert all(piece in remaining for piece in pieces(built(messages, room).messages))


@requirement("CHAT-82")
@given(conversations(), rooms)
def test_it_depends_on_the_history_alone_and_leaves_it_as_it_is(messages: list[ChatMessage], room: int) -> None:
    before = copy.deepcopy(messages)
    first = built(messages, room)
    assert messages == before
    assert built(before, room) == first


@requirement("CHAT-82")
@given(conversations(), rooms)
def test_what_was_built_is_built_again_unchanged(messages: list[ChatMessage], room: int) -> None:
    shown = built(messages, room).messages
    assert build(shown, room, TOKENS).messages == shown


@requirement("CHAT-79")
@given(conversations())
def test_nothing_changes_while_it_fits(messages: list[ChatMessage]) -> None:
    shown = build(messages, size(messages) + 7, TOKENS, reserve_tokens=7)
    assert all(after is before for after, before in zip(shown.messages, messages, strict=True))
    assert (shown.dropped_turns, shown.dropped_steps, shown.shrunk_results) == (0, 0, 0)


@requirement("CARD-30")
@given(conversations(), conversations(), rooms)
def test_what_was_shown_is_shown_again_byte_for_byte_while_what_follows_fits(
    earlier: list[ChatMessage], later: list[ChatMessage], room: int
) -> None:
    shown = built(earlier, room)
    ends = [i for i in range(len(later) + 1) if later[i:][:1] == [] or later[i]["role"] != "tool"]
    following = later[: max(end for end in ends if shown.tokens + size(later[:end]) <= room)]
    assert build([*earlier, *following], room, TOKENS).messages == (*shown.messages, *following)


@requirement("CARD-30")
def test_a_prefix_lasts_for_several_turns() -> None:
    tokens = CountedTexts(shipped_token_counter())
    messages = [system("Be brief."), user("Go through all the orders.")]
    previous: tuple[ChatMessage, ...] = ()
    changes = 0
    for turn in range(100):
        shown = build(messages, 8_000, tokens).messages
        changes += shown[: len(previous)] != previous
        previous = shown
        messages += step({f"c{turn}": page(f"order {turn} is on its way to Oslo. " * 20, HANDLE)})
    assert len(shown) < len(messages)
    assert 0 < changes <= 12


@requirement("CHAT-80")
def test_long_results_are_shrunk_first_and_the_oldest_of_them_first() -> None:
    long = "No. 17 shipped. " * 50
    messages = [
        user("Which orders are late?"),
        *step({"c1": page(long, HANDLE)}, tool="tool_execute"),
        assistant("17 is."),
        user("And of last year?"),
        *step({"c2": page(long, HANDLE)}, tool="tool_execute"),
        *step({"c3": page(long, HANDLE)}),
    ]
    shown = build(messages, 600, TOKENS)
    assert told(shown.messages) == [
        "user: Which orders are late?",
        "assistant: 1",
        "tool: " + shrink(page(long, HANDLE)),
        "assistant: 17 is.",
        "user: And of last year?",
        "assistant: 1",
        "tool: " + shrink(page(long, HANDLE)),
        "assistant: 1",
        "tool: " + page(long, HANDLE),
    ]
    assert (shown.shrunk_results, shown.dropped_turns, shown.dropped_steps) == (2, 0, 0)


@requirement("CHAT-80")
def test_then_the_oldest_turns_go_whole_and_the_first_that_stays_says_so() -> None:
    messages = [
        system("Be brief."),
        user("One. " * 30),
        *step({"c1": "ok"}),
        assistant("Done."),
        user("Two."),
        assistant("Done too. " * 12),
        user("Three."),
        assistant("And this."),
        user("What was it all about?"),
    ]
    shown = build(messages, 125, TOKENS)
    assert told(shown.messages) == [
        "system: Be brief.",
        "user: [Earlier messages left out to save room: 4]\nTwo.",
        "assistant: " + "Done too. " * 12,
        "user: Three.",
        "assistant: And this.",
        "user: What was it all about?",
    ]
    assert shown.dropped_turns == 1


def test_the_last_user_message_is_not_touched_even_to_say_what_is_missing() -> None:
    messages = [user("One. " * 40), assistant("Done."), user("Two. " * 40)]
    assert told(build(messages, 80, TOKENS).messages) == ["user: " + "Two. " * 40]


@requirement("CHAT-80")
def test_a_running_turn_loses_its_oldest_steps_last_and_says_how_many_calls_that_were() -> None:
    messages = [user("Count them all."), *(m for n in range(9) for m in step({f"c{n}": f"{n} found"}))]
    shown = build(messages, 150, TOKENS)
    assert told(shown.messages) == [
        "user: Count them all.",
        "assistant: 1",
        "tool: [Earlier tool calls of this task left out to save room: 4]\n4 found",
        *(line for n in range(5, 9) for line in ("assistant: 1", f"tool: {n} found")),
    ]
    assert shown.dropped_steps == 4


def test_the_line_about_missing_calls_stays_with_a_result_that_is_shrunk_later() -> None:
    long = page("long " * 170, HANDLE)
    messages = [user("Go on."), *step({"c1": "x" * 450}), *step({"c2": "x" * 450}), *step({"c3": long})]
    line = "[Earlier tool calls of this task left out to save room: 2]"
    assert told(build(messages, 440, TOKENS).messages)[1:] == ["assistant: 1", f"tool: {line}\n{long}"]
    messages += step({"c4": "x" * 700})
    assert told(build(messages, 440, TOKENS).messages)[1:3] == ["assistant: 1", f"tool: {line}\n{shrink(long)}"]


def test_each_turn_counts_its_own_missing_calls() -> None:
    task = [m for n in range(9) for m in step({f"c{n}": f"{n} found"})]
    first = build([user("Count."), *task], 150, TOKENS)
    second = build([user("Count."), *task, user("Again."), *task], 150, TOKENS)
    assert (first.dropped_steps, second.dropped_steps - first.dropped_steps) == (4, 4)
    assert told(second.messages)[:3] == ["user: Again.", "assistant: 1", told(first.messages)[2]]


def test_a_result_that_the_model_has_not_seen_stays_whole_and_older_ones_make_room() -> None:
    news = "news " * 60
    messages = [user("Read on."), *step({"c1": page("old " * 200, HANDLE)}), *step({"c2": news})]
    shown = told(build(messages, 280, TOKENS).messages)
    assert shown[2:] == ["tool: " + shrink(page("old " * 200, HANDLE)), "assistant: 1", f"tool: {news}"]


def test_a_new_result_that_can_never_fit_is_shrunk_alone_and_the_rest_stays() -> None:
    messages = [user("Read it all."), *step({"c1": "short", "c2": page("long " * 400, HANDLE)})]
    shown = build(messages, 200, TOKENS).messages
    assert told(shown)[:3] == ["user: Read it all.", "assistant: 2", "tool: short"]
    assert shown[3]["content"] == shrink(page("long " * 400, HANDLE))


def test_of_the_new_results_the_longest_is_shrunk_first() -> None:
    messages = [user("Read."), *step({"c1": page("one " * 120, HANDLE), "c2": page("two " * 200, HANDLE)})]
    shown = build(messages, 330, TOKENS)
    assert told(shown.messages)[2] == "tool: " + page("one " * 120, HANDLE)
    assert shown.shrunk_results == 1


def test_a_result_that_would_hardly_be_shorter_stays_and_the_turn_goes() -> None:
    nearly = page("y" * 200, "text:a")
    assert 0 < len(nearly) - len(shrink(nearly)) < 64
    messages = [user("One."), *step({"c1": nearly}), assistant("Yes."), user("Two."), assistant("No."), user("So?")]
    shown = build(messages, size(messages) - 1, TOKENS)
    assert (shown.shrunk_results, shown.dropped_turns) == (0, 1)


@requirement("CHAT-79")
@pytest.mark.parametrize(
    "messages",
    [
        [user("long " * 400)],
        [system("long " * 400), user("hi")],
        [user("hi"), {**step({"c1": "ok"})[0], "content": "long " * 400}, step({"c1": "ok"})[1]],
    ],
)
def test_what_must_stay_and_does_not_fit_is_an_overflow(messages: list[ChatMessage]) -> None:
    with pytest.raises(
        ContextOverflow, match=r"cannot be left out; there is room for 300 \(window 400, reserved 100\)"
    ):
        build(messages, 400, TOKENS, reserve_tokens=100)


@requirement("CHAT-79")
def test_the_last_token_of_the_room_can_be_used() -> None:
    messages = [user("long " * 400), assistant("Yes."), user("So?"), *step({"c1": page("long " * 400, HANDLE)})]
    needed = size([shortest(message) for message in messages[2:]])
    assert build(messages, needed, TOKENS).tokens == needed
    with pytest.raises(ContextOverflow):
        build(messages, needed - 1, TOKENS)


@requirement("CHAT-82")
def test_a_conversation_goes_on_after_a_message_that_was_too_long() -> None:
    messages = [user("long " * 400), user("Sorry. Hello?")]
    assert told(build(messages, 400, TOKENS).messages) == ["user: Sorry. Hello?"]


LONG = "No. 17 was shipped. " * 100


@requirement("CHAT-83")
@pytest.mark.parametrize(("failed", "status"), [(False, ""), (True, "[the tool reports an error]\n")])
def test_a_page_keeps_its_status_its_beginning_and_its_first_handles(failed: bool, status: str) -> None:
    assert shrink(page(LONG, HANDLE, "image:b", "image:c", failed=failed)) == (
        f"{(status + LONG)[:159]}…\n[tool_view shows the whole: {HANDLE}, image:b; shortened to save room]"
    )


@requirement("CHAT-83", "CHAT-96")
def test_lines_of_cards_keep_the_ids_that_were_found() -> None:
    lines = [
        "shop:a#00000000 — Reads it.",
        "/shop/orders (internal) — 3 tools",
        "shop:b@1 (side effects)",
    ]
    assert shrink("\n".join([*lines, "Browse / for more."])) == "shop:a#00000000\n/shop/orders (internal)\nshop:b@1"
    many = "\n".join(f"shop:t{n}#00000000 — What it does." for n in range(50))
    short = shrink(many).split("\n")
    assert (len(short), short[-1]) == (21, "[30 more cards left out to save room]")
    words = "shop:a#00000000\n" + "no card at all " * 100
    assert shrink(words).startswith(words[:60])


@pytest.mark.parametrize(
    "text", [LONG, json.dumps([LONG]), json.dumps({"rows": [LONG]}), '{"status": ' + LONG, "{" * 9_999]
)
def test_of_anything_else_the_beginning_is_kept_and_the_rest_is_counted(text: str) -> None:
    assert shrink(text) == f"{text[:240]}… [{len(text) - 240:,} more characters left out to save room]"


_card_lines = st.lists(
    st.builds(
        "{}{}".format,
        st.sampled_from(["shop:a@1", "shop:orders#00000000", "/shop/orders (internal)", "Browse more."]),
        st.sampled_from(["", " (schema)", " — Reads.", " — " + LONG]),
    ),
    max_size=30,
).map("\n".join)


@requirement("CHAT-83")
@given(st.text() | _card_lines | st.builds(page, st.text(max_size=600), st.text(max_size=600)))
def test_it_is_never_longer_never_raises_and_shrinks_no_further(content: str) -> None:
    short = shrink(content)
    assert len(short) <= len(content)
    assert shrink(short) == short
