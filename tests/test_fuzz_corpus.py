"""Every input that fuzzing starts from, or has once found a crash with, passes its target (``fuzz/targets.py``)."""

from pathlib import Path

import pytest

from fuzz.targets import TARGETS
from tests.support.requirement import requirement

CORPUS = Path(__file__).parent.parent / "fuzz" / "corpus"


@requirement("OPS-585")
@pytest.mark.parametrize("name", TARGETS)
def test_no_input_of_the_corpus_makes_a_reader_fail(name: str) -> None:
    inputs = [file.read_bytes() for file in sorted((CORPUS / name).iterdir())]
    assert len(inputs) >= 2
    for data in inputs:
        TARGETS[name](data)
