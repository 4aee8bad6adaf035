"""Tokens of a message, and the rare counting of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.context.conversations import FourCharacters, step, user
from tests.support.requirement import requirement
from wicketgate.context.build import PIECE_CHARS, CountedTexts, message_tokens
from wicketgate.tokens import shipped_token_counter

WORD = "antidisestablishmentarianism"


TABLE = shipped_token_counter()


class Counting(FourCharacters):
    def __init__(self) -> None:
        self.counted: list[str] = []

    def count(self, text: str) -> int:
        self.counted.append(text)
        return super().count(text)


@requirement("CHAT-83")
def test_a_message_is_its_text_and_its_framing() -> None:
    assert message_tokens(user("tiktoken is great!"), TABLE) == 6 + 4
    calling, answer = step({"c1": "tiktoken is great!"})
    parts = sum(TABLE.count(text) for text in ("c1", "tool_view", "{}"))
    assert parts + 4 + 8 <= message_tokens(calling, TABLE) <= parts + 4 + 8 + 3
    assert message_tokens(answer, TABLE) >= 6 + TABLE.count("c1") + 4
    assert message_tokens({"role": "assistant", "content": None}, TABLE) == 4


def test_a_text_is_counted_once() -> None:
    counting = Counting()
    texts = CountedTexts(counting)
    assert [texts.count(text) for text in ("a b c", "d", "a b c", "d")] == [2, 1, 2, 1]
    assert counting.counted == ["a b c", "d"]


def test_what_was_not_used_for_long_is_forgotten() -> None:
    counting = Counting()
    texts = CountedTexts(counting, remembered=10)
    for number in range(1_000):
        texts.count(str(number))
        texts.count("often")
    assert counting.counted.count("often") == 1
    texts.count("0")
    assert counting.counted.count("0") == 2


@requirement("CHAT-83")
@given(
    st.lists(
        st.sampled_from(
            ["lorem ", "ipsum, ", "\n", "\r\n\n", "  ", '{"a":1}', "don't", "3.14", "。", "お誕生日", "e\u0301"]
        ),
        min_size=1,
        max_size=9,
    ).map("".join)
)
def test_a_long_text_is_counted_in_pieces_and_exactly(phrase: str) -> None:
    text = f"{phrase}x y" * (2 * PIECE_CHARS // len(phrase))
    assert CountedTexts(TABLE).count(text) == TABLE.count(text)


@pytest.mark.parametrize("letter", ["a", " ", "字"])
def test_an_endless_word_is_estimated_upwards(letter: str) -> None:
    word = letter * 100_000
    counting = Counting()
    assert TABLE.count(word) <= CountedTexts(TABLE).count(word) <= len(word.encode())
    CountedTexts(counting).count(word)
    assert all(len(piece) <= PIECE_CHARS for piece in counting.counted)


def test_words_of_two_megabytes_are_counted_in_small_pieces() -> None:
    counting = Counting()
    text = f"{WORD} " * (2_000_000 // len(WORD))
    CountedTexts(counting).count(text)
    assert "".join(counting.counted) == text
    assert max(map(len, counting.counted)) <= PIECE_CHARS
