"""``wicketgate browse`` in a terminal: readable cards, and ids that can be typed. A pseudo-terminal stands for it."""

import json
import os
import pty
import re
from contextlib import redirect_stdout, suppress
from pathlib import Path

import pytest

from app.cli import main
from app.commands.gate_client import LocalGate
from tests.support.python_upstream import python_upstream
from tests.support.requirement import requirement
from wicketgate.access.identity import LOCAL, Identity
from wicketgate.config.settings import Settings
from wicketgate.gate import Gate
from wicketgate.upstreams.embedded import StubUpstream

TOOLS = (
    ("delete_customer", "name: str", "Removes a customer."),
    (
        "find_customer",
        "words: str",
        "Finds a customer by words of the name, the city or the address of the mail, whichever of them is known.",
    ),
)
STYLE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(autouse=True)
def shop(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    monkeypatch.setenv("TERM", "xterm")
    upstream = python_upstream(folder, *TOOLS, name="shop")
    (folder / "wicketgate.yaml").write_text(json.dumps({"upstreams": [upstream]}))


def in_a_terminal(*words: str) -> list[str]:
    """The lines that the command shows, without styles."""
    ours, theirs = pty.openpty()
    try:
        with os.fdopen(theirs, "w") as terminal, redirect_stdout(terminal), pytest.raises(SystemExit):
            main(list(words))
            raise SystemExit
        shown = b""
        with suppress(OSError):  # EIO: the other end is closed, and all is read
            while piece := os.read(ours, 65_536):
                shown += piece
    finally:
        os.close(ours)
    return STYLE.sub("", shown.decode()).replace("\r\n", "\n").splitlines()


@requirement("OPS-113")
def test_a_terminal_gets_the_best_first_with_ids_to_type_and_lines_that_fit() -> None:
    lines = in_a_terminal("browse", "find a customer")
    assert lines[0].startswith("shop:find_customer    Finds a customer by words")
    assert "…" in lines[0] and len(lines[0]) <= 70
    assert lines[1].startswith("shop:delete_customer  Removes a customer.")
    assert lines[-1] == "Run one: wicketgate execute shop:find_customer '{...}'"
    assert "#" not in "".join(lines)


@requirement("OPS-113")
def test_what_is_shown_can_be_run(capsys: pytest.CaptureFixture[str]) -> None:
    typed = in_a_terminal("browse", "/shop")[0].split()[0]
    assert typed == "shop:delete_customer"
    with pytest.raises(SystemExit) as ended:
        main(["execute", typed, '{"name": "Ada"}'])
    assert (ended.value.code, "Ada" in capsys.readouterr().out) == (0, True)


@requirement("OPS-113")
def test_a_pipe_gets_the_text_that_a_model_reads_and_json_the_whole_ids(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["browse", "find a customer"])
    assert re.search(r"shop:find_customer#\w{8}", capsys.readouterr().out)
    (line,) = in_a_terminal("browse", "find a customer", "--json")
    assert json.loads(line)["cards"][0]["id"].startswith("shop:find_customer#")


@requirement("OPS-113")
def test_where_no_tool_matches_clearly_none_is_proposed_to_run() -> None:
    words = "customer weather invoice holiday reservation"
    lines = in_a_terminal("browse", words)
    assert lines[-1].startswith("No clear match. ")
    assert "Run one" not in "".join(lines)
    cards = json.loads(in_a_terminal("browse", words, "--json")[0])["cards"]
    assert len(lines) == len(cards) + 1, "the cards, and the hint"


@requirement("OPS-113")
def test_nothing_found_is_said_in_a_terminal_too() -> None:
    assert in_a_terminal("browse", "qqqqq") == [
        "Nothing matches these words. Try other words, or browse '/' to see what there is."
    ]


@requirement("OPS-113")
async def test_an_id_stays_whole_where_its_short_form_names_several_tools_that_the_caller_may_use() -> None:
    names = ("twin tool", "twin/tool", "lone")
    stub = StubUpstream([{"name": name, "inputSchema": {"type": "object"}} for name in names], name="a")
    rules = [{"match": "a:twin/tool", "require_any": ["boss", "role:boss"]}]
    async with Gate(Settings.model_validate({"access": rules}), upstreams=[stub]) as gate:
        await gate.wait_ready()
        ids = [item.id for item in gate.runtime.catalog().all()]
        lone, first, second = sorted(ids)
        assert first.partition("#")[0] == second.partition("#")[0], "two tools of one name"
        assert await LocalGate(gate, LOCAL).short_ids(ids) == {lone: "a:lone"}
        few = await LocalGate(gate, Identity("ann", ("tools:*",))).short_ids(ids)
        assert len(few) == 2, "the other one does not exist for this caller"
