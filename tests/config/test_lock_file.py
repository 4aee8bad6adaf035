"""The lock file: the same for the same pins, readable, and refused when it is not as it was written (ACCESS-22)."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.catalog.fixtures import definition
from tests.support.requirement import requirement
from wicketgate.catalog.pins import pin_all
from wicketgate.config.lock_file import lock_text, pin_policy, read_lock, write_lock
from wicketgate.config.settings import PinSettings
from wicketgate.errors import ConfigError

PINS = pin_all({"files": [definition("write"), definition("read", "Reads\u200b.")], "a": [definition("b")]})


@requirement("ACCESS-22")
def test_it_reads_back_as_it_was_and_the_order_of_listing_does_not_show(tmp_path: Path) -> None:
    write_lock(tmp_path / "x.lock", PINS)
    assert read_lock(tmp_path / "x.lock") == PINS
    turned = {server: dict(reversed(tools.items())) for server, tools in reversed(PINS.items())}
    text = lock_text(PINS)
    assert (tmp_path / "x.lock").read_text() == text == lock_text(turned)
    assert text.isascii()
    assert "\\u200b" in text
    assert list(tmp_path.iterdir()) == [tmp_path / "x.lock"]


def test_one_value_stands_on_a_line_so_that_a_difference_can_be_reviewed(tmp_path: Path) -> None:
    changed = pin_all({"files": [definition("write"), definition("read", "Reads it.")], "a": [definition("b")]})
    one, other = lock_text(PINS).splitlines(), lock_text(changed).splitlines()
    differing = [after.strip() for before, after in zip(one, other, strict=True) if before != after]
    assert [line.partition(":")[0] for line in differing] == ['"description"', '"sha256"']


@requirement("ACCESS-22")
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "was not written by wicketgate lock"),
        ('{"version": 2, "upstreams": {}}', "version 2; this program knows 1"),
        ('{"version": 1, "upstreams": {"a": []}}', "written by wicketgate lock: a"),
        ('{"version": 1, "upstreams": {"a": {"b": {"sha256": "00"}}}}', "written by wicketgate lock: a:b"),
    ],
)
def test_what_is_not_a_lock_file_stops_the_start_with_a_reason(tmp_path: Path, content: str, expected: str) -> None:
    path = tmp_path / "x.lock"
    path.write_text(content)
    with pytest.raises(ConfigError, match=expected):
        pin_policy(PinSettings(file=str(path)))


@requirement("ACCESS-22")
def test_a_definition_that_was_edited_by_hand_is_not_the_accepted_one(tmp_path: Path) -> None:
    content: dict[str, Any] = json.loads(lock_text(PINS))
    content["upstreams"]["a"]["b"]["definition"]["description"] = "Something else."
    (tmp_path / "x.lock").write_text(json.dumps(content))
    with pytest.raises(ConfigError, match="the definition of a:b is not the one that was accepted"):
        read_lock(tmp_path / "x.lock")


@requirement("ACCESS-22")
def test_a_lock_that_is_not_there_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="wicketgate lock --config FILE --lock"):
        pin_policy(PinSettings(file=str(tmp_path / "x.lock")))
    with pytest.raises(ConfigError, match="Cannot write"):
        write_lock(tmp_path / "no" / "x.lock", PINS)
