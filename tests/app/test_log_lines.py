"""Log lines for people: one line a record, harmless, without secrets (OPS-96)."""

import io
import json
import logging
import re
from collections.abc import Callable

import pytest

from app.logs import Log, LogFormat, service_logs
from tests.support.requirement import requirement
from wicketgate.log_text import MASK, Redactor, correlation_id

log = logging.getLogger("wicketgate.somewhere")


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def written(act: Callable[[Log], None], *, secrets: tuple[str, ...] = (), screen: io.StringIO | None = None) -> str:
    screen = screen or io.StringIO()
    with service_logs("info", Redactor(secrets), screen, log_format="text") as out:
        act(out)
    return screen.getvalue()


def line_of(*args: object, **kinds: object) -> str:
    def act(out: Log) -> None:
        log.warning(*args, **kinds)  # type: ignore[arg-type]

    return written(act)


@requirement("OPS-96")
def test_a_line_has_time_level_component_message_fields_and_a_short_id() -> None:
    def act(out: Log) -> None:
        token = correlation_id.set("req_0123456789abcdef")
        fields = {"status": 200, "client": "", "path": "a b", "more": [1, "x"], "word": "plain"}
        log.info("it happened", extra={"fields": fields})
        correlation_id.reset(token)

    line = written(act)
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d info    somewhere it happened "
        r'status=200 client="" path="a b" more=\[1, "x"\] word=plain req_01234567\n',
        line,
    ), line


@requirement("OPS-96")
def test_foreign_text_stays_in_its_line() -> None:
    line = line_of("two\nlines \x1b[2J %s", "\u202egnp", extra={"fields": {"name": "a\r\nb"}})
    assert line.endswith(" somewhere two\\nlines \\u001b[2J \\u202egnp name=a\\r\\nb\n")
    assert line.count("\n") == 1


@requirement("OPS-96")
def test_secrets_are_masked_in_the_message_the_fields_and_the_traceback() -> None:
    def act(out: Log) -> None:
        try:
            raise ValueError("hush-hush\x1b[1m")
        except ValueError:
            log.exception("say hush-hush", extra={"fields": {"url": "http://hush-hush/", "all": ["hush-hush"]}})

    text = written(act, secrets=("hush-hush",))
    first, *below = text.splitlines()
    assert "hush" not in text
    assert text.count(MASK) == 5  # the traceback quotes the source too
    assert "somewhere say" in first
    assert below[0] == "    Traceback (most recent call last):"
    assert below[-1] == f"    ValueError: {MASK}\\u001b[1m"


@requirement("OPS-96")
@pytest.mark.parametrize(
    ("environment", "coloured"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_colours_are_for_terminals_that_want_them(
    environment: dict[str, str], coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    text = written(lambda out: log.error("no"), screen=Screen())
    assert ("\x1b[31merror" in text) is coloured
    assert ("\x1b" in text) is coloured
    assert "\x1b" not in written(lambda out: log.error("no"))


@requirement("OPS-96")
@pytest.mark.parametrize(
    ("log_format", "screen", "is_json"),
    [
        ("auto", Screen(), False),
        ("auto", io.StringIO(), True),
        ("json", Screen(), True),
        ("text", io.StringIO(), False),
    ],
)
def test_the_format_follows_the_stream_unless_it_is_set(
    log_format: LogFormat, screen: io.StringIO, is_json: bool
) -> None:
    with service_logs("info", str, screen, log_format=log_format) as out:
        log.info("hello")
    assert screen.getvalue().startswith("{") is is_json
    assert out.in_terminal is (screen.isatty() and not is_json)
    if is_json:
        assert json.loads(screen.getvalue())["message"] == "hello"
