"""The checker against engines that break the contract in one place each: it finds that break and nothing more
(CHAT-86)."""

import json

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from app.conform.command import conform
from app.conform.examine import CannotExamine, examine
from app.conform.grammar import RULES, judge_streams
from app.conform.transcript import Finding, Report, Transcript, read_stream
from tests.support.prompt_server import serving_app
from tests.support.requirement import requirement
from tests.support.small_engine import FAULTS, KEY, SmallEngine

STREAM_FAILS: dict[str, set[str]] = {
    "a type in data": {"CHAT-29"},
    "arguments as text": {"CHAT-29"},
    "no end": {"CHAT-28"},
    "two ends": {"CHAT-28"},
    "text after the end": {"CHAT-28"},
    "an error and a done": {"CHAT-28"},
    "ends with tool_calls": {"CHAT-33"},
    "a sixth event": {"CHAT-26"},
    "two data lines": {"CHAT-25"},
    "not JSON": {"CHAT-25", "CHAT-29"},
    "a number that is none": {"CHAT-25", "CHAT-29"},
    "nested too deep": {"CHAT-25", "CHAT-29"},
    "broken utf-8": {"CHAT-25"},
    "a leaking error": {"CHAT-36"},
    "a code of its own": {"CHAT-37"},
    "a result without a call": {"CHAT-44"},
    "a call without a result": {"CHAT-44"},
    "one id for two calls": {"CHAT-44"},
}

FAILS: dict[str, set[str]] = {
    "cut body": {"CHAT-27"},
    "a collected body": {"CHAT-1"},
    "takes any object": {"CHAT-4", "CHAT-5", "CHAT-6", "CHAT-7", "CHAT-8", "CHAT-10", "CHAT-11", "CHAT-12", "CHAT-14"},
    "takes everybody": {"ACCESS-1", "ACCESS-2"},
    "falls over a cookie": {"ACCESS-1"},
    "believes identity headers": {"ACCESS-2"},
    "plain text 404": {"CHAT-23"},
    "obeys the model field": {"CHAT-15"},
    "knows the trigger": {"CHAT-13"},
    "mixes up traces": {"CHAT-38"},
    "no body limit": {"CHAT-21"},
    "shows the credential": {"CHAT-39"},
    "dies of a hang-up": {"CHAT-72", "CHAT-38"},
    "more keys in refusals": {"CHAT-23"},
    "no end": {"CHAT-28", "CHAT-42"},
}


async def report_on(fault: str) -> Report:
    async with serving_app(SmallEngine(fault)) as url:
        return await examine(url, KEY, tool_prompt="use a tool")


def failures(report: Report) -> set[str]:
    return {finding.id for finding in report.findings if finding.status == "fail"}


@requirement("CHAT-39", "CHAT-86")
async def test_an_engine_that_keeps_the_contract_passes_every_requirement_it_exercises() -> None:
    report = await report_on("")
    assert failures(report) == set()
    assert report.conforms
    unseen = {finding.id for finding in report.findings if finding.status == "not-testable"}
    assert unseen == {"CHAT-36", "CHAT-37"}, "it never failed, so its errors were not seen"


@requirement("CHAT-86")
@pytest.mark.parametrize("fault", sorted(STREAM_FAILS))
def test_each_break_of_the_grammar_is_found_by_its_rule_and_no_other(fault: str) -> None:
    body = b"".join(SmallEngine(fault).frames({}, {}))
    stream = read_stream(Transcript("x", 200, {"content-type": "text/event-stream"}, body))
    verdicts = {case: judge_streams(rule, [stream]) for case, _, rule in RULES}
    assert {name for name, verdict in verdicts.items() if verdict.status == "fail"} == STREAM_FAILS[fault]


@given(st.binary(max_size=200) | st.text(alphabet='event: data{}\\n\r":,id').map(str.encode))
def test_any_bytes_are_read_and_judged_without_raising(body: bytes) -> None:
    stream = read_stream(Transcript("x", 200, {}, body))
    for _, _, rule in RULES:
        assert judge_streams(rule, [stream]).status in ("pass", "fail", "not-testable")


@requirement("CHAT-86")
async def test_each_break_fails_its_own_requirements_and_no_other() -> None:
    assert FAILS.keys() | STREAM_FAILS.keys() | {"never ends"} == FAULTS
    engine = SmallEngine()
    async with serving_app(engine) as url:
        for fault, expected in FAILS.items():
            engine.break_with(fault)
            report = await examine(url, KEY, tool_prompt="use a tool")
            assert (fault, failures(report)) == (fault, expected)
            assert not report.conforms
            assert all(finding.seen for finding in report.findings if finding.status != "pass")


@requirement("CHAT-86")
async def test_without_key_and_tool_prompt_what_needs_them_is_not_testable() -> None:
    async with serving_app(SmallEngine("takes everybody")) as url:
        report = await examine(url)
    unseen = {finding.id for finding in report.findings if finding.status == "not-testable"}
    assert {"ACCESS-1", "ACCESS-2", "CHAT-42", "CHAT-39"} <= unseen
    assert report.conforms


async def test_without_an_engine_there_is_no_report() -> None:
    with pytest.raises(CannotExamine, match="No answer"):
        await examine("http://127.0.0.1:1")
    async with serving_app(SmallEngine()) as url:
        with pytest.raises(CannotExamine, match="--key"):
            await examine(url)


@requirement("CHAT-86")
async def test_an_examination_that_takes_too_long_is_reported_as_unfinished() -> None:
    async with serving_app(SmallEngine("never ends")) as url:
        report = await examine(url, KEY, deadline_s=0.2)
    assert not report.conforms
    assert report.unfinished.startswith("not examined to the end within 0.2 s")
    assert {finding.seen for finding in report.findings if finding.status == "not-testable"} >= {"not reached"}
    assert list(report.lines())[-1] == f"FAIL  {report.unfinished}"


@requirement("CHAT-86")
async def test_answers_of_too_many_bytes_end_the_examination(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.conform.client.MAX_ALL_BYTES", 1_000)
    async with serving_app(SmallEngine()) as url:
        report = await examine(url, KEY)
    assert "more than" in report.unfinished
    assert not report.conforms


@pytest.mark.parametrize("url", ["nonsense", "http://", "http://127.0.0.1:99999", "http://[::1", "ftp://127.0.0.1"])
async def test_a_bad_url_is_named_in_the_error(url: str) -> None:
    with pytest.raises(CannotExamine, match="No answer from"):
        await examine(url)


@pytest.mark.parametrize("key", ["cl\u00e9", "key\n"])
async def test_a_key_that_no_header_can_hold_is_named_in_the_error(key: str) -> None:
    with pytest.raises(CannotExamine, match="The key"):
        await examine("http://127.0.0.1:1", key)


def test_the_command_reports_in_one_line_that_there_is_nothing_to_examine() -> None:
    outcome = CliRunner().invoke(conform, ["http://127.0.0.1:1"])
    assert outcome.exit_code == 2
    assert outcome.stderr.startswith("wicketgate: No answer from http://127.0.0.1:1")


def test_both_forms_of_the_report_agree() -> None:
    report = Report("u", [Finding("E1", "a", "pass"), Finding("E2", "b", "fail", "c")])
    assert list(report.lines()) == ["pass  E1  a", "FAIL  E2  b  [c]", "1 passed, 1 failed, 0 not testable"]
    assert json.loads(json.dumps(report.as_dict()))["findings"][1] == {
        "id": "E2",
        "requirement": "b",
        "status": "fail",
        "seen": "c",
    }
