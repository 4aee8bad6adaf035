"""One entry of a person's JSON or TOML is set, and every other byte stays."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.commands.client_formats import FormatError, add_json_item, read_format, set_entry
from tests.support.properties import examples
from tests.support.requirement import requirement

ENTRY = {"command": "/bin/gate", "args": ["mcp"]}


def inserted(before: str, after: str) -> str:
    """Returns the text that was put in, in one place; anything else fails."""
    pairs = enumerate(zip(before, after, strict=False))
    start = next((place for place, (old, new) in pairs if old != new), len(before))
    assert after.endswith(before[start:]), (before, after)
    return after[start : len(after) - len(before) + start]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '{\n  "m": {\n    "gate": 1\n  }\n}\n'),
        ("// mine\n", '// mine\n{\n  "m": {\n    "gate": 1\n  }\n}\n'),
        ("{}", '{\n  "m": {\n    "gate": 1\n  }\n}'),
        ('{"m": {}}', '{"m": {\n  "gate": 1\n}}'),
        ('{"m": {"a": 2}}', '{"m": {"gate": 1, "a": 2}}'),
        ('{"m": { "a": 2 }}', '{"m": {"gate": 1, "a": 2 }}'),
        ('{\n\t"m": {\n\t\t"a": 2\n\t}\n}', '{\n\t"m": {\n\t\t"gate": 1,\n\t\t"a": 2\n\t}\n}'),
        ('{\r\n "m": {\r\n  "a": 2\r\n }\r\n}', '{\r\n "m": {\r\n  "gate": 1,\r\n  "a": 2\r\n }\r\n}'),
        ('{\n  "m": { // x\n    "a": 2,\n  }\n}', '{\n  "m": {\n    "gate": 1, // x\n    "a": 2,\n  }\n}'),
        ('{\n  "m": {\n    // none\n  }\n}', '{\n  "m": {\n    "gate": 1\n    // none\n  }\n}'),
        ('{\n "m": {\n    /* x\n*/\n    "a": 2\n }\n}', '{\n "m": {\n    "gate": 1,\n    /* x\n*/\n    "a": 2\n }\n}'),
        (
            '{\n  "m": {\n    "gate": [1, /* old */ 2], // g\n    "a": 2\n  }\n}',
            '{\n  "m": {\n    "gate": 1, // g\n    "a": 2\n  }\n}',
        ),
        ('{"x": "// no comment, }", "m": {"a": "/*"}}', '{"x": "// no comment, }", "m": {"gate": 1, "a": "/*"}}'),
    ],
)  # fmt: skip
@requirement("OPS-72")
def test_a_member_goes_to_its_place_in_the_style_of_the_file(before: str, after: str) -> None:
    assert set_entry("json", before, ["m", "gate"], 1) == after


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{\n  "m": {\n', "line 3: "),
        ('{"m": {}\n/* never ends', "line 2: a comment that does not end"),
        ('{"m": 1,\n"m" 2}', "line 2: "),
        ("[]", "holds no object"),
        ('{"m": []}', "m is not an object"),
        ('{"m": null}', "m is not an object"),
        ('{"m": {},\n "m": {}}', "line 2: m is given twice"),
        ('{"m": {"gate": 1,\n"gate": 2}}', "line 2: gate is given twice"),
        ("[" * 100_000, "cannot be read as JSON"),
    ],
)
@requirement("OPS-73")
def test_what_cannot_be_edited_is_refused_with_the_line(text: str, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        set_entry("json", text, ["m", "gate"], 1)


@requirement("OPS-72")
def test_an_item_is_put_into_a_list_or_makes_it() -> None:
    assert add_json_item('{"inputs": []}', "inputs", "b") == '{"inputs": [\n  "b"\n]}'
    assert add_json_item('{"inputs": ["a"]}', "inputs", "b") == '{"inputs": ["b", "a"]}'
    assert add_json_item('{\n  "inputs": [\n    "a", // one\n  ]\n}', "inputs", "b") == (
        '{\n  "inputs": [\n    "b",\n    "a", // one\n  ]\n}'
    )
    assert read_format("json", add_json_item("{}", "inputs", "b")) == {"inputs": ["b"]}
    with pytest.raises(FormatError, match="inputs is not a list"):
        add_json_item('{"inputs": {}}', "inputs", "b")


_SPACES = st.lists(
    st.sampled_from([" ", "\n", "\t", "\r\n", '// a, } " comment\n', '/* { " , */', "/* over\nlines */"]), max_size=3
).map("".join)
_TEXTS = st.sampled_from(["", "a", "// no", "/* no */", 'q"', "\\", "}", ",", "é", "m", "gate"])
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3),
    max_leaves=8,
)


@st.composite
def _written(draw: Any, value: Any) -> str:
    """*value* as a person might have written it."""
    space = draw(_SPACES)
    if isinstance(value, dict | list) and value:
        parts = []
        for part in value.items() if isinstance(value, dict) else ((None, each) for each in value):
            name = "" if part[0] is None else f"{draw(_SPACES)}{json.dumps(part[0])}{draw(_SPACES)}:"
            parts.append(f"{name}{draw(_written(part[1]))}")
        comma = draw(st.sampled_from(["", ","]))
        left, right = "{}" if isinstance(value, dict) else "[]"
        return f"{space}{left}{','.join(parts)}{comma}{draw(_SPACES)}{right}{draw(_SPACES)}"
    return f"{space}{json.dumps(value)}{draw(_SPACES)}"


@given(st.data())
@settings(max_examples=examples(60), deadline=None)
@requirement("OPS-72")
def test_whatever_else_a_file_holds_stays_byte_for_byte(data: st.DataObject) -> None:
    root: dict[str, Any] = data.draw(st.dictionaries(_TEXTS, _VALUES, max_size=3))
    root["m"] = data.draw(st.dictionaries(_TEXTS.filter(lambda text: text != "gate"), _VALUES, max_size=3))
    text = data.draw(_written(root))
    done = set_entry("json", text, ["m", "gate"], ENTRY)
    assert read_format("json", done) == {**root, "m": {**root["m"], "gate": ENTRY}}
    assert 'gate": {' in inserted(text, done)
    # A second value takes the place of the first, and nothing else moves.
    again = set_entry("json", done, ["m", "gate"], "other")
    assert set_entry("json", again, ["m", "gate"], ENTRY) == set_entry("json", done, ["m", "gate"], ENTRY)
    assert read_format("json", again)["m"]["gate"] == "other"


TOML = """\
# mine
model = "o"   # the model

[mcp_servers.git]
command = "uvx"
args = [
  "mcp-server-git", # [not.a.header]
]

[notes]
text = '''
[mcp_servers.gate]
'''
"""


@requirement("OPS-72")
def test_a_table_goes_to_the_end_and_is_replaced_where_it_stands() -> None:
    path = ["mcp_servers", "gate"]
    first = set_entry("toml", TOML, path, {**ENTRY, "env": {"A": "1"}})
    assert first.startswith(TOML)
    assert read_format("toml", first)["mcp_servers"]["gate"] == {**ENTRY, "env": {"A": "1"}}
    behind = first + "\n# the last\n[last]\nx = 1\n"
    second = set_entry("toml", behind, path, ENTRY)
    assert second == TOML + '\n[mcp_servers.gate]\ncommand = "/bin/gate"\nargs = ["mcp"]\n\n# the last\n[last]\nx = 1\n'
    windows = TOML.replace("\n", "\r\n")
    assert set_entry("toml", windows, path, ENTRY) == windows + (
        '\r\n[mcp_servers.gate]\r\ncommand = "/bin/gate"\r\nargs = ["mcp"]\r\n'
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a = \n", r"line 1"),
        ("mcp_servers = 3\n", "mcp_servers is not a table"),
        ("mcp_servers = {git = {command = 'x'}}\n", "cannot be changed in one place only"),
        ("[mcp_servers]\ngate = {command = 'x'}\n", "has no header of its own"),
        ("[mcp_servers.gate]\na = 1\n[other]\n[mcp_servers.gate.env]\nA = '1'\n", "has no header of its own"),
    ],
)
@requirement("OPS-73")
def test_toml_that_cannot_be_edited_is_refused(text: str, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        set_entry("toml", text, ["mcp_servers", "gate"], ENTRY)
