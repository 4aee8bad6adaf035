"""The catalogs of the benchmarks are the same in every run and hold what they say."""

from pathlib import Path

import pytest

from bench.catalogs import MISSING, corpus, routing_data
from wicketgate.catalog.catalog import build_catalog
from wicketgate.tokens import shipped_token_counter


@pytest.mark.parametrize("size", [1, 100, 1_000])
def test_a_made_catalog_has_its_size_and_is_the_same_every_time(size: int) -> None:
    made = corpus(size, 40, None)
    assert len({tool["name"] for tool in made.definitions}) == len(made.definitions) == size
    assert len(made.queries) == 40
    assert made == corpus(size, 40, None)


def test_a_made_catalog_is_taken_whole_by_the_program() -> None:
    catalog = build_catalog({"all": corpus(200, 0, None).definitions}, shipped_token_counter(), infer=["all"])
    assert (len(catalog.items), catalog.quarantine, catalog.skipped) == (200, {}, ())
    assert len({item.namespace for item in catalog.items.values()}) > 1


@pytest.mark.skipif(routing_data() is None, reason=MISSING)
def test_real_tools_come_again_under_other_names_when_they_do_not_suffice() -> None:
    data = routing_data()
    small, large = corpus(500, 10, data), corpus(12_000, 10, data)
    assert small.definitions == large.definitions[:500]
    assert len({tool["name"] for tool in large.definitions}) == 12_000
    assert "again under another name" in large.source
    assert small.queries == large.queries


def test_without_data_from_outside_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BENCH_ROUTING_DATA", raising=False)
    assert routing_data() is None
    assert corpus(5, 5, routing_data()).source.startswith("synthetic")


def test_a_folder_that_lacks_a_set_is_an_error_that_names_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BENCH_ROUTING_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"BENCH_ROUTING_DATA: .*tools\.jsonl is not there"):
        routing_data()
