import gzip
from pathlib import Path

import pytest

from tests.support.requirement import requirement
from wicketgate.errors import ConfigError
from wicketgate.token_table import SHIPPED_TABLE, load_token_counter


@requirement("S0 §2.3", "gateway 35")
def test_counts_are_those_of_cl100k_base() -> None:
    counter = load_token_counter()
    assert counter.encode("tiktoken is great!") == [83, 1609, 5963, 374, 2294, 0]
    assert counter.count("antidisestablishmentarianism") == 6
    assert counter.count("お誕生日おめでとう") == 9
    assert counter.count("") == 0


@requirement("gateway 37", "gateway 91")
def test_special_tokens_are_text() -> None:
    counter = load_token_counter()
    assert counter.count("<|endoftext|>") > 1
    assert counter.decode(counter.encode("<|endoftext|>")) == b"<|endoftext|>"


@requirement("DESIGN §3 Cards")
def test_tokens_decode_to_bytes_even_inside_a_character() -> None:
    counter = load_token_counter()
    encoded = counter.encode("\U00010348")
    assert counter.decode(encoded) == "\U00010348".encode()
    assert counter.decode(encoded[:1]) == "\U00010348".encode()[:1]


@requirement("DESIGN §3 Cards")
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
