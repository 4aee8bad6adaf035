"""Ctrl-C while the modules of the command line are imported, which takes most of a second."""

import runpy
import sys
from types import ModuleType
from typing import Any

import pytest

from tests.support.requirement import requirement


class Interrupted(ModuleType):
    def __getattr__(self, name: str) -> Any:
        raise KeyboardInterrupt if name == "main" else AttributeError(name)


@requirement("OPS-141")
def test_ctrl_c_during_the_imports_of_python_m_app(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "app.cli", Interrupted("app.cli"))
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("app", run_name="__main__")
    assert ended.value.code == 130
    assert capsys.readouterr() == ("", "")


@requirement("OPS-141")
def test_ctrl_c_during_the_imports_of_the_installed_command(monkeypatch: pytest.MonkeyPatch) -> None:
    from wicketgate import __main__ as command

    def interrupted(name: str) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "import_module", interrupted)
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 130
