"""``json_path``: a small part of RFC 9535, bounded and paged (EXEC-36)."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.properties import examples
from tests.support.requirement import requirement
from wicketgate.errors import ViewFailed
from wicketgate.results.json_part import HELP, Every, Index, Key, Slice, parse_json_path, path_text
from wicketgate.results.selector import select
from wicketgate.results.view import MAX_VIEW_CHARS, View

DATA = {"a": [{"b": 1, "x y": "é"}, {"b": [2, 3]}, {"c": None}], "d.e": {"f": "g"}, "n": 7}


def at(path: object, data: object = DATA, **fields: Any) -> View:
    selector = {"type": "json_path", "path": path, **fields}
    return select(json.dumps(data, ensure_ascii=False).encode(), "application/json", selector)


@requirement("EXEC-36")
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("$.a[0].b", ["1"]),
        ("$['a'][0][\"x y\"]", ['"é"']),
        ("$.a[-1]", ['{"c": null}']),
        ("$['d.e'].f", ['"g"']),
        (r"$['d\u002ee']['f']", ['"g"']),
        ("$.a[*].b", ["1", "[2, 3]"]),
        ("$.a[0:2].b", ["1", "[2, 3]"]),
        ("$.a[-2:]", ['{"b": [2, 3]}', '{"c": null}']),
        ("$.a[:1].b", ["1"]),
        ("$.*.f", ['"g"']),
        ("$.a[1].b[*]", ["2", "3"]),
        ("$.a[9:]", []),
        ("$.n[*]", []),
        ("$", [json.dumps(DATA, ensure_ascii=False)]),
    ],
)
def test_a_path_gives_its_values_one_a_line(path: str, expected: list[str]) -> None:
    assert at(path) == View("\n".join(expected), len(expected), "values", None)


@requirement("EXEC-36")
@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("$.a[3]", "$.a is a list of 3"),
        ("$.a[-4].b", "$.a is a list of 3"),
        ("$.a[0].c", "$.a[0] is an object of 2 keys: b, x y"),
        ("$.n.m", "$.n is the value 7"),
        ("$.a.b", "$.a is a list of 3"),
        ("$.z", "$ is an object of 3 keys: a, d.e, n"),
    ],
)
def test_a_path_that_leads_nowhere_says_how_far_it_leads(path: str, problem: str) -> None:
    with pytest.raises(ViewFailed) as failure:
        at(path)
    assert failure.value.message.endswith(f"{problem}.")


@pytest.mark.parametrize(
    "path",
    [
        *(None, 5, "", "a.b", "$a", "$.", "$..a", "$.a[", "$.a[?(@.b)]", "$.a[1,2]", "$.a[0:4:2]", "$.a b", "$['a"),
        *("$" + ".a" * 300, "$" + "[0]" * 51, "$[" + "9" * 400 + "]", "$['\\q']"),
    ],
)
def test_a_path_that_cannot_be_read_is_refused_with_the_forms(path: object) -> None:
    with pytest.raises(ViewFailed) as failure:
        at(path)
    assert HELP in failure.value.message


@pytest.mark.parametrize("data", [b"plain text", b"", b"{broken", b"[1,"])
def test_what_is_no_json_says_so(data: bytes) -> None:
    with pytest.raises(ViewFailed):
        select(data, "text/plain", {"type": "json_path", "path": "$.a"})


def test_a_long_value_is_read_in_parts() -> None:
    text = "é€" * MAX_VIEW_CHARS
    pages = [at("$.t", {"t": text})]
    while pages[-1].next is not None:
        pages.append(at(**{**{k: v for k, v in pages[-1].next.items() if k != "type"}, "data": {"t": text}}))
    assert json.loads("".join(page.content for page in pages)) == text
    assert (len(pages), pages[0].total) == (3, 1)


@requirement("EXEC-36")
def test_many_values_are_read_in_pages() -> None:
    data = {"rows": [{"id": number, "text": "x" * 500} for number in range(200)]}
    selector: dict[str, Any] | None = {"path": "$.rows[*].id"}
    assert at("$.rows[*].id", data).content.split("\n") == [str(number) for number in range(200)]
    texts: list[str] = []
    selector = {"path": "$.rows[*]"}
    while selector is not None:
        page = at(selector["path"], data, start=selector.get("start", 0))
        texts += page.content.split("\n")
        assert (page.total, len(page.content) <= MAX_VIEW_CHARS) == (200, True)
        selector = page.next
    assert [json.loads(text) for text in texts] == data["rows"]


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize(
    "element", [{"a": [{"b": "},"}, {"c": 1}], "t": "x" * 300}, [[1, "],"], "x" * 300], '",é' * 100, 12345678, None]
)
def test_a_large_array_has_the_elements_that_it_has(element: object, indent: int | None) -> None:
    count = 5_000_000 // len(json.dumps(element, indent=indent))
    data = [element] * count + [0, {"last": True}]
    page = select(json.dumps(data, indent=indent).encode(), "application/json", {"type": "json_path", "path": "$[-3:]"})
    assert [json.loads(line) for line in page.content.split("\n")] == [element, 0, {"last": True}]
    page = select(json.dumps(data, indent=indent).encode(), "application/json", {"type": "rows", "end": 0})
    assert page.total == count + 2


def test_values_written_over_several_lines_are_given_on_one() -> None:
    data = json.dumps(DATA, indent=2).encode()
    assert select(data, "application/json", {"type": "json_path", "path": "$.a[0:2]"}).content.count("\n") == 1


NAMES = st.text(min_size=1, max_size=5).filter(lambda name: not any(0xD800 <= ord(c) < 0xE000 for c in name))
STEPS = st.lists(
    st.builds(Key, NAMES)
    | st.builds(Index, st.integers(-5, 5))
    | st.builds(Slice, st.none() | st.integers(-5, 5), st.none() | st.integers(-5, 5))
    | st.just(Every()),
    max_size=5,
)


@settings(max_examples=examples(150), deadline=None)
@given(STEPS)
def test_the_text_of_a_path_can_be_read(steps: list[Any]) -> None:
    assert parse_json_path(path_text(steps)) == tuple(steps)
