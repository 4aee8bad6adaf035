"""URIs of many servers as one space (ROUTE-42 to ROUTE-44)."""

import re
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AnyUrl, ValidationError

from tests.support.requirement import requirement
from wicketgate.faces.uris import shown_template, shown_uri, split_uri

# Appendix B and section 3 of RFC 3986, written apart from the code.
_PCT = r"%[0-9A-Fa-f]{2}"
_SUB = r"!$&'()*+,;="
_PCHAR = rf"(?:[A-Za-z0-9\-._~{_SUB}:@]|{_PCT})"
_SEGMENT = rf"{_PCHAR}*"
_HOST = rf"(?:\[[^\]\[/?#@]+\]|(?:[A-Za-z0-9\-._~{_SUB}]|{_PCT})*)"
_AUTHORITY = rf"(?:(?:[A-Za-z0-9\-._~{_SUB}:]|{_PCT})*@)?{_HOST}(?::[0-9]*)?"
_TAIL = rf"(?:\?(?:{_PCHAR}|[/?])*)?(?:#(?:{_PCHAR}|[/?])*)?"
RFC_3986 = re.compile(
    rf"[A-Za-z][A-Za-z0-9+\-.]*:(?://{_AUTHORITY}(?:/{_SEGMENT})*|/(?:{_PCHAR}+(?:/{_SEGMENT})*)?"
    rf"|{_PCHAR}+(?:/{_SEGMENT})*|){_TAIL}"
)

configured = st.from_regex(r"[a-z][a-z0-9_-]{0,20}", fullmatch=True).filter(
    lambda name: "__" not in name and not name.endswith("_")
)
servers = configured | st.text(min_size=1, max_size=12)
_SIGNS = "+ ++ ~ % %2F %2e .. . __ : / // ? # @ [::1] :80 a é"
_STARTS = "file:// demo:// ui:// urn: mailto: git+ssh:// HTTP://"
pieces = st.sampled_from([*_STARTS.split(" "), *_SIGNS.split(" "), " ", "\n", "{x}", "\ud800"])
uris = st.lists(pieces, min_size=1, max_size=8).map("".join) | st.text(min_size=1, max_size=30)


@pytest.mark.parametrize(
    ("server", "own", "shown"),
    [
        ("raw", "file:///a.txt", "raw+file:///a.txt"),
        ("my_git", "git+ssh://h/x", "my.git+git+ssh://h/x"),
        ("my-git", "urn:isbn:1", "my-git+urn:isbn:1"),
        ("raw", "mailto:a@example.com", "raw+mailto:a@example.com"),
        ("raw", "file:///a b.txt", "raw++file:///a%20b.txt"),
        ("raw", "file:///a%20b.txt", "raw+file:///a%20b.txt"),
        ("raw", "file://C:/x", "raw++:file%3A%2F%2FC%3A%2Fx"),
        ("raw", "notes/today", "raw+:notes/today"),
        ("raw", "/etc/hosts", "raw+:/etc/hosts"),
        ("raw", "ui://w/app.html", "ui://raw/w/app.html"),
        ("raw", "ui:///app.html", "ui://raw//app.html"),
        ("raw", "ui://../other/app.html", "ui://raw+/~..%2Fother%2Fapp.html"),
        ("raw", "ui://a b", "ui://raw+/~a%20b"),
        ("Odd.Name", "demo://x", "x..4f64642e4e616d65+demo://x"),
    ],
)
@requirement("ROUTE-42", "ROUTE-43", "ROUTE-44")
def test_the_form_of_a_uri(server: str, own: str, shown: str) -> None:
    assert shown_uri(server, own) == shown
    assert split_uri(shown) == (server, own)


@given(servers, uris)
@requirement("ROUTE-42", "ROUTE-43")
def test_every_uri_comes_back_and_is_one(server: str, own: str) -> None:
    # What comes back for each pair is this pair, so two pairs never have one form.
    shown = shown_uri(server, own)
    assert split_uri(shown) == (server, own)
    assert RFC_3986.fullmatch(shown), shown
    assert shown.startswith("ui://") == own.startswith("ui://")
    try:
        AnyUrl(own)
    except (ValidationError, UnicodeEncodeError):
        return
    AnyUrl(shown)


@given(configured, uris)
@requirement("ROUTE-43")
def test_a_client_that_tidies_a_uri_reaches_the_same_server(server: str, own: str) -> None:
    try:
        tidied = str(AnyUrl(shown_uri(server, own)))
    except (ValidationError, UnicodeEncodeError):
        return
    found = split_uri(tidied)
    assert found is not None and found[0] == server


@pytest.mark.parametrize(
    ("own", "shown", "values", "asked"),
    [
        ("demo://{name}", "raw+demo://{name}", {"{name}": "x"}, "demo://x"),
        ("demo://a{?q,r*}", "raw+demo://a{?q,r*}", {"{?q,r*}": "?q=1"}, "demo://a?q=1"),
        ("{+uri}", "raw+:{+uri}", {"{+uri}": "file:///a"}, "file:///a"),
        ("{scheme}://{path}", "raw+:{scheme}://{path}", {"{scheme}": "git+ssh", "{path}": "h"}, "git+ssh://h"),
        ("urn:x:{id}", "raw+urn:x:{id}", {"{id}": "1"}, "urn:x:1"),
        ("ui://{page}/{+rest}", "ui://raw/{page}/{+rest}", {"{page}": "w", "{+rest}": "a/b"}, "ui://w/a/b"),
    ],
)
@requirement("ROUTE-42")
def test_a_template_keeps_its_expressions_and_expands_to_what_is_asked_for(
    own: str, shown: str, values: dict[str, str], asked: str
) -> None:
    assert shown_template("raw", own) == shown
    assert split_uri(shown) == ("raw", own)
    expanded = shown
    for expression, value in values.items():
        expanded = expanded.replace(expression, value)
    assert split_uri(expanded) == ("raw", asked)


@pytest.mark.parametrize(
    "shown", ["demo://x", "raw__demo://x", "ui://raw", "+demo://x", "raw+", "x..zz+demo://x", "é+a:b"]
)
@requirement("ROUTE-42")
def test_what_has_another_form_names_no_server(shown: str) -> None:
    assert split_uri(shown) is None


@requirement("ROUTE-42")
def test_names_that_differ_in_one_sign_are_never_one() -> None:
    names = ["a_b", "a-b", "a.b", "a+b", "A_b", "a__b", "ab", "a_b-c", "a-b_c"]
    shown = {shown_uri(name, uri) for name, uri in product(names, ["demo://x", "ui://x", "x", "a b"])}
    assert len(shown) == len(names) * 4
