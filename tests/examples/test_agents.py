"""The guide's page about agents shows the programs that ``make agents`` runs, and its own loop runs here."""

import os
import re
import sys
from pathlib import Path

import pytest

from tests.support.process import ROOT, outcome
from tests.support.requirement import requirement

PAGE = (ROOT / "docs" / "guide" / "agents.md").read_text("utf-8")
EXAMPLES = sorted({*(ROOT / "examples" / "agents").glob("*.mjs"), *(ROOT / "examples" / "agents").glob("*_*.py")})
PROGRAMS = [path for path in EXAMPLES if path.stem not in ("__init__", "stand_in")]


@requirement("LIB-30")
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_the_page_shows_the_program_that_is_run(path: Path) -> None:
    assert f"\n{path.read_text('utf-8')}```" in PAGE


@requirement("LIB-25", "LIB-30")
async def test_a_loop_of_ones_own_finds_and_runs_a_tool() -> None:
    (block,) = re.findall(r"```python\n(from openai .*?)```", PAGE, re.DOTALL)
    ask = 'import asyncio\nprint(asyncio.run(answer("What time is it in Tokyo?")))'
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    stand_ins = os.pathsep.join([str(ROOT / "tests" / "public" / "stand_ins"), str(ROOT)])
    code, out, err = await outcome("-c", f"{block}\n{ask}", env={"PATH": path, "PYTHONPATH": stand_ins})
    assert code == 0, err
    assert "Asia/Tokyo" in out
