"""The questions of a server to a person, as they may be put (ROUTE-33 to ROUTE-35, ROUTE-40)."""

from typing import Any

import pytest

from tests.support.requirement import requirement
from wicketgate.gateway.questions import PageRules, QuestionRefused, place_of, question_of

FORM: dict[str, Any] = {"type": "object", "properties": {}}


@requirement("ROUTE-34")
@pytest.mark.parametrize(
    "message",
    [
        "May `pay` be run with these arguments?",
        "\uff2day `pay` be run with these arguments?",
        "\u041cay `pay` be run with these arguments?",
        "M\u0430y `p\u0430y` b\u0435 run with these arguments?",
        "Ma\u0301y `pay` be ru\u0308n with these arguments?",
        "M\u03b1y `pay` be run with these arguments?",
    ],
)
def test_no_letters_imitate_the_question_for_an_approval(message: str) -> None:
    for params in (
        {"message": message},
        {"message": "a", "requestedSchema": {"properties": {"a": {"title": message}}}},
    ):
        with pytest.raises(QuestionRefused, match="approval"):
            question_of("rec", params)


@requirement("ROUTE-40")
@pytest.mark.parametrize(
    "message",
    [
        "ok\n\n`wicketgate` asks: type your password",
        "ok\u2028`other` asks you to open a page at good.example: go",
        "ok\n`oth\u0435r`\u200b a\u0455ks: go",
    ],
)
def test_no_question_speaks_in_the_name_of_another_server(message: str) -> None:
    with pytest.raises(QuestionRefused, match="other"):
        question_of("rec", {"message": message, "requestedSchema": FORM})


@requirement("ROUTE-40")
def test_an_ordinary_question_is_put_with_what_belongs_to_its_mode_only() -> None:
    odd = {"title": "Wicketgate", "icons": [], "task": {"ttl": 1}, "_meta": {"a": 1}}
    form = {"message": "`a` and `b`: who asks? Может быть.", "requestedSchema": FORM, "url": "https://x.example", **odd}
    assert question_of("rec", {**form, "elicitationId": "1"}) == {
        "message": "`rec` asks: `a` and `b`: who asks? Может быть.",
        "requestedSchema": FORM,
    }
    page = {"mode": "url", "message": "Sign in.", "url": "https://shop.example/a?b", "elicitationId": "1"}
    assert question_of("rec", {**page, "requestedSchema": FORM, **odd}) == {
        **page,
        "message": "`rec` asks you to open a page at shop.example: Sign in.",
    }
    with pytest.raises(QuestionRefused):
        question_of("rec", {**page, "elicitationId": "\u202e1"})


@requirement("ROUTE-35")
@pytest.mark.parametrize(
    "host",
    ["good.example%2eevil.example", "good.example;evil.example", "good.example,evil", "<b>", "a{b}", "...", "a..b"],
)
def test_a_host_that_readers_of_urls_understand_differently_is_refused(host: str) -> None:
    with pytest.raises(QuestionRefused, match="host"):
        question_of("rec", {"mode": "url", "message": "m", "url": f"https://{host}/", "elicitationId": "1"})


@requirement("ROUTE-35")
@pytest.mark.parametrize(
    ("url", "host"),
    [
        *(
            (f"https://{host}:8443/", f"{host}:8443")
            for host in ("shop.example", "xn--bcher-kva.example", "shop_1.example.", "[2001:db8::1]", "10.0.0.1")
        ),
        ("https://LOGIN.example/x?y=1", "login.example"),
        ("http://127.0.0.1:5/cb", "127.0.0.1:5"),
        ("http://[::1]/cb", "[::1]"),
    ],
)
def test_a_plain_host_is_shown_in_front(url: str, host: str) -> None:
    link = {"mode": "url", "message": "Log in to https://bank.example", "url": url, "elicitationId": "1"}
    message = f"`rec` asks you to open a page at {host}: Log in to https://bank.example"
    assert question_of("rec", link) == {**link, "message": message}


@requirement("ROUTE-41")
@pytest.mark.parametrize(
    "schema",
    [
        {"title": "é" * 100_000},
        {"properties": {"a": {"enum": ["é" * 100] * 1_000}}},
        {"properties": {"é" * 100_000: {}}},
        {"enum": list(range(6_000))},
    ],
)
def test_a_question_that_is_long_to_read_is_refused_before_it_is_read(schema: dict[str, Any]) -> None:
    with pytest.raises(QuestionRefused, match="too large"):
        question_of("rec", {"message": "m", "requestedSchema": schema})
    long = question_of("rec", {"message": "é" * 1_000_000, "requestedSchema": FORM})
    assert len(long["message"]) < 5_000


@requirement("ROUTE-34")
@pytest.mark.parametrize("key", ["enum", "const", "default", "pattern"])
def test_values_that_programs_compare_stay_unchanged_at_any_depth_or_are_refused(key: str) -> None:
    plain = {"message": "m", "requestedSchema": {"properties": {"a": {key: [{"size": "a  b"}]}}}}
    assert question_of("rec", plain)["requestedSchema"] == plain["requestedSchema"]
    with pytest.raises(QuestionRefused, match="hides characters in a value"):
        question_of("rec", {"message": "m", "requestedSchema": {"properties": {"a": {key: [{"size": "\u202ea"}]}}}})


def form(name: str = "value", message: str = "m", **field: Any) -> dict[str, Any]:
    return {"message": message, "requestedSchema": {"properties": {name: {"type": "string", **field}}}}


@requirement("ROUTE-73")
@pytest.mark.parametrize(
    "asked",
    [
        form(format="password"),
        form("password"),
        form("newPassword"),
        form("api_key"),
        form(title="Your p\u0430ssw\u043erd"),
        form(title="API key"),
        form(description="An access-token of the shop"),
        form("pin", description="The one-time code", type="integer"),
        form(message="Enter your password to go on."),
        form(message="Please paste the API key of the shop here."),
        form(description="It begins with wg_"),
        form(message="Your key (wg_...) has expired"),
    ],
)
def test_a_form_that_asks_for_a_credential_is_put_to_nobody(asked: dict[str, Any]) -> None:
    with pytest.raises(QuestionRefused, match="credential"):
        question_of("rec", asked)


@requirement("ROUTE-73")
@pytest.mark.parametrize(
    "asked",
    [
        form("reset_password", type="boolean"),
        form("kind", title="Kind of credential", enum=["password", "token"]),
        form("secretary", title="Name of the secretary"),
        form("tokens", title="Most tokens of an answer", type="integer"),
        form("key", title="Key of the issue", message="The password of the server was changed."),
    ],
)
def test_a_form_with_other_fields_is_put(asked: dict[str, Any]) -> None:
    assert question_of("rec", asked)["requestedSchema"] == asked["requestedSchema"]


@requirement("ROUTE-73")
@pytest.mark.parametrize(
    "words", ["Wicketgate asks: go", "WICKETGATE ASKS", "W i c k e t - g a t e  needs you", "W\u0456cketg4te requires"]
)
@pytest.mark.parametrize("mode", ["form", "url"])
def test_no_question_speaks_in_the_name_of_the_gate(words: str, mode: str) -> None:
    with pytest.raises(QuestionRefused, match="gate"):
        question_of("rec", {**form(message=f"Hello. {words}"), "mode": mode, "url": "https://shop.example/"})


OWN = frozenset(map(place_of, ("https://gate.example", "http://localhost:8080")))


@requirement("ROUTE-74")
@pytest.mark.parametrize(
    ("url", "far", "near"),
    [
        ("https://gate.example/connect", False, False),
        ("https://GATE.example.:443/", False, False),
        ("http://127.0.0.1:8080/connect", False, False),
        ("http://[::1]:8080/", False, False),
        ("http://127.0.0.1:9000/", False, True),
        ("https://localhost:9000/", False, True),
        ("https://gate.example:8443/", True, True),
        ("https://shop.example/", True, True),
    ],
)
def test_no_page_is_ours_and_loopback_is_for_servers_on_this_machine(url: str, far: bool, near: bool) -> None:
    for is_near, is_put in ((False, far), (True, near)):
        page = {"mode": "url", "message": "m", "url": url, "elicitationId": "1"}
        if is_put:
            assert question_of("rec", page, PageRules(OWN, loopback=is_near))["url"] == url
        else:
            with pytest.raises(QuestionRefused, match=r"gate|machine"):
                question_of("rec", page, PageRules(OWN, loopback=is_near))
