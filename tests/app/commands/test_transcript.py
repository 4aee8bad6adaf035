"""The lines of ``wicketgate chat``: answers on stdout, calls and failures in one short line each on stderr."""

import json
from typing import Any

import pytest

from app.commands.transcript import ChatLines
from tests.support.requirement import requirement

CALL = {
    "id": "1",
    "name": "tool_execute",
    "arguments": {"tool_id": "shop:orders#12345678", "args": {"customer": "c-1", "note": "long " * 60}},
}
FAILURE = {
    "error": "ARGS_INVALID",
    "message": "The arguments do not fit\nthe schema.",
    "details": {"errors": [{"path": "$.customer", "reason": "missing " * 40}]},
}


def shown(capsys: pytest.CaptureFixture[str], *events: tuple[str, dict[str, Any]]) -> tuple[str, str]:
    transcript = ChatLines()
    for name, data in events:
        transcript.show(name, data)
    return tuple(capsys.readouterr())  # type: ignore[return-value]


@requirement("OPS-136")
def test_calls_and_failures_take_one_short_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = shown(
        capsys,
        ("tool-call", CALL),
        ("tool-result", {"id": "1", "error": json.dumps(FAILURE)}),
        ("tool-call", {"id": "2", "name": "tool_browse", "arguments": {"query": "find orders"}}),
        ("tool-result", {"id": "2", "error": "tool_browse timed out after 5s"}),
        ("text-delta", {"content": "Sorry"}),
        ("text-delta", {"content": "."}),
        ("done", {"finish_reason": "stop"}),
    )
    call, failed, browse, late = err.splitlines()
    assert call.startswith('[tool_execute shop:orders {"customer": "c-1", ')
    assert call.endswith("…]") and len(call) <= 80
    assert failed == "[failed: ARGS_INVALID: The arguments do not fit the schema.]"
    assert browse == '[tool_browse {"query": "find orders"}]'
    assert late == "[failed: tool_browse timed out after 5s]"
    assert out == "Sorry.\n"


@requirement("OPS-136")
def test_texts_before_and_after_a_call_stand_on_lines_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = shown(
        capsys,
        ("text-delta", {"content": "Let me look."}),
        ("tool-call", CALL),
        ("text-delta", {"content": "Here:\n"}),
        ("error", {"code": "provider_error", "message": "gone\x1b[2J"}),
    )
    assert out == "Let me look.\nHere:\n"
    assert err.splitlines()[-1] == "provider_error: gone\\u001b[2J"
    assert "" not in err.splitlines()


@requirement("OPS-136")
def test_an_end_for_another_reason_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = shown(capsys, ("text-delta", {"content": "Half"}), ("done", {"finish_reason": "length"}))
    assert out == "Half\n[length]\n"


@requirement("OPS-136")
def test_calls_are_dim_in_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    _, err = shown(capsys, ("tool-call", {"id": "2", "name": "tool_browse", "arguments": {"query": "x"}}))
    assert err == '\x1b[2m[tool_browse {"query": "x"}]\x1b[0m\n'
