"""The checker against engines that break the contract in one place each: it finds that break and nothing more (S3)."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from app.conform.command import conform
from app.conform.examine import CannotExamine, examine
from app.conform.grammar import RULES, judge_streams
from app.conform.transcript import Finding, Report, Transcript, read_stream
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
    "shows the credential": {"S3 Security"},
    "dies of a hang-up": {"E86", "E88"},
    "more keys in refusals": {"E29"},
    "no end": {"E37", "E41"},
}


async def report_on(fault: str) -> Report:
    async with serving(SmallEngine(fault)) as url:
        return await examine(url, KEY, tool_prompt="use a tool", timeout_s=5, large_bytes=MAX_BODY)


def failures(report: Report) -> set[str]:
    return {finding.id for finding in report.findings if finding.status == "fail"}


@requirement("S3 Success Criteria")
async def test_an_engine_that_keeps_the_contract_passes_every_requirement_it_exercises() -> None:
    report = await report_on("")
    assert failures(report) == set()
    assert report.conforms
    unseen = {finding.id for finding in report.findings if finding.status == "not-testable"}
    assert unseen == {"E75", "E76"}, "it never failed, so its errors were not seen"


@requirement("S3 Success Criteria")
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


@requirement("S3 Success Criteria")
async def test_each_break_fails_its_own_requirements_and_no_other() -> None:
    assert FAILS.keys() | STREAM_FAILS.keys() | {"never ends"} == FAULTS
    engine = SmallEngine()
    async with serving(engine) as url:
        for fault, expected in FAILS.items():
            engine.break_with(fault)
            report = await examine(url, KEY, tool_prompt="use a tool", timeout_s=5, large_bytes=MAX_BODY)
            assert (fault, failures(report)) == (fault, expected)
            assert not report.conforms
            assert all(finding.seen for finding in report.findings if finding.status != "pass")


async def test_without_key_and_tool_prompt_what_needs_them_is_not_testable() -> None:
    async with serving(SmallEngine("takes everybody")) as url:
        report = await examine(url, timeout_s=5, large_bytes=MAX_BODY)
    unseen = {finding.id for finding in report.findings if finding.status == "not-testable"}
    assert {"E18", "E19", "E41", "S3 Security"} <= unseen
    assert report.conforms


async def test_without_an_engine_there_is_no_report() -> None:
    with pytest.raises(CannotExamine, match="No answer"):
        await examine("http://127.0.0.1:1", timeout_s=1)
    async with serving(SmallEngine()) as url:
        with pytest.raises(CannotExamine, match="--key"):
            await examine(url, timeout_s=5, large_bytes=MAX_BODY)


async def test_an_endless_answer_is_given_up() -> None:
    async with serving(SmallEngine("never ends")) as url:
        with pytest.raises(CannotExamine, match="--timeout"):
            await examine(url, KEY, timeout_s=0.05, large_bytes=MAX_BODY)


@pytest.mark.parametrize("url", ["nonsense", "http://", "http://127.0.0.1:99999", "http://[::1", "ftp://127.0.0.1"])
async def test_a_bad_url_is_named_in_the_error(url: str) -> None:
    with pytest.raises(CannotExamine, match="The URL must be"):
        await examine(url, timeout_s=1)


@pytest.mark.parametrize("key", ["cl\u00e9", "key\n"])
async def test_a_key_that_no_header_can_hold_is_named_in_the_error(key: str) -> None:
    with pytest.raises(CannotExamine, match="The key"):
        await examine("http://127.0.0.1:1", key, timeout_s=1)


def test_the_command_reports_in_one_line_that_there_is_nothing_to_examine(tmp_path: Path) -> None:
    outcome = CliRunner().invoke(conform, ["http://127.0.0.1:1", "--report", str(tmp_path / "r.json")])
    assert outcome.exit_code == 2
    assert outcome.stderr.startswith("wicketgate: No answer from http://127.0.0.1:1")
    assert not list(tmp_path.iterdir())


def test_both_forms_of_the_report_agree() -> None:
    report = Report("u", [Finding("E1", "a", "pass"), Finding("E2", "b", "fail", "c")])
    assert list(report.lines()) == ["pass  E1  a", "FAIL  E2  b  [c]", "1 passed, 1 failed, 0 not testable"]
    assert json.loads(json.dumps(report.as_dict()))["findings"][1] == {
        "id": "E2",
        "requirement": "b",
        "status": "fail",
        "seen": "c",
    }
