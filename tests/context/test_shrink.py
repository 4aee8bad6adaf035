"""What is left of a tool result that gives up its place."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.context.conversations import cards, envelope, view
from wicketgate.context.shrink import shrink

HANDLE = "text:shop:orders.list#12345678:0123456789abcdef"
LONG = "No. 17 was shipped. " * 100


def shrunk(content: str) -> dict[str, Any]:
    short: dict[str, Any] = json.loads(shrink(content))
    assert len(shrink(content)) < len(content)
    return short


def test_an_envelope_keeps_its_status_the_beginning_of_its_summary_and_its_first_handles() -> None:
    short = shrunk(envelope(LONG, HANDLE, "image:b", "image:c"))
    assert short["status"] == "ok"
    assert short["summary"] == LONG[:159] + "…"
    assert short["artifacts"] == [{"handle": HANDLE}, {"handle": "image:b"}]
    assert "tool_view" in short["note"]


def test_an_envelope_without_artifacts_points_nowhere() -> None:
    short = shrunk(envelope(LONG, status="error"))
    assert short == {"status": "error", "summary": LONG[:159] + "…", "artifacts": []}


def test_a_dry_run_stays_one() -> None:
    assert shrunk(envelope(LONG, dry_run=True))["dry_run"] is True


def test_cards_keep_the_ids_that_were_found() -> None:
    assert shrunk(cards("shop:a#1", "shop:b#2")) == {"cards": [{"id": "shop:a#1"}, {"id": "shop:b#2"}]}
    many = shrunk(cards(*(f"shop:{n}" for n in range(50))))
    assert len(many["cards"]) == 20
    assert many["note"].startswith("30 more")


def test_a_view_keeps_what_it_showed_and_how_much_there_is() -> None:
    short = shrunk(view(HANDLE, LONG))
    assert {key: short[key] for key in ("handle", "selector", "total")} == {
        "handle": HANDLE,
        "selector": {"type": "head"},
        "total": {"chars": 9_000},
    }
    assert "content" not in short
    vast = {"handle": HANDLE, "selector": {"keys": ["key"] * 1_000}, "content": LONG, "total": 9}
    assert set(shrunk(json.dumps(vast))) == {"handle", "note"}


def test_an_error_keeps_its_code_and_message() -> None:
    error = {"error": "ARGS_INVALID", "message": LONG, "path": "x", "retryable": False, "details": {"expected": LONG}}
    assert shrunk(json.dumps(error)) == {"error": "ARGS_INVALID", "message": LONG[:159] + "…"}


@pytest.mark.parametrize(
    "text", [LONG, json.dumps([LONG]), json.dumps({"rows": [LONG]}), '{"status": ' + LONG, "{" * 9_999]
)
def test_of_anything_else_the_beginning_is_kept_and_the_rest_is_counted(text: str) -> None:
    assert shrink(text) == f"{text[:240]}… [{len(text) - 240:,} more characters left out to save room]"


@pytest.mark.parametrize(
    "body",
    [
        {"status": 7, "summary": LONG, "artifacts": []},
        {"status": "ok", "summary": None, "artifacts": [], "x": LONG},
        {"cards": LONG},
        {"handle": LONG, "selector": 1, "total": 1},
        {"error": LONG, "message": ""},
    ],
)
def test_what_only_looks_like_ours_is_foreign(body: Any) -> None:
    assert shrink(json.dumps(body)).endswith("more characters left out to save room]")


def test_names_that_are_none_are_passed_over() -> None:
    odd = json.dumps({"status": "ok", "summary": LONG, "artifacts": [7, {}, {"handle": LONG}, {"handle": "text:a"}]})
    assert shrunk(odd)["artifacts"] == [{"handle": "text:a"}]


def test_a_lone_surrogate_never_comes_out() -> None:
    assert "\\ud800" in envelope("\ud800" + LONG)
    shrink(envelope("\ud800" + LONG)).encode()


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=600),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["status", "summary", "artifacts", "cards", "id", "handle", "selector", "total", "error", "message"]
            ),
            inner,
        )
    ),
    max_leaves=8,
)


@given(st.text() | _json.map(json.dumps))
def test_it_is_never_longer_never_raises_and_shrinks_no_further(content: str) -> None:
    short = shrink(content)
    assert len(short) <= len(content)
    assert shrink(short) == short
