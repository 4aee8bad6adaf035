"""YAML is read by version 1.2, in bounds, in one place."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.properties import examples
from tests.support.requirement import requirement
from wicketgate.yaml_text import PARSER, NotYaml, read_yaml, write_yaml

ROOT = Path(__file__).parents[1]
WORDS = ["on", "yes", "No", "true", "Null", "~", "", "1e5", "09", "0o17", "0x1F", "1.5e5", ".5", "+1", "1_000", "1:30"]


@requirement("OPS-20")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[on, off, yes, no, y, On, NO]", ["on", "off", "yes", "no", "y", "On", "NO"]),
        ("[true, True, TRUE, false, False, FALSE, tRue]", [True, True, True, False, False, False, "tRue"]),
        ("[null, Null, NULL, ~, nuLL]", [None, None, None, None, "nuLL"]),
        ("[1, -2, +3, 007, 0o17, 0x1F, 1_000, 1:30]", [1, -2, 3, 7, 15, 31, "1_000", "1:30"]),
        ("[1.5, .5, 1., 1e3, -1.5E-2, .inf, .nan]", [1.5, 0.5, 1.0, 1000.0, -0.015, ".inf", ".nan"]),
        ("[2024-01-31, 2024-13-45]", ["2024-01-31", "2024-13-45"]),
        ("['1', \"true\", !!str 1, ! 1]", ["1", "true", "1", 1]),
        ("a: |\n  1\n", {"a": "1\n"}),
        ("{1: a, true: b, null: c, on: d}", {"1": "a", "true": "b", "null": "c", "on": "d"}),
        ("a: &a {x: 1}\nb: {<<: *a, y: 2}", {"a": {"x": 1}, "b": {"x": 1, "y": 2}}),
        ("b: {x: 3, <<: [{x: 1, z: 1}, {z: 2}]}", {"b": {"x": 3, "z": 1}}),
        ("", None),
        ("# nothing", None),
    ],
)
@pytest.mark.parametrize("strict", [False, True])
def test_scalars_are_those_of_version_1_2(text: str, value: Any, strict: bool) -> None:
    assert read_yaml(text, strict=strict) == value


@requirement("OPS-20")
@pytest.mark.parametrize(
    ("text", "problem", "value"),
    [
        (
            "a: 1\nb:\n  c: 1\n  c: 2",
            "line 4, column 3: the key 'c' is given twice: line 3 has it",
            {"a": 1, "b": {"c": 2}},
        ),
        ("1: a\n'1': b", "line 2, column 1: the key '1' is given twice", {"1": "b"}),
        ("a: !include secret.yaml", "line 1, column 4: tags", {"a": "secret.yaml"}),
        ("!!python/object/apply:os.system [ls]", "line 1, column 1: tags", ["ls"]),
        ("a: 1\n---\nb: 2", "line 2, column 1: a second document", {"a": 1}),
    ],
)
def test_what_a_person_cannot_have_meant_is_refused_on_demand(text: str, problem: str, value: Any) -> None:
    with pytest.raises(NotYaml, match=f"^{problem}"):
        read_yaml(text, strict=True)
    assert read_yaml(text) == value


def test_a_merged_key_may_be_given_again() -> None:
    assert read_yaml("a: &a {x: 1}\nb: {<<: *a, x: 2}", strict=True)["b"] == {"x": 2}


@requirement("OPS-20")
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: b: c", "line 1, column 5: not valid YAML"),
        ("a:\n\t- b", "line 2, column 1: not valid YAML"),
        ("b: 1\na: [", "line 2, column 5: not valid YAML"),
        ("a: \0", "not valid YAML"),
        ("a: \ud800", "not valid YAML"),
        ("a: &a [*a]", "line 1, column 8: an alias of nothing"),
        ("a: *b", "an alias of nothing|not valid YAML"),
        ("? [a]\n: b", "line 1, column 5: a key that is not a single value"),
        ("[" * 100_000, "too large or too deep"),  # PyYAML's C loader ends the process here
        ("- " * 100_000, "too large or too deep"),
        ("- a\n" * 2_100_000, "too large or too deep"),
        ("a" * (16 * 1024 * 1024 + 1), "more than 16 Mi characters"),
    ],
)
def test_what_cannot_be_read_says_where(text: str, problem: str) -> None:
    with pytest.raises(NotYaml, match=problem):
        read_yaml(text)


@requirement("UP-32")
def test_aliases_that_say_a_little_very_often_are_refused() -> None:
    lines = ["x0: &x0 [a, a, a, a, a, a, a, a, a, a]"]
    lines += [f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert read_yaml("\n".join(lines[:5]))["x4"][9][9][9][9][9] == "a"
    with pytest.raises(NotYaml, match="values"):
        read_yaml("\n".join(lines))


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(WORDS)
    | st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(WORDS) | st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=5),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@requirement("OPS-20")
def test_a_quoted_merge_key_is_a_name() -> None:
    assert read_yaml('{"<<": {a: 1}}') == {"<<": {"a": 1}}
    assert read_yaml("{'<<': []}", strict=True) == {"<<": []}
    assert read_yaml("{<<: {a: 1}}") == {"a": 1}


@given(VALUES)
@settings(max_examples=examples(100))
def test_what_is_written_is_read_back_by_this_reader_and_by_older_ones(value: Any) -> None:
    text = write_yaml({"v": value})
    assert read_yaml(text, strict=True) == {"v": value}
    assert yaml.safe_load(text) == {"v": value}


# No tabs: within a text without quotes they are read by libyaml alone.
PIECES = st.sampled_from(
    [
        *(
            "a",
            "b",
            "1",
            "0x1F",
            "1e3",
            "true",
            "~",
            "null",
            "é",
            "k: ",
            "b: ",
            ": ",
            "- ",
            "? ",
            ", ",
            "{",
            "}",
            "[",
            "]",
        ),
        *("\n", "\n  ", "\n- ", "\nb: ", "# c\n", " #c", "|\n  t\n", ">\n  u\n", "'", '"', "\\", "---\n", "...\n"),
        *("&x ", "*x", "x: &x {q: 1}\n", "<<: ", "<<: *x", "!!str ", "!x ", "%YAML 1.2\n", "@"),
    ]
)


def _read(text: str, *, strict: bool, parser: type[Any]) -> tuple[Any, str]:
    try:
        return read_yaml(text, strict=strict, parser=parser), ""
    except NotYaml as error:
        return None, str(error)


@requirement("OPS-365")
@given(st.lists(PIECES, max_size=14).map("".join), st.booleans())
@settings(max_examples=examples(1_000))
def test_with_and_without_libyaml_a_document_is_read_alike(text: str, strict: bool) -> None:
    (value, error), (other, problem) = (
        _read(text, strict=strict, parser=each) for each in (yaml.CSafeLoader, yaml.SafeLoader)
    )
    # Also the kinds of numbers, and the order of keys.
    assert (repr(value), bool(error)) == (repr(other), bool(problem))
    if "not valid YAML" not in error + problem:
        # The place of an end is where each of them noticed it.
        assert error.partition(": ")[2] == problem.partition(": ")[2]
        assert error == problem or "given twice" not in error


@requirement("OPS-365")
@given(VALUES, st.booleans(), st.sampled_from([None, "'", '"']), st.booleans())
@settings(max_examples=examples(200))
def test_what_others_write_is_read_alike_with_and_without_libyaml(
    value: Any, flow: bool, quotes: str | None, strict: bool
) -> None:
    text = yaml.safe_dump(value, default_flow_style=flow, default_style=quotes, allow_unicode=True)
    found = _read(text, strict=strict, parser=yaml.CSafeLoader)
    assert repr(found) == repr(_read(text, strict=strict, parser=yaml.SafeLoader))
    if not strict:
        assert not found[1]


@requirement("OPS-365", "OPS-20")
def test_libyaml_is_used_where_it_is_and_errors_deep_in_a_long_list_of_keys_name_their_place() -> None:
    assert issubclass(PARSER, yaml.CSafeLoader)
    lines = ["auth:", "  keys:"]
    for number in range(10_000):
        lines += [f"    - id: key-{number}", f'      sha256: "{number:064x}"', f"      actor: actor-{number}"]
    keys = read_yaml("\n".join(lines), strict=True)["auth"]["keys"]
    assert len(keys) == 10_000
    assert keys[9_999] == {"id": "key-9999", "sha256": f"{9_999:064x}", "actor": "actor-9999"}
    with pytest.raises(NotYaml, match=r"^line 30003, column 7: the key 'id' is given twice: line 30000 has it too"):
        read_yaml("\n".join([*lines, "      id: again"]), strict=True)


def test_yaml_is_read_and_written_in_one_module() -> None:
    users = [
        path.relative_to(ROOT).as_posix()
        for folder in ("wicketgate", "app", "routers", "middleware")
        for path in (ROOT / folder).rglob("*.py")
        if re.search(r"^\s*(?:import|from) yaml\b", path.read_text("utf-8"), re.MULTILINE)
    ]
    assert users == ["wicketgate/yaml_text.py"]
