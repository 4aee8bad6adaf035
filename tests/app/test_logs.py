"""One JSON object a line, in the agreed keys, without secrets (OPS-13)."""

import io
import json
import logging
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from app.logs import LogFormat, service_logs, write_info
from tests.support.requirement import requirement
from wicketgate.log_text import MASK, Redactor, correlation_id

log = logging.getLogger("wicketgate.somewhere")


def test_logging_is_as_it_was_when_the_context_ends() -> None:
    def state() -> object:
        root = logging.getLogger()
        flags = logging.logThreads, logging.logProcesses, logging.logMultiprocessing
        return root.level, list(root.handlers), flags, [logging.getLogger(name).level for name in ("mcp", "httpx")]

    before = state()
    with service_logs("debug", str, io.StringIO()):
        assert state() != before
    assert state() == before


def lines_of(secrets: list[str], *write: object) -> list[dict[str, object]]:
    stream = io.StringIO()
    with service_logs("info", Redactor(secrets), stream):
        for action in write:
            assert callable(action)
            action()
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@requirement("OPS-13")
def test_a_line_has_the_agreed_keys_and_the_id_of_the_request() -> None:
    def in_a_request() -> None:
        token = correlation_id.set("req_9")
        log.info("it happened\nhere", extra={"fields": {"status": 200}})
        correlation_id.reset(token)

    (line,) = lines_of([], in_a_request)
    assert list(line) == ["timestamp", "correlation_id", "component", "level", "message", "status"]
    assert (line["correlation_id"], line["component"], line["level"]) == ("req_9", "somewhere", "info")
    assert line["message"] == "it happened\nhere"


@requirement("OPS-13")
def test_known_and_recognisable_secrets_are_masked_wherever_they_hide() -> None:
    def fail() -> None:
        try:
            raise ValueError('hush "quoted" hush')
        except ValueError:
            log.exception("Bearer abcdefghijkl and sk-abcdefghijkl", extra={"fields": {"url": "http://hush-hush/"}})

    (line,) = lines_of(["hush-hush"], fail)
    text = json.dumps(line)
    assert "abcdefghijkl" not in text
    assert "hush-hush" not in text
    assert text.count(MASK) == 3
    assert "ValueError" in str(line["exception"])


def test_lines_below_the_level_and_the_chatter_of_libraries_are_left_out() -> None:
    assert lines_of([], lambda: log.debug("no"), lambda: logging.getLogger("mcp.client").warning("no")) == []


@requirement("OPS-13")
def test_a_line_shows_the_moment_the_values_and_the_texts_as_they_are() -> None:
    def write() -> None:
        fields = {"ms": 1.5, "n": 3, "ok": True, "none": None, "list": [1, "x"], "path": Path("/a"), 'odd"': 'é"\n'}
        frame = {"name": "x", "msg": "é", "levelno": logging.INFO, "levelname": "INFO", "fields": fields}
        for created in (1_700_000_000.001, 1_700_000_000.9996, 1_700_000_001.5):
            log.handle(logging.makeLogRecord({**frame, "created": created}))

    lines = lines_of([], write)
    assert [line["timestamp"] for line in lines] == [
        "2023-11-14T22:13:20.001+00:00",
        "2023-11-14T22:13:20.999+00:00",
        "2023-11-14T22:13:21.500+00:00",
    ]
    assert list(lines[0].items())[4:] == [
        ("message", "é"),
        ("ms", 1.5),
        ("n", 3),
        ("ok", True),
        ("none", None),
        ("list", [1, "x"]),
        ("path", "/a"),
        ('odd"', 'é"\n'),
    ]


@requirement("OPS-13")
def test_a_text_that_was_clean_is_masked_from_when_it_is_known_as_a_secret() -> None:
    redact = Redactor()
    assert redact("it is hush-hush") == redact("it is hush-hush") == "it is hush-hush"
    redact.learn(["hush-hush"])
    assert redact("it is hush-hush") == f"it is {MASK}"
    assert [redact(f"line {number}") for number in range(3_000)] == [f"line {number}" for number in range(3_000)]


@requirement("OPS-13")
def test_the_frame_of_a_line_is_never_masked() -> None:
    (line,) = lines_of(["component", "message", "warning"], lambda: log.warning("a warning message of a component"))
    assert list(line) == ["timestamp", "correlation_id", "component", "level", "message"]
    assert (line["level"], line["message"]) == ("warning", f"a {MASK} {MASK} of a {MASK}")


@requirement("OPS-13")
def test_credentials_in_commands_and_addresses_are_recognised() -> None:
    text = "started x --token=hunter2hunter2 at http://user:pa55w0rd@host/?api_key=abcdef"
    (line,) = lines_of([], lambda: log.info(text))
    for secret in ("hunter2hunter2", "pa55w0rd", "abcdef"):
        assert secret not in str(line["message"])


def test_a_secret_that_json_would_escape_is_masked_too() -> None:
    (line,) = lines_of(['pass"word\\1'], lambda: log.info('it is pass"word\\1'))
    assert "word" not in str(line["message"])


class Stuck(io.StringIO):
    """A reader that reads nothing until it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()
        self.let = threading.Event()

    def write(self, text: str) -> int:
        self.reached.set()
        assert self.let.wait(10)
        return super().write(text)


def test_lines_that_find_no_room_are_dropped_and_counted() -> None:
    stream = Stuck()
    total = 12_000
    with service_logs("info", Redactor([]), stream):
        log.info("first")
        assert stream.reached.wait(10)
        for number in range(1, total):
            log.info("line %d", number)
        stream.let.set()
    messages = [json.loads(line)["message"] for line in stream.getvalue().splitlines()]
    written, report = messages[:-1], messages[-1]
    assert written == ["first", *(f"line {number}" for number in range(1, len(written)))]
    assert len(written) in range(10_000, 10_200)
    assert report == f"{total - len(written)} log lines were dropped"


def test_a_record_that_cannot_be_formatted_is_counted_and_its_caller_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = lines_of([], lambda: log.info("%d", "x"), lambda: log.info("next"))
    assert [line["message"] for line in lines] == ["next", "1 log lines were dropped"]
    assert capsys.readouterr().err == ""


def test_a_stream_that_is_gone_stops_no_caller() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    with service_logs("info", Redactor([]), Gone()):
        for _ in range(3):
            log.info("x")


def test_a_reader_that_never_reads_does_not_keep_the_process() -> None:
    script = (
        "import logging\nfrom app.logs import service_logs\n"
        "with service_logs('info', str):\n"
        "    for number in range(20_000): logging.getLogger('wicketgate.x').info('x' * 100)\n"
    )
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", script], cwd=root, stdout=subprocess.PIPE) as process:
        assert process.wait(30) == 0
        assert process.stdout is not None
        assert len(process.stdout.read()) > 0


@requirement("OPS-503")
@pytest.mark.parametrize("log_format", ["json", "text"])
@pytest.mark.parametrize("level", ["debug", "info", "warning"])
def test_the_line_of_a_request_is_the_same_past_logging(log_format: LogFormat, level: str) -> None:
    fields = {"status": 200, "duration_ms": 0.5, "client": "127.0.0.1", "url": "http://hush-hush/"}
    passed: list[logging.LogRecord] = []

    def written(write: Callable[[], None]) -> str:
        stream = io.StringIO()
        with service_logs(level, Redactor(["hush-hush"]), stream, log_format=log_format):
            write()
        return re.sub(r"\d\d:\d\d:\d\d(\.\d{3})?", "", stream.getvalue())

    def by_logging() -> None:
        log.info("%s", "GET /hush-hush 200", extra={"fields": fields})

    def noted() -> None:
        log.addFilter(note)
        try:
            write_info(log, "GET /hush-hush 200", fields)
        finally:
            log.removeFilter(note)

    def note(record: logging.LogRecord) -> bool:
        passed.append(record)
        return True

    expected = written(by_logging)
    assert bool(expected) == (level != "warning")
    assert "hush-hush" not in expected
    assert written(lambda: write_info(log, "GET /hush-hush 200", fields)) == expected
    # Whoever wants records has them.
    assert written(noted) == expected
    assert len(passed) == (level != "warning")
