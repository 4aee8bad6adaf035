"""Words, icons and pages of servers as clients are shown them (FACE-164 to FACE-166)."""

from typing import Any

import pytest

from tests.catalog.fixtures import definition
from tests.support.requirement import requirement
from wicketgate.catalog.pins import PinPolicy, pin, screen
from wicketgate.catalog.shown_words import safe_sources, shown_offer, visible


@requirement("FACE-164")
@pytest.mark.parametrize("hidden", ["\x1b", "\x00", "\x07", "\r", "\x7f", "\x9b", "\u202e", "\u2066", "\U000e0041"])
def test_hidden_and_control_characters_are_in_no_words(hidden: str) -> None:
    tool = {
        **definition("read", f"One{hidden}\n\ttwo."),
        "title": f"Re{hidden}ad",
        "inputSchema": {"properties": {"a": {"description": f"an{hidden} a", "enum": [f"x{hidden}"]}}},
    }
    shown = {
        **definition("read", "One\n\ttwo."),
        "title": "Read",
        "inputSchema": {"properties": {"a": {"description": "an a", "enum": [f"x{hidden}"]}}},
    }
    signs = screen("files", [tool], PinPolicy())
    if hidden != "\r":
        assert (signs.kept, list(signs.flagged)) == ((shown,), ["read"])
    trusting = PinPolicy({"files": {"read": pin(tool, trusted=True)}}, hold_suspicious=True)
    assert screen("files", [tool], trusting).kept == (shown,)
    assert visible({"data": [f"a{hidden}b", 1]}) == {"data": ["ab", 1]}
    resource = {"uri": f"a{hidden}", "name": f"n{hidden}", "description": "d"}
    assert shown_offer(resource, "uri") == {"uri": f"a{hidden}", "name": "n", "description": "d"}
    prompt = {"name": "p", "arguments": [{"name": f"a{hidden}", "description": f"d{hidden}"}]}
    assert shown_offer(prompt, "name") == {"name": "p", "arguments": [{"name": f"a{hidden}", "description": "d"}]}


@requirement("FACE-164")
def test_plain_words_are_the_object_that_came() -> None:
    tool, resource = definition("read", "Été\n\ttwo."), {"uri": "a", "name": "n", "icons": [{"src": "https://a/b"}]}
    assert screen("files", [tool], PinPolicy()).kept[0] is tool
    assert shown_offer(resource, "uri") is resource


@requirement("FACE-165")
@pytest.mark.parametrize(
    ("source", "is_shown"),
    [
        ("https://example.com/a.png", True),
        ("data:image/svg+xml;base64,AA==", True),
        ("DATA:image/png,x", True),
        ("javascript:alert(1)", False),
        ("http://127.0.0.1/a.png", False),
        ("data:text/html,x", False),
        (" https://example.com/a.png", False),
        ("//example.com/a.png", False),
        (None, False),
    ],
)
def test_icons_come_over_tls_or_are_images(source: object, is_shown: bool) -> None:
    good = {"src": "https://example.com/b.png"}
    shown = safe_sources({"name": "a", "icons": [{"src": source}, good]})
    assert shown == {"name": "a", "icons": [{"src": source}, good] if is_shown else [good]}


@requirement("FACE-166")
@pytest.mark.parametrize(
    ("domain", "stays"),
    [
        ("https://api.example.com", True),
        ("https://*.example.com", True),
        ("wss://live.example.com:8443", True),
        ("*", False),
        ("https://*", False),
        ("https:", False),
        ("http://*:*", False),
        ("wss://*:443", False),
        ("*.com", False),
        (" * ", False),
        ("", False),
        (5, False),
    ],
)
def test_a_page_reaches_the_hosts_that_it_names_and_never_any_host(domain: object, stays: bool) -> None:
    def page(*domains: object) -> dict[str, Any]:
        csp = {"connectDomains": list(domains), "resourceDomains": list(domains)}
        return {"uri": "ui://a", "_meta": {"ui": {"csp": csp, "prefersBorder": True}, "theirs": 1}}

    assert safe_sources(page("https://a.example", domain)) == page("https://a.example", *[domain] * stays)
