"""A reader that leaves early, such as ``head -1``, ends a command without a word (OPS-129)."""

import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from app.cli import main
from tests.support.requirement import requirement

PYTHON = "upstreams: [{name: p, python: 'tests.support.python_tools:registry'}]\n"


@requirement("OPS-129")
@pytest.mark.parametrize(
    "args",
    [
        ["--help"],
        ["version"],
        ["schema"],
        ["key", "new", "--actor", "me"],
        ["openapi"],
        ["completion", "bash"],
        ["check"],
        ["check", "--json"],
        ["browse", "/"],
        ["browse", "/", "--json"],
        ["execute", "p:nothing"],
        ["chat", "hello"],
        ["connect", "cursor"],
        ["explain", "p:nothing", "--actor", "me", "--permission", "*"],
        ["lock", "--diff"],
    ],
)
def test_a_reader_that_leaves_gets_no_traceback(
    args: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    Path("wicketgate.yaml").write_text(PYTHON)
    reading, writing = os.pipe()
    os.close(reading)
    with suppress(BrokenPipeError), os.fdopen(writing, "w") as closed:  # what was not written is thrown away
        monkeypatch.setattr(sys, "stdout", closed)
        with pytest.raises(SystemExit) as ended:
            main(args)
        monkeypatch.undo()
    assert ended.value.code in (0, 1)
    assert "Traceback" not in capfd.readouterr().err
