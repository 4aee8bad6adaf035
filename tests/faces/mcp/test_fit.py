"""Tools and results of a face, fitted to the client's protocol version."""

from tests.support.requirement import requirement
from wicketgate.faces.mcp.fit import as_it_came


@requirement("ROUTE-12")
def test_a_result_without_content_gets_the_empty_list_that_the_protocol_wants() -> None:
    for content in ({}, {"content": None}, {"content": "x"}):
        assert as_it_came({**content, "structuredContent": {"n": 1}}, "2026-07-28")["content"] == []
    kept = [{"type": "text", "text": "a"}]
    assert as_it_came({"content": kept}, "2026-07-28")["content"] == kept


def test_a_structured_value_that_is_no_object_stays_with_clients_that_know_it() -> None:
    assert as_it_came({"content": [], "structuredContent": [1]}, "2026-07-28")["structuredContent"] == [1]
    assert "structuredContent" not in as_it_came({"content": [], "structuredContent": [1]}, "2025-11-25")
