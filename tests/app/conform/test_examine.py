"""The checker finds what is broken, and only that: engines that break the contract in one place each (S3)."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from app.conform.command import conform
from app.conform.examine import CannotExamine, examine
from app.conform.grammar import RULES, judge_streams
from app.conform.report import Report
from app.conform.transcript import Exchange, read_stream
from tests.support.requirement import requirement
from tests.support.small_engine import FAULTS, KEY, MAX_BODY, SmallEngine, serving

STREAM_FAILS: dict[str, set[str]] = {
    "a type in data": {"E38"},
    "arguments as text": {"E38"},
    "no end": {"E37"},
    "two ends": {"E37"},
    "text after the end": {"E37"},
    "an error and a done": {"E37"},
    "ends with tool_calls": {"E39"},
    "a sixth event": {"S3 Events"},
    "two data lines": {"S3 SSE Stream"},
    "not JSON": {"S3 SSE Stream", "E38"},
    "a number that is none": {"S3 SSE Stream", "E38"},
    "nested too deep": {"S3 SSE Stream", "E38"},
    "broken utf-8": {"S3 SSE Stream"},
    "a leaking error": {"E75"},
    "a code of its own": {"E76"},
    "a result without a call": {"E44"},
    "a call without a result": {"E44"},
    "one id for two calls": {"E44"},
}

FAILS: dict[str, set[str]] = {
    "cut body": {"S3 stream closes"},
    "a collected body": {"E01"},
    "takes any object": {"E04", "E05", "E06", "E07", "E08", "E10", "E11", "E12", "E14"},
    "takes everybody": {"E18", "E19"},
    "falls over a cookie": {"E18"},
    "believes identity headers": {"E19"},
    "plain text 404": {"E29"},
    "obeys the model field": {"E15"},
    "knows the trigger": {"E13"},
    "mixes up traces": {"E88"},
    "no body limit": {"E25"},
    "tells the credential": {"S3 Security"},
    "dies of a hang-up": {"E86", "E88"},
    "more keys in refusals": {"E29"},
    "no end": {"E37", "E41"},
}


async def report_on(fault: str) -> Report:
    async with serving(SmallEngine(fault)) as url:
        return await examine(url, KEY, tool_prompt="use a tool", timeout_s=5, large_bytes=MAX_BODY)


def failures(report: Report) -> set[str]:
    return {finding.requirement.id for finding in report.findings if finding.verdict.status == "fail"}


@requirement("S3 Success Criteria")
async def test_an_engine_that_keeps_the_contract_passes_everything_it_gave_occasion_for() -> None:
    report = await report_on("")
    assert failures(report) == set()
    assert report.conforms
    unseen = {finding.requirement.id for finding in report.findings if finding.verdict.status == "not-testable"}
    assert unseen == {"E75", "E76"}, "it never failed, so its errors were not seen"


@requirement("S3 Success Criteria")
@pytest.mark.parametrize("fault", sorted(STREAM_FAILS))
def test_each_break_of_the_grammar_is_found_by_its_rule_and_no_other(fault: str) -> None:
    body = b"".join(SmallEngine(fault).frames({}, {}))
    stream = read_stream(Exchange("x", 200, {"content-type": "text/event-stream"}, body))
    verdicts = {requirement.id: judge_streams(check, [stream]) for requirement, check in RULES}
    assert {name for name, verdict in verdicts.items() if verdict.status == "fail"} == STREAM_FAILS[fault]


@given(st.binary(max_size=200) | st.text(alphabet='event: data{}\\n\r":,id').map(str.encode))
def test_any_bytes_are_read_and_judged_without_falling_over(body: bytes) -> None:
    stream = read_stream(Exchange("x", 200, {}, body))
    for _, check in RULES:
        assert judge_streams(check, [stream]).status in ("pass", "fail", "not-testable")


@requirement("S3 Success Criteria")
async def test_each_break_is_found_where_it_is_and_nowhere_else() -> None:
    assert FAILS.keys() | STREAM_FAILS.keys() | {"never ends"} == FAULTS
    engine = SmallEngine()
    async with serving(engine) as url:
        for fault, expected in FAILS.items():
            engine.break_with(fault)
            report = await examine(url, KEY, tool_prompt="use a tool", timeout_s=5, large_bytes=MAX_BODY)
            assert (fault, failures(report)) == (fault, expected)
            assert not report.conforms
            assert all(finding.verdict.seen for finding in report.findings if finding.verdict.status != "pass")


async def test_without_key_and_tool_prompt_what_needs_them_is_not_testable() -> None:
    async with serving(SmallEngine("takes everybody")) as url:
        report = await examine(url, timeout_s=5, large_bytes=MAX_BODY)
    unseen = {finding.requirement.id for finding in report.findings if finding.verdict.status == "not-testable"}
    assert {"E18", "E19", "E41", "S3 Security"} <= unseen
    assert report.conforms


async def test_where_there_is_no_engine_there_is_no_report() -> None:
    with pytest.raises(CannotExamine, match="No answer"):
        await examine("http://127.0.0.1:1", timeout_s=1)
    async with serving(SmallEngine()) as url:
        with pytest.raises(CannotExamine, match="--key"):
            await examine(url, timeout_s=5, large_bytes=MAX_BODY)


async def test_an_answer_without_an_end_is_not_waited_for() -> None:
    async with serving(SmallEngine("never ends")) as url:
        with pytest.raises(CannotExamine, match="--timeout"):
            await examine(url, KEY, timeout_s=0.05, large_bytes=MAX_BODY)


@pytest.mark.parametrize("url", ["nonsense", "http://", "http://127.0.0.1:99999", "http://[::1", "ftp://127.0.0.1"])
async def test_what_is_no_address_is_called_so(url: str) -> None:
    with pytest.raises(CannotExamine, match="The URL must be"):
        await examine(url, timeout_s=1)


@pytest.mark.parametrize("key", ["cl\u00e9", "key\n"])
async def test_a_key_that_no_header_takes_is_called_so(key: str) -> None:
    with pytest.raises(CannotExamine, match="The key"):
        await examine("http://127.0.0.1:1", key, timeout_s=1)


def test_the_command_says_in_one_line_when_there_is_nothing_to_examine(tmp_path: Path) -> None:
    outcome = CliRunner().invoke(conform, ["http://127.0.0.1:1", "--report", str(tmp_path / "r.json")])
    assert outcome.exit_code == 2
    assert outcome.stderr.startswith("wicketgate: No answer from http://127.0.0.1:1")
    assert not list(tmp_path.iterdir())


def test_the_reports_two_forms_say_the_same() -> None:
    from app.conform.report import Finding
    from app.conform.verdict import Requirement, failed, passed

    report = Report("u", [Finding(Requirement("E1", "a"), passed()), Finding(Requirement("E2", "b"), failed("c"))])
    assert list(report.lines()) == ["pass  E1  a", "FAIL  E2  b  [c]", "1 passed, 1 failed, 0 not testable"]
    assert json.loads(json.dumps(report.as_dict()))["findings"][1] == {
        "id": "E2",
        "requirement": "b",
        "status": "fail",
        "seen": "c",
    }
