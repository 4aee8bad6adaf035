"""Texts of tools and models cannot take over the terminal that shows them."""

import json
import logging

from hypothesis import given
from hypothesis import strategies as st

from app.commands.output import TerminalFormatter, printable, printable_text
from tests.support.requirement import requirement


@requirement("OPS-5")
def test_what_moves_the_cursor_hides_or_turns_the_line_around_is_written_out() -> None:
    assert printable("a\x1b[2J\x9b\u202eb\U000e0001\n") == "a\\u001b[2J\\u009b\\u202eb\\udb40\\udc01\\n"
    assert printable("plain, é, 漢字") == "plain, é, 漢字"
    assert printable_text("one\ttwo\r\nthree\n") == "one\ttwo\\r\nthree\n"


@given(st.text())
def test_json_stays_the_same_json(text: str) -> None:
    line = printable(json.dumps({"text": text}, ensure_ascii=False))
    assert line.isprintable() and json.loads(line) == {"text": text}


@requirement("OPS-5")
def test_a_warning_with_a_line_break_of_a_server_forges_no_line_of_ours() -> None:
    record = logging.LogRecord(
        "wicketgate.pins", logging.WARNING, "", 0, "suspicious: %s", ("x\nwicketgate: all is well",), None
    )
    assert TerminalFormatter().format(record).splitlines()[1:] == ["    wicketgate: all is well"]
