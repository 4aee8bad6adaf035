"""Patterns against ECMA-262.

``ECMA_262`` was made with node 20: for each pattern and text, ``new RegExp(pattern, "u").test(text)``, and where ``u``
refuses the pattern, the same without flags. A row is a pattern, texts in which node finds it, and texts in which not.
"""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.effort import bounded_effort
from tests.support.properties import examples
from tests.support.requirement import requirement
from wicketgate.schemas.patterns import compile_pattern

ECMA_262 = [
    (r"^a$", ["a"], ["a\n", "\na", "ba", "ab"]),
    (r"a$", ["ba"], ["ba\n", "a\r"]),
    (r"^", ["", "x"], []),
    (r"$", ["", "x\n"], []),
    (r"a^", [], ["a", "a\n"]),
    (r"^$", [""], ["\n"]),
    (r"(?:^|,)b", ["b", "a,b"], ["ab"]),
    (r"b(?:$|;)", ["b", "b;x"], ["ba"]),
    (r"^.$", ["a", "\x85", "\x0b", "\xe9", "\U0001f600"], ["\n", "\r", "\u2028", "\u2029", "ab"]),
    (r"^..$", ["\U0001f600a", "ab"], ["\U0001f600"]),
    (r"^a.*b$", ["axxb", "ab"], ["a\nb"]),
    (r"^\d$", ["5"], ["\u0665", "\uff15", "a"]),
    (r"^\D$", ["\u0665", "a", "\n"], ["5"]),
    (r"^\w$", ["a", "_", "Z", "9"], ["\xe9", "-", "\u017f", "\u212a"]),
    (r"^\W$", ["\xe9", "-", "\u017f"], ["a"]),
    (
        r"^\s$",
        list(" \t\n\x0b\x0c\r\xa0\u1680\u2000\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"),
        ["\u180e", "\u200b", "\x85", "\x1c"],
    ),
    (r"^\S$", ["a", "\x85"], ["\xa0", "\ufeff"]),
    (r"^[\s\d]$", ["\ufeff", "5"], ["a"]),
    (r"^[^\s]$", ["x"], ["\u2003"]),
    (r"^[\S]$", ["x"], ["\ufeff", " "]),
    (r"^[\W_]$", ["_", "-", "\xe9"], ["a"]),
    (r"^[\D]$", ["x"], ["1"]),
    (r"^[^\D]$", ["1"], ["x"]),
    (r"^[\s\S]$", ["\n", "x"], []),
    (r"^[\w\W]{2}$", ["\n\xe9"], ["a"]),
    (r"[]", [], ["", "a"]),
    (r"^[^]$", ["\n", "a", "\U0001f600"], [""]),
    (r"[^\s\S]", [], ["a"]),
    (r"a[]|b", ["b"], ["a"]),
    (r"^[^a]$", ["\n", "b", "\U0001f600"], ["a"]),
    (r"^[a-c]+$", ["abc"], ["abd"]),
    (r"^[a-]$", ["a", "-"], ["b"]),
    (r"^[-a]$", ["-", "a"], []),
    (r"^[\w-]$", ["-", "a"], ["."]),
    (r"^[\w-.]+$", ["a-.b"], ["a+b"]),
    (r"^[a-\d]+$", ["a-5"], ["b"]),
    (r"^[.*+?]$", [".", "*"], ["a"]),
    (r"^[[]$", ["["], ["]"]),
    (r"^[\]]$", ["]"], []),
    (r"^[\\]$", ["\\"], []),
    (r"^[^\]]+$", ["abc"], ["a]"]),
    (r"^[\b]$", ["\x08"], ["b"]),
    (r"^[a^]$", ["^", "a"], ["b"]),
    (r"^[\^a]$", ["^"], []),
    (r"^[!-~]+$", ["a~!"], ["a b"]),
    (r"^[,-.]$", [",", "-", "."], ["/"]),
    (r"^[\-x]$", ["-", "x"], []),
    ("^[\xe9-\xfc]$", ["\xea"], ["e"]),
    (r"^[\n]$", ["\n"], ["n"]),
    (r"^[$]$", ["$"], []),
    (r"^[(|)]+$", ["(|)"], ["a"]),
    (r"^[{}]+$", ["{}"], []),
    (r"^[/]$", ["/"], []),
    (r"^[&&a]$", ["&", "a"], []),
    (r"^[\d.]+$", ["1.5"], ["1,5"]),
    (r"^[A-Za-z0-9+/]+={0,2}$", ["aGk="], ["aG k"]),
    (r"^[\u{1F600}-\u{1F64F}]$", ["\U0001f600"], ["\U0001f650", "a"]),
    ("^[\U0001f600-\U0001f64f]$", ["\U0001f610"], ["x"]),
    (r"^[\uD83D\uDE00]$", ["\U0001f600"], []),
    (r"^[\ud83d\ude00-\ud83d\ude4f]$", ["\U0001f601"], ["\U0001f650"]),
    (r"^\/a\/$", ["/a/"], []),
    (r"^\t\n\v\f\r$", ["\t\n\x0b\x0c\r"], []),
    (r"^\0$", ["\x00"], ["0"]),
    (r"^\cA$", ["\x01"], ["A"]),
    (r"^\cj$", ["\n"], []),
    (r"^[\cZ]$", ["\x1a"], []),
    (r"^\x41$", ["A"], ["x41"]),
    (r"^\x7f$", ["\x7f"], []),
    (r"^\u0041$", ["A"], []),
    (r"^\u00e9$", ["\xe9"], ["e"]),
    (r"^\u{41}$", ["A"], []),
    (r"^\u{1F600}$", ["\U0001f600"], []),
    (r"^\uD83D\uDE00$", ["\U0001f600"], []),
    (r"^\u2028$", ["\u2028"], []),
    (r"^\.$", ["."], ["a"]),
    (r"^\^\$\\\*\+\?\(\)\[\]\{\}\|$", ["^$\\*+?()[]{}|"], []),
    (r"^\-$", ["-"], []),
    ("^\\@\\:\\ \\\"\\'\\_\\#\\%\\&\\,\\;\\=\\!\\~\\`$", ["@: \"'_#%&,;=!~`"], []),
    (r"^\<b\>$", ["<b>"], []),
    (r"^a\$b$", ["a$b"], []),
    ("^\xe9+$", ["\xe9\xe9"], ["e\u0301"]),
    (r"\bfoo\b", ["a foo b", "foo\xe9", "\xe9foo"], ["afoo", "foo_"]),
    (r"\b", ["a"], ["\xe9", ""]),
    (r"\b\w+\b", ["\xe9a\xe9"], ["\xe9"]),
    (r"^a{2}$", ["aa"], ["a", "aaa"]),
    (r"^a{2,}$", ["aaa"], ["a"]),
    (r"^a{1,2}$", ["a", "aa"], ["aaa"]),
    (r"^a{0}$", [""], ["a"]),
    (r"^a{0,0}b$", ["b"], []),
    (r"^a*?b$", ["aab"], []),
    (r"^a+?$", ["aa"], []),
    (r"^a??$", ["a", ""], []),
    (r"^a{1,2}?$", ["aa"], []),
    (r"^(?:ab)+$", ["abab"], ["aba"]),
    (r"^(a+)+$", ["aaa"], ["aab"]),
    (r"^(a|a)*$", ["aaaa"], ["b"]),
    (r"^(a*)*$", ["", "aa"], ["b"]),
    (r"^(\w+\s?)*$", ["some words here"], ["a, b"]),
    (r"^()*$", [""], ["a"]),
    (r"^(?:a?){3}$", ["aa"], ["aaaa"]),
    (r"^(?:|a)+$", ["aa"], ["b"]),
    (r"^a{02}$", ["aa"], []),
    (r"^[a-z]{1,1000}$", ["abc"], [""]),
    (r"^(?:\b|a)+$", ["a"], []),
    (r"^(?:^a)+$", ["a"], ["aa"]),
    (r"^{$", ["{"], []),
    (r"^a{$", ["a{"], []),
    (r"^{a}$", ["{a}"], []),
    (r"^\${[a-z]+}$", ["${x}"], ["$x"]),
    (r"^a{b}$", ["a{b}"], []),
    (r"^}$", ["}"], []),
    (r"^]$", ["]"], []),
    (r"^a{1$", ["a{1"], []),
    (r"^a{1,x}$", ["a{1,x}"], ["a"]),
    (r"^{{.*}}$", ["{{a}}"], ["{a}"]),
    (r"^x{ 1}$", ["x{ 1}"], []),
    (r"^(?<year>\d{4})-(?<m>\d\d)$", ["2026-11"], ["26-11"]),
    (r"^(?<$a>x)$", ["x"], []),
    ("^(?<\xf1>x)$", ["x"], []),
    (r"^(a|b|)$", ["a", ""], ["c"]),
    (r"^(?:a|(b))c$", ["ac", "bc"], []),
    (r"a|b|", ["c"], []),
    (r"^((a)(b(c)))$", ["abc"], []),
    (r"()", [""], []),
    (r"(?:)", ["x"], []),
    (r"^\p{L}+$", ["A\xe9\u65e5"], ["a1"]),
    (r"^\p{Lu}$", ["\xc9"], ["\xe9"]),
    (r"^\p{gc=Nd}$", ["\u0665"], ["a"]),
    (r"^\p{General_Category=Nd}$", ["5"], ["\xb2"]),
    (r"^\P{L}$", ["1", "\n"], ["a"]),
    (r"^[\p{L}\p{M}' -]+$", ["Zo\u0308e O'Neil-Ng"], ["Z0"]),
    (r"^[^\p{L}]$", ["1"], ["x"]),
    (r"^[\P{Lu}]$", ["a"], ["A"]),
    (r"^\p{Script=Greek}+$", ["\u03b1\u03b2\u03b3"], ["abc"]),
    (r"^\p{sc=Cyrillic}+$", ["\u041f\u0440\u0438\u0432\u0435\u0442"], ["Privet"]),
    (r"^\p{Script=Han}$", ["\u6f22"], ["\u3042"]),
    (r"^[\p{sc=Hiragana}\p{sc=Katakana}]+$", ["\u3042\u30a2"], ["\u6f22"]),
    (r"^\P{Script=Latin}$", ["\u03b1"], ["a"]),
    (r"^\p{ASCII}+$", ["abc"], ["\xe9"]),
    (r"^\P{ASCII}$", ["\xe9"], ["a"]),
    (r"^\p{Any}$", ["\n", "\U0001f600"], []),
    (r"^\p{P}+$", [".,!"], ["a"]),
    (r"^\p{S}$", ["+", "\u20ac"], ["-"]),
    (r"^\p{Sc}$", ["\u20ac"], ["e"]),
    (r"^\p{Zs}$", ["\xa0"], ["\n"]),
    (r"^\p{Cc}$", ["\n"], ["a"]),
    (r"^\p{Mn}$", ["\u0308"], ["o"]),
    (r"^\p{Nl}$", ["\u2160"], ["1"]),
    ("^[\\p{ASCII}\xe9]$", ["\xe9"], ["\xfc"]),
    (r"^A$", ["A"], ["a"]),
    (r"^[^@\s]+@[^@\s]+\.[^@\s]+$", ["a@b.example"], ["a@b", "a b@c.d", "a\ufeff@b.c"]),
    (r"^https?://[^\s/$.?#].[^\s]*$", ["https://x.example/y"], ["ftp://x"]),
    (r"^#[0-9a-fA-F]{6}$", ["#00ffAA"], ["#00ffA"]),
    (r"^(25[0-5]|2[0-4]\d|1?\d?\d)(\.(25[0-5]|2[0-4]\d|1?\d?\d)){3}$", ["192.168.0.1"], ["256.1.1.1"]),
    (r"^P(?:\d+Y)?(?:\d+M)?(?:\d+D)?(?:T(?:\d+H)?(?:\d+M)?(?:\d+S)?)?$", ["P1Y2DT3H"], ["1Y"]),
    (r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$", ["aGVsbG8="], ["aGVsbG8"]),
    (r"^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$", ["0b4f5f6e-1c2d-4e3f-8a9b-001122334455"], ["0b4f5f6e"]),
    (r"^v?(\d+)\.(\d+)\.(\d+)(?:-([\w.-]+))?$", ["v1.2.3-rc.1"], ["1.2"]),
    (r"^\s*$", ["", "\xa0\u3000"], ["x"]),
    (r"^[^<>:\"/\\|?*]+$", ["file.txt"], ["a/b"]),
    (r"^(?:asc|desc)$", ["desc"], ["descending"]),
    (r"\.(?:jpe?g|png)$", ["a.jpeg"], ["a.gif"]),
    (r"^\+?[1-9]\d{1,14}$", ["+4930123"], ["0123"]),
    (r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", ["a-b"], ["a-"]),
    (r"^\$\.[\w.\[\]*]+$", ["$.a[*].b"], ["a"]),
]


@requirement("EXEC-39")
@pytest.mark.parametrize(("pattern", "found", "missing"), ECMA_262, ids=[ascii(row[0]) for row in ECMA_262])
def test_a_pattern_is_found_where_ecma_262_finds_it(pattern: str, found: list[str], missing: list[str]) -> None:
    compiled = compile_pattern(pattern)
    assert compiled is not None
    assert [text for text in found if not compiled.search(text)] == []
    assert [text for text in missing if compiled.search(text) is not False] == []


@requirement("EXEC-39")
@pytest.mark.parametrize(
    "pattern",
    [
        # Nothing that RE2 can express.
        r"(?=a)b", r"(?!a)b", r"(?<=a)b", r"(?<!a)b", r"(a)\1", r"(?<n>a)\k<n>", r"\Bx", "^.{1,1001}$",
        r"(?:a{100}){100}", r"\p{C}", r"\p{Cn}", r"\p{Letter}", r"\p{sc=Cyrl}",
        r"\p{Emoji}", r"\p{Alphabetic}", r"\p{Script_Extensions=Greek}",
        # One meaning in code units, and a different one in code points.
        r"\ud83d", r"[\ud83c-\udbff\udc00-\udfff]", "\ud83d", r"\p{L}\-", r"\u{41}{", "[\\w-.\U0001f600]",
        # Not ECMA-262, or meant for another language.
        "[", "(", ")", "a)", "(?i)a", "(?i:a)", "a++", "a**", "a*{2}", "*", "^*", "$+", r"\b?", "|*", "a{2,1}", "{1}",
        "a{,5}", r"\Aa\Z", r"\a", r"\h", r"\e", r"\Qa\E", r"\01", r"\x4", r"\u12", r"\c1", r"\u{110000}", r"\u{}",
        r"\u{zz}", r"\u{4", r"\p{Greek}", r"\pL", r"\p{", r"\p{Script=Any}", "(?P<n>a)", "(?<1>a)", "(?<n>a)(?<n>b)",
        "(?<n", "[z-a]", "[a", "[[:alpha:]]", "\\", r"\é", "a" * 2_001, "(" * 1_500 + ")" * 1_500,
    ],
)  # fmt: skip
def test_what_has_no_equal_meaning_is_not_compiled(pattern: str) -> None:
    assert compile_pattern(pattern) is None


@requirement("EXEC-39")
def test_where_a_character_counts_as_two_is_left_undecided() -> None:
    # Valid without the flag only, where the text has two units.
    legacy = compile_pattern(r"^[\w\-]..\-$")
    assert legacy is not None
    assert [legacy.search(text) for text in ("axx-", "a-", "a\u00e9\uffff-", "a\U0001f600-")] == [
        True,
        False,
        True,
        None,
    ]


@requirement("EXEC-39")
def test_what_is_not_unicode_text_is_left_undecided() -> None:
    compiled = compile_pattern("a")
    assert compiled is not None
    assert compiled.search("a\ud800") is None


@requirement("EXEC-39")
def test_a_text_too_long_for_its_pattern_is_not_searched() -> None:
    compiled = compile_pattern("^[^\n]{250}$")
    assert compiled is not None
    most = 20_000_000 // compiled.size
    assert compiled.search("a" * most) is False
    assert compiled.search("a" * (most + 1)) is None
    assert compiled.search("é" * (most // 2)) is None


PATTERNS = st.recursive(
    st.sampled_from(["a", "b", "[ab]", "[^a]", r"\w", r"\d", "^", "$", r"\b"]),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda each: f"(?:{'|'.join(each)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "*?"])).map(
            lambda two: f"(?:{two[0]}){two[1]}"
        ),
    ),
    max_leaves=8,
)


@requirement("EXEC-8", "EXEC-39")
@settings(max_examples=examples(200), deadline=None)
@given(PATTERNS, st.sampled_from(["a", "b", "ab", "aab"]), st.sampled_from(["", "!", "b", "\n"]))
def test_a_pattern_is_fast_on_long_texts_and_finds_what_python_finds(pattern: str, unit: str, tail: str) -> None:
    compiled = compile_pattern(pattern)
    assert compiled is not None
    with bounded_effort():
        assert compiled.search(unit * 20_000 + tail) in (True, False, None)
    short = unit * 4 + tail
    # Python's dollar also stands before the last line end.
    assert compiled.search(short) is (re.search(pattern.replace("$", r"\Z"), short, re.ASCII) is not None)


@requirement("EXEC-8")
@pytest.mark.parametrize(
    "pattern",
    [
        "^(a+)+$",
        "(x+x+)+y",
        "[ab]{250}c",
        "a[ab]{1000}c",
        "(?:a?){1000}a{1000}",
        "(?:[ab]?[ac])?" * 60 + "x",
        "^(?:" + "|".join(chr(0x4E00 + n) for n in range(240)) + ")*$",
        "a?" * 900,
        "(?:a|b)*a(?:a|b){20}c",
    ],
)
def test_a_hostile_pattern_is_searched_in_bounded_time_or_not_at_all(pattern: str) -> None:
    compiled = compile_pattern(pattern)
    assert compiled is not None
    for text in ("a" * 50_000, "ab" * 25_000, chr(0x4E00 + 239) * 50_000, "a" * 10_000_000, "a" * 1_000):
        with bounded_effort():
            compiled.search(text)


@requirement("EXEC-39")
@pytest.mark.parametrize("pattern", [r"^[\p{L}\p{N}]{1,1000}$", r"(?:\p{L}|\p{N})*a(?:\p{L}|[0-9]){200}$"])
def test_a_pattern_that_makes_a_large_program_is_not_compiled(pattern: str) -> None:
    with bounded_effort():
        assert compile_pattern(pattern) is None
