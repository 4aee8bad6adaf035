from pathlib import Path
from typing import Any

import pytest
import yaml

from conformance.columns import COLUMNS, Row, checks
from conformance.driver import Driver, Failed
from conformance.judge import read_expected
from conformance.run_clients import MATRIX, NOTES
from conformance.run_suite import FACES
from tests.support.requirement import requirement


class Told(Driver):
    """A client that says what it is told to."""

    def __init__(self, says: Any) -> None:
        self._says = says
        self.orders: list[dict[str, Any]] = []

    async def do(self, command: str, **order: object) -> Any:
        self.orders.append({"do": command, **order})
        if isinstance(self._says, Exception):
            raise self._says
        return self._says


def row(says: Any, face: str = "namespaced") -> Row:
    return Row(Told(says), face, Path("/nowhere"))


@requirement("OPS-151")
@pytest.mark.parametrize(("came", "statuses"), [(60, ["SUCCESS"] * 2), (59, ["FAILURE"] * 2)])
async def test_a_cell_is_judged_by_what_came(came: int, statuses: list[str]) -> None:
    assert [check.status for check in await checks(row({"progress": came}), "progress")] == statuses


@requirement("OPS-151")
async def test_a_cell_fails_with_the_words_of_the_client() -> None:
    found = await checks(row(Failed("McpError: no")), "progress")
    assert [(check.id, check.status, check.message) for check in found] == [
        ("new", "FAILURE", "McpError: no"),
        ("old", "FAILURE", "McpError: no"),
    ]


@requirement("OPS-151")
async def test_what_a_client_cannot_do_is_left_out() -> None:
    found = await checks(row(Failed("NotImplementedError: subscribe")), "progress")
    assert [check.status for check in found] == ["SKIPPED"]


@requirement("OPS-151")
def test_notes_name_rows_and_cells_that_there_are() -> None:
    rows = {f"{client.name}/{client.era}/{face}" for client in MATRIX for face in FACES}
    for entry in read_expected(yaml.safe_load(NOTES.read_text("utf-8"))["expected"]):
        assert any(map(entry.holds_for, rows))
        assert {what.partition(":")[0] for what in entry.what} <= COLUMNS.keys()
