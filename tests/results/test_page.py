"""Pages: what a model reads of a result."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.effort import bounded_effort
from tests.support.properties import examples
from tests.support.requirement import requirement
from wicketgate.results.firewall import seal_result
from wicketgate.results.page import page_of_json, read_page, says, view_page
from wicketgate.tokens import shipped_token_counter

TOKENS = shipped_token_counter()
PNG = {"type": "image", "data": base64.b64encode(b"png").decode(), "mimeType": "image/png"}


def page(result: dict[str, Any], **options: Any) -> str:
    return seal_result(result, "time:now@1", "now", TOKENS, **options).page


def texts(*parts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": part} for part in parts]


@requirement("EXEC-96")
@pytest.mark.parametrize(
    ("structured", "content", "shown"),
    [
        (None, ["12"], "12"),
        (None, ["a\n", "b"], "a\n\nb"),
        ({"zone": "Asia/Tokyo", "dst": False}, ['{\n  "zone": "Asia/Tokyo",\n  "dst": false\n}'], None),
        ({"result": 12}, ["12"], "12"),
        ({"result": "twelve"}, ["twelve"], "twelve"),
        ({"result": ["a", "b"]}, ["a", "b"], "a\nb"),
        ({"result": [{"n": 1}, {"n": 2}]}, ['{"n": 1}', '{"n": 2}'], '{"n": 1}\n{"n": 2}'),
        ({"n": 1}, ["One, it is."], 'One, it is.\n{"n":1}'),
        ({"n": 1}, [], '{"n":1}'),
        (None, [], "(no content)"),
    ],
)
def test_a_result_that_fits_is_shown_unchanged_and_nothing_twice(
    structured: object, content: list[str], shown: str | None
) -> None:
    result: dict[str, Any] = {"content": texts(*content)}
    if structured is not None:
        result["structuredContent"] = structured
    assert page(result) == (content[0] if shown is None else shown)


@requirement("EXEC-96")
@settings(max_examples=examples(100), deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1, max_size=1_200))
def test_a_text_within_the_budget_is_its_own_page(text: str) -> None:
    if TOKENS.count(text) <= 500:
        assert page({"content": texts(text)}) == text


@requirement("EXEC-96")
def test_only_what_is_not_on_the_page_has_a_handle_and_warnings_stay() -> None:
    shown = page({"content": [*texts("a chart"), PNG], "isError": True}, provenance={"arg_repairs": ["n: 1"]})
    mark, text, artifact, notes = shown.split("\n")
    assert (mark, text, notes) == ("[the tool reports an error]", "a chart", '[notes: {"arg_repairs":["n: 1"]}]')
    assert artifact.startswith("[artifact image:time:now@1:")
    assert artifact.endswith(" (image/png, 3 bytes)]")
    assert read_page(shown).handles == (artifact.split()[1],)


NOTE = '[… kept out: 5 characters, 9 tokens; go on: tool_view artifacts[0] {"type":"head","start":5,"chars":4000}]'


@requirement("EXEC-96")
@pytest.mark.parametrize(
    ("text", "structured"),
    [
        ("(no content matched; 12 rows are hidden)", {"count": 0}),
        ("(no text files here)", {"count": 0}),
        ("head […goes on in facts]", {"[…] tail": "x"}),
        (f"head\n{NOTE}", None),
    ],
)
def test_a_text_that_looks_like_words_of_the_gate_is_shown_unchanged(
    text: str, structured: dict[str, Any] | None
) -> None:
    result: dict[str, Any] = {"content": [*texts(text), PNG]}
    if structured is not None:
        result["structuredContent"] = structured
    shown = page(result)
    assert shown.startswith(text)
    assert "\n[artifact image:time:now@1:" in shown


@requirement("EXEC-96")
def test_structured_content_of_many_keys_hides_no_link() -> None:
    link = {"type": "resource_link", "uri": "https://example.com/a", "name": "a"}
    value = {f"k{number}": "international " * 7 for number in range(25)}
    shown = page({"content": [*texts("see"), link], "structuredContent": value})
    assert shown == f"see\n{json.dumps(value, separators=(',', ':'))}\nlink: a | https://example.com/a"


@requirement("EXEC-96", "EXEC-97")
def test_many_short_texts_that_fit_are_shown_whole_and_not_kept() -> None:
    parts = [
        {"type": "resource", "resource": {"uri": f"file:///{number}", "text": f"item {number}"}} for number in range(60)
    ]
    sealed = seal_result({"content": parts}, "files:list@1", "list", TOKENS)
    assert sealed.page == "\n".join(f"item {number}" for number in range(60))
    assert (sealed.artifacts, sealed.envelope.artifacts) == ((), ())


@requirement("EXEC-24")
def test_lone_surrogates_in_structured_content_are_replaced() -> None:
    value = {"name": "caf\udce9", "\udfff": 1}
    assert page({"content": [], "structuredContent": value}) == '{"name":"caf���","���":1}'


@requirement("EXEC-98", "CHAT-97")
@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.text(max_size=700), max_size=4),
    st.none() | st.dictionaries(st.text(max_size=9), st.integers() | st.text(max_size=700), max_size=5),
    st.booleans(),
    st.sampled_from([40, 500]),
)
def test_the_json_of_an_envelope_gives_its_page_again(
    parts: list[str], structured: dict[str, Any] | None, is_error: bool, budget: int
) -> None:
    result: dict[str, Any] = {"content": [*texts(*parts), PNG], "isError": is_error}
    if structured is not None:
        result["structuredContent"] = structured
    sealed = seal_result(result, "time:now@1", "now", TOKENS, inline_tokens=budget)
    assert page_of_json(sealed.text) == sealed.page
    assert page_of_json(json.dumps(json.loads(sealed.text), indent=2)) == sealed.page


@requirement("EXEC-98")
def test_a_view_is_its_content_and_how_to_go_on() -> None:
    view: dict[str, Any] = {"handle": "h", "selector": {"type": "head"}, "content": "a\nb", "total": 4_000}
    assert view_page(view) == page_of_json(json.dumps(view)) == "a\nb\n[total: 4,000]"
    view["next"] = {"type": "head", "start": 3}
    assert view_page(view) == 'a\nb\n[total: 4,000; next: {"type":"head","start":3}]'


@requirement("EXEC-98")
@pytest.mark.parametrize(
    "text",
    [
        *("", "{}", '{"status":"ok"}', '{"status":1,"summary":2,"facts":3,"artifacts":4,"provenance":5}'),
        '{"status":"ok","summary":"s","facts":[1],"artifacts":[],"provenance":{}}',
        '{"status":"ok","summary":"s","facts":[],"artifacts":[{"handle":1}],"provenance":{}}',
        '{"status":"ok","summary":"\\ud800","facts":[],"artifacts":[],"provenance":{}}',
        '{"status":"ok","summary":"s","facts":[],"artifacts":[],"provenance":{},"dry_run":true}',
        '{"handle":1,"selector":2,"content":3,"total":"x"}',
        '{"status":' + "[" * 100_000,
    ],
)
def test_any_other_text_has_no_page(text: str) -> None:
    assert page_of_json(text) is None


def test_text_says_structured_content_only_if_nothing_is_missing() -> None:
    assert not says('{"n": 1}', {"n": 1, "m": 2})
    assert not says("[1, 2]", {"result": [1, 2, 3]})
    assert not says("", {})


@requirement("EXEC-27", "EXEC-98")
def test_a_long_text_is_compared_with_structured_content_in_bounded_time() -> None:
    with bounded_effort(calls=100_000):
        assert not says("1 " * 600_000, {"result": [1] * 10_000})
        assert not says("1 " * 600_000, {"n": 1})
    assert page_of_json(json.dumps({"handle": "h", "selector": {}, "content": "x" * 300_000, "total": 1})) is None
