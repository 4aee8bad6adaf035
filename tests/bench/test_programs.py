"""The table of tokens in the guide is what the script measures."""

from bench.programs import table
from tests.docs.pages import text_of


async def test_the_guide_has_the_measured_tokens() -> None:
    page = text_of("docs/guide/programs.md")
    rows = {row[0]: row for row in (await table()).rows}
    for calls in ("2", "5", "10", "20", "50"):
        assert f"| {' | '.join(rows[calls])} |" in page
