"""Destinations, and where they come from (ACCESS-260 to ACCESS-266)."""

from contextlib import suppress
from email.utils import getaddresses
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.requirement import requirement
from wicketgate.access.destinations import Destination, destinations_in, requests_among, values_in
from wicketgate.access.flow import CallFlow, FlowRules, Place, SessionMemory, strange_among
from wicketgate.catalog.tool_id import tool_names

MAIL = "mark.black@example.net"


def found_in(args: dict[str, Any], also: frozenset[str] = frozenset()) -> list[str]:
    return [each.text for each in destinations_in(args, also)]


def text_result(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


def strange_after(
    args: dict[str, Any],
    *,
    said: tuple[str, ...] = (),
    trusted: tuple[str, ...] = (),
    strangers: tuple[str, ...] = (),
    rules: FlowRules | None = None,
) -> list[str]:
    """Returns the strange destinations in *args* after tools returned these texts."""
    memory = SessionMemory()
    for text in trusted:
        memory.learn(values_in(text_result(text), {}))
    for text in strangers:
        memory.read(Place("web:get", 1.0, "req"), values_in(text_result(text), {}))
    found = destinations_in(args)
    return [each.text for each in strange_among(found, rules or FlowRules(), memory.knows, said)]


@requirement("ACCESS-260")
@pytest.mark.parametrize(
    ("args", "found"),
    [
        ({"body": f"write to {MAIL}, please"}, [MAIL]),
        ({"to": f"Mark <{MAIL}>; b@example.org"}, [MAIL, "b@example.org"]),
        ({"q": "see https://evil.example/a?b=c."}, ["https://evil.example/a?b=c"]),
        ({"q": "www.evil.example/a"}, ["www.evil.example/a"]),
        ({"q": "good@https://evil.example"}, ["https://evil.example", "good@https://evil.example"]),
        (
            {"url": "https://good.example@evil.example/x"},
            ["https://good.example@evil.example/x", "good.example@evil.example"],
        ),
        ({"note": "pay GB29NWBK60161331926819 now"}, ["GB29NWBK60161331926819"]),
        ({"note": "order AB12CDEFGHIJKLMNOP"}, []),
        ({"note": "pay GB29 NWBK 6016 1331 9268 19 now"}, ["GB29 NWBK 6016 1331 9268 19"]),
        ({"channel": "general"}, ["general"]),
        ({"webhook_url": "evil"}, ["evil"]),
        ({"sendTo": "evil"}, ["evil"]),
        ({"recipients": [{"email": "a"}, {"email": "b"}]}, ["a", "b"]),
        ({"phone": 4912345}, ["4912345"]),
        # Neither titles, ids, dates nor where something comes from.
        ({"title": "a sum", "event_id": "13", "user_id": "7", "from_account": "me", "sender": "me"}, []),
        ({"from": "2026-01-01", "to": "2026-02-01"}, []),
        ({"to": "  "}, []),
        ({}, []),
    ],
)
def test_destinations_of_arguments(args: dict[str, Any], found: list[str]) -> None:
    assert found_in(args) == found


OURS = ("write to boss@ours.example and see https://ours.example",)


@requirement("ACCESS-260", "ACCESS-261")
@pytest.mark.parametrize(
    "args",
    [
        # Where one reader ends an address, another goes on.
        *({"url": f"https://ours.example{mark}@evil.example/?d=s"} for mark in (*";,('|{", '"', "\\")),
        *({"body": f"see https://ours.example{mark}@evil.example/?d=s"} for mark in (*";|", "\\")),
        {"url": "https://ours.example\t.evil.example"},
        {"url": "evil.example/?d=s&r=https://ours.example"},
        {"url": "https:/evil.example/"},
        {"note": "open https:/evil.example/"},
        {"note": "open https:\\\\evil.example"},
        {"url": "2026-01-01.evil.example/?d=s"},
        {"host": "evil.example"},
        # More than one address in a value, and forms that few readers know.
        {"to": 'boss@ours.example, "m"@evil.example'},
        {"to": "boss@ours.example, m(c)@evil.example"},
        {"to": "boss@ours.example, m @ evil.example"},
        {"to": '"boss@ours.example" <m@[6.6.6.6]>'},
        {"to": "boss@ours.example, evil"},
        {"to": "boss@ours.example;evil"},
        # Keys, parts, and texts in texts.
        {"shares": {"m@evil.example": "reader"}},
        {"to": {"value": "evil"}},
        {"recipients": [{"name": "Evil", "id": "U666"}]},
        {"body": '{"to":"m\\u0040evil.example"}'},
        {"body": '{"to": "evil"}'},
        {"body": "to=m%40evil.example"},
        {"body": "https://ours.example/send?to=m@evil.example"},
        {"body": "https://ours.example/next?to=https%3A%2F%2Fevil.example"},
        # Names of arguments.
        {"channel_id": "C666"},
        {"chatId": "666666666"},
        {"phone_number": "+4966666666"},
        {"to_number": "+4966666666"},
        {"destination": "evil"},
        # Paths that lead back.
        {"url": "https://ours.example/a/../../b/.."},
    ],
)
def test_no_form_of_a_strange_destination_is_known(args: dict[str, Any]) -> None:
    said = (*OURS, "https://ours.example/a") if "/a/" not in str(args) else ("https://ours.example/a",)
    assert strange_after(args, said=said)


@requirement("ACCESS-260")
@pytest.mark.parametrize(
    "args",
    [
        *({"to": value} for value in ("tomorrow", "17:00", "USD", "fr", "2026/01/31", "31.12.2026", 100)),
        {"from": "2026-01-01T10:00:00Z", "to": "2026-01-31T10:00:00Z"},
        {"user": "me", "account": "default", "host": "localhost", "cc": "none"},
        {"code": "react@18.2.0 actions/checkout@v4.1 libfoo.so@GLIBC_2.4"},
        {"text": "@ann please look, and tell @bob"},
        {"path": "C:\\Users\\ann", "note": "either/or: //comment"},
        {"to": "Boss Ann <boss@ours.example>, boss@ours.example; BOSS@OURS.EXAMPLE"},
        {"url": "https://ours.example/a,b;c?d=e#f"},
    ],
)
def test_what_is_no_destination_or_known_in_any_form_is_not_asked_for(args: dict[str, Any]) -> None:
    assert strange_after(args, said=OURS) == []


@requirement("ACCESS-261")
@pytest.mark.parametrize(
    ("said", "args"),
    [
        ("README.md please", {"url": "https://readme.md/?d=s"}),
        ("https://bit.ly/AbC", {"url": "https://bit.ly/aBc"}),
        ("strasse.example", {"url": "https://stra\u00dfe.example"}),
        ("a.example/x?id=1", {"url": "https://a.example/x?id=2"}),
        ("http:///", {"url": "https:///evil.example/x"}),
        ("http:///", {"url": "http://u@[2001:db8::1]/"}),
    ],
)
def test_words_of_the_user_that_are_only_like_a_destination_are_another(said: str, args: dict[str, Any]) -> None:
    assert strange_after(args, said=(said,))
    assert strange_after(args, trusted=(said,))


@requirement("ACCESS-260")
def test_operators_name_further_arguments() -> None:
    rules = FlowRules(destinations={"shop:*": ["supplier"]})
    assert found_in({"supplier": "Evil"}) == []
    # All values of those, also where they would be none of an argument that is only named like a destination.
    assert found_in({"supplier": "me", "to": "me"}, frozenset(("supplier",))) == ["me"]
    assert found_in({"account": "123456", "channel": "OPS", "to": "123456"}) == ["123456", "OPS"]
    assert found_in({"supplier": "Evil"}, rules.names_in(tool_names("shop", "order"))) == ["Evil"]
    assert rules.names_in(tool_names("mail", "order")) == frozenset()


@requirement("ACCESS-260")
def test_nothing_hides_behind_a_thousand_known_destinations() -> None:
    rules = FlowRules(allow=["*@example.org"])
    for known in ("a@example.org " * 1_000, " ".join(f"a{number}@example.org" for number in range(1_000))):
        assert strange_after({"to": f"{known} {MAIL}"}, rules=rules) == ["200 destinations or more"]
    memory = SessionMemory()
    memory.learn(values_in(text_result("200 destinations or more\n"), {}))
    assert not memory.knows(destinations_in({"to": "a@example.org " * 1_000})[0])
    assert CallFlow("s", ("x",), destinations_in({"to": "a@example.org " * 1_000})).acceptable == ()


@requirement("ACCESS-260")
def test_only_urls_are_destinations_of_a_tool_that_reads() -> None:
    found = destinations_in({"user": "ann", "email": MAIL, "url": "https://a.example/", "site": "www.b.example"})
    assert [each.text for each in requests_among(found)] == ["https://a.example/", "www.b.example"]


@requirement("ACCESS-261")
@pytest.mark.parametrize(
    ("given", "strange"),
    [
        ({"said": (f"Write to {MAIL}.",)}, False),
        ({"said": ("Write to MARK.BLACK@EXAMPLE.NET!",)}, False),
        ({"trusted": (f"Mark: {MAIL}",)}, False),
        ({"trusted": (f"Mark: {MAIL}",), "strangers": (f"write {MAIL}",)}, False),
        ({"strangers": (f"write {MAIL}",)}, True),
        ({"strangers": ("write mark dot black at example dot net",)}, True),
        ({}, True),
        # Part of a longer address is another one.
        ({"said": (f"x{MAIL}",)}, True),
        ({"said": (f"{MAIL}.evil.example",)}, True),
        ({"trusted": (f"x{MAIL}",)}, True),
        # A letter that only looks the same makes another address.
        ({"said": (MAIL.replace("a", "\u0430"),)}, True),
        ({"rules": FlowRules(allow=["*@example.net"])}, False),
        ({"rules": FlowRules(allow=["*@example.org"])}, True),
    ],
)
def test_an_address_is_strange_unless_the_user_a_trusted_tool_or_the_list_names_it(
    given: dict[str, Any], strange: bool
) -> None:
    assert strange_after({"to": MAIL}, **given) == ([MAIL] if strange else [])


@requirement("ACCESS-261")
def test_a_look_alike_in_the_arguments_is_strange() -> None:
    forged = MAIL.replace("a", "\u0430")
    assert strange_after({"to": forged}, said=(MAIL,)) == [forged]


@requirement("ACCESS-261")
@pytest.mark.parametrize(
    ("said", "url", "strange"),
    [
        ("https://a.example", "https://a.example/b?c=d", False),
        ("look at a.example please", "https://a.example/b", False),
        ("https://a.example/ours", "https://a.example/ours/b", False),
        ("https://a.example/ours", "https://a.example/oursx", True),
        ("https://a.example/ours", "https://a.example/theirs", True),
        ("https://a.example/ours", "https://a.example/ours/../theirs", True),
        ("https://a.example/ours", "https://a.example/ours/%2e%2e/theirs", True),
        ("https://a.example/x?id=1", "https://a.example/x?id=2", True),
        ("https://a.example/x?id=1", "https://a.example/x?id=1", False),
        ("https://a.example", "https://a.example.evil.example/", True),
        ("https://a.example", "https://a.example@evil.example/", True),
        ("https://a.example", "https://evil.example/a.example", True),
        ("https://a.example", "https://evil.example/?https://a.example", True),
        ("write to bob@evil.example", "https://evil.example/", True),
    ],
)
def test_who_names_a_place_names_what_is_below_it(said: str, url: str, strange: bool) -> None:
    assert bool(strange_after({"url": url}, said=(said,))) is strange


@requirement("ACCESS-261")
@pytest.mark.parametrize(
    ("glob", "text", "fits"),
    [
        ("*@example.org", "a@example.org", True),
        ("*@example.org", "a@example.org.evil.example", False),
        ("https://*.example.org/*", "https://a.example.org/b", True),
        ("https://*.example.org/*", "https://a.example.org", True),
        ("https://*.example.org/*", "https://evil.example/.example.org/b", False),
        ("https://*.example.org/*", "https://evil.example?.example.org/b", False),
        ("https://*.example.org/*", "https://evil.example#.example.org/b", False),
        ("https://*.example.org/*", "https://a.example.org@evil.example/", False),
        ("https://*.example.org/*", "http://a.example.org/b", False),
        ("https://a.example/ours/*", "https://a.example/ours/../theirs", False),
        ("https://a.example/*", "https://a.example/x/../y", False),
        ("general", "general", True),
        ("team-*", "team-a", True),
        ("*@example.org", "general", False),
        ("*.example.org", "https://evil.example/?d=s&.example.org", False),
        ("*@example.org", '"m"@evil.example, "x"@example.org', False),
    ],
)
def test_no_star_of_the_list_reaches_over_the_borders_of_an_address(glob: str, text: str, fits: bool) -> None:
    found = destinations_in({"to": text})[0]
    assert FlowRules(allow=[glob]).allows(found) is fits


@requirement("ACCESS-261")
@pytest.mark.parametrize(
    ("said", "strange"),
    [("Post it to general.", False), ("in #general please", False), ("generally", True), ("general-private", True)],
)
def test_a_named_value_has_to_be_a_word_of_its_own(said: str, strange: bool) -> None:
    assert strange_after({"channel": "general"}, said=(said,)) == (["general"] if strange else [])


@requirement("ACCESS-261")
def test_values_of_up_to_four_words_of_trusted_results_are_known() -> None:
    trusted = ('{"channels": [{"name": "general", "topic": "All that is of interest to everybody here"}]}',)
    assert strange_after({"channel": "general"}, trusted=trusted) == []
    assert strange_after({"channel": "interest"}, trusted=trusted) == ["interest"]
    assert strange_after({"recipient": "Ann B. Smith"}, trusted=("Name: Ann B. Smith\nAge: 5",)) == []


@requirement("ACCESS-262")
def test_a_tool_is_not_the_source_of_what_it_was_asked() -> None:
    assert MAIL not in values_in(text_result(f"nothing found for {MAIL}"), {"q": MAIL})
    assert values_in({"structuredContent": {"query": "Evil Corp"}}, {"q": "evil corp"}) == []
    # Nor put together from what it was asked, in keys or in other spellings.
    no_contact = text_result("No contact n@evil.example")
    asked = ({"filter": {"n@evil.example": 1}}, {"first": "n", "company": "evil.example"}, {"q": "n%40evil.example"})
    for args in asked:
        assert "n@evil.example" not in values_in(no_contact, args)
    assert "n@evil.example" in values_in(no_contact, {"first": "ann"})


@requirement("ACCESS-262")
def test_bytes_and_meta_are_no_words() -> None:
    result = {"content": [{"type": "image", "data": MAIL, "mimeType": MAIL}], "_meta": {"a": MAIL}}
    assert values_in(result, {}) == []


@requirement("ACCESS-262")
def test_the_place_is_the_first_reading_that_holds_the_destination() -> None:
    memory, (found,) = SessionMemory(), destinations_in({"to": MAIL})
    memory.read(Place("web:get", 1.0, "r1"), values_in(text_result(MAIL), {}))
    memory.read(Place("web:find", 2.0, "r2"), values_in(text_result(MAIL), {}))
    memory.read(Place("web:get", 3.0, "r3"), values_in(text_result("nothing"), {}))
    place = memory.place_of(found)
    assert place is not None and (place.tool, place.correlation_id) == ("web:get", "r1")
    assert memory.place_of(Destination("b@example.org", ("b@example.org",))) is None


@requirement("ACCESS-262")
def test_a_memory_is_bounded_and_never_forgets_that_strangers_were_read() -> None:
    memory = SessionMemory()
    for number in range(3_000):
        reading = Place(f"web:get{number}", float(number), "r")
        memory.read(reading, [f"a{number}@example.org", f"b{number}@example.org"])
        memory.learn([f"c{number}@example.org"])
    assert (len(memory.seen), len(memory.places), len(memory.known)) == (200, 1_000, 2_000)
    old, new = (Destination(text, (text,)) for text in ("a1@example.org", "b2999@example.org"))
    assert memory.place_of(old) is None
    assert memory.place_of(new) is not None


@requirement("ACCESS-264")
def test_the_texts_name_the_destination_the_place_and_what_to_do() -> None:
    memory, found = SessionMemory(), destinations_in({"to": MAIL})
    memory.read(Place("web:get", 43_200.0, "req_1"), values_in(text_result(MAIL), {}))
    place = memory.place_of(found[0])
    assert place is not None
    flow = CallFlow("s", ("web:get",), found, {MAIL: place})
    why = f"The destination {MAIL} is not from the user, a trusted tool or the operator's list, and this session has "
    assert flow.for_model() == f"{why}read web:get."
    heard = CallFlow("s", ("web:get",), found, {MAIL: place}, hears=True)
    assert heard.for_model() == f"{why}read web:get. If the user named it, ask the user to write it."
    assert flow.for_person() == (
        f"It sends to {MAIL}. As far as the gate knows, nobody here named that. "
        "It stands in what web:get gave at 12:00 UTC, request req_1."
    )
    assert "put together" in CallFlow("s", ("web:get",), found).for_person()
    assert "cannot be looked up" in CallFlow("s", ("(not known)",), found, unknown=True).for_person()
    assert "has read web:get" in CallFlow("s", ("web:get",)).for_person()
    assert CallFlow("s").for_person() == CallFlow("s").for_model() == ""


@requirement("ACCESS-264")
def test_a_person_sees_every_destination_whole_or_how_many_there_are() -> None:
    many = destinations_in({"to": [f"a{number}@evil.example" for number in range(25)]})
    shown = CallFlow("s", ("web:get",), many).for_person()
    assert shown.count("It sends to") == 20
    assert shown.endswith("There are 5 more destinations that nobody named.")
    (long, *_) = destinations_in({"url": f"https://good.example:{'a' * 300}@evil.example/"})
    assert "It sends to evil.example: " in CallFlow("s", ("web:get",), [long]).for_person()
    (lying,) = destinations_in({"channel": "#general. The user named that at 13:58."})
    assert 'sends to "#general. The user named that at 13:58.". As far' in CallFlow("s", ("x",), [lying]).for_person()


@requirement("ACCESS-260")
def test_values_that_would_take_long_are_asked_for_without_going_through_them() -> None:
    long = "m@evil.example " * 50_000
    assert values_in(text_result(long), {"q": long}) == []
    assert strange_after({"to": long, "body": "[" * 5_000}, said=(long,)) == ["200 destinations or more"]
    some = " ".join(f"a{number}@x.example" for number in range(199))
    for more in ("@, " * 200_000, "x, " * 200_000, "http://" * 50_000, "a@" * 200_000):
        assert strange_after({"to": some + more, "body": some + more}, said=OURS)


@requirement("ACCESS-264")
def test_letters_that_only_look_alike_are_shown_as_what_they_are() -> None:
    (found,) = destinations_in({"to": "m\u0430rk@example.net"})
    assert "m\\u0430rk@example.net" in CallFlow("s", ("web:get",), [found]).for_person()


PLACES = st.sampled_from(
    ["a@x.example", "b@x.example", "https://x.example/a", "https://y.example/", "general", "Ann B"]
)
STEPS = st.lists(st.tuples(st.sampled_from(["said", "trusted", "stranger", "asked"]), PLACES), max_size=12)


@requirement("ACCESS-261")
@given(STEPS, PLACES)
def test_nothing_becomes_known_without_one_of_the_three_origins(steps: list[tuple[str, str]], wanted: str) -> None:
    memory, said = SessionMemory(), list[str]()
    for kind, place in steps:
        match kind:
            case "said":
                said.append(f"use {place} please")
            case "trusted":
                memory.learn(values_in(text_result(place), {}))
            case "stranger":
                memory.read(Place("web:get", 1.0, "r"), values_in(text_result(place), {}))
            case _:  # a trusted tool that repeats what it was asked
                memory.learn(values_in(text_result(f"no {place}"), {"q": place}))
    found = destinations_in({"channel": wanted})
    strange = strange_among(found, FlowRules(), memory.knows, said)
    named = any(kind in ("said", "trusted") and place == wanted for kind, place in steps)
    assert bool(strange) is not named


def test_the_name_that_becomes_known_is_no_wider_than_the_destination() -> None:
    assert destinations_in({"url": "https://x.example/a/b?c"})[0].names[-1] == "//x.example/a/b?c"


MAIL_WORDS = ("boss@ours.example", "m@evil.example", '"m"', "@evil.example", "evil.example", "x", "Boss", "[6.6.6.6]")
MAIL_PARTS = st.sampled_from([*MAIL_WORDS, "%40", *"@ ,;\"<>()\\\t\n:=.'"])
URL_WORDS = ("https:", "http:", "//", "ours.example", "evil.example", "ours.example:80", "..", "a", "%2e", "::1", "x=")
URL_PARTS = st.sampled_from([*URL_WORDS, *"/\\@?#:;, \t\n.[]'\"|{&"])
MINE = ("write to boss@ours.example or see https://ours.example/a and ours.example",)


@requirement("ACCESS-261")
@given(st.lists(MAIL_PARTS, max_size=8).map("".join))
def test_no_reader_of_mail_addresses_finds_a_strange_one_that_we_do_not(text: str) -> None:
    for _, address in getaddresses([text]):
        own, _, domain = address.rpartition("@")
        if own.strip() and domain.strip().endswith("evil.example"):
            assert strange_after({"to": text}, said=MINE)


@requirement("ACCESS-261")
@given(st.lists(URL_PARTS, max_size=8).map("".join))
def test_no_reader_of_urls_finds_a_strange_host_that_we_do_not(text: str) -> None:
    hosts = set[str]()
    for given_url in (text, f"//{text}"):
        with suppress(ValueError, httpx.InvalidURL):
            hosts |= {urlsplit(given_url).hostname or "", httpx.URL(given_url).host}
    if any("evil.example" in host for host in hosts):
        assert strange_after({"url": text}, said=MINE)
