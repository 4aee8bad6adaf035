import gzip
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.catalog.fixtures import tokens, vectors
from tests.support.requirement import requirement
from wicketgate.errors import ConfigError
from wicketgate.tokens import SHIPPED_TABLE, load_token_counter, truncate

prose = st.lists(
    st.sampled_from([*"abc .!?,é日\U0001f600", "word ", "Node.js ", "one. ", "!!!", "\n"]), max_size=60
).map("".join)


@requirement("CARD-28", "CARD-29")
@pytest.mark.parametrize("row", vectors("truncate"), ids=lambda row: f"{row['text'][:20]}-{row['budget']}")
def test_the_exact_values_hold(row: dict[str, Any]) -> None:
    shortened = truncate(row["text"], row["budget"], tokens())
    assert (shortened, tokens().count(shortened)) == (row["expected"], row["tokens"])


@requirement("CARD-28")
@given(prose, st.integers(-1, 30))
def test_the_longest_fitting_sentence_wins_and_the_budget_is_kept(text: str, budget: int) -> None:
    count = tokens().count
    shortened = truncate(text, budget, tokens())
    assert count(shortened) <= max(0, budget)
    ends = [
        text[: i + 1]
        for i, char in enumerate(text)
        if char in ".!?" and f"{text} "[i + 1].isspace() and count(text[: i + 1]) <= budget
    ]
    if count(text) <= budget:
        assert shortened == text
    elif budget <= 0:
        assert shortened == ""
    elif ends:
        assert shortened == ends[-1]
    else:
        assert shortened.endswith("…")
        assert text.startswith(shortened[:-1])


@requirement("CARD-29")
@given(st.text(alphabet="ก็ह日\U0001f469\u200d", min_size=1, max_size=60), st.integers(1, 12))
def test_a_cut_is_never_inside_a_character(text: str, budget: int) -> None:
    shortened = truncate(text, budget, tokens())
    assert text.startswith(shortened.removesuffix("…"))
    assert tokens().count(shortened) <= budget


@requirement("CARD-28")
def test_a_dot_inside_a_word_ends_no_sentence() -> None:
    assert truncate("Moves a Monday.com sub-item to another board.", 6, tokens()) == "Moves a Monday.com sub…"
    assert truncate("Runs it. Takes code (e.g., Node.js) and more words.", 9, tokens()) == "Runs it."


@requirement("CARD-29")
def test_a_text_with_a_lone_surrogate_is_shortened_like_another() -> None:
    text = "a\ud800b " * 50
    shortened = truncate(text, 9, tokens())
    assert text.startswith(shortened[:-1])
    assert shortened.endswith("…")


@requirement("CARD-29")
@pytest.mark.parametrize("text", ["!?" * 20_000, "x" * 200_000, ". " * 50_000, "日" * 50_000])
def test_a_very_long_text_is_shortened_with_few_counts(text: str) -> None:
    counted = _Counting()
    shortened = truncate(text, 50, counted)
    assert tokens().count(shortened) <= 50
    assert counted.characters < 3 * len(text)


class _Counting:
    """The real counter, and how much text it was given."""

    def __init__(self) -> None:
        self.characters = 0

    def count(self, text: str) -> int:
        self.characters += len(text)
        return tokens().count(text)

    def encode(self, text: str) -> list[int]:
        self.characters += len(text)
        return tokens().encode(text)

    def decode(self, encoded: Any) -> bytes:
        return tokens().decode(encoded)


@requirement("CARD-23", "CARD-26")
def test_counts_are_those_of_cl100k_base() -> None:
    counter = load_token_counter()
    assert counter.encode("tiktoken is great!") == [83, 1609, 5963, 374, 2294, 0]
    assert counter.count("antidisestablishmentarianism") == 6
    assert counter.count("お誕生日おめでとう") == 9
    assert counter.count("") == 0


@requirement("CARD-27")
def test_special_tokens_are_text() -> None:
    counter = load_token_counter()
    assert counter.count("<|endoftext|>") > 1
    assert counter.decode(counter.encode("<|endoftext|>")) == b"<|endoftext|>"


@requirement("CARD-26")
def test_tokens_decode_to_bytes_even_inside_a_character() -> None:
    counter = load_token_counter()
    encoded = counter.encode("\U00010348")
    assert counter.decode(encoded) == "\U00010348".encode()
    assert counter.decode(encoded[:1]) == "\U00010348".encode()[:1]


@requirement("CARD-26")
def test_the_ranks_of_the_shipped_table_are_its_lines() -> None:
    ranks = gzip.decompress(SHIPPED_TABLE.read_bytes()).split()[1::2]
    assert list(map(int, ranks)) == list(range(len(ranks)))


@requirement("OPS-373")
def test_the_table_is_not_kept_twice() -> None:
    tracemalloc.start()
    try:
        counter = load_token_counter()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 2_000_000, "the ranks are held in Python too, which takes 13 MB"
    assert counter.count("tiktoken is great!") == 6


@requirement("CARD-26")
@pytest.mark.parametrize("damage", ["absent", "not gzip", "cut off", "another table"])
def test_any_other_table_stops_the_start(tmp_path: Path, damage: str) -> None:
    table = tmp_path / "table.gz"
    if damage == "not gzip":
        table.write_bytes(b"plain")
    elif damage == "cut off":
        table.write_bytes(SHIPPED_TABLE.read_bytes()[:100_000])
    elif damage == "another table":
        table.write_bytes(gzip.compress(gzip.decompress(SHIPPED_TABLE.read_bytes()) + b"IQ== 100256\n", 1))
    with pytest.raises(ConfigError, match="cl100k_base"):
        load_token_counter(table)
